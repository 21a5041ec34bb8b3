"""Several processes sample one shared buffer, and one of them updates its priorities."""

import copy
import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer
from replay_tutorial.buffers.ranking import Ranking
from replay_tutorial.buffers.schemes import Combined, Geometric, RankBased, Reverse
from replay_tutorial.shared import sampler
from replay_tutorial.shared.protocol import NEXT_INDEX, add_to_counter

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
        with pytest.raises(RuntimeError, match=f"Process {os.getppid()} is this buffer's updater"):
            buffer.sample(1)
    answers.put(len(buffer[:]["obs"]))


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


# By priority: each process has a tree, which follows the updates of one of them.


def answer_with_samples(buffer, questions, answers):
    """Sample whenever another process asks; answer which rows have mass, and the total of the masses."""
    while questions.get():
        batch = buffer.sample(64, beta=1.0)
        assert_whole(batch)
        answers.put((sorted(set(batch["indexes"].tolist())), buffer.total_mass, buffer.min_mass))


@pytest.mark.parametrize("start_method", START_METHODS[:2])
def test_a_process_that_only_samples_follows_the_updates_of_another(start_method):
    context = multiprocessing.get_context(start_method)
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), alpha=1.0, eps=0.0, seed=0)
    buffer.add(**rows_of(1, 0, 8))
    questions, answers = context.Queue(), context.Queue()
    with running(context, answer_with_samples, [(buffer, questions, answers)]) as processes:

        def seen():
            questions.put(True)
            return answer(answers, processes)

        assert seen() == (list(range(8)), 8.0, 1.0)
        for i in range(4):
            buffer.update_priorities(np.arange(8), np.eye(8)[i])
            assert seen() == ([i], 1.0, 1.0)
            buffer.update_priorities([i, i + 1, i + 1], [0.0, 5.0, 2.0])
            assert seen() == ([i + 1], 2.0, 2.0)
        buffer.add(**rows_of(2, 8, 1), priorities=4.0)
        assert seen() == ([4, 8], 6.0, 2.0)
        buffer.clear()
        buffer.add(**rows_of(2, 9, 2), priorities=3.0)
        assert seen() == ([9, 10], 6.0, 3.0)
        questions.put(False)


def update_here(buffer, then, answers):
    with pytest.raises(RuntimeError, match=f"Process {os.getppid()} is this buffer's updater"):
        buffer.update_priorities([3], [1.0])
    answers.put(buffer.total_mass)
    then.wait()
    buffer.update_priorities([3], [7.0])
    answers.put("updated")
    answers.close()
    answers.join_thread()
    os._exit(0)  # as if it was killed: it remains the updater


def test_one_process_updates_until_it_closes_the_buffer_or_dies():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), alpha=1.0, eps=0.0)
    buffer.add(**rows_of(1, 0, 8))
    updater, then, answers = copy.copy(buffer), context.Event(), context.Queue()
    updater.update_priorities([2], [3.0])
    with running(context, update_here, [(buffer, then, answers)]) as processes:
        assert answer(answers, processes) == 10.0
        updater.close()
        then.set()
        assert answer(answers, processes) == "updated"
    assert buffer.total_mass == 16.0
    buffer.update_priorities([3], [1.0])
    assert buffer.total_mass == 10.0


LENGTH = sampler.log_length(8)


@pytest.mark.parametrize("count", [1, LENGTH - 1, LENGTH, LENGTH + 1, 3 * LENGTH])
def test_a_sampler_that_the_log_has_lapped_checks_every_slot(count):
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), alpha=1.0, eps=0.0)
    buffer.add(**rows_of(1, 0, 8))
    late = copy.copy(buffer)
    for turn in range(1, 4):
        assert late.total_mass == buffer.total_mass
        indexes = np.arange(count) % 8
        buffer.update_priorities(indexes, 1.0 + turn * indexes)


def test_a_row_without_its_frames_loses_its_mass_in_one_tree():
    buffer = MPPrioritizedReplayBuffer(8, row_fields(), dedupe_next="obs", alpha=1.0, eps=0.0)
    buffer.add(**rows_of(1, 0, 8), next_obs=rows_of(2, 0, 8)["obs"])
    other = copy.copy(buffer)
    assert other.total_mass == buffer.total_mass == 8.0
    buffer._stages.rings[0].ring.stamps[0] = 0  # as if the first frame of row 0 had been replaced
    assert set(buffer.sample(200)["indexes"].tolist()) == set(range(1, 8))
    assert (buffer.total_mass, other.total_mass) == (7.0, 8.0)
    buffer.update_priorities([1], [2.0])
    assert (buffer.total_mass, other.total_mass) == (8.0, 9.0)


def test_a_buffer_that_another_handle_has_cleared_is_empty():
    buffer = MPPrioritizedReplayBuffer(8, row_fields())
    buffer.add(**rows_of(1, 0, 8))
    other = copy.copy(buffer)
    assert_whole(other.sample(2))
    buffer.clear()
    with pytest.raises(ValueError, match="the buffer is empty"):
        other.sample(2)
    assert other.total_mass == 0.0


def slots_by_group(ranking, masses):
    _, members, starts, counts, *_ = ranking.groups(masses)
    groups = np.flatnonzero(counts).tolist()
    return {group: sorted(members[starts[group] : starts[group] + counts[group]]) for group in groups}


@pytest.mark.parametrize("seed", range(8))
def test_every_sampler_sees_any_history_as_a_list_does(seed, monkeypatch):
    monkeypatch.setattr(sampler, "log_length", lambda capacity: 2048 if capacity > 64 else 8)
    rng = np.random.default_rng(seed)
    capacity, eps = int(rng.integers(1, 12)), seed % 2 / 2
    buffer = MPPrioritizedReplayBuffer(capacity, row_fields(), alpha=1.0, eps=eps, seed=0)
    handles, masses = [buffer, copy.copy(buffer), copy.copy(buffer)], {}
    next_index = cleared_before = 0
    for _ in range(300):
        handle, action = handles[rng.integers(3)], rng.random()
        if action < 0.3:
            count = int(rng.integers(1, 2 * capacity + 1))
            priorities = rng.integers(1, 9, count) * (rng.random(count) < 0.8)
            handle.add(**rows_of(1, next_index, count), priorities=priorities)
            masses |= dict(enumerate(priorities.tolist(), next_index))
            next_index += count
        elif action < 0.35:  # a writer reserves rows, and dies
            count = int(rng.integers(1, capacity + 1))
            add_to_counter(buffer._ring.counters, NEXT_INDEX, count)
            next_index += count
        elif action < 0.37:
            handle.clear()
            cleared_before = next_index
        elif action < 0.7 and next_index:
            indexes = rng.integers(max(0, next_index - 2 * capacity), next_index, rng.integers(1, 15))
            new = rng.integers(0, 9, len(indexes))
            handle.update_priorities(indexes, new)
            masses |= {i: m for i, m in zip(indexes.tolist(), new.tolist(), strict=True) if i in masses}
        newest = {index % capacity: index for index in masses}  # a row that never came replaces none
        stored = {i: masses[i] + eps for i in newest.values() if i >= cleared_before and masses[i] + eps}
        if action < 0.9:
            handle = handles[rng.integers(3)]
            if stored:
                drawn = handle.sample(16, beta=1.0)
                assert_whole(drawn)
                lightest = min(stored.values())
                expected = [lightest / stored[i] for i in drawn["indexes"].tolist()]
                np.testing.assert_allclose(drawn["weights"], expected, rtol=1e-6)
            expected = sum(stored.values()), min(stored.values(), default=0.0)
            assert (handle.total_mass, handle.min_mass) == pytest.approx(expected, rel=1e-12)
        elif stored:
            handle.sample(4, scheme=RankBased())
            tree = handle._sampler.tree
            assert slots_by_group(tree.ranking, tree.leaves) == slots_by_group(Ranking(capacity), tree.leaves)


def sample_beside_an_updater(buffer, stop, answers):
    batches = 0
    while not stop.is_set() or batches == 0:
        batch = buffer.sample(16, scheme=RankBased() if batches % 5 == 4 else None)
        assert_whole(batch)
        assert ((batch["weights"] > 0) & (batch["weights"] <= 1)).all()
        batches += 1
    answers.put((buffer.total_mass, buffer._sampler.tree.leaves[:64].tolist(), 16 * batches))


def test_samplers_agree_with_the_updater_when_it_has_stopped():
    context = multiprocessing.get_context(START_METHODS[0])
    buffer, stop, answers = MPPrioritizedReplayBuffer(64, row_fields()), context.Event(), context.Queue()
    buffer.add(**rows_of(1, 0, 64))
    rng = np.random.default_rng(0)
    with running(context, sample_beside_an_updater, 2 * [(buffer, stop, answers)]) as processes:
        for turn in range(400):
            buffer.add(**rows_of(1, 64 + 3 * turn, 3), priorities=rng.random(3))
            indexes = np.tile(buffer.sample(32)["indexes"], 200 if turn % 50 == 49 else 1)  # some lap the log
            buffer.update_priorities(indexes, rng.random(len(indexes)))
        stop.set()
        seen = [answer(answers, processes) for _ in processes]
    leaves = buffer._sampler.tree.leaves[:64].tolist()
    assert buffer.total_mass > 0.0 and leaves == buffer._masses(np.arange(64)).tolist()
    assert [each[:2] for each in seen] == 2 * [(buffer.total_mass, leaves)]
    assert buffer.statistics().rows_sampled == 400 * 32 + sum(each[2] for each in seen)


def test_clear_resets_the_maximum_even_if_a_writer_adds_a_small_priority_meanwhile() -> None:
    buffer = MPPrioritizedReplayBuffer(8, {"obs": {}})
    buffer.add(obs=0, priorities=1000.0)
    masses, max_priority = buffer._ring.rules.initial_masses(0.5, 1)  # the writer is here
    buffer.clear()
    buffer._ring.append(1, [0.0], masses, max_priority)
    assert buffer.max_priority == 0.5


def test_first_samples_of_several_threads_use_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = MPPrioritizedReplayBuffer(8, {"obs": {}})
    buffer.add(obs=np.arange(4), priorities=np.ones(4))
    start, starts = buffer._lease._start, []

    def slow_start() -> None:
        starts.append(1)
        time.sleep(0.05)
        start()

    monkeypatch.setattr(buffer._lease, "_start", slow_start)
    with ThreadPoolExecutor(4) as pool:
        samples = list(pool.map(lambda _: buffer.sample(4), range(4)))
    assert len(samples) == 4
    assert len(starts) == 1


def test_threads_that_add_first_are_one_writer() -> None:
    buffer = MPReplayBuffer(64, {"obs": {}})
    barrier = threading.Barrier(4)

    def add(i: int) -> None:
        barrier.wait()
        buffer.add(obs=i)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))
    assert buffer.statistics().writers_alive == 1
