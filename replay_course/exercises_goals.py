"""Chapter 10: the checks of relabelling, and the exercises: rewards, an n-step row, a goal with a bug.

The checks use numbered episodes: a state is [episode, step], so a goal shows where it was achieved.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from replay_course.answers import call, expect_independent, numbers
from replay_course.chi_square import fairness
from replay_course.exercises import CheckFailed, Hints, NotYet, expect
from replay_course.steps.goals.bit_flip import GoalStep

GAMMA = 0.5

relabel_hints = Hints(
    "Two things are drawn or computed: which later step lends its goal, and what step t looks like with this "
    "goal. The step itself happened: obs, action and next_obs stay as they are.",
    "The later step may be step t itself, and may be the last one: rng.integers(t, len(episode)).",
    "The goal that a step has achieved is the state after its action: next_obs, not obs.",
    "Recompute both: reward(episode[t].next_obs, goal) and reached(episode[t].next_obs, goal).",
    "Return episode[t]._replace(goal=goal, reward=..., terminated=...), which is a new GoalStep.",
)


def numbered_episode(number: int, length: int) -> list[GoalStep]:
    """Return an episode whose states are [number, step], and whose goal, [-1, -1], is never reached."""
    states = [np.array([number, step]) for step in range(length + 1)]
    goal = np.array([-1, -1])
    return [GoalStep(states[t], t, -1.0, states[t + 1], False, goal) for t in range(length)]


def check_relabel(relabel: Callable[..., Any]) -> None:
    """Check a function `relabel(episode, t, rng)` that returns step t with a goal achieved after its action.

    Args:
        relabel: Called with a list of `GoalStep`, a step's number, and a random generator.

    Raises:
        CheckFailed: On the first step that is wrong, or if some goals are drawn too often.
    """
    for length in (1, 2, 9):
        episode = numbered_episode(7, length)
        for t in range(length):
            rng, drawn = np.random.default_rng(t), list[int]()
            for _ in range(400):
                try:
                    step = relabel(episode, t, rng)
                except ValueError as error:
                    where = f"step {t} of {length} (0 to {length - 1}): {error}"
                    raise CheckFailed(f"{where}. rng.integers(low, high) excludes high") from error
                expect_relabelled(step, t, length)
                drawn.append(int(step.goal[1]))
            kept = all(step.goal.tolist() == [-1, -1] and step.reward == -1.0 for step in episode)
            expect(kept, "the steps of the episode have changed: return a new GoalStep instead")
            counts = np.bincount(drawn, minlength=length + 1)
            allowed = (np.arange(length + 1) > t).astype(float)
            expect(
                fairness(counts, allowed).is_fair,
                f"step {t} of {length} (0 to {length - 1}): the goals [7, {t + 1}] to [7, {length}] must be "
                f"equally frequent, but were drawn {counts[t + 1 :].tolist()} times. The own outcome of a "
                "step and the last state are goals, too",
            )
            where = f"step {t} of {length} (0 to {length - 1})"
            expect_independent(np.array(drawn) - t - 1, length - t, where, "goal", CheckFailed)
    check_revisited(relabel)
    episode, same = numbered_episode(7, 50), [np.random.default_rng(0) for _ in range(2)]
    first, second = (np.array([relabel(episode, t, rng).goal for t in range(20)]) for rng in same)
    expect(np.array_equal(first, second), "the same generator gave different goals: draw only with `rng`")
    print("right: every goal was achieved after the action, in the same episode, all are equally likely,")
    print("and the reward and terminated are those for the new goal")


def check_revisited(relabel: Callable[..., Any]) -> None:
    """Raise CheckFailed if the results for a goal depend on the number of the step that achieved it."""
    states = [np.array([7, t % 2]) for t in range(4)]
    episode = [GoalStep(states[t], t, -1.0, states[t + 1], False, np.array([-1, -1])) for t in range(3)]
    rng = np.random.default_rng(0)
    for t in [0] * 30 + [1] * 30:
        step = relabel(episode, t, rng)
        wanted = step.goal.tolist() == step.next_obs.tolist()
        expect(
            step.reward == wanted - 1.0 and bool(step.terminated) == wanted,
            f"an episode visits [7, 0], [7, 1], [7, 0], [7, 1]: step {t} with the goal "
            f"{step.goal.tolist()} has the reward {step.reward} and terminated {step.terminated}. Compare "
            "states, not the numbers of steps",
        )


def expect_relabelled(step: Any, t: int, length: int) -> None:
    """Raise CheckFailed unless step t of numbered episode 7 has a possible goal, and the results for it."""
    where = f"step {t} of {length} (0 to {length - 1})"
    expect(isinstance(step, GoalStep), f"{where}: expected a GoalStep, not {step!r:.60}")
    moved = (step.obs.tolist(), step.action, step.next_obs.tolist())
    expect(
        moved == ([7, t], t, [7, t + 1]),
        f"{where}: obs, action and next_obs are {moved}; they must be those of the step, whatever the goal",
    )
    goal: list[int] = np.asarray(step.goal).tolist()
    expect(goal != [-1, -1], f"{where}: the goal is still the original one")
    expect(
        len(goal) == 2 and goal[0] == 7 and 0 <= goal[1] <= length,
        f"{where}: the goal is {goal}, which is not a state of the episode",
    )
    expect(
        goal[1] > t,
        f"{where}: the goal is {goal}, but the action leads from [7, {t}] to [7, {t + 1}]. This goal was "
        "achieved before the action, so the step can't have led to it",
    )
    wanted = goal[1] == t + 1
    expect(
        step.reward == wanted - 1.0,
        f"{where}: with the goal {goal}, the reward of reaching [7, {t + 1}] is {wanted - 1}, "
        f"not {step.reward}",
    )
    expect(
        bool(step.terminated) == wanted,
        f"{where}: with the goal {goal}, terminated must be {wanted} after reaching [7, {t + 1}]. "
        "Recompute it",
    )


def check_goals(kind: Callable[..., Any]) -> None:
    """Check the goals of the strategy "future" that a memory samples, for numbered episodes of 1 to 9 steps.

    Args:
        kind: Called as `kind(seed)`; its instances have `add_episode` and `sample`, like `OneGoal`. Four of
            five rows must be relabelled.

    Raises:
        CheckFailed: On the first row that is wrong, or if a share is wrong: of relabelled rows, or of goals
            from the end of an episode.
    """
    memory, rng, at_end = kind(0), np.random.default_rng(0), 0
    lengths = rng.permutation(np.repeat(np.arange(1, 10), 3))
    for number, length in enumerate(lengths):
        memory.add_episode(numbered_episode(number, length))
    batch = memory.sample(20_000)
    for obs, goal, reward, terminated in zip(
        *(batch[name].tolist() for name in ("obs", "goal", "reward", "terminated")), strict=True
    ):
        length = lengths[obs[0]]
        row = f"the row of state {obs} has the goal {goal}"
        if goal != [-1, -1]:
            expect(goal[0] == obs[0], f"{row}, which was achieved in another episode")
            expect(obs[1] < goal[1] <= length, f"{row}, which was not achieved after its action")
            at_end += goal[1] == length
        wanted = goal == [obs[0], obs[1] + 1]
        expect(
            (reward, terminated) == (wanted - 1.0, wanted),
            f"{row}, but reward {reward}, terminated {terminated}",
        )
    share = [np.sum(batch["goal"][:, 0] != -1), np.sum(batch["goal"][:, 0] == -1)]
    expect(fairness(share, [4, 1]).is_fair, f"{share[0]} of 20,000 rows are relabelled, not about 16,000")
    # A step has as many goals as steps left, counting itself. The margin is for a memory that stores four.
    right, found = np.mean([1 / n for length in lengths for n in range(1, length + 1)]), at_end / share[0]
    expect(
        abs(found - right) < 0.1,
        f"{found:.0%} of the new goals are the last state of their episode, not about {right:.0%}. The goals "
        "after a step must be equally likely",
    )
    print("right: 20,000 rows, each with a goal of its own episode that was achieved after its action")


def check_rewards(answers: Sequence[Any]) -> None:
    """Check two probabilities and a count, for an episode of six steps."""
    wanted = [
        (1 / 4, "step 2 can get four goals, achieved after steps 2, 3, 4 and 5, and one of them is its own"),
        (1 / 6, "the goal is drawn from all six achieved goals of the episode"),
        (1, "the last state is reached only once"),
    ]
    given_numbers = numbers(answers, 3, "write three numbers")
    for place, (given, (right, reason)) in enumerate(zip(given_numbers, wanted, strict=True)):
        if not abs(given - right) <= 5e-3:
            raise NotYet(f"answer {place + 1} is not {given:g}: {reason}")
    print("right: with 'future', a step gets the reward 0 more often the closer it is to the end")


def row_by_definition(length: int, t: int, goal: int, n: int, gamma: float) -> tuple[float, float, int]:
    """Return (return, discount, last state) of a row with the goal [7, goal], by the definition."""
    last = min(t + n, length)  # the state after the window
    if t < goal <= last:
        return -sum(gamma**i for i in range(goal - t - 1)), 0.0, goal
    return -sum(gamma**i for i in range(last - t)), gamma ** (last - t), last


def check_row(row_of: Callable[..., Any]) -> None:
    """Check a function `row_of(episode, t, goal, n, gamma)` that returns (return, discount, next_obs)."""
    for length, n, gamma in [(1, 1, 0.5), (3, 1, 0.9), (6, 3, 0.5), (5, 4, 0.9), (2, 5, 0.5)]:
        episode = numbered_episode(7, length)
        for t in range(length):
            for goal in (*range(t + 1, length + 1), *range(t + 1), 99):  # reached, before t, never
                given = call(row_of, episode, t, np.array([7, goal]), n, gamma)
                where = f"{length} steps, n = {n}, γ = {gamma}: the row of step {t} with the goal [7, {goal}]"
                triple = isinstance(given, tuple | list) and len(given) == 3
                if not triple or np.ndim(given[0]) or np.ndim(given[1]):
                    raise NotYet(
                        f"{where}: return (return, discount, next_obs), two numbers and a state, not "
                        f"{given!r:.60}"
                    )
                total, discount, next_obs = given
                right, left, last = row_by_definition(length, t, goal, n, gamma)
                if not np.allclose(total, right):
                    raise NotYet(
                        f"{where}: the return is {total:g}, not {right:g}. Is each reward the new one, and "
                        "discounted?"
                    )
                if not np.allclose(discount, left):
                    raise NotYet(f"{where}: the discount is {discount:g}, not {left:g}")
                if np.asarray(next_obs).tolist() != [7, last]:
                    raise NotYet(f"{where}: next_obs is {np.asarray(next_obs).tolist()}, not [7, {last}]")
    print("right: the goal first, then the window, which ends where this goal is reached")


def goal_by_rounding(t: int, length: int, rng: np.random.Generator) -> int:
    """Choose a step from t to length - 1. The function has one bug."""
    offset = rng.random() * (length - 1 - t)
    return t + round(offset)


# Functions that choose a step → whether all steps are equally likely.
CHOICES: dict[str, tuple[bool, Callable[[int, int, np.random.Generator], int]]] = {
    "t + round(rng.random() * (length - 1 - t))": (False, goal_by_rounding),
    "rng.integers(t, length)": (True, lambda t, length, rng: int(rng.integers(t, length))),
    "t + int(rng.random() * (length - t))": (
        True,
        lambda t, length, rng: t + int(rng.random() * (length - t)),
    ),
    "rng.permutation(length - t)[0] + t": (
        True,
        lambda t, length, rng: int(rng.permutation(length - t)[0] + t),
    ),
    "rng.integers(t, max(t + 1, length - 1))": (
        False,
        lambda t, length, rng: int(rng.integers(t, max(t + 1, length - 1))),
    ),
    "rng.integers(min(t + 1, length - 1), length)": (
        False,
        lambda t, length, rng: int(rng.integers(min(t + 1, length - 1), length)),
    ),
    "max(t, rng.integers(length))": (False, lambda t, length, rng: max(t, int(rng.integers(length)))),
    "rng.integers(length)": (False, lambda t, length, rng: int(rng.integers(length))),
    "rng.integers(t or min(1, length - 1), length)": (  # wrong only if t is 0
        False,
        lambda t, length, rng: int(rng.integers(t or min(1, length - 1), length)),
    ),
    "length - 1": (False, lambda t, length, rng: length - 1),
}


def check_verdict(is_fair: Callable[..., Any]) -> None:
    """Check a function `is_fair(draw)`: is `draw(t, length, rng)` uniform over t to length - 1?"""
    for turn in range(2):
        for text, (fair, draw) in CHOICES.items():
            given = is_fair(draw)
            if not isinstance(given, bool | np.bool_):
                raise NotYet(f"my_is_fair must return True or False, not {given!r:.40}")
            if given != fair:
                what = (
                    "all steps equally often"
                    if fair
                    else "some steps more often than others, or impossible ones"
                )
                raise NotYet(
                    f"call {turn + 1}: `{text}` chooses {what}, but your function returns {given}. Which t "
                    "have you tried, and how many draws? How far may the counts of a correct function be "
                    "apart?"
                )
    print(f"right: two verdicts on each of {len(CHOICES)} functions")
