"""A model of the shared ring's protocol: a state machine whose steps are single memory operations.

In the model, writers, kills of writers and one sampler interleave in every possible order. A stopped process
is one that is not scheduled, so stops need no step of their own. Stamps have the layout of
`replay_tutorial.shared.protocol`; the words and the mass of a row all equal its index.

The memory model:

- A store stays pending until it becomes visible to all other processes at once. Stores may become visible in
  any order that fences and releases allow: `pending` is a sequence of groups, and only stores in the first
  group may become visible.
- A swap compares with the newest stamp, visible or not, because all processes agree on the order of changes
  to a single word.
- The sampler's loads run in any order that no acquire or fence forbids.
- The pending stores of a killed writer are lost, although a real machine may complete them. The model is
  therefore weaker than any machine.

Left out: loads of a writer that run before its own publication. An early read of a stamp is harmless, because
the swap that follows checks the stamp, and both `fetch_add` and the swap release.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from replay_tutorial.shared.protocol import (
    NOBODY,
    abandoned,
    held_stamp,
    index_of,
    is_held,
    owner_of,
    published_stamp,
)

NO_WRITER = -1
NOTHING = -1  # a word never written, or a load not yet made

# The next operation of a writer.
RESERVE, READ_STAMP, SWAP, TEST_HOLDER, FREE, STORE, DONE, DEAD, INHERIT = (
    "reserve", "read_stamp", "swap", "test_holder", "free", "store", "done", "dead", "inherit",
)  # fmt: skip
# The stores of a writer, and the loads of the sampler.
HOLD, WORD_1, WORD_2, MASS, PUBLISH = "hold", 0, 1, 2, "publish"
FIRST, SECOND = 2, 3  # the sampler's two checks of the stamp; it also loads WORD_1 and WORD_2

# Each mutation removes one precaution from the protocol; the explorer must find a violation.
MUTATIONS = (
    "publish without release",
    "publish before the words",
    "mass after publication",
    "no fence after the swap",
    "first check without acquire",
    "no second check",
    "no fence before the second check",
    "second check before the words",
    "take slots of living writers",
    "held stamp without owner",
    "number reused without freeing",
    "slots of dead writers are skipped",
    "no test for a newer index",
    "free by a store instead of a swap",
    "wait for the holder",
)


class Configuration(NamedTuple):
    """Size of the model to explore.

    Attributes:
        capacity: Number of slots.
        adds: For each writer, the number of rows in each of its calls of `append`.
        crashes: Maximum number of writers that are killed.
        heirs: Maximum number of killed writers that are replaced by a new process with the same number.
        heir_adds: Number of rows in each call of such a process.
        masses: Whether rows have a mass. Without masses there are fewer states, so more rows can be explored.
    """

    capacity: int
    adds: tuple[tuple[int, ...], ...]
    crashes: int = 0
    heirs: int = 0
    heir_adds: tuple[int, ...] = (1,)
    masses: bool = True


class Writer(NamedTuple):
    """A writer between two memory operations."""

    step: str
    adds: tuple[int, ...] = ()  # rows in each of the remaining calls
    reserved: tuple[int, ...] = ()  # indexes of the current row and of the remaining rows of this call
    skipped: int = 0  # rows of this call whose slot was held by another writer
    seen: int = 0  # the stamp when it was last read
    pending: tuple[tuple[str | int, ...], ...] = ()  # stores not yet visible


class State(NamedTuple):
    """The complete state of the model."""

    next_index: int
    stamps: tuple[int, ...]
    words: tuple[int, ...]  # [capacity * 3]: the two words and the mass of each slot
    writers: tuple[Writer, ...]
    sampler: tuple[int, ...] | None  # slot, words 1 and 2, first and second check; None between rows
    crashes: int
    heirs: int


def replace_item(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """Return a copy of the tuple with one item replaced."""
    return (*values[:place], value, *values[place + 1 :])


def step_after_read(stamp: int, index: int) -> str:
    """Return the next operation of a writer that has read this stamp, or DONE if it must drop its row."""
    if stamp >= published_stamp(index):
        return DONE
    return TEST_HOLDER if is_held(stamp) and owner_of(stamp) != NOBODY else SWAP


def may_be_read(stamp: int) -> bool:
    """Return whether the stamp is that of a published row."""
    return not is_held(stamp) and stamp > 0


class Violation(Exception):
    """A violated invariant.

    Attributes:
        after: The state after the violating load, or None if the violation is not caused by a load.
    """

    after: State | None = None


class Model:
    """The protocol in one configuration, complete or with one mutation.

    Each operation of a writer has a method: `_read_stamp` for READ_STAMP, and so on.
    """

    def __init__(self, configuration: Configuration, mutation: str | None = None) -> None:
        if mutation not in (None, *MUTATIONS):
            raise ValueError(f"There is no mutation {mutation!r}; choose one of {', '.join(MUTATIONS)}.")
        self.configuration = configuration
        self.capacity = configuration.capacity
        self.mutation = mutation
        self.stores = self._stores()
        self.loads_before = self._loads_before()

    def _stores(self) -> tuple[tuple[str | int, ...], ...]:
        """Return the stores of a writer after its swap, in groups separated by a fence or a release."""
        row = (WORD_1, WORD_2, MASS) if self.configuration.masses else (WORD_1, WORD_2)
        return {
            "no fence after the swap": ((HOLD, *row), (PUBLISH,)),
            "publish without release": ((HOLD,), (*row, PUBLISH)),
            "publish before the words": ((HOLD,), (PUBLISH,), row),
            "mass after publication": ((HOLD,), (WORD_1, WORD_2), (PUBLISH,), (MASS,)),
        }.get(self.mutation or "", ((HOLD,), row, (PUBLISH,)))

    def _loads_before(self) -> dict[int, tuple[int, ...]]:
        """Return the sampler's loads, and for each the loads that must come before it."""
        loads = {FIRST: (), WORD_1: (FIRST,), WORD_2: (FIRST,), SECOND: (FIRST, WORD_1, WORD_2)}
        if self.mutation == "no second check":
            del loads[SECOND]
        elif self.mutation == "no fence before the second check":
            loads[SECOND] = (FIRST,)
        elif self.mutation == "second check before the words":
            loads |= {SECOND: (FIRST,), WORD_1: (SECOND,), WORD_2: (SECOND,)}
        elif self.mutation == "first check without acquire":
            loads |= {WORD_1: (), WORD_2: ()}
        return loads

    def start(self) -> State:
        """Return the initial state: an empty ring, and every writer before its first call."""
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
        """Yield every state that one memory operation or one kill leads to.

        Yields:
            The number of the writer that made the step, or NO_WRITER, and the new state.
        """
        for number, writer in enumerate(state.writers):
            if writer.step == DEAD:
                if state.heirs:
                    yield NO_WRITER, self._begin_heir(state, number)
                continue
            if writer.step != DONE:
                for after in self.steps(state, number):
                    yield number, after
                if state.crashes:
                    after = self._changed(state, number, Writer(DEAD))
                    yield NO_WRITER, after._replace(crashes=state.crashes - 1)
        for after in self._sampler_steps(state):
            yield NO_WRITER, after

    def steps(self, state: State, number: int) -> Iterator[State]:
        """Yield the states that the next operation of one writer can lead to."""
        writer = state.writers[number]
        if writer.step == STORE:
            for which in writer.pending[0]:
                yield self._store(state, number, which)
        else:
            yield getattr(self, "_" + writer.step)(state, number, writer)

    def _changed(self, state: State, number: int, writer: Writer) -> State:
        return state._replace(writers=replace_item(state.writers, number, writer))

    def _next_row(self, writer: Writer, skipped: int) -> Writer:
        """Return the writer at its next row: of this call, of the skipped rows, or of its next call."""
        reserved, skipped = writer.reserved[1:], writer.skipped + skipped
        if reserved:
            return Writer(READ_STAMP, writer.adds, reserved, skipped)
        adds = (skipped, *writer.adds) if skipped and self.capacity > 1 else writer.adds
        return Writer(RESERVE if adds else DONE, adds)

    def _reserve(self, state: State, number: int, writer: Writer) -> State:
        first, count = state.next_index, writer.adds[0]
        reserved = tuple(range(first + max(0, count - self.capacity), first + count))
        after = self._changed(state, number, Writer(READ_STAMP, writer.adds[1:], reserved))
        return after._replace(next_index=first + count)

    def _read_stamp(self, state: State, number: int, writer: Writer) -> State:
        index = writer.reserved[0]
        stamp = state.stamps[index % self.capacity]
        step = step_after_read(stamp, index)
        if step == DONE and self.mutation == "no test for a newer index":
            step = TEST_HOLDER if is_held(stamp) else SWAP
        if step == DONE:
            return self._changed(state, number, self._next_row(writer, 0))
        if step == TEST_HOLDER and self.mutation == "take slots of living writers":
            step = SWAP
        return self._changed(state, number, writer._replace(step=step, seen=stamp))

    def _swap(self, state: State, number: int, writer: Writer) -> State:
        index = writer.reserved[0]
        slot = index % self.capacity
        if self._newest_stamp(state, slot) != writer.seen:
            return self._changed(state, number, writer._replace(step=READ_STAMP, seen=0))
        after = self._changed(state, number, writer._replace(step=STORE, seen=0, pending=self.stores))
        # If a fence follows, a swap that is not yet visible is equivalent to one that has not happened.
        return self._store(after, number, HOLD) if self.stores[0] == (HOLD,) else after

    def _newest_stamp(self, state: State, slot: int) -> int:
        for number, writer in enumerate(state.writers):
            if writer.pending and HOLD in writer.pending[0] and writer.reserved[0] % self.capacity == slot:
                return held_stamp(writer.reserved[0], number + 1)
        return state.stamps[slot]

    def _store(self, state: State, number: int, which: str | int) -> State:
        """Make one pending store of a writer visible."""
        writer = state.writers[number]
        index = writer.reserved[0]
        slot = index % self.capacity
        rest = tuple(other for other in writer.pending[0] if other != which)
        pending = (rest, *writer.pending[1:]) if rest else writer.pending[1:]
        after = writer._replace(pending=pending) if pending else self._next_row(writer, 0)
        state = self._changed(state, number, after)
        if isinstance(which, int):
            return state._replace(words=replace_item(state.words, 3 * slot + which, index))
        ownerless = self.mutation == "held stamp without owner"
        holding = held_stamp(index, NOBODY if ownerless else number + 1)
        stamp = holding if which == HOLD else published_stamp(index)
        if index_of(stamp) < index_of(state.stamps[slot]):
            raise Violation(f"decreasing index: row {index} overwrites a newer row in slot {slot}")
        return state._replace(stamps=replace_item(state.stamps, slot, stamp))

    def _test_holder(self, state: State, number: int, writer: Writer) -> State:
        holder = state.writers[owner_of(writer.seen) - 1]
        if holder.step in (DEAD, INHERIT) and self.mutation != "slots of dead writers are skipped":
            return self._changed(state, number, writer._replace(step=FREE))
        if self.mutation == "wait for the holder":
            return self._changed(state, number, writer._replace(step=READ_STAMP, seen=0))
        return self._changed(state, number, self._next_row(writer, 1))

    def _free(self, state: State, number: int, writer: Writer) -> State:
        slot = writer.reserved[0] % self.capacity
        after = self._changed(state, number, writer._replace(step=READ_STAMP, seen=0))
        if state.stamps[slot] == writer.seen or self.mutation == "free by a store instead of a swap":
            return after._replace(stamps=replace_item(state.stamps, slot, abandoned(writer.seen)))
        return after

    def _begin_heir(self, state: State, number: int) -> State:
        skip = self.mutation == "number reused without freeing"
        heir = Writer(RESERVE if skip else INHERIT, self.configuration.heir_adds)
        return self._changed(state, number, heir)._replace(heirs=state.heirs - 1)

    def _inherit(self, state: State, number: int, heir: Writer) -> State:
        """Free the next slot that the number's previous process held, or start to add if there is none."""
        for slot, stamp in enumerate(state.stamps):
            if is_held(stamp) and owner_of(stamp) == number + 1:
                return state._replace(stamps=replace_item(state.stamps, slot, abandoned(stamp)))
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
                value = -2  # loaded, but never written
            after: tuple[int, ...] | None = replace_item(sampler, load + 1, value)
            try:
                if (load == FIRST and not may_be_read(value)) or self._is_done(after[1:]):
                    after = None
            except Violation as violation:
                violation.after = state._replace(sampler=after)
                raise
            if after != state.sampler:
                yield state._replace(sampler=after)

    def _is_done(self, loaded: tuple[int, ...]) -> bool:
        """Return whether all loads of the sampler are made; if so, check the row that it would return."""
        if any(loaded[load] == NOTHING for load in self.loads_before):
            return False
        word_1, word_2, first, second = loaded
        if second not in (first, NOTHING):
            return True
        index = index_of(first)
        if word_1 != word_2:
            raise Violation(f"torn row: words of {word_1} and {word_2} returned as row {index}")
        if word_1 < 0:
            raise Violation("row never written, but returned")
        if word_1 != index:
            raise Violation(f"wrong index: row {word_1} returned as row {index}")
        return True

    def check(self, state: State) -> None:
        """Raise Violation if the state violates an invariant."""
        for slot, stamp in enumerate(state.stamps):
            right = not self.configuration.masses or state.words[3 * slot + MASS] == index_of(stamp)
            if may_be_read(stamp) and not right:
                raise Violation(f"wrong mass for the row published in slot {slot}")
        storing = [w.reserved[0] % self.capacity for w in state.writers if w.step == STORE]
        if len(set(storing)) < len(storing):
            raise Violation(f"two living writers write to slot {storing[0]}")

    def check_end(self, state: State) -> None:
        """Raise Violation unless a new writer can fill every slot after all other writers have ended."""
        number = len(state.writers)
        newcomer = Writer(RESERVE, (self.capacity,))
        after = state._replace(writers=(*state.writers, newcomer))
        while after.writers[number].step != DONE:
            if after.next_index > state.next_index + self.capacity:
                raise Violation("lost slot: a new writer skips it, and no living writer holds it")
            after = next(iter(self.steps(after, number)))
