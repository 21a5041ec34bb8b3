"""The protocol of the shared ring as a small state machine.

Writers, their crashes and one sampler take turns in every possible order, one memory operation at a time. A
process that is not scheduled is a stopped one, so stops need no step of their own. The stamps have the layout
of `replay_tutorial.shared.protocol`; a row's words and mass are just its index.

How the machine's memory is modelled:

- What a writer stores waits until it becomes visible to all others at once. The order is free, within what a
  fence or a release allows: `pending` is a sequence of groups, and a store may become visible only while it
  is in the first.
- A swap compares with the newest stamp, visible or not: a word has one order of changes, even without fences.
- The loads of the sampler happen in any order that an acquire or a fence does not forbid.
- A killed writer's pending stores are lost, even such as a machine must complete: more can go wrong here than
  there.

Left out: loads of a writer that come before its own publication. A writer's next look at a stamp may be
early, but it is no more than a hint to the swap that follows, and both fetch_add and swap release.
"""

from collections.abc import Iterator

from replay_tutorial.shared.protocol import (
    NOBODY,
    abandoned,
    held_stamp,
    index_of,
    is_held,
    owner_of,
    published_stamp,
)
from replay_tutorial.teaching.protocol_states import (
    DEAD,
    DONE,
    FIRST,
    FREE,
    HOLD,
    INHERIT,
    LOOK,
    MASS,
    MUTATIONS,
    NOTHING,
    PUBLISH,
    RESERVE,
    SECOND,
    STORE,
    SWAP,
    TEST_HOLDER,
    WORD_1,
    WORD_2,
    Configuration,
    State,
    Writer,
    after_look,
    may_be_read,
    put,
)

NOBODY_GOES_ON = -1


class Violation(Exception):
    """An invariant that does not hold.

    Attributes:
        after: The state that the breaking operation leads to, if there is one.
    """

    after: State | None = None


class Model:
    """The protocol in one configuration, whole or with one mutation.

    A step of a writer is a method: `_look` for LOOK, and so on.
    """

    def __init__(self, configuration: Configuration, mutation: str | None = None) -> None:
        if mutation not in (None, *MUTATIONS):
            raise ValueError(f"There is no mutation {mutation!r}.")
        self.configuration = configuration
        self.capacity = configuration.capacity
        self.mutation = mutation
        self.stores = self._stores()
        self.loads_before = self._loads_before()

    def _stores(self) -> tuple[tuple[str | int, ...], ...]:
        """Return what a writer stores after its swap, in groups with a fence or a release between."""
        row = (WORD_1, WORD_2, MASS) if self.configuration.masses else (WORD_1, WORD_2)
        return {
            "no fence after the swap": ((HOLD, *row), (PUBLISH,)),
            "publish without release": ((HOLD,), (*row, PUBLISH)),
            "publish before the words": ((HOLD,), (PUBLISH,), row),
            "mass after publication": ((HOLD,), (WORD_1, WORD_2), (PUBLISH,), (MASS,)),
        }.get(self.mutation or "", ((HOLD,), row, (PUBLISH,)))

    def _loads_before(self) -> dict[int, tuple[int, ...]]:
        """Return the sampler's loads, and which of them must have happened before each."""
        loads = {FIRST: (), WORD_1: (FIRST,), WORD_2: (FIRST,), SECOND: (FIRST, WORD_1, WORD_2)}
        if self.mutation == "no second look":
            del loads[SECOND]
        elif self.mutation == "no fence before the second look":
            loads[SECOND] = (FIRST,)
        elif self.mutation == "second look before the words":
            loads |= {SECOND: (FIRST,), WORD_1: (SECOND,), WORD_2: (SECOND,)}
        elif self.mutation == "first look without acquire":
            loads |= {WORD_1: (), WORD_2: ()}
        return loads

    def start(self) -> State:
        """Return the empty ring, with every writer before its first call."""
        return State(
            0,
            (0,) * self.capacity,
            (NOTHING,) * (3 * self.capacity),
            tuple(Writer(RESERVE, adds) for adds in self.configuration.adds),
            None,
            self.configuration.crashes,
            self.configuration.heirs,
        )

    def successors(self, state: State) -> Iterator[tuple[int, State]]:
        """Return every state that is one memory operation, or one crash, away.

        With each comes the number of the writer that goes on; NOBODY_GOES_ON for what is not a writer's step.
        """
        for number, writer in enumerate(state.writers):
            if writer.step == DEAD:
                if state.heirs:
                    yield NOBODY_GOES_ON, self._begin_heir(state, number)
                continue
            if writer.step != DONE:
                for after in self.steps(state, number):
                    yield number, after
                if state.crashes:
                    after = self._changed(state, number, Writer(DEAD))
                    yield NOBODY_GOES_ON, after._replace(crashes=state.crashes - 1)
        for after in self._sampler_steps(state):
            yield NOBODY_GOES_ON, after

    def steps(self, state: State, number: int) -> Iterator[State]:
        """Return what the next operation of one writer can lead to."""
        writer = state.writers[number]
        if writer.step == STORE:
            for which in writer.pending[0]:
                yield self._store(state, number, which)
        else:
            yield getattr(self, "_" + writer.step)(state, number, writer)

    def _changed(self, state: State, number: int, writer: Writer) -> State:
        return state._replace(writers=put(state.writers, number, writer))

    def _next_row(self, writer: Writer, passed: int) -> Writer:
        """Go on to the next row of the call, to the rows passed over, or to the next call."""
        reserved, passed = writer.reserved[1:], writer.passed + passed
        if reserved:
            return Writer(LOOK, writer.adds, reserved, passed)
        adds = (passed, *writer.adds) if passed and self.capacity > 1 else writer.adds
        return Writer(RESERVE if adds else DONE, adds)

    def _reserve(self, state: State, number: int, writer: Writer) -> State:
        first, count = state.next_index, writer.adds[0]
        reserved = tuple(range(first + max(0, count - self.capacity), first + count))
        after = self._changed(state, number, Writer(LOOK, writer.adds[1:], reserved))
        return after._replace(next_index=first + count)

    def _look(self, state: State, number: int, writer: Writer) -> State:
        index = writer.reserved[0]
        stamp = state.stamps[index % self.capacity]
        step = after_look(stamp, index)
        if step == DONE and self.mutation == "no test for being lapped":
            step = TEST_HOLDER if is_held(stamp) else SWAP
        if step == DONE:
            return self._changed(state, number, self._next_row(writer, 0))
        if step == TEST_HOLDER and self.mutation == "take what a living writer holds":
            step = SWAP
        return self._changed(state, number, writer._replace(step=step, seen=stamp))

    def _swap(self, state: State, number: int, writer: Writer) -> State:
        index = writer.reserved[0]
        slot = index % self.capacity
        if self._newest_stamp(state, slot) != writer.seen:
            return self._changed(state, number, writer._replace(step=LOOK, seen=0))
        after = self._changed(state, number, writer._replace(step=STORE, seen=0, pending=self.stores))
        # With a fence behind it, a swap that is not yet visible can't be told from one that has not happened
        # yet.
        return self._store(after, number, HOLD) if self.stores[0] == (HOLD,) else after

    def _newest_stamp(self, state: State, slot: int) -> int:
        for number, writer in enumerate(state.writers):
            if writer.pending and HOLD in writer.pending[0] and writer.reserved[0] % self.capacity == slot:
                return held_stamp(writer.reserved[0], number + 1)
        return state.stamps[slot]

    def _store(self, state: State, number: int, which: str | int) -> State:
        """Let one pending store of a writer become visible."""
        writer = state.writers[number]
        index = writer.reserved[0]
        slot = index % self.capacity
        rest = tuple(other for other in writer.pending[0] if other != which)
        pending = (rest, *writer.pending[1:]) if rest else writer.pending[1:]
        after = writer._replace(pending=pending) if pending else self._next_row(writer, 0)
        state = self._changed(state, number, after)
        if isinstance(which, int):
            return state._replace(words=put(state.words, 3 * slot + which, index))
        ownerless = self.mutation == "held stamp without owner"
        holding = held_stamp(index, NOBODY if ownerless else number + 1)
        stamp = holding if which == HOLD else published_stamp(index)
        if index_of(stamp) < index_of(state.stamps[slot]):
            raise Violation(f"older row over a newer one: {index} in slot {slot}")
        return state._replace(stamps=put(state.stamps, slot, stamp))

    def _test_holder(self, state: State, number: int, writer: Writer) -> State:
        holder = state.writers[owner_of(writer.seen) - 1]
        if holder.step in (DEAD, INHERIT) and self.mutation != "dead writers' slots are passed over":
            return self._changed(state, number, writer._replace(step=FREE))
        if self.mutation == "wait for the holder":
            return self._changed(state, number, writer._replace(step=LOOK, seen=0))
        return self._changed(state, number, self._next_row(writer, 1))

    def _free(self, state: State, number: int, writer: Writer) -> State:
        slot = writer.reserved[0] % self.capacity
        after = self._changed(state, number, writer._replace(step=LOOK, seen=0))
        if state.stamps[slot] == writer.seen or self.mutation == "free by a store instead of a swap":
            return after._replace(stamps=put(state.stamps, slot, abandoned(writer.seen)))
        return after

    def _begin_heir(self, state: State, number: int) -> State:
        skip = self.mutation == "number inherited without freeing"
        heir = Writer(RESERVE if skip else INHERIT, self.configuration.heir_adds)
        return self._changed(state, number, heir)._replace(heirs=state.heirs - 1)

    def _inherit(self, state: State, number: int, heir: Writer) -> State:
        """Free the next slot that the number's last process held; without one, begin to work."""
        for slot, stamp in enumerate(state.stamps):
            if is_held(stamp) and owner_of(stamp) == number + 1:
                return state._replace(stamps=put(state.stamps, slot, abandoned(stamp)))
        return self._changed(state, number, heir._replace(step=RESERVE))

    def _sampler_steps(self, state: State) -> Iterator[State]:
        if state.sampler is None:
            for slot in range(self.capacity):
                yield from self._loads(state, (slot, NOTHING, NOTHING, NOTHING, NOTHING))
        else:
            yield from self._loads(state, state.sampler)

    def _loads(self, state: State, sampler: tuple[int, ...]) -> Iterator[State]:
        slot, done = sampler[0], sampler[1:]
        for load, before in self.loads_before.items():
            if done[load] != NOTHING or any(done[other] == NOTHING for other in before):
                continue
            value = state.words[3 * slot + load] if load < FIRST else state.stamps[slot]
            if load < FIRST and value == NOTHING:
                value = -2  # read, and never written
            after: tuple[int, ...] | None = put(sampler, load + 1, value)
            try:
                if (load == FIRST and not may_be_read(value)) or self._is_done(after[1:]):
                    after = None
            except Violation as violation:
                violation.after = state._replace(sampler=after)
                raise
            if after != state.sampler:
                yield state._replace(sampler=after)

    def _is_done(self, loaded: tuple[int, ...]) -> bool:
        """Return whether the sampler's loads are complete; if so, check the row that it would return."""
        if any(loaded[load] == NOTHING for load in self.loads_before):
            return False
        word_1, word_2, first, second = loaded
        if second not in (first, NOTHING):
            return True
        index = index_of(first)
        if word_1 != word_2:
            raise Violation(f"torn row: words of {word_1} and {word_2} returned as row {index}")
        if word_1 < 0:
            raise Violation("never-written row returned")
        if word_1 != index:
            raise Violation(f"wrong index: row {word_1} returned as row {index}")
        return True

    def check(self, state: State) -> None:
        """Raise Violation if an invariant of states does not hold."""
        for slot, stamp in enumerate(state.stamps):
            right = not self.configuration.masses or state.words[3 * slot + MASS] == index_of(stamp)
            if may_be_read(stamp) and not right:
                raise Violation(f"wrong mass beside the row published in slot {slot}")
        storing = [w.reserved[0] % self.capacity for w in state.writers if w.step == STORE]
        if len(set(storing)) < len(storing):
            raise Violation(f"two living writers write to slot {storing[0]}")

    def check_end(self, state: State) -> None:
        """Once all have ended: raise Violation unless a new writer gets a row into every slot."""
        number = len(state.writers)
        newcomer = Writer(RESERVE, (self.capacity,))
        after = state._replace(writers=(*state.writers, newcomer))
        while after.writers[number].step != DONE:
            if after.next_index > state.next_index + self.capacity:
                raise Violation("lost slot: a new writer passes over it, and nobody alive works on it")
            after = next(iter(self.steps(after, number)))
