"""Reading rows and priorities by index, and epochs, compared with a list of everything that was added."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest

from replay_tutorial import (
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)

NUMBER: dict[str, Any] = {"dtype": np.int64}
FLAG: dict[str, Any] = {"dtype": bool}
IMAGE: dict[str, Any] = {"shape": (2, 8, 8), "dtype": np.uint8}
RING = [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer]
WITH_PRIORITIES = [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer]
STEP = {"obs": NUMBER, "next_obs": NUMBER, "reward": {}, "terminated": FLAG}


def images(first: int, count: int) -> Any:
    """Return stacks of two frames, each of which shows its number."""
    frames = np.arange(first, first + count)[:, None] + np.arange(2)
    return np.broadcast_to(frames[:, :, None, None], (count, 2, 8, 8)).astype(np.uint8)


def image_rows(first: int, count: int) -> dict[str, Any]:
    return {
        "obs": images(first, count),
        "next_obs": images(first + 1, count),
        "action": np.arange(first, first + count),
    }


def image_buffer(kind: Any, size: int, **options: Any) -> Any:
    return kind(
        size, {"obs": IMAGE, "action": NUMBER}, dedupe_next="obs", dedupe_frames={"obs": 0}, seed=0, **options
    )


def assert_rows(batch: dict[str, Any], indexes: Any) -> None:
    """Assert that a batch contains exactly the rows of `image_rows` with these indexes."""
    expected = image_rows(0, 200)
    assert batch.keys() == expected.keys()
    for name, array in batch.items():
        np.testing.assert_array_equal(array, expected[name][indexes], err_msg=name)
        assert array.dtype == expected[name].dtype


@pytest.mark.parametrize("kind", RING)
def test_the_rows_of_a_batch_longer_than_the_buffer_have_consecutive_indexes(kind) -> None:
    buffer = image_buffer(kind, 5)
    buffer.add(**image_rows(0, 3))
    first = buffer.add(**image_rows(3, 12))
    assert first == 3
    assert_rows(buffer[first + 7 + np.arange(5)], 3 + 7 + np.arange(5))
    with pytest.raises(IndexError, match="index 9 is not stored"):
        buffer[first + 6]


@pytest.mark.parametrize("kind", RING)
def test_rows_are_read_by_index_while_they_are_replaced(kind) -> None:
    buffer, rng, added = image_buffer(kind, 20), np.random.default_rng(0), 0
    assert buffer.capacity == 20
    while added < 150:
        count = int(rng.integers(1, 9))
        buffer.add(**image_rows(added, count))
        added += count
        oldest = max(0, added - 20)
        indexes = rng.integers(oldest, added, 30)
        assert_rows(buffer[indexes], indexes)
        assert_rows(buffer[indexes.tolist()], indexes)
        assert_rows(buffer[added - 1], added - 1)
        assert_rows(buffer[[]], np.empty(0, int))
        if oldest:
            with pytest.raises(IndexError, match=f"index {oldest - 1} is not stored"):
                buffer[[added - 1, oldest - 1]]
        for unknown in (added, -1, 10**12):
            with pytest.raises(IndexError, match=f"No row with index {unknown} has been added; .* {added}"):
                buffer[[oldest, unknown]]


@pytest.mark.parametrize("kind", RING)
@pytest.mark.parametrize("wrong", [1.0, np.nan, [0.0, 1.0], [True, False], "0", None, 2**70])
def test_indexes_that_are_no_integers_are_refused(kind, wrong: Any) -> None:
    buffer = image_buffer(kind, 20)
    buffer.add(**image_rows(0, 5))
    readers = [buffer, buffer.priorities] if kind in WITH_PRIORITIES else [buffer]
    for reader in readers:
        with pytest.raises((TypeError, IndexError), match="index"):
            reader[wrong]


@pytest.mark.parametrize("kind", RING)
def test_slices_return_the_stored_rows_of_a_range_of_indexes(kind) -> None:
    buffer, added = image_buffer(kind, 10), 0
    for count in (0, 1, 4, 5, 1, 9, 30):  # empty, filling, full, and wrapped around
        if count:
            buffer.add(**image_rows(added, count))
        added += count
        stored = np.arange(max(0, added - 10), added)
        np.testing.assert_array_equal(buffer.indexes, stored)
        bounds = (None, 0, 2, added - 4, added, added + 9, -1, -3, -10, -added - 2)
        for first in bounds:
            for stop in bounds:
                low, high, _ = slice(first, stop).indices(added)
                assert_rows(buffer[first:stop], stored[(stored >= low) & (stored < high)])
    assert_rows(buffer[-3:], [47, 48, 49])
    assert_rows(buffer[np.int64(45) : np.uint8(47)], [45, 46])
    assert_rows(buffer[45:47:1], [45, 46])
    buffer[:]["action"][:] = -1  # a copy
    assert_rows(buffer[:], np.arange(40, 50))
    for step in (2, -1):
        with pytest.raises(ValueError, match=f"must have step 1, not {step}; pass an array of indexes"):
            buffer[::step]
    with pytest.raises(ValueError, match="slice step cannot be zero"):
        buffer[::0]
    for wrong in (slice(1.0), slice("a", None)):
        with pytest.raises(TypeError, match="slice indices must be integers"):
            buffer[wrong]
    buffer.clear()
    assert_rows(buffer[:], np.empty(0, int))


@pytest.mark.parametrize("kind", RING)
def test_an_epoch_contains_every_row_once(kind) -> None:
    buffer = image_buffer(kind, 30)
    buffer.add(**image_rows(0, 25))
    buffer.add(**image_rows(25, 20))
    for shuffle in (True, False):
        batches = list(buffer.epoch(8, shuffle=shuffle))
        assert [len(batch["action"]) for batch in batches] == [8, 8, 8, 6]
        order = np.concatenate([batch["indexes"] for batch in batches])
        assert (order.tolist() == list(range(15, 45))) is not shuffle
        np.testing.assert_array_equal(np.sort(order), np.arange(15, 45))
        for batch in batches:
            assert_rows(batch, batch.pop("indexes"))
    whole = next(buffer.epoch(len(buffer)))
    assert_rows(whole, whole.pop("indexes"))
    assert_rows(buffer[:], np.arange(15, 45))


@pytest.mark.parametrize("kind", RING)
def test_rows_replaced_during_an_epoch_are_left_out(kind) -> None:
    buffer = image_buffer(kind, 20)
    buffer.add(**image_rows(0, 20))
    epoch = buffer.epoch(5, shuffle=False)
    assert_rows(batch := next(epoch), batch.pop("indexes"))
    buffer.add(**image_rows(20, 12))
    rest = [batch["indexes"].tolist() for batch in epoch]
    assert rest == [[12, 13, 14], [15, 16, 17, 18, 19]]


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_rows_removed_by_load_during_an_epoch_are_left_out(kind, tmp_path) -> None:
    buffer = kind(100, {"action": NUMBER})
    buffer.add(action=np.arange(10))
    buffer.save(tmp_path / "saved")
    buffer.add(action=np.arange(10, 90))
    epoch = buffer.epoch(8, shuffle=False)
    next(epoch)
    buffer.load(tmp_path / "saved")
    assert [batch["action"].tolist() for batch in epoch] == [[8, 9]]


@pytest.mark.parametrize("kind", RING)
def test_epochs_are_refused_at_the_call(kind) -> None:
    buffer = kind(5, {"action": NUMBER})
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.epoch(1)
    buffer.add(action=0)
    for wrong, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error, match="batch_size"):
            buffer.epoch(wrong)
    buffer.clear()
    assert len(buffer[:]["action"]) == len(buffer.indexes) == 0
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.epoch(1)
    with pytest.raises(IndexError, match="index 0 is not stored"):
        buffer[0]
    with pytest.raises(TypeError, match=r"epoch\(batch_size\)"):
        list(buffer)
    if kind not in WITH_PRIORITIES:
        buffer = kind(5, {"indexes": NUMBER})
        buffer.add(indexes=7)
        assert buffer[0] == {"indexes": 7}
        with pytest.raises(ValueError, match="rename the field"):
            buffer.epoch(1)


@pytest.mark.parametrize("kind", WITH_PRIORITIES)
@pytest.mark.parametrize(("alpha", "eps"), [(1.0, 0.0), (0.6, 1e-4), (0.1, 1e-4)])
def test_priorities_are_those_that_were_set(kind, alpha: float, eps: float) -> None:
    buffer, rng = kind(50, {"action": NUMBER}, alpha=alpha, eps=eps, seed=0), np.random.default_rng(0)
    expected: list[float] = []
    for _ in range(30):
        if rng.random() < 0.3:
            new = [buffer.max_priority] * int(rng.integers(1, 5))
            buffer.add(action=np.zeros(len(new)))
        else:
            new = (10 ** rng.uniform(-6, 6, rng.integers(1, 9))).tolist()
            buffer.add(action=np.zeros(len(new)), priorities=new)
        expected += new
        if rng.random() < 0.5:
            indexes = buffer.sample(9)["indexes"]
            priorities = rng.random(9) * (rng.random(9) < 0.8)
            buffer.update_priorities(indexes, priorities)
            for index, priority in zip(indexes.tolist(), priorities.tolist(), strict=True):
                expected[index] = priority
        stored = np.arange(max(0, len(expected) - 50), len(expected))
        found = buffer.priorities[stored]
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, np.array(expected)[stored], rtol=1e-11, atol=1e-12 * eps)
        assert buffer.priorities[int(stored[0])] == found[0]
    assert stored[0] > 0
    for wrong, error in ((stored[0] - 1, "is not stored"), (-1, "has been added"), (10**6, "has been added")):
        with pytest.raises(IndexError, match=error):
            buffer.priorities[[stored[0], wrong]]


@pytest.mark.parametrize("kind", WITH_PRIORITIES)
def test_unknown_indexes_have_one_error(kind) -> None:
    buffer = kind(5, {"action": NUMBER})
    calls = (lambda: buffer[0], lambda: buffer.priorities[0], lambda: buffer.update_priorities([0], [1.0]))
    for call in calls:
        with pytest.raises(IndexError, match=r"^No row with index 0 has been added; the next index is 0\.$"):
            call()


@pytest.mark.parametrize("kind", WITH_PRIORITIES)
def test_without_alpha_priorities_are_unknown(kind) -> None:
    buffer = kind(5, {"action": NUMBER}, alpha=0.0)
    buffer.add(action=0, priorities=3)
    with pytest.raises(ValueError, match="alpha=0"):
        buffer.priorities[0]
    with pytest.raises(TypeError, match="not iterable"):
        list(buffer.priorities)


def read(buffer: Any) -> list[Any]:
    rows = buffer[[3, 4]]
    order = np.sort(np.concatenate([batch["indexes"] for batch in buffer.epoch(4)]))
    return [rows["action"], buffer.priorities[[3, 4]], buffer.indexes, buffer[:]["action"], order]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_any_process_reads_a_shared_buffer() -> None:
    buffer = image_buffer(MPPrioritizedReplayBuffer, 10)
    buffer.add(**image_rows(0, 12), priorities=np.arange(12))
    buffer.sample(2)  # this process is the sampler
    buffer.update_priorities([4], [0.5])
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        acts, priorities, *orders = pool.submit(read, buffer).result(timeout=60)
    assert acts.tolist() == [3, 4]
    np.testing.assert_allclose(priorities, [3, 0.5], rtol=1e-12)
    for order in orders:
        np.testing.assert_array_equal(order, np.arange(2, 12))


@pytest.mark.filterwarnings("ignore:The frames of 'obs'")
def test_rows_of_a_shared_buffer_that_lack_a_frame_are_not_stored() -> None:
    buffer = MPReplayBuffer(3000, {"obs": {}}, dedupe_next="obs", frames_per_transition=1)
    obs = np.arange(2 * 3000)
    buffer.add(obs=obs[::2], next_obs=obs[1::2])  # two frames a row, but room for one
    indexes = np.sort(np.concatenate([batch["indexes"] for batch in buffer.epoch(999)]))
    assert 0 < len(indexes) < len(buffer.indexes) == 3000
    for some in (slice(None), slice(-2900, -100), slice(5), slice(2999, None), slice(7, 7)):
        first, stop, _ = some.indices(3000)
        expected = indexes[(indexes >= first) & (indexes < stop)]
        np.testing.assert_array_equal(buffer[some]["obs"], obs[2 * expected])
    gone = np.setdiff1d(np.arange(3000), indexes)[0]
    with pytest.raises(IndexError, match=f"index {gone} is not stored"):
        buffer[[indexes[0], gone]]


def episode_buffer(kind: Any, **options: Any) -> Any:
    return kind(60, STEP, num_envs=2, seed=0, alpha=0.6, **options)


def add_episodes(buffer: Any, steps: int) -> dict[int, int]:
    """Add steps to two environments in turns; return the observation of each index."""
    rng, obs = np.random.default_rng(0), {}
    now = np.array([0, 1000])
    for _ in range(steps):
        ends = rng.random(2) < 0.2
        indexes = buffer.add_step(obs=now, next_obs=now + 1, reward=now, terminated=ends, priorities=now + 1)
        obs |= dict(zip(indexes.tolist(), now.tolist(), strict=True))
        now = now + 1 + 100 * ends
    return obs


def no_reward(achieved: Any, goals: Any, rows: Any) -> Any:
    return np.zeros(len(goals))


def test_steps_of_episodes_are_read_by_index() -> None:
    buffer = episode_buffer(EpisodeReplayBuffer)
    obs = add_episodes(buffer, 100)
    whole, stored = buffer[:], buffer.indexes
    assert len(stored) == len(buffer) and np.all(np.diff(stored) > 0)
    expected = np.array([obs[index] for index in stored.tolist()])
    np.testing.assert_array_equal(whole["obs"], expected)
    rows = buffer[stored[::-1]]
    np.testing.assert_array_equal(rows["next_obs"], expected[::-1] + 1)
    np.testing.assert_allclose(buffer.priorities[stored], expected + 1, rtol=1e-11)
    epoch = list(buffer.epoch(7))
    np.testing.assert_array_equal(np.sort(np.concatenate([batch["indexes"] for batch in epoch])), stored)
    for batch in epoch:
        np.testing.assert_array_equal(batch["obs"], [obs[index] for index in batch["indexes"].tolist()])

    final = max(set(range(min(buffer.next_index_of(0), buffer.next_index_of(1)))) - obs.keys())
    evicted = buffer.episodes()["episode"][buffer.episodes()["finished"]][-1]
    of_episode = buffer.get_episode(evicted)["indexes"][0]
    buffer.evict(evicted)
    for wrong, error in (
        (0, "is not stored"),
        (of_episode, "is not stored"),
        (final, "belongs to the final"),
    ):
        for reader in (buffer, buffer.priorities):
            with pytest.raises(IndexError, match=f"(?i)index {wrong} {error}"):
                reader[[stored[-1], wrong]]
    stored = buffer.indexes  # without the evicted episode
    for some in (slice(None), slice(-9, None), slice(stored[4], stored[-4]), slice(final, final + 1)):
        low, high, _ = some.indices(stored[-1] + 1)
        chosen = stored[(stored >= low) & (stored < high)]
        assert buffer[some]["obs"].tolist() == [obs[index] for index in chosen.tolist()]
    for wrong in (-1, 10**6):
        with pytest.raises(IndexError, match=f"No step with index {wrong}"):
            buffer[wrong]
    assert of_episode not in np.concatenate([batch["indexes"] for batch in buffer.epoch(7)])


def test_sequences_and_hindsight_return_the_steps_as_they_were_stored() -> None:
    sequences = SequenceReplayBuffer(60, STEP, 4, period=2, num_envs=2, alpha=0.6, seed=0)
    obs = add_episodes(sequences, 20)
    batch = sequences.sample(8)
    starts = batch["indexes"]
    np.testing.assert_array_equal(sequences[starts]["obs"], batch["obs"][:, 0])
    sequences.update_priorities(starts, 2.5)
    np.testing.assert_allclose(sequences.priorities[starts], 2.5, rtol=1e-11)
    inside = next(index + 2 for index in starts if index + 2 in obs)  # the next step, where no window begins
    with pytest.raises(IndexError, match="no window begins there"):
        sequences.priorities[inside]
    assert sequences[inside]["obs"] == obs[inside]

    goals = dict.fromkeys(("desired_goal", "achieved_goal", "next_achieved_goal"), NUMBER)
    hindsight = HindsightReplayBuffer(
        60, STEP | goals, no_reward, lambda *_: np.ones(len(_[1]), bool), relabel=1.0, goal="desired_goal",
        achieved_goal="achieved_goal", seed=0,
    )  # fmt: skip
    for step in range(10):
        hindsight.add(
            obs=step, next_obs=step + 1, reward=-1, terminated=False, desired_goal=50, achieved_goal=step,
            next_achieved_goal=step + 1,
        )  # fmt: skip
    rows = hindsight[hindsight.sample(5)["indexes"]]
    assert set(rows["desired_goal"].tolist()) == {50} and set(rows["reward"].tolist()) == {-1.0}


@pytest.mark.parametrize("kind", WITH_PRIORITIES)
def test_reading_changes_no_random_state_and_is_not_affected_by_later_calls(kind) -> None:
    buffers = [kind(20, {"action": NUMBER}, seed=0) for _ in range(2)]
    for buffer in buffers:
        buffer.add(action=np.arange(20))
    rows = buffers[0][np.arange(20)]
    rows["action"][:] = -1
    buffers[0].priorities[np.arange(20)][:] = 7
    list(buffers[0].epoch(3, shuffle=False))
    first, second = (buffer.sample(16) for buffer in buffers)
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
