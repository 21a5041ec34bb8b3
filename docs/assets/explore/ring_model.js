// The model behind the explorable ring: the protocol of the shared ring as a state machine.
//
// It has the same states, moves and mutations as the Python model (replay_course), which documents
// the memory model; tests/test_explorables.py compares the two. Here a stamp fits into 32 bits.
//
// state   { nextIndex, stamps[slot], words[3 * slot + 0, 1, 2], writers, sampler, crashes, heirs }
// writer  { step, adds, reserved, skipped, seen, pending }: pending are stores that are not yet visible, in groups
//         separated by fences; only stores of the first group may become visible
// sampler null, or [slot, word 1, word 2, first check, second check]
const RingModel = (() => {
  const { NOTHING, NEVER_WRITTEN, NOBODY, WORD_1, WORD_2, MASS, FIRST, SECOND } = RingStamps;
  const { publishedStamp, heldStamp, indexOf, ownerOf, isHeld, abandoned, mayBeRead } = RingStamps;

  const put = (values, place, value) => values.map((old, i) => (i === place ? value : old));
  const newWriter = (step, adds = [], reserved = [], skipped = 0) => ({
    step,
    adds,
    reserved,
    skipped,
    seen: 0,
    pending: [],
  });
  const hasEnded = (writer) => writer.step === "done" || writer.step === "dead";

  // The stores of a writer after its swap, in groups separated by a fence or a release.
  function storesOf(row, mutation) {
    const stores = {
      "no fence after the swap": [["hold", ...row], ["publish"]],
      "publish without release": [["hold"], [...row, "publish"]],
      "publish before the words": [["hold"], ["publish"], row],
      "mass after publication": [["hold"], [WORD_1, WORD_2], ["publish"], [MASS]],
    };
    return stores[mutation] ?? [["hold"], row, ["publish"]];
  }

  // The sampler's loads, and for each the loads that must come before it.
  function loadsOf(mutation) {
    const [first, word1, word2, second] = {
      "no second check": [[], [FIRST], [FIRST]],
      "no fence before the second check": [[], [FIRST], [FIRST], [FIRST]],
      "second check before the words": [[], [SECOND], [SECOND], [FIRST]],
      "first check without acquire": [[], [], [], [FIRST, WORD_1, WORD_2]],
    }[mutation] ?? [[], [FIRST], [FIRST], [FIRST, WORD_1, WORD_2]];
    const loads = [
      [FIRST, first],
      [WORD_1, word1],
      [WORD_2, word2],
    ];
    return second ? [...loads, [SECOND, second]] : loads;
  }

  class Model {
    constructor(configuration, mutation = null) {
      Object.assign(this, {
        capacity: 2,
        adds: [
          [1, 1],
          [1, 1],
        ],
        crashes: 0,
        heirs: 0,
        heirAdds: [1],
        masses: false,
      });
      Object.assign(this, configuration, { mutation });
      this.stores = storesOf(this.masses ? [WORD_1, WORD_2, MASS] : [WORD_1, WORD_2], mutation);
      this.loads = loadsOf(mutation);
    }

    // The initial state: an empty ring, and every writer before its first call.
    start() {
      return {
        nextIndex: 0,
        stamps: new Array(this.capacity).fill(0),
        words: new Array(3 * this.capacity).fill(NOTHING),
        writers: this.adds.map((adds) => newWriter("reserve", adds)),
        sampler: null,
        crashes: this.crashes,
        heirs: this.heirs,
      };
    }

    // Every memory operation and every crash that can come next: { actor, kind, after } and fields that depend on
    // the kind; `violation` is the invariant that the move violates. A check of a slot without a complete row
    // changes nothing: its `after` is the same state.
    moves(state) {
      const moves = [];
      state.writers.forEach((writer, actor) => {
        if (writer.step === "dead") {
          if (state.heirs) moves.push({ actor, kind: "heir", after: this.beginHeir(state, actor) });
        } else if (writer.step !== "done") {
          moves.push(...this.stepsOf(state, actor));
          if (state.crashes) {
            const after = this.changed(state, actor, newWriter("dead"));
            moves.push({ actor, kind: "kill", after: { ...after, crashes: state.crashes - 1 } });
          }
        }
      });
      return [...moves, ...this.samplerMoves(state)];
    }

    stepsOf(state, actor) {
      const writer = state.writers[actor];
      const kind = writer.step;
      if (kind !== "store" && kind !== "swap")
        return [{ actor, kind, after: this[kind](state, actor, writer) }];
      const stores = kind === "store" ? writer.pending[0] : [null];
      return stores.map((which) => {
        const after = which === null ? this.swap(state, actor, writer) : this.store(state, actor, which);
        return { actor, kind, which, after, violation: this.faultOfStamps(state, after) };
      });
    }

    faultOfStamps(state, after) {
      const slot = after.stamps.findIndex((stamp, slot) => indexOf(stamp) < indexOf(state.stamps[slot]));
      return slot < 0 ? null : `decreasing index: row ${indexOf(after.stamps[slot])} overwrites a newer row in slot ${slot}`;
    }

    changed(state, actor, writer) {
      return { ...state, writers: put(state.writers, actor, writer) };
    }

    // Continues with the next row of the call, the skipped rows, or the next call.
    nextRow(writer, skippedNow) {
      const reserved = writer.reserved.slice(1);
      const skipped = writer.skipped + skippedNow;
      if (reserved.length) return newWriter("read_stamp", writer.adds, reserved, skipped);
      const adds = skipped && this.capacity > 1 ? [skipped, ...writer.adds] : writer.adds;
      return newWriter(adds.length ? "reserve" : "done", adds);
    }

    reserve(state, actor, writer) {
      const [first, count] = [state.nextIndex, writer.adds[0]];
      const reserved = [];
      for (let index = first + Math.max(0, count - this.capacity); index < first + count; index++)
        reserved.push(index);
      const after = this.changed(state, actor, newWriter("read_stamp", writer.adds.slice(1), reserved));
      return { ...after, nextIndex: first + count };
    }

    read_stamp(state, actor, writer) {
      const index = writer.reserved[0];
      const stamp = state.stamps[index % this.capacity];
      const lapped = stamp >= publishedStamp(index) && this.mutation !== "no test for a newer index";
      if (lapped) return this.changed(state, actor, this.nextRow(writer, 0));
      // Without the test for a newer row, a writer that was lapped treats even a slot without an owner as held.
      const held = isHeld(stamp) && (ownerOf(stamp) !== NOBODY || stamp >= publishedStamp(index));
      const step = held && this.mutation !== "take slots of living writers" ? "test_holder" : "swap";
      return this.changed(state, actor, { ...writer, step, seen: stamp });
    }

    swap(state, actor, writer) {
      const slot = writer.reserved[0] % this.capacity;
      if (this.newestStamp(state, slot) !== writer.seen) {
        return this.changed(state, actor, { ...writer, step: "read_stamp", seen: 0 });
      }
      const after = this.changed(state, actor, { ...writer, step: "store", seen: 0, pending: this.stores });
      // Because a fence follows, a swap that is not yet visible is equivalent to one that has not happened.
      return this.stores[0].length === 1 ? this.store(after, actor, "hold") : after;
    }

    newestStamp(state, slot) {
      for (const [actor, writer] of state.writers.entries()) {
        const hidden = writer.pending.length && writer.pending[0].includes("hold");
        if (hidden && writer.reserved[0] % this.capacity === slot)
          return heldStamp(writer.reserved[0], actor + 1);
      }
      return state.stamps[slot];
    }

    // Makes one pending store of a writer visible.
    store(state, actor, which) {
      const writer = state.writers[actor];
      const index = writer.reserved[0];
      const slot = index % this.capacity;
      const rest = writer.pending[0].filter((other) => other !== which);
      const pending = rest.length ? [rest, ...writer.pending.slice(1)] : writer.pending.slice(1);
      state = this.changed(state, actor, pending.length ? { ...writer, pending } : this.nextRow(writer, 0));
      if (typeof which === "number") return { ...state, words: put(state.words, 3 * slot + which, index) };
      const owner = this.mutation === "held stamp without owner" ? NOBODY : actor + 1;
      const stamp = which === "hold" ? heldStamp(index, owner) : publishedStamp(index);
      return { ...state, stamps: put(state.stamps, slot, stamp) };
    }

    test_holder(state, actor, writer) {
      const holder = state.writers.at(ownerOf(writer.seen) - 1);
      const isDead = holder.step === "dead" || holder.step === "inherit";
      if (isDead && this.mutation !== "slots of dead writers are skipped") {
        return this.changed(state, actor, { ...writer, step: "free" });
      }
      if (this.mutation === "wait for the holder")
        return this.changed(state, actor, { ...writer, step: "read_stamp", seen: 0 });
      return this.changed(state, actor, this.nextRow(writer, 1));
    }

    free(state, actor, writer) {
      const slot = writer.reserved[0] % this.capacity;
      const after = this.changed(state, actor, { ...writer, step: "read_stamp", seen: 0 });
      const free =
        state.stamps[slot] === writer.seen || this.mutation === "free by a store instead of a swap";
      return free ? { ...after, stamps: put(state.stamps, slot, abandoned(writer.seen)) } : after;
    }

    // Starts a new process with the number of a dead one.
    beginHeir(state, actor) {
      const step = this.mutation === "number reused without freeing" ? "reserve" : "inherit";
      return { ...this.changed(state, actor, newWriter(step, this.heirAdds)), heirs: state.heirs - 1 };
    }

    // Frees the next slot that the previous process with this number held, or starts to add rows if there is none.
    inherit(state, actor, heir) {
      const slot = state.stamps.findIndex((stamp) => isHeld(stamp) && ownerOf(stamp) === actor + 1);
      if (slot < 0) return this.changed(state, actor, { ...heir, step: "reserve" });
      return { ...state, stamps: put(state.stamps, slot, abandoned(state.stamps[slot])) };
    }

    samplerMoves(state) {
      if (state.sampler) return this.loadMoves(state, state.sampler);
      return state.stamps.flatMap((_, slot) =>
        this.loadMoves(state, [slot, NOTHING, NOTHING, NOTHING, NOTHING]),
      );
    }

    loadMoves(state, sampler) {
      const done = (load) => sampler[load + 1] !== NOTHING;
      return this.loads
        .filter(([load, before]) => !done(load) && before.every(done))
        .map(([load]) => {
          const slot = sampler[0];
          const word = load < FIRST ? state.words[3 * slot + load] : state.stamps[slot];
          const value = load < FIRST && word === NOTHING ? NEVER_WRITTEN : word;
          const loaded = put(sampler, load + 1, value);
          const move = { actor: "sampler", kind: "load", load, slot, loaded };
          const violation = this.faultOfRead(loaded);
          if (violation) return { ...move, violation, after: { ...state, sampler: loaded } };
          const ends = (load === FIRST && !mayBeRead(value)) || this.isComplete(loaded);
          const after = ends ? null : loaded;
          return { ...move, after: after === state.sampler ? state : { ...state, sampler: after } };
        });
    }

    isComplete(loaded) {
      return this.loads.every(([load]) => loaded[load + 1] !== NOTHING);
    }

    // The fault of the row that these loads would return; null if it is correct or no row is returned.
    faultOfRead(loaded) {
      const [, word1, word2, first, second] = loaded;
      if (!mayBeRead(first) || !this.isComplete(loaded) || (second !== first && second !== NOTHING))
        return null;
      const index = indexOf(first);
      if (word1 !== word2) return `torn row: words of ${word1} and ${word2} returned as row ${index}`;
      if (word1 < 0) return "row never written, but returned";
      return word1 === index ? null : `wrong index: row ${word1} returned as row ${index}`;
    }

    // The violated invariant of a state, including those of final states if all have ended; null if none.
    faultOf(state) {
      for (const [slot, stamp] of state.stamps.entries()) {
        const right = !this.masses || state.words[3 * slot + MASS] === indexOf(stamp);
        if (mayBeRead(stamp) && !right) return `wrong mass for the row published in slot ${slot}`;
      }
      const storing = state.writers
        .filter((w) => w.step === "store")
        .map((w) => w.reserved[0] % this.capacity);
      if (new Set(storing).size < storing.length) return `two living writers write to slot ${storing[0]}`;
      return state.writers.every(hasEnded) ? this.faultOfEnd(state) : null;
    }

    // After all have ended, a new writer must be able to write to every slot.
    faultOfEnd(state) {
      const newcomer = state.writers.length;
      let after = { ...state, writers: [...state.writers, newWriter("reserve", [this.capacity])] };
      while (after.writers[newcomer].step !== "done") {
        if (after.nextIndex > state.nextIndex + this.capacity) {
          return "lost slot: a new writer skips it, and no living writer holds it";
        }
        after = this.stepsOf(after, newcomer)[0].after;
      }
      return null;
    }
  }

  return { Model, ...RingStamps };
})();
