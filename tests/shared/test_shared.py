"""The buffers that several processes share: rows arrive whole and once, and nobody hangs."""

import math
import multiprocessing
import time

import numpy as np
import pytest
import shared_rows
from scipy import stats
from shared_rows import (
    POLL_SECONDS,
    SIGNIFICANCE,
    START_METHODS,
    WIDTH,
    add_rows,
    answer,
    assert_whole,
    every_buffer,
    every_start_method,
    in_child,
    row_fields,
    rows_of,
    running,
)

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, ReplayBuffer

impatience = shared_rows.impatience


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
    buffer = buffer_class(2000, row_fields(), ctx=context)
    answers = context.Queue()
    with running(context, add_in_pieces, [(buffer, writer, answers) for writer in (1, 2, 3)]) as writers:
        told = [answer(answers, writers) for _ in writers]
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


@pytest.mark.parametrize("capacity", [64, 2**13], ids=["lapping", "filling"])
@every_buffer
def test_sampling_while_others_add_never_gives_a_torn_or_unwritten_row(buffer_class, capacity):
    context = multiprocessing.get_context(START_METHODS[0])
    width = 1024  # 4 KB: long enough to be caught half written
    buffer = buffer_class(capacity, row_fields(width), ctx=context)
    stop = context.Event()
    with running(context, add_until, [(buffer, writer, width, stop) for writer in (1, 2)]):
        while buffer.get_stored_size() == 0:
            time.sleep(0.001)
        until = time.monotonic() + 1.5
        batches = 0
        while time.monotonic() < until or batches < 20:
            batch = buffer.sample(16)
            assert_whole(batch)
            if "indexes" in batch:
                buffer.update_priorities(batch["indexes"], np.ones(16))
            batches += 1
        stop.set()
    assert_whole(buffer.get_all_transitions())


@every_buffer
def test_batch_longer_than_the_buffer_keeps_its_last_rows(buffer_class):
    buffer = buffer_class(7, row_fields())
    buffer.add(**rows_of(1, 0, 3))
    buffer.add(**rows_of(1, 3, 20))
    assert buffer.get_all_transitions()["number"].tolist() == list(range(17, 24))
    assert buffer.get_next_index() == 23


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 8, 1000])
@every_buffer
def test_holds_what_the_single_process_buffer_holds(buffer_class, capacity):
    rng = np.random.default_rng(capacity)
    oracle = ReplayBuffer(capacity, row_fields())
    buffer = buffer_class(capacity, row_fields())
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
    buffer = MPReplayBuffer(10, row_fields(), ctx=context)
    buffer.add(**rows_of(1, 0, 13))
    assert in_child(context, read_sizes, buffer) == (10, 10, 13, 10)


DTYPES = [bool, np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64, np.complex64]


def add_every_dtype(buffer, answers):
    answers.put(buffer.add(**{np.dtype(dtype).name: np.array([[0, 1], [1, 0]], dtype) for dtype in DTYPES}))


@every_buffer
def test_every_dtype_comes_back_as_it_was_put_in(buffer_class):
    context = multiprocessing.get_context(START_METHODS[0])
    fields = {np.dtype(dtype).name: {"shape": 2, "dtype": dtype} for dtype in DTYPES}
    buffer = buffer_class(4, fields, ctx=context)
    assert in_child(context, add_every_dtype, buffer) == 0
    rows = buffer.get_all_transitions()
    for dtype in DTYPES:
        name = np.dtype(dtype).name
        assert rows[name].dtype == dtype
        assert np.array_equal(rows[name], np.array([[0, 1], [1, 0]], dtype))


def test_fields_default_to_float32_columns_and_default_dtype_is_taken():
    buffer = MPReplayBuffer(4, {"rew": {}})
    buffer.add(rew=0.5)
    assert buffer.sample(3)["rew"].dtype == np.float32
    assert buffer.sample(3)["rew"].shape == (3, 1)
    buffer = MPReplayBuffer(4, {"rew": {}}, default_dtype=np.float64)
    buffer.add(rew=0.5)
    assert buffer.sample(3)["rew"].dtype == np.float64


@every_buffer
def test_sampling_an_empty_buffer_raises_at_once(buffer_class):
    buffer = buffer_class(8, row_fields())
    seconds = [math.inf]
    while min(seconds) >= 1 and len(seconds) < 100:  # the machine may stop a test
        start = time.monotonic()
        with pytest.raises(ValueError, match="empty"):
            buffer.sample(4)
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 1
    assert len(buffer.get_all_transitions()["number"]) == 0
    buffer.add(**rows_of(1, 0, 1))
    assert buffer.sample(4)["number"].tolist() == [1] * 4


@every_buffer
def test_sampled_arrays_are_the_callers_own(buffer_class):
    buffer = buffer_class(8, row_fields(), seed=0)
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
        buffer = buffer_class(100, row_fields(), seed=7)
        buffer.add(**rows_of(1, 0, 100))
        draws.append([buffer.sample(32)["number"].tolist() for _ in range(3)])
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1]


def sample_and_hold(buffer, answers, leave):
    answers.put(len(buffer.sample(4)["number"]))
    leave.wait(POLL_SECONDS)


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
    buffer = buffer_class(8, row_fields(), ctx=context)
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(4)
    assert "sampler" in in_child(context, try_to_sample, buffer)
    assert_whole(buffer.sample(4))


def test_sampler_may_be_a_child_and_then_the_parent_is_refused():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPReplayBuffer(8, row_fields(), ctx=context)
    buffer.add(**rows_of(1, 0, 8))
    answers, leave = context.Queue(), context.Event()
    with running(context, sample_and_hold, [(buffer, answers, leave)]) as samplers:
        assert answer(answers, samplers) == 4
        with pytest.raises(RuntimeError, match="sampler"):
            buffer.sample(4)
        buffer.add(**rows_of(1, 8, 1))
        assert buffer.get_next_index() == 9
        leave.set()


def test_uniform_draws_are_uniform():
    buffer = MPReplayBuffer(50, {"number": {"shape": (), "dtype": np.int64}}, seed=1)
    buffer.add(number=np.arange(70))
    drawn = np.concatenate([buffer.sample(1000)["number"] for _ in range(50)])
    assert stats.chisquare(np.bincount(drawn - 20, minlength=50)).pvalue > SIGNIFICANCE


@every_buffer
def test_clear_forgets_the_rows_and_indexes_go_on(buffer_class):
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = buffer_class(8, row_fields(), ctx=context)
    buffer.add(**rows_of(1, 0, 5))
    buffer.clear()
    assert (buffer.get_stored_size(), buffer.get_next_index()) == (0, 5)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    assert in_child(context, add_rows, buffer, 1, 5, 2) == 5
    assert set(buffer.sample(50)["number"]) == {6, 7}
    if buffer_class is MPPrioritizedReplayBuffer:
        assert set(buffer.sample(50)["indexes"]) == {5, 6}


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
        except (KeyError, TypeError, ValueError) as error:
            told[name] = type(error)
        else:
            told[name] = None
    buffer.add(**rows_of(1, 0, 1))
    answers.put(told)


@every_start_method
@every_buffer
def test_bad_add_in_a_child_is_refused_and_blocks_nobody(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    buffer = buffer_class(8, row_fields(), ctx=context)
    told = in_child(context, add_badly, buffer)
    assert told == {name: error for name, (_, error) in BAD_ADDS.items()}
    assert buffer.get_stored_size() == buffer.get_next_index() == 1
    assert_whole(buffer.sample(4))
    buffer.add(**rows_of(2, 0, 3))
    assert_whole(buffer.get_all_transitions())


@every_buffer
def test_what_belongs_into_the_actor_is_refused_with_the_remedy(buffer_class):
    with pytest.raises(ValueError, match=r"Nstep.*actor"):
        buffer_class(8, row_fields(), Nstep={"size": 3, "rew": "checksum", "next": "obs"})


@every_buffer
def test_bad_construction_is_refused(buffer_class):
    with pytest.raises(ValueError, match="size"):
        buffer_class(0, row_fields())
    with pytest.raises(ValueError, match="size"):
        buffer_class(2.7, row_fields())
    with pytest.raises(TypeError):
        buffer_class(8, row_fields(), capacity=8)
    buffer = buffer_class(1e2, row_fields())
    assert buffer.get_buffer_size() == 100


@every_buffer
def test_bad_batch_sizes_are_refused(buffer_class):
    buffer = buffer_class(8, row_fields())
    buffer.add(**rows_of(1, 0, 1))
    with pytest.raises(ValueError, match="sample"):
        buffer.sample(0)
    with pytest.raises(TypeError):
        buffer.sample(1.5)
