"""Chapter 10: its checks find the faults of relabelling, and its record holds a curve for each memory."""

from typing import Any

import goals
import numpy as np
import pytest

from replay_course import draw_goals
from replay_course.exercises import CheckFailed
from replay_course.exercises_goals import check_goals
from replay_course.steps.goals import goal_q_learning
from replay_course.steps.goals.relabel_at_the_end import RelabelAtTheEnd
from replay_course.steps.goals.relabel_when_sampled import RelabelWhenSampled


class EndsAreForgotten(RelabelWhenSampled):
    def new_goals(self, drawn: Any) -> Any:
        later = self.rng.integers(drawn, np.minimum(drawn + 3, len(self.steps)))
        return np.stack([self.steps[i].next_obs for i in later])


class RewardsAreKept(RelabelWhenSampled):
    def sample(self, batch_size: int) -> Any:
        return super().sample(batch_size) | {"reward": np.full(batch_size, -1.0)}


class EndsOnly(RelabelWhenSampled):
    def new_goals(self, drawn: Any) -> Any:
        return np.stack([self.steps[self.ends[i] - 1].next_obs for i in drawn])


class OwnOutcomesOnly(RelabelWhenSampled):
    def new_goals(self, drawn: Any) -> Any:
        return np.stack([self.steps[i].next_obs for i in drawn])


class TooFewCopies(RelabelAtTheEnd):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, k=3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (EndsAreForgotten, "achieved in another episode"),
        (RewardsAreKept, "but reward -1.0, terminated True"),
        (TooFewCopies, "rows are relabelled, not about 16,000"),
        (EndsOnly, "100% of the new goals are the last state of their episode, not about 43%"),
        (OwnOutcomesOnly, "20% of the new goals are the last state .*, not about 43%"),
    ],
)
def test_a_wrong_memory_fails_with_its_reason(wrong: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check_goals(wrong)


def test_the_record_has_a_curve_and_a_rate_for_each_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goal_q_learning, "UPDATES", 1)
    monkeypatch.setattr(goal_q_learning, "BATCH_SIZE", 8)
    for name in ("own goals only", *goals.BOUNDS):
        run = goals.record(name, seed=0, bits=2, episodes=50)
        assert len(run["curve"]) == 1
        assert all(0 <= share <= 1 for share in [*run["curve"], run["success_rate"]])


def test_the_memories_of_the_record_choose_their_goals_as_the_strategies_are_defined() -> None:
    step, start, end, newest = np.array([4]), np.array([2]), np.array([7]), 11
    chosen = {
        name: [*range(int(np.max(low)), int(np.max(high)))]
        for name, bounds in goals.BOUNDS.items()
        for low, high in [bounds(step, start, end, newest)]
    }
    assert chosen["final"] == [6]
    assert chosen["future"] == chosen["before the action"] == [4, 5, 6]
    assert chosen["episode"] == [2, 3, 4, 5, 6]
    assert chosen["random"] == [*range(11)]
    assert chosen["another episode"] == [4, 5, 6, 7, 8, 9, 10]


def test_the_drawing_marks_the_goals_of_each_strategy() -> None:
    assert draw_goals(2).svg().count("fill-opacity") == 1 + 4 + 6 + 10
