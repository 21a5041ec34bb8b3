"""The log of updates: no order of operations gives a tree the mass of another row, or one that is too old.

A model of one updater and one sampler, whose steps are single memory operations. Stores become visible in any
order that releases and fences allow, and those of a killed updater are lost. The sampler is a generator that
yields the places of its loads; its loads run in program order, because each is an acquire or comes before
a fence. Stamps are those of published rows, as `test_ring_protocol` covers the writing of rows.

Each mutation takes one precaution out of the protocol, and must be caught.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numba
import pytest
from test_ring_protocol import orders_of

from replay_tutorial.shared.sampler import begin_log, read_log, updated_mass, write_back

CAPACITY, LENGTH = 2, 2  # slots, entries of the log
# Places in the memory. An owner is the index + 1 of the row that has the mass; a stamp is the index of a row.
BEGUN, END, ENTRIES, OWNERS, MASSES, STAMPS = 0, 1, 2, 4, 6, 8
NO_ROWS = ((-1, 0),) * CAPACITY
# A mass contains its update and its row: NUMBER * number + index. Number 0 is that of initial masses.
NUMBER = 100


class Configuration(NamedTuple):
    """The indexes of each update, the rows that writers add after rows 0 and 1, and the number of kills."""

    updates: tuple[tuple[int, ...], ...]
    added: int = 0
    kills: int = 0


class Store(NamedTuple):
    """A store of the updater, and which earlier stores must be visible before it, as bits."""

    place: int
    value: int
    after: int


class State(NamedTuple):
    memory: tuple[int, ...]
    updates: int  # begun so far
    stores: tuple[Store, ...]  # of the current update
    visible: int  # which of them are visible, as bits
    kills: int
    settled: tuple[int, ...]  # the newest mass of each row by an update that has returned
    tree: tuple[tuple[int, int], ...]  # index and mass of the row that the sampler knows in each slot
    followed: int
    required: tuple[int, ...]  # `settled` when the current call of the sampler began
    loaded: tuple[int, ...]  # what the current call has loaded


class Violation(Exception):
    pass


class Model:
    def __init__(self, configuration: Configuration, mutation: str | None = None) -> None:
        self.configuration, self.mutation = configuration, mutation

    def start(self) -> State:
        memory = (0,) * STAMPS + tuple(range(CAPACITY))
        settled = tuple(range(CAPACITY + self.configuration.added))
        return State(memory, 0, (), 0, self.configuration.kills, settled, NO_ROWS, 0, (), ())

    def stores_of_update(self, memory: tuple[int, ...], number: int, indexes: tuple[int, ...]) -> list[Store]:
        """Return the stores of `update_rows`, in program order."""
        stores = list[Store]()
        fence = 0  # stores before the last fence

        def store(place: int, value: int, release: bool = False) -> None:
            same = sum(1 << i for i, earlier in enumerate(stores) if earlier.place == place)
            stores.append(Store(place, value, (1 << len(stores)) - 1 if release else fence | same))

        begun, owners = memory[BEGUN], list(memory[OWNERS:MASSES])
        if begun != memory[END] and self.mutation != "log of a dead updater goes on":
            begun += LENGTH
        store(BEGUN, begun + len(indexes), release=True)
        if self.mutation != "entries before the announcement":
            fence = (1 << len(stores)) - 1
        for i, index in enumerate(indexes):
            slot = index % CAPACITY
            if memory[STAMPS + slot] == index:
                if owners[slot] != index + 1 and self.mutation != "index of the old row not cleared":
                    store(OWNERS + slot, 0, release=True)
                    if self.mutation != "mass before the index is cleared":
                        fence = (1 << len(stores)) - 1
                store(MASSES + slot, NUMBER * number + index)
                store(OWNERS + slot, index + 1, release=self.mutation != "index before the mass")
                owners[slot] = index + 1
            store(ENTRIES + (begun + i) % LENGTH, index)
        store(END, begun + len(indexes), release=self.mutation != "log ends before the masses")
        return stores

    def updated_mass(self, slot: int, index: int, initial: int) -> Generator[int, int, int]:
        early = (yield MASSES + slot) if self.mutation == "mass read before its index" else None
        if (yield OWNERS + slot) != index + 1:
            return initial
        mass = (yield MASSES + slot) if early is None else early
        if self.mutation == "index not read again":
            return mass
        return mass if (yield OWNERS + slot) == index + 1 else initial

    def sync(
        self, tree: tuple[tuple[int, int], ...], followed: int
    ) -> Generator[int, int, tuple[tuple[tuple[int, int], ...], int]]:
        """The sampler's `sync_tree`: yield the places of its loads; return the new tree, and `followed`."""
        known, begun = list(tree), None
        end = followed if self.mutation == "masses read before the log's end" else (yield END)
        if self.mutation == "entries read after the announcement":
            begun = yield BEGUN
        entries = list[int]()
        for position in range(followed, min(end, followed + LENGTH)):
            entries.append((yield ENTRIES + position % LENGTH))
        begun = (yield BEGUN) if begun is None else begun
        lapped = end != followed and begun - followed > LENGTH and self.mutation != "lapped log is followed"
        for slot in range(CAPACITY):
            stamp = yield STAMPS + slot
            if lapped or known[slot][0] != stamp:
                mass = yield from self.updated_mass(slot, stamp, initial=stamp)
                known[slot] = (stamp, mass) if (yield STAMPS + slot) == stamp else (-1, 0)
        for index in entries:
            slot = index % CAPACITY
            if known[slot][0] == index:
                known[slot] = index, (yield from self.updated_mass(slot, index, known[slot][1]))
        if self.mutation == "masses read before the log's end":
            end = yield END
        return tuple(known), end

    def successors(self, state: State) -> Iterator[State]:
        memory, configuration = state.memory, self.configuration
        for slot in range(CAPACITY):
            index = memory[STAMPS + slot] + CAPACITY
            if index < CAPACITY + configuration.added:
                yield state._replace(memory=changed(memory, STAMPS + slot, index))
        if state.stores:
            for i, (place, value, after) in enumerate(state.stores):
                if not state.visible >> i & 1 and after & ~state.visible == 0:
                    yield self.with_store(state, i, place, value)
            if state.kills:
                yield state._replace(stores=(), visible=0, kills=state.kills - 1)
        elif state.updates < len(configuration.updates):
            indexes = configuration.updates[state.updates]
            stores = self.stores_of_update(memory, state.updates + 1, indexes)
            yield state._replace(updates=state.updates + 1, stores=tuple(stores))
        yield self.after_load(state)

    def with_store(self, state: State, i: int, place: int, value: int) -> State:
        visible = state.visible | 1 << i
        after = state._replace(memory=changed(state.memory, place, value), visible=visible)
        if visible != (1 << len(state.stores)) - 1:
            return after
        settled = list(state.settled)
        for store in state.stores:
            if MASSES <= store.place < STAMPS:
                settled[store.value % NUMBER] = store.value
        return after._replace(stores=(), visible=0, settled=tuple(settled))

    def after_load(self, state: State) -> State:
        """Let the sampler load once more; check its tree when its call returns."""
        required = state.required if state.loaded else state.settled
        call = self.sync(state.tree, state.followed)
        place = next(call)
        try:
            for value in state.loaded:
                place = call.send(value)
            loaded = (*state.loaded, state.memory[place])
            call.send(loaded[-1])
        except StopIteration as returned:
            tree, followed = returned.value
            for slot, (index, mass) in enumerate(tree):
                if index >= 0 and mass % NUMBER != index:
                    raise Violation("mass of another row") from None
                # A row that has been replaced meanwhile can't be read, so it won't be returned.
                if index == state.memory[STAMPS + slot] and mass < required[index]:
                    raise Violation("mass that is too old") from None
            return state._replace(tree=tree, followed=followed, required=(), loaded=())
        return state._replace(required=required, loaded=loaded)

    def run_alone(self, state: State, tree: tuple[tuple[int, int], ...], followed: int) -> object:
        call = self.sync(tree, followed)
        place = next(call)
        while True:
            try:
                place = call.send(state.memory[place])
            except StopIteration as returned:
                return returned.value[0]

    def check(self, state: State) -> None:
        """Between two calls, and two updates, the sampler's next tree is that of a new process."""
        if state.stores or state.loaded or state.memory[BEGUN] != state.memory[END]:
            return
        if self.run_alone(state, state.tree, state.followed) != self.run_alone(state, NO_ROWS, 0):
            raise Violation("trees that differ")


def changed(memory: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*memory[:place], value, *memory[place + 1 :])


def explore(configuration: Configuration, mutation: str | None = None) -> tuple[str, int]:
    """Visit every reachable state; return the first violation, or "", and the number of states."""
    model = Model(configuration, mutation)
    states = [model.start()]
    seen = set(states)
    try:
        for state in states:
            model.check(state)
            for after in model.successors(state):
                if after not in seen:
                    seen.add(after)
                    states.append(after)
    except Violation as violation:
        return str(violation), len(states)
    return "", len(states)


TWO_ROWS = Configuration(((0, 1), (0,), (1,)))
REPLACED = Configuration(((0,), (2,)), added=1)
LAPPED = Configuration(((0,), (1,), (1,), (1,)))
REPEATED = Configuration(((0, 0), (0,), (1, 0)))
KILLED = Configuration(((0,), (1,), (0,)), kills=1)
KILLED_TWICE = Configuration(((0, 1), (0,)), kills=2)
KILLED_AND_REPLACED = Configuration(((0,), (2,), (2,)), added=1, kills=1)


@pytest.mark.parametrize(
    "configuration", [TWO_ROWS, REPLACED, LAPPED, REPEATED, KILLED, KILLED_TWICE, KILLED_AND_REPLACED]
)
def test_every_reachable_tree_has_the_masses_of_all_updates_that_have_returned(configuration):
    violation, states = explore(configuration)
    assert (violation, states > 1000) == ("", True)


CAUGHT = {
    "entries before the announcement": (LAPPED, "mass that is too old"),
    "log ends before the masses": (LAPPED, "trees that differ"),
    "index of the old row not cleared": (REPLACED, "mass of another row"),
    "mass before the index is cleared": (REPLACED, "mass of another row"),
    "index before the mass": (TWO_ROWS, "mass of another row"),
    "entries read after the announcement": (LAPPED, "mass that is too old"),
    "masses read before the log's end": (LAPPED, "trees that differ"),
    "mass read before its index": (TWO_ROWS, "mass of another row"),
    "index not read again": (REPLACED, "mass of another row"),
    "log of a dead updater goes on": (KILLED, "trees that differ"),
    "lapped log is followed": (LAPPED, "trees that differ"),
}


@pytest.mark.parametrize("mutation", CAUGHT)
def test_a_log_without_one_precaution_is_caught(mutation):
    configuration, violation = CAUGHT[mutation]
    assert explore(configuration, mutation)[0] == violation


def test_the_orders_of_the_model_are_in_the_machine_code():
    counters, log = (numba.int64[::1],) * 2
    reading = orders_of(read_log, counters, log, numba.int64, numba.int64)
    assert reading == ["fence acquire", "load atomic"], "the announcement is read after the entries"
    owners, masses = numba.int64[::1], numba.float64[::1]
    row = owners, masses, numba.int64, numba.int64, numba.float64
    assert orders_of(updated_mass, *row) == ["load atomic", "fence acquire", "load atomic"]
    assert orders_of(write_back, *row) == ["store atomic", "fence release", "store atomic"]
    assert orders_of(begin_log, counters, log, numba.int64) == ["store atomic", "fence release"]
