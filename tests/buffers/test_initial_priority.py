"""The priority of rows that are added without one."""

from typing import Any

import numpy as np
import pytest

from replay_tutorial import MPPrioritizedReplayBuffer, PrioritizedReplayBuffer
from replay_tutorial.buffers.priorities import limit_of_priorities
from replay_tutorial.buffers.sum_tree import SumTree

FIELDS: dict[str, Any] = {"action": {"dtype": np.int64}}
KINDS = [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer]
each_kind = pytest.mark.parametrize("kind", KINDS)


def refreshed(buffer: Any) -> Any:
    """Let a shared buffer's sampler recompute the maximum."""
    if isinstance(buffer, MPPrioritizedReplayBuffer):
        buffer.update_priorities([], [])
    return buffer


@each_kind
def test_an_outlier_counts_until_it_is_replaced_or_updated(kind) -> None:
    for initial_priority, expected in (("max", 1e6), ("max_stored", 2.0)):
        for update in (False, True):
            buffer = kind(4, FIELDS, initial_priority=initial_priority)
            buffer.add(action=0, priorities=1e6)
            buffer.add(action=[1, 2, 3], priorities=[1, 2, 1])
            assert refreshed(buffer).max_priority == pytest.approx(1e6, rel=1e-12)
            if update:
                buffer.update_priorities([0], [0.5])
            else:
                buffer.add(action=4, priorities=0.5)
            new = refreshed(buffer).add(action=5)
            assert buffer.priorities[new] == pytest.approx(expected, rel=1e-12)
            assert buffer.max_priority == pytest.approx(expected, rel=1e-12)


def test_the_search_for_the_largest_mass_may_stop_at_the_first_row_that_has_it(monkeypatch) -> None:
    bounds, search = list[float](), SumTree.largest_mass

    def recorded(tree: SumTree, capacity: int, bound: float) -> float:
        bounds.append(bound)
        return search(tree, capacity, bound)

    monkeypatch.setattr(SumTree, "largest_mass", recorded)
    # The first two priorities have masses from which slightly other priorities follow.
    for priority in (0.014706304965369288, 0.2986961328189226, 0.3, 1.0):
        buffer = PrioritizedReplayBuffer(4, FIELDS, initial_priority="max_stored")
        buffer.add(action=[1, 2], priorities=priority)
        for _ in range(3):
            buffer.add(action=3)
            assert bounds[-1] == buffer._ring.leaves.max()  # pyright: ignore[reportPrivateUsage]


@each_kind
@pytest.mark.parametrize(("alpha", "eps"), [(0.6, 1e-4), (1.0, 0.0), (0.2, 1e-4)])
def test_new_rows_have_the_largest_priority_of_the_stored_rows(kind, alpha: float, eps: float) -> None:
    rng = np.random.default_rng(0)
    buffer = kind(50, FIELDS, alpha=alpha, eps=eps, initial_priority="max_stored", seed=0)
    expected: list[float] = []
    for _ in range(300):
        count = int(rng.integers(1, 4))
        if rng.random() < 0.6 or not expected:
            largest = max(expected[-50:], default=1.0)
            first = refreshed(buffer).add(action=np.zeros(count))
            np.testing.assert_allclose(buffer.priorities[first], largest, rtol=1e-9)
            expected += [largest] * count
        else:
            new = (10 ** rng.uniform(-3, 3, count)).tolist()
            buffer.add(action=np.zeros(count), priorities=new)
            expected += new
        if rng.random() < 0.7:
            indexes = buffer.sample(20)["indexes"]
            errors = 10 ** rng.uniform(-3, 1, 20)
            buffer.update_priorities(indexes, errors)
            for index, error in zip(indexes.tolist(), errors.tolist(), strict=True):
                expected[index] = error
    assert len(set(np.round(expected, 9))) > 200


@each_kind
def test_without_stored_mass_the_first_priority_is_1(kind, tmp_path) -> None:
    buffer = kind(4, FIELDS, eps=0.0, initial_priority="max_stored")
    assert refreshed(buffer).max_priority == 1.0
    buffer.add(action=[1, 2], priorities=5)
    buffer.update_priorities([0, 1], 0)
    assert refreshed(buffer).max_priority == 1.0
    assert buffer.priorities[buffer.add(action=3)] == 1.0
    buffer.update_priorities([2], 7)
    buffer.save(tmp_path / "saved")
    loaded = kind(4, FIELDS, eps=0.0, initial_priority="max_stored")
    loaded.load(tmp_path / "saved")
    assert loaded.priorities[refreshed(loaded).add(action=4)] == pytest.approx(7)
    buffer.clear()
    assert refreshed(buffer).max_priority == 1.0


@each_kind
def test_the_largest_valid_priority_remains_valid(kind, tmp_path) -> None:
    buffer, loaded = (kind(4, FIELDS, initial_priority="max_stored") for _ in range(2))
    limit = limit_of_priorities(4)
    buffer.add(action=[1, 2], priorities=limit)
    assert refreshed(buffer).max_priority <= limit
    buffer.update_priorities([0, 1], buffer.priorities[[0, 1]])
    buffer.save(tmp_path / "saved")
    loaded.load(tmp_path / "saved")
    assert loaded.max_priority == pytest.approx(limit)


@each_kind
def test_the_initial_1_counts_as_a_priority_that_has_been_set(kind) -> None:
    buffer = kind(4, FIELDS)
    assert buffer.max_priority == 1.0
    buffer.add(action=0)
    buffer.update_priorities([0], [0.25])
    assert buffer.max_priority == 1.0
    other = kind(4, FIELDS)
    other.add(action=0, priorities=0.25)
    assert other.max_priority == 0.25


@each_kind
def test_other_values_and_alpha_0_are_refused(kind) -> None:
    for wrong in ("stored", None, 1.0):
        with pytest.raises(ValueError, match='"max" or "max_stored", not'):
            kind(4, FIELDS, initial_priority=wrong)
    with pytest.raises(ValueError, match="alpha above 0"):
        kind(4, FIELDS, alpha=0, initial_priority="max_stored")


def test_rank_based_sampling_and_the_maximum_share_the_groups() -> None:
    from replay_tutorial.buffers.schemes import RankBased

    plain, both = (
        PrioritizedReplayBuffer(100, FIELDS, seed=0, initial_priority=name) for name in ("max", "max_stored")
    )
    rng = np.random.default_rng(0)
    for _ in range(30):
        priorities = rng.random(9)
        for buffer in (plain, both):
            buffer.add(action=np.zeros(9), priorities=priorities)
        assert both.max_priority <= plain.max_priority * (1 + 1e-12)
        samples = [buffer.sample(8, scheme=RankBased()) for buffer in (plain, both)]
        np.testing.assert_allclose(
            np.sort(samples[0]["probabilities"]), np.sort(samples[1]["probabilities"]), rtol=1e-9
        )
        for buffer in (plain, both):
            buffer.update_priorities(samples[0]["indexes"], priorities[:8] / 2)
