// What the explorable ring says: the precautions that can be taken out, and the moves in words.
const RingWords = (() => {
  const R = RingModel;
  const ONE_KILL = { crashes: 1 };
  const AN_HEIR = { adds: [[1, 1], [1]], crashes: 1, heirs: 1, heirAdds: [1, 1] };
  const MASSES = { crashes: 1, masses: true };

  // [mutation, name in the list, what it takes out, configuration]
  const PRECAUTIONS = {
    "Memory orders": [
      [
        "no fence after the swap",
        "the fence after the swap",
        "The held stamp and the words may now be stored in any order: new words can stand under the old stamp.",
        ONE_KILL,
      ],
      [
        "publish without release",
        "the release of the publication",
        "The published stamp may now be stored before the words.",
        ONE_KILL,
      ],
      [
        "publish before the words",
        "words before the publication",
        "The writer now publishes first and stores the words after that.",
        ONE_KILL,
      ],
      [
        "mass after publication",
        "mass before the publication",
        "The writer now stores the mass after it has published.",
        MASSES,
      ],
      [
        "first look without acquire",
        "the acquire of the first look",
        "The sampler may now load words before its first look at the stamp.",
        ONE_KILL,
      ],
      [
        "no fence before the second look",
        "the fence before the second look",
        "The sampler's second look may now come before it has loaded the words.",
        ONE_KILL,
      ],
      [
        "no second look",
        "the second look",
        "The sampler no longer looks whether the stamp has changed.",
        ONE_KILL,
      ],
      [
        "second look before the words",
        "words before the second look",
        "The sampler now looks twice and loads the words after that.",
        ONE_KILL,
      ],
    ],
    Decisions: [
      [
        "take what a living writer holds",
        "pass over what a living writer holds",
        "A writer now takes a slot even if another one works on it.",
        ONE_KILL,
      ],
      [
        "held stamp without owner",
        "the owner in the held stamp",
        "Nobody can tell any more who holds a slot.",
        ONE_KILL,
      ],
      [
        "no test for being lapped",
        "the test for a newer row",
        "A writer that was stopped for a lap no longer sees that a newer row is there.",
        ONE_KILL,
      ],
      [
        "dead writers' slots are passed over",
        "free the slots of the dead",
        "What a killed writer held is now passed over, as if it lived.",
        ONE_KILL,
      ],
      [
        "number inherited without freeing",
        "free before a number is inherited",
        "A new process now gets a dead one's number while slots still bear it.",
        AN_HEIR,
      ],
      [
        "free by a store instead of a swap",
        "free by a swap",
        "A slot is now freed by a plain store, even if it has changed meanwhile.",
        AN_HEIR,
      ],
      [
        "wait for the holder",
        "pass over, do not wait",
        "A writer now waits for whoever holds its slot.",
        ONE_KILL,
      ],
    ],
  };
  const WHOLE = { mutation: null, text: "The protocol as it is in the package.", configuration: ONE_KILL };

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
    return `${index} held by ${R.ownerOf(value) === R.NOBODY ? "nobody" : letter(R.ownerOf(value) - 1)}`;
  }

  // What a writer is about to do, beside its name.
  function situation(model, writer) {
    if (writer.step === "dead") return "killed";
    if (writer.step === "done") return "has finished";
    if (writer.step === "inherit") return "new process";
    if (writer.step === "reserve") return `has ${writer.adds.reduce((sum, rows) => sum + rows, 0)} to add`;
    return `row ${writer.reserved[0]} → slot ${writer.reserved[0] % model.capacity}`;
  }

  // A move before it is made: the text of its button.
  function label(model, state, move) {
    if (move.kind === "load") {
      if (move.load === R.FIRST) return `look at stamp ${move.slot}`;
      return move.load === R.SECOND ? "look again" : `load ${WORDS[move.load]}`;
    }
    const writer = state.writers[move.actor];
    const slot = writer.reserved[0] % model.capacity;
    return {
      reserve: () => "reserve an index",
      look: () => `look at stamp ${slot}`,
      swap: () => "swap in own stamp",
      test_holder: () => "does the holder live?",
      free: () => `free slot ${slot}`,
      store: () =>
        ({ hold: "store held stamp", publish: "publish" })[move.which] ?? `store ${WORDS[move.which]}`,
      inherit: () => "free a slot of the dead",
      kill: () => "kill",
      heir: () => "new process, same number",
    }[move.kind]();
  }

  // A move once it is made: what happened.
  function story(model, state, move) {
    if (move.actor === "sampler") return `Sampler: ${storyOfLoad(model, move)}`;
    const writer = state.writers[move.actor];
    const after = move.after.writers[move.actor];
    const index = writer.reserved[0];
    const slot = index % model.capacity;
    const happened = {
      reserve: () =>
        `reserves index ${after.reserved.join(", ")}: row ${after.reserved[0]} goes to slot ${after.reserved[0] % model.capacity}.`,
      look: () => `looks at slot ${slot}: ${stamp(state.stamps[slot])}. ${afterLook(after)}`,
      swap: () =>
        after.step === "look"
          ? "swaps in vain: the stamp has changed. Looks again."
          : `swaps its stamp into slot ${slot}.`,
      test_holder: () => afterTest(after),
      free: () =>
        move.after.stamps[slot] === state.stamps[slot]
          ? "frees in vain: the stamp has changed. Looks again."
          : `frees slot ${slot}: nobody holds it now. Looks again.`,
      store: () => storyOfStore(writer, move, slot, index),
      inherit: () =>
        after.step === "reserve"
          ? "finds no more slots of the dead, and begins to work."
          : "frees a slot that the dead process held.",
      kill: () => "is killed. Its stores that are not yet done are lost.",
      heir: () => "begins: a new process with the dead one's number.",
    };
    return `${nameOf(move.actor)} ${happened[move.kind]()}`;
  }

  function afterLook(writer) {
    if (writer.step === "swap") return "It may be taken.";
    return writer.step === "test_holder"
      ? "Somebody holds it."
      : "A newer row is there: it leaves its row out.";
  }

  function afterTest(writer) {
    if (writer.step === "free") return "finds the holder dead.";
    return writer.step === "look"
      ? "finds the holder alive, and waits: it looks again."
      : "finds the holder alive, and passes over. Its row gets a new index at the end.";
  }

  function storyOfStore(writer, move, slot, index) {
    if (move.which === "publish") return `publishes row ${index} in slot ${slot}.`;
    if (move.which === "hold") return `stores its held stamp in slot ${slot}.`;
    return `stores ${WORDS[move.which]} of row ${index} in slot ${slot}.`;
  }

  function storyOfLoad(model, { load, slot, loaded, violation }) {
    const value = loaded[load + 1];
    const isLook = load === R.FIRST || load === R.SECOND;
    const seen = isLook
      ? `looks at slot ${slot}: ${stamp(value)}.`
      : `loads ${WORDS[load]} of slot ${slot}: ${word(value)}.`;
    return `${seen} ${verdict(model, loaded, violation)}`.trim();
  }

  // What becomes of a row that is being read; "" if its loads are not complete.
  function verdict(model, loaded, violation) {
    const [, , , first, second] = loaded;
    if (violation) return `Returns it as row ${R.indexOf(first)}, and it is not.`;
    if (first !== R.NOTHING && !R.mayBeRead(first)) return "No whole row: draws again.";
    if (!model.isComplete(loaded)) return "";
    return second === first || second === R.NOTHING
      ? `Returns row ${R.indexOf(first)}, whole.`
      : "The stamp has changed: draws again.";
  }

  const word = (value) =>
    value === R.NEVER_WRITTEN || value === R.NOTHING ? "never written" : `of row ${value}`;

  function fault(violation) {
    const waits = violation.match(/^writer (\d+) waits/);
    if (!waits) return `${violation[0].toUpperCase()}${violation.slice(1)}.`;
    return `${nameOf(Number(waits[1]))} waits for another: on its own, it looks and asks for ever.`;
  }

  return { PRECAUTIONS, precaution, nameOf, letter, stamp, situation, label, story, verdict, fault };
})();
