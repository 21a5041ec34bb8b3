// The texts of the explorable ring: the precautions that can be removed, and descriptions of the moves.
const RingWords = (() => {
  const R = RingModel;
  const ONE_KILL = { crashes: 1 };
  const AN_HEIR = { adds: [[1, 1], [1]], crashes: 1, heirs: 1, heirAdds: [1, 1] };
  const MASSES = { crashes: 1, masses: true };

  // [mutation, name in the list, effect of removing it, configuration]
  const PRECAUTIONS = {
    "Memory ordering": [
      [
        "no fence after the swap",
        "the fence after the swap",
        "The held stamp and the words may now become visible in any order, so new words can appear under the old stamp.",
        ONE_KILL,
      ],
      [
        "publish without release",
        "release ordering of the publishing store",
        "The published stamp may now become visible before the words.",
        ONE_KILL,
      ],
      [
        "publish before the words",
        "storing the words before publishing",
        "The writer now publishes first and stores the words afterwards.",
        ONE_KILL,
      ],
      [
        "mass after publication",
        "storing the mass before publishing",
        "The writer now stores the mass after publishing.",
        MASSES,
      ],
      [
        "first check without acquire",
        "acquire ordering of the first check",
        "The sampler may now load words before its first check of the stamp.",
        ONE_KILL,
      ],
      [
        "no fence before the second check",
        "the fence before the second check",
        "The sampler may now make its second check before it has loaded the words.",
        ONE_KILL,
      ],
      [
        "no second check",
        "the second check",
        "The sampler no longer checks whether the stamp has changed.",
        ONE_KILL,
      ],
      [
        "second check before the words",
        "loading the words before the second check",
        "The sampler now checks the stamp twice and loads the words afterwards.",
        ONE_KILL,
      ],
    ],
    Decisions: [
      [
        "take slots of living writers",
        "skipping slots of living writers",
        "A writer now takes a slot even if another writer is using it.",
        ONE_KILL,
      ],
      [
        "held stamp without owner",
        "the owner in the held stamp",
        "A held stamp no longer identifies the writer that holds the slot.",
        ONE_KILL,
      ],
      [
        "no test for a newer index",
        "the test for a newer row",
        "A writer that was paused for a whole lap no longer notices that the slot contains a newer row.",
        ONE_KILL,
      ],
      [
        "slots of dead writers are skipped",
        "freeing slots of dead writers",
        "Slots that a killed writer held are now skipped, as if it were alive.",
        ONE_KILL,
      ],
      [
        "number reused without freeing",
        "freeing slots before a writer number is reused",
        "A new process now gets the number of a dead one while slots are still held under it.",
        AN_HEIR,
      ],
      [
        "free by a store instead of a swap",
        "freeing by a swap",
        "A slot is now freed by a plain store, even if its stamp has changed in the meantime.",
        AN_HEIR,
      ],
      [
        "wait for the holder",
        "skipping instead of waiting",
        "A writer now waits for the writer that holds its slot.",
        ONE_KILL,
      ],
    ],
  };
  const WHOLE = { mutation: null, text: "The protocol as implemented in the package.", configuration: ONE_KILL };

  function precaution(mutation) {
    const row = Object.values(PRECAUTIONS)
      .flat()
      .find(([name]) => name === mutation);
    return row ? { mutation, text: row[2], configuration: row[3] } : WHOLE;
  }

  const nameOf = (actor) => (actor === "sampler" ? "Sampler" : `Writer ${letter(actor)}`);
  const letter = (actor) => "ABCDEFGH"[actor];
  const WORDS = { [R.WORD_1]: "word 1", [R.WORD_2]: "word 2", [R.MASS]: "mass" };

  function stamp(value) {
    if (value === 0) return "never written";
    const index = R.indexOf(value);
    if (!R.isHeld(value)) return `${index} published`;
    if (R.ownerOf(value) === R.NOBODY) return `${index} held, no owner`;
    return `${index} held by ${letter(R.ownerOf(value) - 1)}`;
  }

  // The next action of a writer, shown below its name.
  function situation(model, writer) {
    if (writer.step === "dead") return "killed";
    if (writer.step === "done") return "finished";
    if (writer.step === "inherit") return "new process";
    if (writer.step === "reserve") return `adds ${writer.adds.reduce((sum, rows) => sum + rows, 0)} more`;
    return `row ${writer.reserved[0]} → slot ${writer.reserved[0] % model.capacity}`;
  }

  // The text of the button of a move.
  function label(model, state, move) {
    if (move.kind === "load") {
      if (move.load === R.FIRST) return `check stamp ${move.slot}`;
      return move.load === R.SECOND ? "check again" : `load ${WORDS[move.load]}`;
    }
    const writer = state.writers[move.actor];
    const slot = writer.reserved[0] % model.capacity;
    return {
      reserve: () => "reserve an index",
      read_stamp: () => `check stamp ${slot}`,
      swap: () => "swap in own stamp",
      test_holder: () => "is the holder alive?",
      free: () => `free slot ${slot}`,
      store: () =>
        ({ hold: "store held stamp", publish: "publish" })[move.which] ?? `store ${WORDS[move.which]}`,
      inherit: () => "free an inherited slot",
      kill: () => "kill",
      heir: () => "new process, same number",
    }[move.kind]();
  }

  // The line of the log for a move that was made.
  function story(model, state, move) {
    if (move.actor === "sampler") return `Sampler ${storyOfLoad(model, move)}`;
    const writer = state.writers[move.actor];
    const after = move.after.writers[move.actor];
    const index = writer.reserved[0];
    const slot = index % model.capacity;
    const happened = {
      reserve: () =>
        `reserves index ${after.reserved.join(", ")}: row ${after.reserved[0]} goes to slot ${after.reserved[0] % model.capacity}.`,
      read_stamp: () => `checks slot ${slot}: ${stamp(state.stamps[slot])}. ${afterRead(after)}`,
      swap: () =>
        after.step === "read_stamp"
          ? "tries to swap, but the stamp has changed. It checks again."
          : `swaps its stamp into slot ${slot}.`,
      test_holder: () => afterTest(after),
      free: () =>
        move.after.stamps[slot] === state.stamps[slot]
          ? "tries to free the slot, but the stamp has changed. It checks again."
          : `frees slot ${slot}: no writer holds it now. It checks again.`,
      store: () => storyOfStore(writer, move, slot, index),
      inherit: () =>
        after.step === "reserve"
          ? "finds no more slots of the dead process and starts to add rows."
          : "frees a slot that the dead process held.",
      kill: () => "is killed. Its stores that are not yet visible are lost.",
      heir: () => "starts: a new process with the number of the dead one.",
    };
    return `${nameOf(move.actor)} ${happened[move.kind]()}`;
  }

  function afterRead(writer) {
    if (writer.step === "swap") return "The writer may take it.";
    return writer.step === "test_holder"
      ? "Another writer holds it."
      : "It contains a newer row, so the writer drops its own.";
  }

  function afterTest(writer) {
    if (writer.step === "free") return "finds the holder dead.";
    return writer.step === "read_stamp"
      ? "finds the holder alive and waits: it checks again."
      : "finds the holder alive and skips the slot. Its row gets a new index at the end.";
  }

  function storyOfStore(writer, move, slot, index) {
    if (move.which === "publish") return `publishes row ${index} in slot ${slot}.`;
    if (move.which === "hold") return `stores its held stamp in slot ${slot}.`;
    return `stores ${WORDS[move.which]} of row ${index} in slot ${slot}.`;
  }

  function storyOfLoad(model, { load, slot, loaded, violation }) {
    const value = loaded[load + 1];
    const isCheck = load === R.FIRST || load === R.SECOND;
    const seen = isCheck
      ? `checks slot ${slot}: ${stamp(value)}.`
      : `loads ${WORDS[load]} of slot ${slot}: ${word(value)}.`;
    return `${seen} ${verdict(model, loaded, violation)}`.trim();
  }

  // The result of reading a row; "" while loads are missing.
  function verdict(model, loaded, violation) {
    const [, , , first, second] = loaded;
    if (violation) return `It returns the row as row ${R.indexOf(first)}, which it is not.`;
    if (first !== R.NOTHING && !R.mayBeRead(first)) return "The slot contains no complete row: it draws again.";
    if (!model.isComplete(loaded)) return "";
    return second === first || second === R.NOTHING
      ? `It returns row ${R.indexOf(first)}, complete.`
      : "The stamp has changed: it draws again.";
  }

  const word = (value) =>
    value === R.NEVER_WRITTEN || value === R.NOTHING ? "never written" : `from row ${value}`;

  function fault(violation) {
    const waits = violation.match(/^writer (\d+) waits/);
    if (!waits) return `${violation[0].toUpperCase()}${violation.slice(1)}.`;
    return `${nameOf(Number(waits[1]))} waits for another writer: running alone, it would check for ever.`;
  }

  return { PRECAUTIONS, precaution, nameOf, letter, stamp, situation, label, story, verdict, fault };
})();
