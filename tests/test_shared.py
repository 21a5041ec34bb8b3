"""The multi-process buffers: rows arrive whole and once, draws follow the masses, nothing hangs or is left behind.

Every row carries its writer, its number and a checksum over the rest, so a row that was torn, never written or
taken twice gives itself away.
"""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from replay_tutorial import (
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)

ROOT = Path(__file__).parents[1]
START_METHODS = ["fork", "spawn", "forkserver"] if os.name == "posix" else ["spawn"]
BUFFERS = [MPReplayBuffer, MPPrioritizedReplayBuffer]
WIDTH = 8
PATIENCE = 120  # seconds; a test that waits longer hangs
SIGNIFICANCE = 1e-4  # of every chi-square test here: one false alarm in ten thousand runs

every_start_method = pytest.mark.parametrize("start_method", START_METHODS)
every_buffer = pytest.mark.parametrize("buffer_class", BUFFERS)


def row_fields(width=WIDTH):
    return {
        "obs": {"shape": width},
        "writer": {"shape": (), "dtype": np.int64},
        "number": {"shape": (), "dtype": np.int64},
        "checksum": {"shape": (), "dtype": np.float64},
    }


def rows_of(writer, first, count, width=WIDTH):
    """Rows `first` to `first + count` of a writer; numbers begin at 1 and obs is never 0."""
    number = np.arange(first, first + count) + 1
    obs = ((number[:, np.newaxis] * 7 + np.arange(width) + writer) % 1000 + 1).astype(np.float32)
    return {
        "obs": obs,
        "writer": np.full(count, writer),
        "number": number,
        "checksum": checksum(obs, writer, number),
    }


def checksum(obs, writer, number):
    return obs.sum(axis=1, dtype=np.float64) + 1e6 * writer + 1e8 * number


def assert_whole(batch):
    width = batch["obs"].shape[1]
    assert batch["number"].min() >= 1, "a row that nobody wrote"
    right = (
        batch["number"][:, np.newaxis] * 7 + np.arange(width) + batch["writer"][:, np.newaxis]
    ) % 1000 + 1
    assert np.array_equal(batch["obs"], right), "a torn row"
    assert np.array_equal(batch["checksum"], checksum(batch["obs"], batch["writer"], batch["number"]))


@pytest.fixture(autouse=True)
def impatience():
    """Ends a test that hangs, by a signal: a lock that nobody gives back can't be waited for."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def give_up(*_):
        raise TimeoutError(f"hung for {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def running(context, target, arguments):
    """Runs `target(*arguments[k])` in processes; at the end all must have left with status 0."""
    processes = [context.Process(target=target, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    try:
        yield processes
        for process in processes:
            process.join(PATIENCE)
        assert [process.exitcode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.join()


def in_child(context, target, *arguments):
    """Runs `target(*arguments, answers)` in a process and returns what it put into `answers`."""
    answers = context.Queue()
    with running(context, target, [(*arguments, answers)]):
        return answers.get(timeout=PATIENCE)


# ── adding from many processes ──────────────────────────────────────────────────────────────────────


def add_in_pieces(buffer, writer, answers):
    """Adds 600 rows in pieces of 1, 7 and 50, and tells where each piece went."""
    places, first = [], 0
    while first < 600:
        count = (1, 7, 50)[len(places) % 3]
        count = min(count, 600 - first)
        places.append((buffer.add(**rows_of(writer, first, count)), first, count))
        first += count
    answers.put((writer, places))


@every_start_method
@every_buffer
def test_rows_of_several_writers_arrive_whole_and_once(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    with buffer_class(2000, row_fields(), ctx=context) as buffer:
        answers = context.Queue()
        with running(context, add_in_pieces, [(buffer, writer, answers) for writer in (1, 2, 3)]):
            told = [answers.get(timeout=PATIENCE) for _ in range(3)]
        rows = buffer.get_all_transitions()
        assert buffer.get_stored_size() == len(buffer) == buffer.get_next_index() == 1800
        assert_whole(rows)
        pairs = set(zip(rows["writer"].tolist(), rows["number"].tolist(), strict=True))
        assert pairs == {(writer, number) for writer in (1, 2, 3) for number in range(1, 601)}
        for writer, places in told:
            for index, first, count in places:
                piece = slice(index, index + count)
                assert set(rows["writer"][piece]) == {writer}
                assert rows["number"][piece].tolist() == list(range(first + 1, first + count + 1))


def add_until(buffer, writer, width, stop):
    first = 0
    while not stop.is_set():
        buffer.add(**rows_of(writer, first, 50, width))
        first += 50


@pytest.mark.parametrize("capacity", [64, 2**15], ids=["lapping", "filling"])
@every_buffer
def test_sampling_while_others_add_never_gives_a_torn_or_unwritten_row(buffer_class, capacity):
    context = multiprocessing.get_context("spawn")
    width = 1024  # 4 KB: long enough to be caught half written
    with buffer_class(capacity, row_fields(width), ctx=context) as buffer:
        stop = context.Event()
        with running(context, add_until, [(buffer, writer, width, stop) for writer in (1, 2)]):
            while buffer.get_stored_size() == 0:
                time.sleep(0.001)
            until = time.monotonic() + 1.5
            batches = 0
            while time.monotonic() < until:
                batch = buffer.sample(16)
                assert_whole(batch)
                if "indexes" in batch:
                    buffer.update_priorities(batch["indexes"], np.ones(16))
                batches += 1
            stop.set()
        assert batches > 10
        assert_whole(buffer.get_all_transitions())


def add_rows(buffer, writer, first, count, answers):
    answers.put(buffer.add(**rows_of(writer, first, count)))


@every_buffer
def test_batch_longer_than_the_buffer_keeps_its_last_rows(buffer_class):
    with buffer_class(7, row_fields()) as buffer:
        buffer.add(**rows_of(1, 0, 3))
        buffer.add(**rows_of(1, 3, 20))
        assert buffer.get_all_transitions()["number"].tolist() == list(range(17, 24))
        assert buffer.get_next_index() == 23


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 1000])
@every_buffer
def test_holds_what_the_single_process_buffer_holds(buffer_class, capacity):
    rng = np.random.default_rng(capacity)
    oracle = ReplayBuffer(capacity, row_fields())
    with buffer_class(capacity, row_fields()) as buffer:
        first = 0
        for _ in range(30):
            count = int(rng.integers(1, 2 * capacity + 2))
            assert buffer.add(**rows_of(1, first, count)) == oracle.add(**rows_of(1, first, count))
            first += count
            held, expected = buffer.get_all_transitions(), oracle.get_all_transitions()
            assert list(held) == list(expected)
            assert all(np.array_equal(held[name], expected[name]) for name in held)
            assert set(buffer.sample(20)["number"]) <= set(held["number"])
            assert buffer.get_stored_size() == oracle.get_stored_size()
            assert buffer.get_next_index() == oracle.get_next_index()
        assert buffer.get_buffer_size() == oracle.get_buffer_size()


def read_sizes(buffer, answers):
    answers.put((buffer.get_stored_size(), buffer.get_buffer_size(), buffer.get_next_index(), len(buffer)))


@every_start_method
def test_sizes_can_be_read_from_any_process(start_method):
    context = multiprocessing.get_context(start_method)
    with MPReplayBuffer(10, row_fields(), ctx=context) as buffer:
        buffer.add(**rows_of(1, 0, 13))
        assert in_child(context, read_sizes, buffer) == (10, 10, 13, 10)


DTYPES = [bool, np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64, np.complex64]


def add_every_dtype(buffer, answers):
    answers.put(buffer.add(**{np.dtype(dtype).name: np.array([[0, 1], [1, 0]], dtype) for dtype in DTYPES}))


@every_buffer
def test_every_dtype_comes_back_as_it_was_put_in(buffer_class):
    context = multiprocessing.get_context("spawn")
    fields = {np.dtype(dtype).name: {"shape": 2, "dtype": dtype} for dtype in DTYPES}
    with buffer_class(4, fields, ctx=context) as buffer:
        assert in_child(context, add_every_dtype, buffer) == 0
        rows = buffer.get_all_transitions()
        for dtype in DTYPES:
            name = np.dtype(dtype).name
            assert rows[name].dtype == dtype
            assert np.array_equal(rows[name], np.array([[0, 1], [1, 0]], dtype))


def test_fields_default_to_float32_columns_and_default_dtype_is_taken():
    with MPReplayBuffer(4, {"rew": {}}) as buffer:
        buffer.add(rew=0.5)
        assert buffer.sample(3)["rew"].dtype == np.float32
        assert buffer.sample(3)["rew"].shape == (3, 1)
    with MPReplayBuffer(4, {"rew": {}}, default_dtype=np.float64) as buffer:
        buffer.add(rew=0.5)
        assert buffer.sample(3)["rew"].dtype == np.float64


# ── sampling ────────────────────────────────────────────────────────────────────────────────────────


@every_buffer
def test_sampling_an_empty_buffer_raises_at_once(buffer_class):
    with buffer_class(8, row_fields()) as buffer:
        start = time.monotonic()
        with pytest.raises(ValueError, match="empty"):
            buffer.sample(4)
        assert time.monotonic() - start < 1
        assert len(buffer.get_all_transitions()["number"]) == 0
        buffer.add(**rows_of(1, 0, 1))
        assert buffer.sample(4)["number"].tolist() == [1] * 4


@every_buffer
def test_sampled_arrays_are_the_callers_own(buffer_class):
    with buffer_class(8, row_fields(), seed=0) as buffer:
        buffer.add(**rows_of(1, 0, 8))
        batch = buffer.sample(16)
        kept = {name: values.copy() for name, values in batch.items()}
        buffer.add(**rows_of(2, 8, 8))
        buffer.sample(64)
        for name, values in batch.items():
            assert np.array_equal(values, kept[name])
            assert values.flags.writeable
            values[...] = 0
        assert_whole(buffer.get_all_transitions())


@every_buffer
def test_same_seed_draws_the_same_rows(buffer_class):
    draws = []
    for _ in range(2):
        with buffer_class(100, row_fields(), seed=7) as buffer:
            buffer.add(**rows_of(1, 0, 100))
            draws.append([buffer.sample(32)["number"].tolist() for _ in range(3)])
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1]


def sample_and_hold(buffer, answers, leave):
    answers.put(len(buffer.sample(4)["number"]))
    leave.wait(PATIENCE)


def try_to_sample(buffer, answers):
    try:
        buffer.sample(4)
    except RuntimeError as error:
        answers.put(str(error))
    else:
        answers.put("sampled")


@every_start_method
@every_buffer
def test_second_sampler_is_refused(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    with buffer_class(8, row_fields(), ctx=context) as buffer:
        buffer.add(**rows_of(1, 0, 8))
        buffer.sample(4)
        assert "sampler" in in_child(context, try_to_sample, buffer)
        assert_whole(buffer.sample(4))


def test_sampler_may_be_a_child_and_then_the_parent_is_refused():
    context = multiprocessing.get_context("spawn")
    with MPReplayBuffer(8, row_fields(), ctx=context) as buffer:
        buffer.add(**rows_of(1, 0, 8))
        answers, leave = context.Queue(), context.Event()
        with running(context, sample_and_hold, [(buffer, answers, leave)]):
            assert answers.get(timeout=PATIENCE) == 4
            with pytest.raises(RuntimeError, match="sampler"):
                buffer.sample(4)
            buffer.add(**rows_of(1, 8, 1))
            assert buffer.get_next_index() == 9
            leave.set()


def test_uniform_draws_are_uniform():
    with MPReplayBuffer(50, {"number": {"shape": (), "dtype": np.int64}}, seed=1) as buffer:
        buffer.add(number=np.arange(70))
        drawn = np.concatenate([buffer.sample(1000)["number"] for _ in range(50)])
        assert stats.chisquare(np.bincount(drawn - 20, minlength=50)).pvalue > SIGNIFICANCE


def add_with_priorities(buffer, first, priorities, answers):
    answers.put(buffer.add(**rows_of(1, first, len(priorities)), priorities=priorities))


@every_start_method
def test_prioritized_draws_follow_the_masses_of_rows_that_children_added(start_method):
    context = multiprocessing.get_context(start_method)
    priorities = np.random.default_rng(2).exponential(size=40)
    with MPPrioritizedReplayBuffer(40, row_fields(), ctx=context, alpha=0.7, eps=1e-3, seed=3) as buffer:
        for first in (0, 20):
            in_child(context, add_with_priorities, buffer, first, priorities[first : first + 20])
        # A batch of one is drawn from the whole total: independent draws, as the test supposes.
        drawn = np.concatenate([buffer.sample(1)["indexes"] for _ in range(20_000)])
        masses = (priorities + 1e-3) ** 0.7
        expected = masses / masses.sum() * len(drawn)
        assert stats.chisquare(np.bincount(drawn, minlength=40), expected).pvalue > SIGNIFICANCE


def test_weights_are_those_of_the_single_process_buffer():
    rng = np.random.default_rng(4)
    oracle = PrioritizedReplayBuffer(100, row_fields(), alpha=0.5, eps=1e-2)
    with MPPrioritizedReplayBuffer(100, row_fields(), alpha=0.5, eps=1e-2) as buffer:
        for first in range(0, 180, 30):
            priorities = rng.exponential(size=30)
            for each in (buffer, oracle):
                each.add(**rows_of(1, first, 30), priorities=priorities)
        batch = buffer.sample(50, beta=0.7)
        right = dict(weights_by_index(oracle, 0.7))
        assert batch["weights"].dtype == np.float32
        assert batch["indexes"].dtype == np.int64
        assert batch["weights"] == pytest.approx([right[index] for index in batch["indexes"]], rel=1e-5)
        in_batch = buffer.sample(50, beta=0.7, normalize="batch")["weights"]
        assert in_batch.max() == pytest.approx(1)


def weights_by_index(buffer, beta):
    for _ in range(200):
        batch = buffer.sample(50, beta=beta)
        yield from zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True)


def test_draws_are_stratified():
    with MPPrioritizedReplayBuffer(64, row_fields(), seed=5) as buffer:
        buffer.add(**rows_of(1, 0, 64), priorities=np.ones(64))
        assert buffer.sample(64)["indexes"].tolist() == list(range(64))


# ── priorities ──────────────────────────────────────────────────────────────────────────────────────


def test_indexes_are_serial_numbers_of_the_rows_beside_them():
    with MPPrioritizedReplayBuffer(16, row_fields()) as buffer:
        buffer.add(**rows_of(1, 0, 45))
        batch = buffer.sample(64)
        assert batch["indexes"].min() >= 29
        assert np.array_equal(batch["indexes"] + 1, batch["number"])


def test_updated_priorities_change_the_draw():
    with MPPrioritizedReplayBuffer(8, row_fields(), eps=0.0) as buffer:
        buffer.add(**rows_of(1, 0, 8))
        buffer.update_priorities(np.arange(8), np.array([0, 0, 0, 5, 0, 0, 0, 0]))
        assert set(buffer.sample(32)["indexes"]) == {3}
        buffer.update_priorities(np.array([3, 6]), np.array([0, 1]))
        assert set(buffer.sample(32)["indexes"]) == {6}
        buffer.update_priorities(np.array([6, 6, 6]), np.array([1, 2, 0]))
        with pytest.raises(ValueError, match="mass|priorit"):
            buffer.sample(4)


def test_update_of_a_replaced_row_is_dropped_and_counted():
    context = multiprocessing.get_context("spawn")
    with MPPrioritizedReplayBuffer(8, row_fields(), ctx=context, eps=0.0, alpha=1.0) as buffer:
        buffer.add(**rows_of(1, 0, 8), priorities=np.ones(8))
        old = buffer.sample(8)["indexes"]
        assert in_child(context, add_rows, buffer, 2, 0, 3) == 8
        buffer.update_priorities(old, np.full(8, 100.0))
        assert buffer.stale_updates == 3
        batch = buffer.sample(4000)
        share = np.mean(batch["indexes"] >= 8)
        # Before the update the highest priority was 1, so the three new rows hold 3 of 503.
        assert share == pytest.approx(3 / 503, abs=2e-3)


def test_rows_without_priority_get_the_highest_seen_from_any_process():
    context = multiprocessing.get_context("spawn")
    with MPPrioritizedReplayBuffer(8, row_fields(), ctx=context, eps=0.0, alpha=1.0) as buffer:
        assert buffer.get_max_priority() == 1.0
        buffer.add(**rows_of(1, 0, 1))
        in_child(context, add_with_priorities, buffer, 1, np.array([3.0]))
        assert buffer.get_max_priority() == 3.0
        in_child(context, add_rows, buffer, 1, 2, 1)
        batch = buffer.sample(400, beta=1.0)
        weights = dict(zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True))
        assert weights == pytest.approx({0: 1, 1: 1 / 3, 2: 1 / 3})


@pytest.mark.parametrize(
    ("indexes", "priorities", "error"),
    [
        ([0, 1], [1.0], ValueError),
        ([0, 1], [1.0, np.nan], ValueError),
        ([0, 1], [1.0, -1.0], ValueError),
        ([0, 1], [1.0, np.inf], ValueError),
        ([0, 8], [1.0, 1.0], IndexError),
        ([0, -1], [1.0, 1.0], IndexError),
        ([0.0, 1.0], [1.0, 1.0], TypeError),
    ],
)
def test_bad_update_is_refused_before_anything_changes(indexes, priorities, error):
    with MPPrioritizedReplayBuffer(16, row_fields(), eps=0.0) as buffer:
        buffer.add(**rows_of(1, 0, 8), priorities=np.array([0, 0, 1, 0, 0, 0, 0, 0]))
        with pytest.raises(error):
            buffer.update_priorities(np.array(indexes), np.array(priorities))
        assert set(buffer.sample(32)["indexes"]) == {2}
        assert buffer.stale_updates == 0


@every_buffer
def test_clear_forgets_the_rows_and_indexes_go_on(buffer_class):
    context = multiprocessing.get_context("spawn")
    with buffer_class(8, row_fields(), ctx=context) as buffer:
        buffer.add(**rows_of(1, 0, 5))
        buffer.clear()
        assert (buffer.get_stored_size(), buffer.get_next_index()) == (0, 5)
        with pytest.raises(ValueError, match="empty"):
            buffer.sample(1)
        assert in_child(context, add_rows, buffer, 1, 5, 2) == 5
        assert set(buffer.sample(50)["number"]) == {6, 7}
        if buffer_class is MPPrioritizedReplayBuffer:
            assert set(buffer.sample(50)["indexes"]) == {5, 6}


# ── bad input ───────────────────────────────────────────────────────────────────────────────────────

GOOD = {"obs": np.zeros((2, WIDTH)), "writer": [1, 1], "number": [1, 2], "checksum": [0.0, 0.0]}
BAD_ADDS = {
    "missing field": ({key: value for key, value in GOOD.items() if key != "number"}, KeyError),
    "unknown field": (GOOD | {"extra": [1, 1]}, KeyError),
    "wrong shape": (GOOD | {"obs": np.zeros((2, WIDTH + 1))}, ValueError),
    "lengths differ": (GOOD | {"number": [1, 2, 3]}, ValueError),
    "fraction into an integer": (GOOD | {"number": [1.5, 2]}, ValueError),
    "text": (GOOD | {"number": ["one", "two"]}, TypeError),
    "no rows": ({key: value[:0] for key, value in GOOD.items()}, ValueError),
}


def add_badly(buffer, answers):
    """Tries every bad add, tells what each raised, and then adds one good row."""
    told = {}
    for name, (fields, _) in BAD_ADDS.items():
        try:
            buffer.add(**fields)
        except Exception as error:
            told[name] = type(error)
        else:
            told[name] = None
    buffer.add(**rows_of(1, 0, 1))
    answers.put(told)


@every_start_method
@every_buffer
def test_bad_add_in_a_child_is_refused_and_blocks_nobody(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    with buffer_class(8, row_fields(), ctx=context) as buffer:
        told = in_child(context, add_badly, buffer)
        assert told == {name: error for name, (_, error) in BAD_ADDS.items()}
        assert buffer.get_stored_size() == buffer.get_next_index() == 1
        assert_whole(buffer.sample(4))
        buffer.add(**rows_of(2, 0, 3))
        assert_whole(buffer.get_all_transitions())


@pytest.mark.parametrize("priorities", [[1.0, np.nan], [1.0, -1.0], [np.inf, 1.0], [1.0], [1.0, 1.0, 1.0]])
def test_bad_priorities_on_add_are_refused_before_anything_changes(priorities):
    with MPPrioritizedReplayBuffer(8, row_fields()) as buffer:
        with pytest.raises(ValueError, match="priorit"):
            buffer.add(**rows_of(1, 0, 2), priorities=np.array(priorities))
        assert buffer.get_stored_size() == buffer.get_next_index() == 0
        assert buffer.get_max_priority() == 1.0
        buffer.add(**rows_of(1, 0, 2))
        assert_whole(buffer.sample(4))


@pytest.mark.parametrize(
    "option",
    [
        {"Nstep": {"size": 3, "rew": "checksum", "next": "obs"}},
        {"next_of": "obs"},
        {"stack_compress": "obs"},
    ],
    ids=lambda option: next(iter(option)),
)
@every_buffer
def test_what_belongs_into_the_actor_is_refused_with_the_remedy(buffer_class, option):
    with pytest.raises(ValueError, match="actor") as refused:
        buffer_class(8, row_fields(), **option)
    assert next(iter(option)) in str(refused.value)


@every_buffer
def test_bad_construction_is_refused(buffer_class):
    with pytest.raises(ValueError, match="size"):
        buffer_class(0, row_fields())
    with pytest.raises(ValueError, match="size"):
        buffer_class(2.7, row_fields())
    with pytest.raises(TypeError):
        buffer_class(8, row_fields(), capacity=8)
    with buffer_class(1e2, row_fields()) as buffer:
        assert buffer.get_buffer_size() == 100


@pytest.mark.parametrize("option", [{"alpha": -0.1}, {"alpha": 1.1}, {"eps": -1.0}, {"eps": np.nan}])
def test_alpha_and_eps_out_of_range_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        MPPrioritizedReplayBuffer(8, row_fields(), **option)


@every_buffer
def test_bad_batch_sizes_are_refused(buffer_class):
    with buffer_class(8, row_fields()) as buffer:
        buffer.add(**rows_of(1, 0, 1))
        with pytest.raises(ValueError, match="batch_size|sample"):
            buffer.sample(0)
        with pytest.raises(TypeError):
            buffer.sample(1.5)


# ── leaving nothing behind ──────────────────────────────────────────────────────────────────────────


def shared_memory_files():
    """Names of the shared memory files that this process has mapped (Linux)."""
    maps = Path("/proc/self/maps").read_text()
    return {Path(name) for name in re.findall(r"(/dev/shm/\S+)", maps)}


needs_dev_shm = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm on this system")


@needs_dev_shm
@every_start_method
@every_buffer
def test_close_leaves_nothing_in_shared_memory(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    before = shared_memory_files()
    buffer = buffer_class(1000, row_fields(), ctx=context)
    in_child(context, add_rows, buffer, 1, 0, 5)
    assert_whole(buffer.sample(4))
    made = shared_memory_files() - before
    buffer.close()
    assert [name for name in made if name.exists()] == []
    buffer.close()


@every_buffer
def test_closed_buffer_says_so(buffer_class):
    buffer = buffer_class(8, row_fields())
    buffer.add(**rows_of(1, 0, 8))
    buffer.close()
    with pytest.raises((ValueError, RuntimeError), match="closed"):
        buffer.add(**rows_of(1, 0, 1))
    with pytest.raises((ValueError, RuntimeError), match="closed"):
        buffer.sample(1)


PROGRAM = textwrap.dedent(
    """
    import multiprocessing
    import re
    import sys
    from pathlib import Path

    import numba.core.event
    import numpy as np

    from replay_tutorial import MPPrioritizedReplayBuffer


    def use(buffer, answers):
        with numba.core.event.install_recorder("numba:compile") as compiled:
            buffer.add(obs=np.ones((10, 4)))
            batch = buffer.sample(4)
            buffer.update_priorities(batch["indexes"], np.ones(4))
        answers.put(len(compiled.buffer))


    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        buffer = MPPrioritizedReplayBuffer(100, {"obs": {"shape": 4}}, ctx=context)
        answers = context.SimpleQueue()
        child = context.Process(target=use, args=(buffer, answers))
        child.start()
        print(answers.get())
        child.join()
        print(*set(re.findall(r"/dev/shm/\\S+", Path("/proc/self/maps").read_text())))
        if sys.argv[2] == "close":
            buffer.close()
        sys.exit(child.exitcode)
    """
)


def run_program(folder, start_method, ending, **environment):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(program), start_method, ending],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@needs_dev_shm
@pytest.mark.parametrize("ending", ["close", "forget to close"])
@every_start_method
def test_program_ends_without_a_warning_or_a_leak(tmp_path, start_method, ending):
    finished = run_program(tmp_path, start_method, ending)
    assert finished.stderr == ""
    assert finished.returncode == 0
    names = finished.stdout.splitlines()[1].split()
    assert [name for name in names if Path(name).exists()] == []


@needs_dev_shm
def test_spawned_child_loads_the_kernels_and_compiles_none(tmp_path):
    cache = tmp_path / "cache"
    first = run_program(tmp_path, "spawn", "close", NUMBA_CACHE_DIR=str(cache))
    assert first.returncode == 0, first.stderr
    before = {file: file.stat().st_mtime_ns for file in cache.rglob("*") if file.is_file()}
    assert before, "the first run left its kernels in the cache"
    second = run_program(tmp_path, "spawn", "close", NUMBA_CACHE_DIR=str(cache))
    assert second.stdout.splitlines()[0] == "0", "the child compiled"
    after = {file: file.stat().st_mtime_ns for file in cache.rglob("*") if file.is_file()}
    assert after == before
