"""The buffers that several processes share: rows arrive whole and once, and nobody hangs."""

import multiprocessing
import time

import numpy as np
import pytest
import shared_rows
from histories import History, as_bytes
from scipy import stats
from shared_rows import (
    SIGNIFICANCE,
    START_METHODS,
    WIDTH,
    add_rows,
    answer,
    assert_whole,
    every_buffer,
    in_child,
    row_fields,
    rows_of,
    running,
)

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers import private

impatience = shared_rows.impatience


def add_in_pieces(buffer, writer, answers):
    """Adds 600 rows in pieces of 1, 7 and 50, and tells where each piece went."""
    places, first = [], 0
    while first < 600:
        count = min((1, 7, 50)[len(places) % 3], 600 - first)
        places.append((buffer.add(**rows_of(writer, first, count)), first, count))
        first += count
    answers.put((writer, places))


@pytest.mark.parametrize(
    ("buffer_class", "start_method"),
    [(MPReplayBuffer, START_METHODS[0]), *((MPPrioritizedReplayBuffer, method) for method in START_METHODS)],
)
def test_rows_of_several_writers_arrive_whole_and_once(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    buffer = buffer_class(2000, row_fields())
    answers = context.Queue()
    with running(context, add_in_pieces, [(buffer, writer, answers) for writer in (1, 2, 3)]) as writers:
        told = [answer(answers, writers) for _ in writers]
    rows = buffer[:]
    assert len(buffer) == buffer.next_index == 1800
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
    buffer = buffer_class(capacity, row_fields(width))
    stop = context.Event()
    with running(context, add_until, [(buffer, writer, width, stop) for writer in (1, 2)]):
        while len(buffer) == 0:
            time.sleep(0.001)
        until = time.monotonic() + 0.5
        batches = 0
        while time.monotonic() < until or batches < 20:
            batch = buffer.sample(16)
            assert_whole(batch)
            if "indexes" in batch:
                buffer.update_priorities(batch["indexes"], np.ones(16))
            batches += 1
        stop.set()
    assert_whole(buffer[:])


@every_buffer
@pytest.mark.parametrize("modes", ["plain", "dedupe_next", "dedupe_frames", "dedupe_next+dedupe_frames"])
def test_buffer_equals_a_plain_list_in_any_history(buffer_class, modes, tmp_path):
    for seed in range(20):
        History(seed, modes, kind=buffer_class).run(40, tmp_path)


DTYPES = [bool, np.uint8, np.int16, np.int64, np.uint64, np.float16, np.float32, np.float64, np.complex64]


@every_buffer
def test_every_dtype_comes_back_as_it_was_put_in(buffer_class):
    given = {np.dtype(dtype).name: np.array([[0, 1], [1, 0]], dtype) for dtype in DTYPES}
    buffer = buffer_class(4, {name: {"shape": 2, "dtype": name} for name in given})
    buffer.add(**given)
    assert as_bytes(buffer[:]) == as_bytes(given)


@every_buffer
def test_fields_default_to_float32_scalars(buffer_class):
    buffer = buffer_class(4, {"reward": {}})
    buffer.add(reward=1)
    rewards = buffer.sample(3).reward
    assert (rewards.dtype, rewards.shape) == (np.float32, (3,))


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
    assert_whole(buffer[:])


def test_uniform_draws_are_uniform():
    buffer = MPReplayBuffer(50, {"number": {"dtype": np.int64}}, seed=1)
    buffer.add(number=np.arange(70))
    drawn = np.concatenate([buffer.sample(1000)["number"] for _ in range(50)])
    assert stats.chisquare(np.bincount(drawn - 20, minlength=50)).pvalue > SIGNIFICANCE


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


def add_badly_and_then_a_row(buffer, answers):
    for fields, error in BAD_ADDS.values():
        with pytest.raises(error):
            buffer.add(**fields)
    add_rows(buffer, 1, 0, 1, answers)


@every_buffer
def test_bad_add_in_a_child_is_refused_and_blocks_nobody(buffer_class):
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = buffer_class(8, row_fields())
    assert in_child(context, add_badly_and_then_a_row, buffer) == 0
    assert len(buffer) == buffer.next_index == 1
    assert_whole(buffer.sample(4))
    buffer.add(**rows_of(2, 0, 3))
    assert_whole(buffer[:])


def test_a_shared_buffer_is_a_buffer_of_its_kind_but_not_private() -> None:
    for kind, parent in (MPReplayBuffer, ReplayBuffer), (MPPrioritizedReplayBuffer, PrioritizedReplayBuffer):
        buffer = kind(4, {"obs": {}})
        assert isinstance(buffer, parent)
        assert buffer not in private._buffers
