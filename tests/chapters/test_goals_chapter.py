"""Chapter 10: its checks find the faults of relabelling, and its record holds a curve for each memory."""

from collections.abc import Sequence
from typing import Any

import goals
import numpy as np
import pytest

from replay_tutorial.steps.goals import goal_q_learning
from replay_tutorial.steps.goals.bit_flip import GoalStep
from replay_tutorial.steps.goals.relabel_at_the_end import RelabelAtTheEnd, relabel, with_goal
from replay_tutorial.steps.goals.relabel_when_sampled import RelabelWhenSampled
from replay_tutorial.teaching import draw_goals
from replay_tutorial.teaching.exercises import CheckFailed, NotYet
from replay_tutorial.teaching.exercises_goals import check_goal, check_goals, check_relabel, check_row

Episode = Sequence[GoalStep]


def faulty(fault: str) -> Any:
    """A function that relabels with one fault."""

    def faulty_relabel(episode: Episode, t: int, rng: np.random.Generator) -> Any:
        step, last = episode[t], len(episode) - 1
        if fault == "nothing":
            return None
        if fault == "before the action":
            return with_goal(step, episode[rng.integers(t, last + 1)].obs)
        if fault == "never the own outcome":
            return with_goal(step, episode[rng.integers(min(t + 1, last), last + 1)].next_obs)
        if fault == "never the last state":
            return with_goal(step, episode[rng.integers(t, max(t + 1, last))].next_obs)
        if fault == "any state":
            return with_goal(step, episode[rng.integers(last + 1)].next_obs)
        if fault == "by number":
            later = int(rng.integers(t, last + 1))
            goal = episode[later].next_obs
            return step._replace(goal=goal, reward=float(later == t) - 1.0, terminated=later == t)
        if fault == "empty range":
            return with_goal(step, episode[rng.integers(t, last)].next_obs)
        new = relabel(episode, t, rng)
        if fault == "in place":
            step.goal[:] = new.goal
            return new
        if fault == "other step":
            return new._replace(next_obs=new.goal)
        kept = {"own goal": "goal", "own reward": "reward", "own terminated": "terminated"}[fault]
        return new._replace(**{kept: getattr(step, kept)})

    return faulty_relabel


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
    ("check", "wrong", "message"),
    [
        (check_relabel, faulty("nothing"), "expected a GoalStep, not None"),
        (check_relabel, faulty("before the action"), "achieved before the action"),
        (check_relabel, faulty("never the own outcome"), "must be equally frequent"),
        (check_relabel, faulty("never the last state"), "must be equally frequent"),
        (check_relabel, faulty("any state"), "achieved before the action"),
        (check_relabel, faulty("by number"), "Compare states, not the numbers of steps"),
        (check_relabel, faulty("empty range"), "rng.integers\\(low, high\\) excludes high"),
        (check_relabel, faulty("in place"), "the steps of the episode have changed|still the original"),
        (check_relabel, faulty("other step"), "they must be those of the step"),
        (check_relabel, faulty("own goal"), "still the original one"),
        (check_relabel, faulty("own reward"), "the reward of reaching \\[7, 1\\] is 0, not -1.0"),
        (check_relabel, faulty("own terminated"), "terminated must be True"),
        (check_goals, EndsAreForgotten, "achieved in another episode"),
        (check_goals, RewardsAreKept, "but reward -1.0, terminated True"),
        (check_goals, TooFewCopies, "rows are relabelled, not about 16,000"),
        (check_goals, EndsOnly, "100% of the new goals are the last state of their episode, not about 43%"),
        (check_goals, OwnOutcomesOnly, "20% of the new goals are the last state .*, not about 43%"),
    ],
)
def test_a_wrong_answer_fails_with_its_hint(check: Any, wrong: Any, message: str) -> None:
    with pytest.raises(CheckFailed, match=message):
        check(wrong)


def row_of(episode: Episode, t: int, goal: Any, n: int, gamma: float, fault: str) -> Any:
    total, discount, terminated = 0.0, 1.0, False
    if fault == "first of all" and any(with_goal(step, goal).terminated for step in episode[:t]):
        return 0.0, 0.0, goal
    for step in episode[t : t + n]:
        relabelled = step if fault == "own rewards" else with_goal(step, goal)
        total, discount = total + discount * relabelled.reward, discount * gamma
        terminated = relabelled.terminated
        if terminated and fault != "goes on":
            break
    fixed = fault == "γ^n"
    return total, 0.0 if terminated else gamma**n if fixed else discount, step.next_obs


@pytest.mark.parametrize("fault", ["own rewards", "goes on", "γ^n", "first of all"])
def test_the_exercise_finds_a_wrong_n_step_row(fault: str) -> None:
    check_row(lambda *given: row_of(*given, fault=""))
    with pytest.raises(NotYet):
        check_row(lambda *given: row_of(*given, fault=fault))


@pytest.mark.parametrize(("low", "high"), [(1, 0), (0, 1)])
def test_the_exercise_finds_a_goal_that_is_never_the_first_or_never_the_last(low: int, high: int) -> None:
    with pytest.raises(NotYet):
        check_goal(lambda t, n, rng: int(rng.integers(min(t + low, n - 1), max(n - high, t + 1))))


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
