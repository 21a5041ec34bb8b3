"""Hindsight: goals, rewards and n-step windows of samples beside a log of all steps.

Every observation and every achieved goal is (environment, episode, step), so that the origin of each value
in a sample can be read from it. Distributions are compared by Pearson's χ² with fixed seeds; correct code
fails less than once in a million tests (`LEAST`).
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2
from test_episodes import Life

from replay_tutorial import HindsightReplayBuffer, NStep, fields_from_spaces

LEAST = 1e-6
PLACES = 37  # of each environment; a step takes one place, and the end of an episode another
ENVIRONMENTS = 3
TRIPLE = {"shape": 3, "dtype": np.int64}
FLAG = {"dtype": bool}
FIELDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("obs", "next_obs", "at", "next_at", "goal", "next_goal"), TRIPLE),
    "action": {"dtype": np.int64},
    "next_legal": {"dtype": np.int64},  # without a field "legal", which it could share
    "reward": {"dtype": np.float64},
    **dict.fromkeys(("terminated", "truncated"), FLAG),
}
NAMES = {"goal": "goal", "achieved_goal": "at"}

Triple = tuple[int, int, int]


def reward_of(achieved: Triple, goal: Triple, action: int) -> float:
    """A number that changes with each part of the arguments."""
    (a, b, c), (d, e, f) = achieved, goal
    return 1000 * (a - 2 * d) + 10 * (b - 2 * e) + c - 2 * f + action / 16


def terminates(achieved: Triple, goal: Triple, action: int) -> bool:
    """True where the goal is achieved, and at some other steps, so that windows end at several lengths."""
    return achieved == goal or (achieved[2] + goal[2] + action) % 5 == 0


def vectorized(function: Any, dtype: Any) -> Any:
    def compute(achieved: Any, goals: Any, rows: Any) -> Any:
        triples = zip(achieved.tolist(), goals.tolist(), rows["action"].tolist(), strict=True)
        return np.array([function(tuple(a), tuple(g), action) for a, g, action in triples], dtype)

    return compute


class World(Life):
    """A buffer and its log; each environment ends with two steps of a running episode."""

    fields = FIELDS

    def __init__(self, laps: float, evict: bool = False, seed: int = 0, **options: Any) -> None:
        self.options = {**NAMES, "num_envs": ENVIRONMENTS, **options}
        super().__init__(PLACES, ENVIRONMENTS, seed=seed)
        while min(map(len, self.log)) < laps * PLACES:
            self.add(int(self.rng.integers(ENVIRONMENTS)), 9)
        for environment in range(ENVIRONMENTS):
            while not (self.left[environment] and self.end_of((environment, -1, 0)) == 2):
                self.add(environment, 1)
        self.steps: dict[Triple, Any] = {step["obs"]: step for log in self.log for step in log if step}
        if evict:  # the oldest episode of one environment, and the third of another
            of_each = [sorted({s[:2] for s in self.stored_steps() if s[0] == e}) for e in range(2)]
            self.evict_all([of_each[0][0], of_each[1][2]])

    def make(self, seed: int = 0) -> HindsightReplayBuffer:
        functions = vectorized(reward_of, float), vectorized(terminates, bool)
        return HindsightReplayBuffer(ENVIRONMENTS * PLACES, FIELDS, *functions, seed=seed, **self.options)

    def values(self, environment: int, serial: int, number: int) -> dict[str, Any]:
        here, following = (environment, serial, number), (environment, serial, number + 1)
        return {
            **dict.fromkeys(("obs", "at"), here),
            **dict.fromkeys(("next_obs", "next_at"), following),
            **dict.fromkeys(("goal", "next_goal"), (environment, serial, 77)),
            "action": int(self.rng.integers(100)),
            "reward": float(self.rng.integers(100)),
            "next_legal": 1000 * environment + 100 * serial + number,
        }

    def evict_all(self, episodes: Any) -> None:
        self.buffer.evict([serial * ENVIRONMENTS + environment for environment, serial in episodes])
        for environment, serial in episodes:
            self.table[environment][serial]["evicted"] = True

    def stored_steps(self) -> list[Triple]:
        return [step["obs"] for step in self.live().values()]

    def has_ended(self, step: Triple) -> bool:
        return self.table[step[0]][step[1]]["end"] is not None

    def end_of(self, step: Triple) -> int:
        """The number of steps of an episode so far."""
        entry = self.table[step[0]][step[1]]
        return (entry["end"] if self.has_ended(step) else len(self.log[step[0]])) - entry["start"]

    def goals_of(self, step: Triple, strategy: str, stored: list[Triple]) -> list[Triple]:
        """The steps after which a goal for this step was achieved; none if it is never relabelled."""
        own = [other for other in stored if other[:2] == step[:2]]
        if strategy == "future":
            return [other for other in own if other[2] >= step[2]]
        if strategy == "final":
            return own[-1:] if self.has_ended(step) else []
        return own if strategy == "episode" else stored

    def samples(self, count: int, batch_size: int = 500, **options: Any) -> dict[str, np.ndarray]:
        batch_size = min(batch_size, count)
        drawn = [self.buffer.sample(batch_size, **options) for _ in range(count // batch_size)]
        return {name: np.concatenate([batch[name] for batch in drawn]) for name in drawn[0]}


def triples(array: np.ndarray) -> list[Any]:
    return [*map(tuple, array.tolist())]


def assert_frequencies(seen: dict[Any, Counter[Any]], allowed: dict[Any, list[Any]]) -> None:
    """Assert that, for each key of `seen`, all of its allowed values are equally frequent."""
    statistic, freedom = 0.0, 0
    for key, counts in seen.items():
        assert set(counts) <= set(allowed[key])
        expected = counts.total() / len(allowed[key])
        assert expected >= 5, "χ² is not valid"
        statistic += sum((counts[value] - expected) ** 2 / expected for value in allowed[key])
        freedom += len(allowed[key]) - 1
    assert freedom == 0 or chi2.sf(statistic, freedom) > LEAST


@pytest.mark.parametrize(("laps", "evict"), [(0.2, False), (5.0, True)])
@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_goals_are_uniform_over_the_steps_that_the_strategy_allows(strategy, laps, evict):
    world = World(laps, evict, strategy=strategy)
    rows, stored = world.samples(10_000), world.stored_steps()
    allowed = {step: world.goals_of(step, strategy, stored) for step in stored}
    seen: dict[Triple, Counter[Triple]] = {step: Counter() for step in stored if allowed[step]}
    for obs, goal, relabelled in zip(
        triples(rows["obs"]), triples(rows["goal"]), rows["relabelled"], strict=True
    ):
        if relabelled:
            seen[obs][(*goal[:2], goal[2] - 1)] += 1  # achieved after the action of this step
        else:
            assert goal == world.steps[obs]["goal"]
    assert_frequencies(seen, allowed)
    assert set(triples(rows["obs"])) == set(stored)
    if laps > 1:
        assert any(min(s[2] for s in stored if s[:2] == o[:2]) > 0 for o in stored), "partly overwritten"


@pytest.mark.parametrize(("laps", "evict"), [(0.2, False), (5.0, True), (5.0, "most")])
def test_random_goals_are_uniform_over_all_stored_steps(laps, evict):
    world = World(laps, bool(evict), strategy="random", relabel=1.0)
    if evict == "most":
        world.evict_all({step[:2] for step in world.stored_steps() if world.has_ended(step)})
    rows, stored = world.samples(10_000), world.stored_steps()
    goals = [(*goal[:2], goal[2] - 1) for goal in triples(rows["goal"])]
    for group in ([True] * len(goals), [obs[0] == 0 for obs in triples(rows["obs"])]):  # whatever the row
        counts = Counter(goal for goal, counted in zip(goals, group, strict=True) if counted)
        assert_frequencies({None: counts}, {None: stored})


@pytest.mark.parametrize("laps", [0.2, 5.0])
@pytest.mark.parametrize(
    ("strategy", "n"),
    [*(("future", n) for n in range(1, 6)), *((s, 3) for s in ("final", "episode", "random"))],
)
def test_rows_equal_a_loop_that_chooses_the_goal_and_then_sums(strategy, n, laps):
    world = World(laps, laps > 1, strategy=strategy, n_step=n, gamma=0.9 if laps > 1 else 0.5)
    world.buffer.set_gamma(0.5)
    rows, lengths = world.samples(1_000), set()
    for i, start in enumerate(triples(rows["obs"])):
        environment, episode, first = start
        goal = tuple(rows["goal"][i].tolist())
        total, discount, last = 0.0, 1.0, world.steps[start]
        for t in range(first, min(first + n, world.end_of(start))):
            last = world.steps[environment, episode, t]
            given = (last["next_at"], goal, last["action"])
            relabelled = rows["relabelled"][i]
            total += discount * (reward_of(*given) if relabelled else last["reward"])
            ended = terminates(*given) if relabelled else last["terminated"]
            discount *= 0.5
            if ended:
                break
        lengths.add(last["obs"][2] - first + 1)
        expected = {
            **{name: world.steps[start][name] for name in ("obs", "at", "action")},
            **{name: last[name] for name in ("next_obs", "next_at", "next_legal", "truncated")},
            "goal": goal,
            "next_goal": goal,
            "reward": total,
            "terminated": ended,
            "discount": 0.0 if ended else discount,
        }
        actual = {name: rows[name][i].tolist() for name in expected}
        assert actual == {name: list(v) if isinstance(v, tuple) else v for name, v in expected.items()}
    assert lengths == set(range(1, n + 1)), "windows of all lengths"
    index = dict(zip(triples(rows["obs"]), rows["indexes"].tolist(), strict=True))
    assert len(set(index.values())) == len(index)


def test_without_n_step_a_sample_has_the_declared_fields_and_no_discount():
    rows = World(0.2).buffer.sample(7)
    assert list(rows) == [*FIELDS, "indexes", "weights", "relabelled"]
    for name, spec in FIELDS.items():
        assert rows[name].shape == (7, 3)[: 2 if spec is TRIPLE else 1] and rows[name].dtype == spec["dtype"]
    assert rows["relabelled"].dtype == bool


def test_gamma_is_set_within_its_limits_and_only_with_n_step():
    with pytest.raises(ValueError, match="no gamma"):
        World(0.2).buffer.set_gamma(0.5)
    with pytest.raises(ValueError, match=r"must be in \[0, 1\], not 1.5"):
        World(0.2, n_step=3).buffer.set_gamma(1.5)


@pytest.mark.parametrize("batch_size", [1, 10])
def test_share_of_relabelled_rows_is_exact_at_every_position_of_a_batch(batch_size):
    world = World(5.0, relabel=0.8)
    by_position = world.samples(1_500 * (1 + batch_size), batch_size)["relabelled"].reshape(-1, batch_size)
    statistic = ((by_position.mean(0) - 0.8) ** 2 / (0.8 * 0.2) * len(by_position)).sum()
    assert chi2.sf(statistic, batch_size) > LEAST
    if batch_size > 1:  # the number in a batch is binomial, not fixed
        assert by_position.sum(1).var() == pytest.approx(batch_size * 0.8 * 0.2, rel=0.2)


def test_rows_are_drawn_by_their_priorities_alone_and_have_their_weights():
    world = World(5.0, alpha=0.7, eps=0.0, n_step=3)
    stored = world.stored_steps()
    priorities = {step: 0.1 + 3 * (i % 4) for i, step in enumerate(stored)}
    world.buffer.update_priorities(list(world.live()), list(priorities.values()))
    masses = {step: priority**0.7 for step, priority in priorities.items()}
    rows = world.samples(20_000, beta=0.6)
    drawn = triples(rows["obs"])
    least = min(masses.values())
    np.testing.assert_allclose(rows["weights"], [(least / masses[s]) ** 0.6 for s in drawn], rtol=1e-6)
    counts, total = Counter(drawn), sum(masses.values())
    expected = np.array([20_000 * masses[step] / total for step in stored])
    observed = np.array([counts[step] for step in stored])
    assert chi2.sf(((observed - expected) ** 2 / expected).sum(), len(stored) - 1) > LEAST
    marked = Counter(step for step, flag in zip(drawn, rows["relabelled"], strict=True) if flag)
    relabelled = np.array([marked[step] for step in stored])
    assert chi2.sf(((relabelled - 0.8 * observed) ** 2 / (0.16 * observed)).sum(), len(stored)) > LEAST


def test_final_goals_wait_for_the_end_of_the_episode():
    world = World(0.2, strategy="final", relabel=1.0)
    rows = world.samples(500)
    ended = [world.has_ended(step) for step in triples(rows["obs"])]
    np.testing.assert_array_equal(rows["relabelled"], ended)
    assert 0 < sum(ended) < 500
    for environment in range(ENVIRONMENTS):
        world.buffer.end_episode(environment)
    assert world.samples(500)["relabelled"].all()


@pytest.mark.parametrize("strategy", ["future", "episode", "random"])
def test_no_goal_is_from_before_clear(strategy):
    world = World(1.5, strategy=strategy, relabel=1.0)
    world.clear()
    for environment in (0, 0, 1):
        world.add(environment, 4)
    rows, stored = world.samples(1_000), set(world.stored_steps())
    assert set(triples(rows["obs"])) == stored
    assert {(*goal[:2], goal[2] - 1) for goal in triples(rows["goal"])} == stored


def test_a_loaded_buffer_samples_the_same(tmp_path):
    saved, loaded = World(2.0, n_step=2), World(0.2, n_step=2, seed=1)
    saved.buffer.save(tmp_path / "buffer")
    loaded.buffer.load(tmp_path / "buffer")
    actual = loaded.samples(300)
    for name, expected in saved.samples(300).items():
        np.testing.assert_array_equal(actual[name], expected)


@pytest.mark.parametrize(
    "options", [{"strategy": "final"}, {"relabel": 0.5}, {"n_step": NStep(2)}, {"n_step": NStep(1)}]
)
def test_a_file_is_not_loaded_into_a_buffer_that_relabels_otherwise(tmp_path, options):
    World(0.2).buffer.save(tmp_path / "buffer")
    with pytest.raises(ValueError, match=rf"different layout: {next(iter(options))} is "):
        World(0.2, **options).buffer.load(tmp_path / "buffer")


def test_functions_are_called_once_with_stored_rows_and_may_change_them():
    calls = []

    def remember(kind: Any) -> Any:
        def compute(achieved: Any, goals: Any, rows: Any) -> Any:
            calls.append(
                {name: array.copy() for name, array in {**rows, "goals": goals, "from": achieved}.items()}
            )
            np.testing.assert_array_equal(achieved, rows["next_at"])
            for array in (achieved, goals, *rows.values()):
                array[...] = 0
            return np.ones(len(goals), kind)

        return compute

    world = World(1.0, n_step=3)
    world.buffer._compute_reward, world.buffer._compute_terminated = remember(float), remember(bool)
    rows = world.buffer.sample(50)
    assert len(calls) == 2
    for name, array in calls[0].items():
        np.testing.assert_array_equal(array, calls[1][name], "changed by the other function")
    for name in FIELDS:
        expected = [world.steps[step][name] for step in triples(calls[0]["obs"])]
        np.testing.assert_array_equal(calls[0][name], expected)
    for i, obs in enumerate(triples(rows["obs"])):
        assert rows["action"][i] == world.steps[obs]["action"]
        if rows["relabelled"][i]:
            assert rows["goal"][i].any() and rows["reward"][i] == 1 and rows["terminated"][i]
        else:
            assert tuple(rows["goal"][i].tolist()) == world.steps[obs]["goal"]


def test_functions_are_not_called_without_relabelled_rows():
    world = World(1.0, relabel=0.0)
    world.buffer._compute_reward = world.buffer._compute_terminated = None
    rows = world.samples(200)
    assert not rows["relabelled"].any()
    for name in FIELDS:
        np.testing.assert_array_equal(rows[name], [world.steps[step][name] for step in triples(rows["obs"])])


@pytest.mark.parametrize(
    ("reward", "terminated", "error", "message"),
    [
        (np.float64(1), None, ValueError, r"one value per step, an array of shape \(9,\), not \(\)"),
        (np.zeros((9, 9)), None, ValueError, r"compute_reward must return one value per step"),
        (np.zeros(8), None, ValueError, r"not \(8,\)"),
        (np.full(9, np.nan), None, ValueError, "compute_reward returned nan; rewards must be finite"),
        (np.full(9, "1"), None, TypeError, "compute_reward must return real numbers, not <U1"),
        (np.zeros(9, complex), None, TypeError, "must return real numbers"),
        (np.full(9, 1e300), None, ValueError, "'reward' has the dtype float32, which can't hold 1e[+]300"),
        (np.zeros(9), np.zeros(9), TypeError, "compute_terminated must return bool, not float64"),
        (np.zeros(9), np.True_, ValueError, r"compute_terminated must return one value .* not \(\)"),
        (np.full(9, 0.5), None, ValueError, r"'reward' has the dtype int64, which can't hold 0\.5"),
    ],
)
def test_results_of_the_functions_are_checked(reward, terminated, error, message):
    fields = {**FIELDS, "reward": {"dtype": np.int64 if "int64" in message else np.float32}}
    results = reward, np.zeros(9, bool) if terminated is None else terminated
    functions = [lambda *_, result=result: result for result in results]
    buffer = HindsightReplayBuffer(100, fields, *functions, **NAMES, relabel=1.0)
    buffer.add(**{name: np.zeros(spec.get("shape", ()), spec["dtype"]) for name, spec in fields.items()})
    with pytest.raises(error, match=message):
        buffer.sample(9)


def nothing(achieved: Any, goals: Any, rows: Any) -> Any:
    return np.zeros(len(goals), bool)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"goal": "wish"}, ValueError, "goal is 'wish', which is not declared; the fields .*pass the names"),
        ({"achieved_goal": "action"}, ValueError, "'next_action', which is not declared"),
        ({"goal": "action"}, ValueError, "must have the same dtype and shape"),
        (
            {"fields": {**FIELDS, "next_next_at": TRIPLE}, "achieved_goal": "next_at"},
            ValueError,
            "achieved_goal is 'next_at', a next observation",
        ),
        ({"fields": {**FIELDS, "next_goal": {}}}, ValueError, "same dtype and shape, not .*next_goal"),
        ({"reward": "gain"}, ValueError, "reward is 'gain', which is not declared"),
        ({"strategy": "past"}, ValueError, "strategy must be one of .*'future'.*, not 'past'"),
        ({"relabel": 4}, ValueError, r"must be in \[0, 1\], not 4"),
        ({"relabel": float("nan")}, ValueError, r"must be in \[0, 1\], not nan"),
        ({"relabel": "0.8"}, TypeError, "relabel must be a number"),
        ({"compute_reward": 1.0}, TypeError, "must be functions, not 1.0"),
        ({"n_step": NStep(2, next_fields="next_at")}, ValueError, "next_fields must be None"),
        ({"gamma": 0.9}, ValueError, "gamma=0.9 is the discount factor of n_step"),
        (
            {"n_step": NStep(2, reward="other")},
            ValueError,
            "must be 'reward', the argument reward, not 'other'",
        ),
        ({"n_step": "3"}, TypeError, "n_step must be an integer, not '3'"),
        ({"fields": {**FIELDS, "done": FLAG}}, ValueError, "not both"),
        ({"fields": {**FIELDS, "relabelled": FLAG}}, ValueError, r"\['relabelled'\] are reserved"),
    ],
)
def test_wrong_arguments_are_refused(changes, error, message):
    fields = {**FIELDS, "other": {}}
    arguments = {"fields": fields, "compute_reward": nothing, "compute_terminated": nothing, **NAMES}
    with pytest.raises(error, match=message):
        HindsightReplayBuffer(100, **{**arguments, **changes})


@pytest.mark.parametrize("shape", [(), (1,)])
def test_scalars_and_fields_of_one_number_keep_their_shapes(shape):
    fields: dict[str, Any] = {
        name: {"shape": shape} for name in ("obs", "next_obs", "goal", "reward", "done")
    }
    buffer = HindsightReplayBuffer(
        *(100, fields, lambda achieved, goals, rows: achieved == goals, nothing),
        goal="goal",
        achieved_goal="obs",
        n_step=2,
        gamma=1.0,
        relabel=1.0,
    )
    for step in range(4):
        buffer.add(obs=step, next_obs=step + 1, goal=9, reward=5, done=step == 3)
    rows = buffer.sample(50)
    assert all(rows[name].shape == (50, *shape) for name in (*fields, "discount"))
    assert all(rows[name].dtype == np.float32 for name in (*fields, "discount"))
    within = rows["goal"] <= rows["obs"] + 2
    np.testing.assert_array_equal(rows["reward"], within)
    assert (rows["discount"] == 1).all() and not rows["done"].any(), "step 3 terminated only for its own goal"


def test_the_default_names_are_those_of_a_goal_env():
    gymnasium = pytest.importorskip("gymnasium")
    spaces = gymnasium.spaces
    point = spaces.Box(-10, 10, (2,))
    observation = spaces.Dict({"observation": point, "achieved_goal": point, "desired_goal": point})
    fields = fields_from_spaces(observation, spaces.Discrete(2))

    def reached(achieved: Any, goals: Any, rows: Any) -> Any:
        return (achieved == goals).all(-1)

    buffer = HindsightReplayBuffer(100, fields, reached, reached, relabel=1.0, strategy="final", seed=0)
    for step in range(4):
        here, there = (
            {"observation": [t, t], "achieved_goal": [t, -t], "desired_goal": [9, 9]}
            for t in (step, step + 1)
        )
        buffer.add(obs=here, action=0, reward=0, next_obs=there, terminated=False, truncated=step == 3)
    rows = buffer.sample(20)
    for name in ("obs/desired_goal", "next_obs/desired_goal"):
        np.testing.assert_array_equal(rows[name], np.tile([4, -4], (20, 1)))
    np.testing.assert_array_equal(rows["reward"], rows["obs/achieved_goal"][:, 0] == 3)
    np.testing.assert_array_equal(rows["terminated"], rows["truncated"])
