"""The traps that replay buffers fall into, each walked around once: one test a trap, named as a sentence.

The other test files try the same ground at length; these are the short stories. The reading of half-
written rows by another process is a trap of shared memory, and is tested there.
"""

import math
from typing import Any

import numpy as np
import pytest
from histories import snapshot

from replay_tutorial import NStep, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.sum_tree import SumTree, find_leaves

ACT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}
STEP: dict[str, dict[str, Any]] = {
    "obs": {"dtype": np.int64},
    "reward": {},
    "next_obs": {"dtype": np.int64},
    "terminated": {"dtype": bool},
    "truncated": {"dtype": bool},
}


def find(tree: SumTree, queries: np.ndarray) -> np.ndarray:
    return find_leaves(tree.sums, queries)[0]


def prioritized(size: int, alpha: float = 1.0, eps: float = 0.0) -> PrioritizedReplayBuffer:
    return PrioritizedReplayBuffer(size, ACT, alpha=alpha, eps=eps, seed=0)


def weights(buffer: PrioritizedReplayBuffer, batch_size: int = 500) -> dict[int, float]:
    """The weight, at beta 1, of every row that is ever drawn."""
    sample = buffer.sample(batch_size, beta=1.0)
    return dict(sorted(zip(sample["indexes"].tolist(), sample["weights"].tolist(), strict=True)))


def test_01_sums_do_not_drift_however_often_masses_change():
    tree = SumTree(8)
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        tree.set(rng.integers(0, 8, 4), 10.0 ** rng.uniform(-6, 6, 4))
    tree.set(np.arange(8), np.full(8, 1e-6))
    assert tree.total == 8e-6
    assert find(tree, np.array([np.nextafter(tree.total, 0)])).tolist() == [7]


def test_02_query_equal_to_an_edge_or_the_total_never_finds_an_empty_slot():
    tree = SumTree(8)
    tree.set(np.array([1, 3]), np.array([0.5, 0.25]))
    queries = np.array([0.0, np.nextafter(0.5, 0), 0.5, np.nextafter(0.75, 0), 0.75, np.nextafter(0.75, 1)])
    assert find(tree, queries).tolist() == [1, 1, 3, 3, 3, 3]


def test_03_no_slot_at_or_beyond_the_capacity_is_drawn_at_powers_of_two():
    for capacity in (1, 2, 4, 8, 1024):
        tree = SumTree(capacity)
        tree.set(np.arange(capacity), np.full(capacity, 0.1))
        found = find(tree, np.array([tree.total, np.nextafter(tree.total, math.inf), 2 * tree.total]))
        assert found.tolist() == [capacity - 1] * 3
        buffer = prioritized(capacity)
        buffer.add(action=np.arange(3 * capacity))
        assert set(buffer.sample(4 * capacity)["action"].tolist()) == set(range(2 * capacity, 3 * capacity))


def test_04_leaves_stand_in_the_order_of_their_slots_when_the_capacity_is_no_power_of_two():
    for capacity in (3, 5, 6, 7, 1000):
        tree = SumTree(capacity)
        tree.set(np.arange(capacity), np.arange(1.0, capacity + 1))
        firsts = np.concatenate([[0.0], np.cumsum(np.arange(1.0, capacity))])
        assert find(tree, firsts).tolist() == list(range(capacity))


def test_05_newest_row_is_drawn():
    for kind in (ReplayBuffer, PrioritizedReplayBuffer):
        for size in (1, 2, 3, 7, 8):
            buffer = kind(size, ACT, seed=0)
            for action in range(3 * size):
                buffer.add(action=action)
                assert action in buffer.sample(200)["action"]


def test_06_alpha_is_applied_once_also_on_add():
    added, updated = prioritized(2, alpha=0.5), prioritized(2, alpha=0.5)
    added.add(action=[0, 1], priorities=[1.0, 16.0])
    updated.add(action=[0, 1])
    updated.update_priorities([0, 1], [1.0, 16.0])
    follower = prioritized(2, alpha=0.5)
    follower.add(action=0, priorities=16.0)
    follower.add(action=1)  # gets the max priority, 16, not 16 ** 0.5
    follower.update_priorities([0], [1.0])
    for buffer in (added, updated, follower):
        assert weights(buffer) == {0: 1.0, 1: 0.25}
        assert buffer.max_priority == 16.0


def test_07_weights_compare_masses_with_masses():
    buffer = prioritized(2, alpha=0.5, eps=1.0)
    buffer.add(action=[0, 1], priorities=[3.0, 63.0])  # masses 2 and 8, whatever the raw minimum 3 is
    assert weights(buffer) == {0: 1.0, 1: 0.25}


def test_08_largest_weight_and_max_priority_are_not_stale_after_an_overwrite():
    buffer = prioritized(3)
    buffer.add(action=[0, 1, 2], priorities=[0.25, 1.0, 2.0])
    assert weights(buffer) == {0: 1.0, 1: 0.25, 2: 0.125}
    buffer.add(action=3, priorities=4.0)  # in the place of the smallest mass
    assert weights(buffer) == {1: 1.0, 2: 0.5, 3: 0.25}
    buffer.add(action=[4, 5, 6], priorities=[1.0, 1.0, 1.0])
    assert buffer.max_priority == 4.0, "the largest that any row has been given, by definition"
    buffer.add(action=7)
    assert weights(buffer) == {5: 1.0, 6: 1.0, 7: 0.25}


def test_09_late_update_never_hits_the_row_that_took_the_place():
    buffer = prioritized(4)
    buffer.add(action=[0, 1, 2, 3])
    drawn = buffer.sample(4)["indexes"]
    buffer.add(action=[4, 5])
    buffer.update_priorities(drawn, [8.0, 8.0, 2.0, 2.0])
    assert buffer.stale_updates == 2
    assert weights(buffer) == {2: 0.5, 3: 0.5, 4: 1.0, 5: 1.0}
    assert buffer.max_priority == 2.0


def test_10_of_repeated_indexes_the_last_priority_wins():
    buffer = prioritized(2)
    buffer.add(action=[0, 1])
    buffer.update_priorities([1, 0, 1, 1], [9.0, 1.0, 7.0, 4.0])
    assert weights(buffer) == {0: 1.0, 1: 0.25}


def test_11_next_observation_and_window_are_right_across_the_wrap_around():
    for size in (1, 2, 3, 4, 5):
        settings = NStep(3, gamma=1.0)
        one_step = ReplayBuffer(size, STEP, dedupe_next="obs")
        three_step = ReplayBuffer(size, STEP, dedupe_next="obs", n_step=settings)
        for t in range(17):
            step = {"obs": t, "reward": t, "next_obs": t + 1, "terminated": False, "truncated": False}
            one_step.add(**step)
            three_step.add(**step)
            for buffer, k in ((one_step, 1), (three_step, 3)):
                rows = buffer[:]
                assert rows["next_obs"].tolist() == (rows["obs"] + k).tolist()
                assert rows["reward"].tolist() == [sum(range(obs, obs + k)) for obs in rows["obs"].tolist()]


def test_12_next_observation_at_truncation_is_the_last_one_not_the_reset():
    buffer = ReplayBuffer(10, STEP, dedupe_next="obs")
    for t in (0, 1, 2):
        buffer.add(obs=t, reward=0, next_obs=t + 1, terminated=False, truncated=t == 2)
    buffer.end_episode()
    buffer.add(obs=100, reward=0, next_obs=101, terminated=False, truncated=False)
    assert buffer[:]["next_obs"].tolist() == [1, 2, 3, 101]


def test_13_return_has_n_rewards_and_tails_have_those_that_were_there():
    buffer = ReplayBuffer(10, STEP, n_step=3, gamma=0.5)
    for t in range(4):
        buffer.add(obs=t, reward=1, next_obs=t + 1, terminated=False, truncated=t == 3)
    rows = buffer[:]
    assert rows["reward"].tolist() == [1.75, 1.75, 1.5, 1.0]
    assert rows["discount"].tolist() == [0.125, 0.125, 0.25, 0.5]
    assert rows["next_obs"].tolist() == [3, 4, 4, 4]


def test_14_only_terminated_stops_bootstrapping():
    for terminated, truncated, discount in ((True, False, 0.0), (False, True, 0.25), (True, True, 0.0)):
        buffer = ReplayBuffer(10, STEP, n_step=2, gamma=0.5)
        buffer.add(obs=0, reward=1, next_obs=1, terminated=False, truncated=False)
        buffer.add(obs=1, reward=1, next_obs=2, terminated=terminated, truncated=truncated)
        rows = buffer[:]
        assert rows["discount"].tolist() == [discount, 2 * discount]
        assert rows["terminated"].tolist() == [terminated, terminated]


def test_15_frame_stack_never_reaches_into_the_previous_episode():
    fields = {"obs": {"shape": (3, 2), "dtype": np.uint8}}
    buffer = ReplayBuffer(20, fields, dedupe_next="obs", dedupe_frames={"obs": 0})
    expected = []
    for episode in (10, 20, 30):
        frames = [episode] * 3 + [episode + t for t in range(1, 6)]  # a wrapper repeats the reset's frame
        for t in range(5):
            buffer.add(
                obs=np.repeat(frames[t : t + 3], 2).reshape(3, 2),
                next_obs=np.repeat(frames[t + 1 : t + 4], 2).reshape(3, 2),
            )
            expected.append((frames[t : t + 3], frames[t + 1 : t + 4]))
        buffer.end_episode()
    rows = buffer[:]
    assert [
        (obs[:, 0].tolist(), following[:, 1].tolist()) for obs, following in zip(*rows.values(), strict=True)
    ] == expected


def test_17_negative_nan_and_infinite_priorities_are_refused_before_anything_changes():
    buffer = prioritized(4)
    buffer.add(action=[0, 1, 2], priorities=[1.0, 2.0, 3.0])
    before = snapshot(buffer)
    for bad in (-1.0, math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError):
            buffer.add(action=[3, 4], priorities=[1.0, bad])
        with pytest.raises(ValueError):
            buffer.update_priorities([0, 1], [9.0, bad])
    assert snapshot(buffer) == before


def test_18_file_remembers_the_tree_the_counters_the_window_and_the_randomness(tmp_path):
    settings = NStep(3, gamma=0.5)

    def build() -> PrioritizedReplayBuffer:
        return PrioritizedReplayBuffer(4, STEP, n_step=settings, alpha=1.0, eps=0.0)

    buffer, loaded = build(), build()
    for t in range(9):
        buffer.add(obs=t, reward=1, next_obs=t + 1, terminated=False, truncated=False, priorities=t + 1)
    buffer.update_priorities([0, 5], [1.0, 20.0])
    buffer.sample(3)
    buffer.save(tmp_path / "buffer")
    loaded.load(tmp_path / "buffer")
    for each in (buffer, loaded):
        each.end_episode()
    assert loaded[:]["reward"].tolist() == [1.75, 1.75, 1.5, 1.0]
    assert (loaded.next_index, loaded.stale_updates, loaded.max_priority) == (9, 1, 20.0)
    mine, theirs = buffer.sample(50, beta=1.0), loaded.sample(50, beta=1.0)
    assert {name: column.tolist() for name, column in mine.items()} == {
        name: column.tolist() for name, column in theirs.items()
    }


def test_20_max_priority_is_kept_in_full_and_the_last_of_many_leaves_is_reached():
    largest = 0.1 + 1e-12  # float32 would round it up, and no row could have it
    buffer = prioritized(3)
    buffer.add(action=0, priorities=largest)
    buffer.add(action=1)
    assert buffer.max_priority == largest
    buffer.update_priorities([0], [buffer.max_priority])
    assert weights(buffer) == {0: 1.0, 1: 1.0}
    tree = SumTree(1 << 16)
    masses = np.concatenate([[1e9], np.ones((1 << 16) - 1)])  # in float32, 1e9 + 1 is 1e9
    tree.set(np.arange(1 << 16), masses)
    assert find(tree, 1e9 + np.arange(5.0)).tolist() == [1, 2, 3, 4, 5]
    assert find(tree, np.array([np.nextafter(tree.total, 0)])).tolist() == [(1 << 16) - 1]
