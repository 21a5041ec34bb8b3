"""The protocol of the shared ring: no order of operations breaks an invariant; the kernels follow the model.

`protocol_model` visits every reachable state. That it can find what it looks for is shown by mutations: each
takes one precaution out of the protocol, and must be caught by the invariant which that precaution serves.
"""

import functools
import re
import subprocess
import sys
from operator import itemgetter

import numba
import numpy as np
import pytest

from replay_course.protocol_explorer import explore
from replay_course.protocol_model import (
    DEAD,
    DONE,
    MUTATIONS,
    NOTHING,
    READ_STAMP,
    RESERVE,
    TEST_HOLDER,
    Configuration,
    Model,
    State,
    Writer,
    may_be_read,
)
from replay_tutorial.buffers.runtime.jit import compile_now
from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.shared.processes import pack_identity, start_time
from replay_tutorial.shared.protocol import (
    INDEX_SHIFT,
    NO_INDEX,
    NOBODY,
    OWNER_COUNT,
    OWNER_SHIFT,
    abandoned,
    held_stamp,
    index_of,
    is_held,
    owner_of,
    published_stamp,
    read_row,
    read_slots,
    write_rows,
)
from replay_tutorial.shared.registry import WRITER_SPECS, WriterRegistry
from replay_tutorial.shared.shared_ring import NEXT_INDEX, SharedRing, ring_specs

CONFIGURATIONS = {
    "both killed": Configuration(2, ((1, 1), (1, 1)), crashes=2),
    "a batch longer than the ring": Configuration(2, ((3,), (1, 1)), crashes=1),
    "three slots": Configuration(3, ((2, 1), (2, 1)), masses=False),
    "three slots and kills": Configuration(3, ((2,), (1, 1)), crashes=2),
    "one slot": Configuration(1, ((1, 1), (1, 1)), crashes=2),
}
# These have most of all states, and are explored by tests/stress/test_many_states.py. The first,
# second and fourth above each catch every mutation that one of the first four of these catches.
LARGE_CONFIGURATIONS = {
    "rows one by one": Configuration(2, ((1, 1, 1), (1, 1, 1)), masses=False),
    "rows in batches": Configuration(2, ((2, 1), (2,))),
    "one killed among many rows": Configuration(2, ((1, 1, 1), (1, 1)), crashes=1, masses=False),
    "batches and a kill": Configuration(2, ((2,), (2, 1)), crashes=1, masses=False),
    "a number is inherited": Configuration(2, ((2,), (1, 1)), crashes=1, heirs=1, masses=False),
    "a number is inherited twice": Configuration(2, ((1, 1), (1,)), crashes=2, heirs=2, masses=False),
}


def assert_invariants(configuration):
    report = explore(Model(configuration))
    assert report.violation is None, "\n".join((report.violation, *report.trail))
    assert report.states > 1000  # it did go somewhere


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_reachable_state_keeps_the_invariants(name):
    assert_invariants(CONFIGURATIONS[name])


PLAIN = Configuration(2, ((1, 1), (1, 1)), masses=False)
KILLS = PLAIN._replace(crashes=1)
HEIRS = Configuration(2, ((1, 1), (1,)), crashes=1, heirs=1, heir_adds=(1, 1), masses=False)
WITH_MASSES = PLAIN._replace(masses=True)

explore_whole = functools.cache(lambda configuration: explore(Model(configuration)))

CAUGHT = [
    ("publish without release", PLAIN, "row never written"),
    ("publish without release", WITH_MASSES, "wrong mass"),
    ("publish before the words", PLAIN, "row never written"),
    ("publish before the words", WITH_MASSES, "wrong mass"),
    ("mass after publication", WITH_MASSES, "wrong mass"),
    ("no fence after the swap", PLAIN, "torn row"),
    ("no fence after the swap", WITH_MASSES, "wrong mass"),
    ("first check without acquire", PLAIN, "torn row"),
    ("no second check", PLAIN, "torn row"),
    ("no fence before the second check", PLAIN, "torn row"),
    ("second check before the words", PLAIN, "torn row"),
    ("take slots of living writers", PLAIN, "two living writers"),
    ("held stamp without owner", PLAIN, "two living writers"),
    ("number reused without freeing", HEIRS, "lost slot"),
    ("slots of dead writers are skipped", KILLS, "lost slot"),
    ("no test for a newer index", PLAIN, "decreasing index"),
    ("free by a store instead of a swap", HEIRS, "two living writers"),
    ("wait for the holder", PLAIN, "waits for another writer"),
]


@pytest.mark.parametrize(("mutation", "configuration", "violation"), CAUGHT)
def test_a_protocol_without_one_precaution_is_caught(mutation, configuration, violation):
    assert explore_whole(configuration).violation is None
    report = explore(Model(configuration, mutation))
    assert violation in (report.violation or "nothing"), report
    assert report.trail


def test_every_mutation_is_tried():
    assert {mutation for mutation, _, _ in CAUGHT} == set(MUTATIONS)
    with pytest.raises(ValueError, match="no mutation"):
        Model(PLAIN, "wrong name")


def test_the_way_to_a_violation_is_told():
    report = explore(Model(PLAIN, "no test for a newer index"))
    steps = [line.split()[2] for line in report.trail if line.startswith("writer 0")]
    assert steps[:2] == ["reserves", "checks"]  # then writer 1 completes a lap


# The kernels, beside the model.

CAPACITY, ME, OTHER, KILLED = 2, 1, 2, 3
INDEX = 4  # of the row to be written, in slot 0
STAMPS = {
    "never written": 0,
    "the row of a lap ago": published_stamp(INDEX - CAPACITY),
    "the row of two laps ago": published_stamp(INDEX - 2 * CAPACITY),
    "held by another": held_stamp(INDEX - CAPACITY, OTHER),
    "held by this process": held_stamp(INDEX - CAPACITY, ME),
    "held by the dead": held_stamp(INDEX - CAPACITY, KILLED),
    "held by nobody": held_stamp(INDEX - CAPACITY, NOBODY),
    "a newer row": published_stamp(INDEX + CAPACITY),
    "a newer row, held by another": held_stamp(INDEX + CAPACITY, OTHER),
    "a newer row, held by nobody": held_stamp(INDEX + CAPACITY, NOBODY),
    "this very index": published_stamp(INDEX),
}
every_stamp = pytest.mark.parametrize("stamp", STAMPS.values(), ids=STAMPS)


slots_of = itemgetter("stamps", "rows", "masses")


def ring_arrays(stamp):
    """Shared arrays with a stamp in slot 0, and slot 1 published."""
    dtype = np.dtype([("words", np.uint64, 2)])
    arrays = SharedArrays({**WRITER_SPECS, **ring_specs(CAPACITY, dtype)})
    arrays["stamps"][:] = stamp, published_stamp(INDEX - 1)
    return arrays, dtype


def model_state(stamp, writer):
    """The same situation in the model."""
    model = Model(Configuration(CAPACITY, ((1,), (1,), (1,))))
    words, stamps = (NOTHING,) * 3 * CAPACITY, (stamp, published_stamp(INDEX - 1))
    writers = writer, Writer(READ_STAMP, (), (INDEX + 1,)), Writer(DEAD)
    return model, State(INDEX, stamps, words, writers, None, 0, 0)


def run_alone(model, state, until):
    """Let the first writer go on alone until it comes to one of these steps."""
    while state.writers[0].step not in until:
        state = next(iter(model.steps(state, 0)))
    return state


def words_in(arrays, slot):
    """The words and the mass of a slot as the model has them: all are the row's index."""
    values = [*arrays["rows"][slot].tolist(), arrays["masses"][slot]]
    return tuple(int(value) - 1 for value in values)  # zero stands for NOTHING


@every_stamp
def test_write_rows_does_what_the_model_does(stamp):
    arrays, _ = ring_arrays(stamp)
    row = np.full((1, 2), INDEX + 1, np.uint64), np.full(1, INDEX + 1.0)
    written = write_rows(*slots_of(arrays), *row, INDEX, 0, ME)
    after = run_alone(*model_state(stamp, Writer(READ_STAMP, (), (INDEX,))), (DONE, TEST_HOLDER))
    assert written == (0 if after.writers[0].step == TEST_HOLDER else 1)
    assert tuple(arrays["stamps"]) == after.stamps
    assert words_in(arrays, 0) + words_in(arrays, 1) == after.words


@pytest.fixture(scope="module")
def dead_process():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(scope="module")
def living_process():
    """The number of another process that is alive."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


@every_stamp
def test_append_does_what_the_model_does(stamp, living_process, dead_process):
    arrays, dtype = ring_arrays(stamp)
    writers = WriterRegistry(arrays["owners"], [arrays["stamps"]], arrays.identity)
    ring = SharedRing(arrays, dtype, writers)
    assert ring.writers.writer_number() == ME
    arrays["owners"][OTHER] = pack_identity(living_process, start_time(living_process))
    arrays["owners"][KILLED] = pack_identity(dead_process, 1)
    arrays["counters"][NEXT_INDEX] = INDEX
    model, state = model_state(stamp, Writer(RESERVE, (1,)))
    after = run_alone(model, state, (DONE,))
    index = ring.write(np.full((1, 2), INDEX + 1, np.uint64), np.full(1, INDEX + 1.0))
    assert index == after.next_index - 1  # the row's own: a new one where it was passed over
    assert arrays["counters"][NEXT_INDEX] == after.next_index
    assert tuple(arrays["stamps"]) == after.stamps
    # the model's row is its index; ours keeps its content where it is passed over and gets another
    whole = [slot for slot in range(CAPACITY) if NOTHING not in after.words[3 * slot : 3 * slot + 3]]
    assert [slot for slot in range(CAPACITY) if words_in(arrays, slot) == (INDEX,) * 3] == whole


@every_stamp
@pytest.mark.parametrize("cleared_before", [0, INDEX, INDEX + CAPACITY + 1])
def test_what_may_be_read_is_read(stamp, cleared_before):
    arrays, _ = ring_arrays(stamp)
    arrays["rows"][:] = 7
    index = index_of(stamp)
    good = may_be_read(stamp) and index >= cleared_before
    slot, copies, failed = np.zeros(1, np.int64), np.zeros((1, 2), np.uint64), np.empty(1, np.int64)
    failures = read_slots(arrays["stamps"], arrays["rows"], slot, cleared_before, copies, failed)
    assert (failures, copies.tolist()) == ((0, [[7, 7]]) if good else (1, [[0, 0]]))
    found = read_row(arrays["stamps"], arrays["rows"], 0, cleared_before, copies, 0)
    assert found == (index if good else NO_INDEX)


def test_every_failure_is_listed():
    arrays, _ = ring_arrays(held_stamp(2, OTHER))
    slots = np.array([0, 1, 0, 1, 0])
    copies, failed = np.zeros((5, 2), np.uint64), np.empty(5, np.int64)
    assert read_slots(arrays["stamps"], arrays["rows"], slots, 0, copies, failed) == 3
    assert failed[:3].tolist() == [0, 2, 4]


def test_the_parts_of_a_stamp_do_not_overlap():
    assert OWNER_SHIFT + (OWNER_COUNT - 1).bit_length() == INDEX_SHIFT
    assert published_stamp(INDEX) == (INDEX + 1) * 2048
    assert held_stamp(INDEX, 3) == (INDEX + 1) * 2048 + 3 * 2 + 1
    stamp = held_stamp(INDEX, OWNER_COUNT - 1)
    assert is_held(stamp) and owner_of(stamp) == OWNER_COUNT - 1 and index_of(stamp) == INDEX
    assert abandoned(stamp) == held_stamp(INDEX, NOBODY) and not is_held(published_stamp(INDEX))
    assert (index_of(0), is_held(0)) == (NO_INDEX, False)
    newest = 2 ** (63 - INDEX_SHIFT) - 2
    assert held_stamp(newest, OWNER_COUNT - 1) == np.iinfo(np.int64).max
    arrays, _ = ring_arrays(published_stamp(newest - CAPACITY))
    row = np.ones((1, 2), np.uint64), np.ones(1)
    assert write_rows(*slots_of(arrays), *row, newest, 0, OWNER_COUNT - 1)
    assert arrays["stamps"][newest % CAPACITY] == published_stamp(newest)


def machine_orders(function):
    """The memory orders in the optimized code of a kernel."""
    compile_now(function)
    return orders_of(function.py_func, *function.signatures[0])


def orders_of(function, *arguments):
    """The memory orders in the optimized code of a function, without the runtime's own functions."""
    compiled = numba.njit(arguments, nogil=True, error_model="numpy")(function)
    code = compiled.inspect_llvm(compiled.signatures[0])
    parts = [part.partition("\n}")[0] for part in code.split("\ndefine ")[1:]]
    own = "\n".join(part for part in parts if "@NRT_" not in part.partition("(")[0])
    return re.findall("fence release|fence acquire|load atomic|store atomic|cmpxchg", own)


def test_the_orders_of_the_model_are_in_the_machine_code():
    # x86-64 would forgive their loss, so no run on it could tell
    assert set(machine_orders(write_rows)) == {"load atomic", "cmpxchg", "fence release", "store atomic"}
    reading = machine_orders(read_row)
    assert set(reading) == {"load atomic", "fence acquire"}
    assert reading.count("load atomic") >= 2
