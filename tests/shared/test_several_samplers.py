"""Several processes sample one shared buffer."""

import multiprocessing
import os
import threading

import numpy as np
import pytest
import shared_rows
from shared_rows import (
    START_METHODS,
    answer,
    assert_whole,
    every_start_method,
    in_child,
    row_fields,
    rows_of,
    running,
)

from replay_tutorial import MPReplayBuffer
from replay_tutorial.buffers.schemes import Combined, Geometric, Reverse

impatience = shared_rows.impatience

SCHEMES = None, Geometric(5), Combined(2), Reverse(3)
BATCHES, BATCH = 40, 8


def sample_and_check(buffer, answers):
    for i in range(BATCHES):
        batch = buffer.sample(BATCH, scheme=SCHEMES[i % len(SCHEMES)])
        assert_whole(batch)
    for batch in buffer.epoch(16):
        assert_whole(batch)
    answers.put(batch["number"].tolist())


@every_start_method
def test_every_process_samples_a_uniform_buffer(start_method):
    context = multiprocessing.get_context(start_method)
    buffer, answers = MPReplayBuffer(64, row_fields(), seed=0), context.Queue()
    buffer.add(**rows_of(1, 0, 64))
    with running(context, sample_and_check, 2 * [(buffer, answers)]) as processes:
        for i in range(BATCHES):
            assert_whole(buffer.sample(BATCH, scheme=SCHEMES[i % len(SCHEMES)]))
            buffer.add(**rows_of(1, 64 + 3 * i, 3))
        drawn = [answer(answers, processes) for _ in processes]
    assert drawn[0] != drawn[1], "both drew the same rows"
    assert buffer.statistics().rows_sampled == 3 * BATCHES * BATCH, "no count is lost"


def test_threads_sample_a_uniform_buffer_at_once():
    buffer, drawn = MPReplayBuffer(64, row_fields(), seed=0), []
    buffer.add(**rows_of(1, 0, 64))
    start = threading.Barrier(4)

    def sample():
        start.wait()
        drawn.extend(buffer.sample(BATCH) for _ in range(BATCHES))

    threads = [threading.Thread(target=sample) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for batch in drawn:
        assert_whole(batch)
    assert len({batch["number"].tobytes() for batch in drawn}) == 4 * BATCHES, "two threads drew the same"
    assert buffer.statistics().rows_sampled == 4 * BATCHES * BATCH


def sample_refused(buffer, answers):
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"Process {os.getppid()} is this buffer's sampler"):
            buffer.sample(1)
    answers.put(len(buffer.get_all_transitions()["obs"]))


def test_samples_are_counted_by_one_process():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPReplayBuffer(8, row_fields(), count_samples=True)
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(1)
    assert in_child(context, sample_refused, buffer) == 8


def clear_and_add(buffer, answers):
    buffer.clear()
    answers.put(buffer.add(**rows_of(2, 0, 3)))


def test_every_process_clears_a_uniform_buffer():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPReplayBuffer(8, row_fields())
    buffer.add(**rows_of(1, 0, 8))
    buffer.sample(4)
    assert in_child(context, clear_and_add, buffer) == 8
    assert set(np.unique(buffer.sample(50)["writer"])) == {2} and len(buffer) == 3
