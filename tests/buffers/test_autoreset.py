"""Steps of gymnasium's vector environments in each autoreset mode, beside the true transitions.

Each environment records its own transitions, so the oracle knows nothing about vectors, modes or resets.
"""

import copy
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from oracles import PlainBuffer, assert_same_columns, columns

from replay_tutorial import (
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    NStep,
    NStepWindow,
    ReplayBuffer,
    SequenceReplayBuffer,
    fields_from_spaces,
)
from replay_tutorial.buffers.episodes.minari import import_minari
from replay_tutorial.buffers.n_step.autoreset import NotConsecutive
from replay_tutorial.buffers.n_step.windows import Windows
from replay_tutorial.buffers.stages import Stages

GAMMA = 0.5
ENVIRONMENTS = 3
MODES = list(AutoresetMode)


class Recorded(gym.Env):
    """Episodes of five steps, or fewer in some environments; records its episodes as lists of transitions."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(9)

    def __init__(self, number: int) -> None:
        self.number, self.episodes = number, list[list[dict[str, Any]]]()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episodes.append([])
        self.t = 0
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        obs, self.t = self.observation(), self.t + 1
        over, odd = self.t >= 5 - self.number % 2, bool(len(self.episodes) % 2)
        step = {"obs": obs, "action": action, "reward": float(action), "next_obs": self.observation()}
        step |= {"terminated": over and odd, "truncated": over and not odd}
        self.episodes[-1].append(step)
        return step["next_obs"], step["reward"], step["terminated"], step["truncated"], {}

    def observation(self) -> Any:
        return np.array([100 * self.number + len(self.episodes), self.t], np.float32)


FIELDS = fields_from_spaces(Recorded.observation_space, Recorded.action_space)
N_STEP: dict[str, Any] = NStep(1, gamma=GAMMA)


class Loop:
    """A training loop that passes all that `step` returns, as a user of the mode would."""

    def __init__(self, mode: AutoresetMode) -> None:
        makers: list[Any] = [lambda number=number: Recorded(number) for number in range(ENVIRONMENTS)]
        self.mode, self.envs = mode, SyncVectorEnv(makers, autoreset_mode=mode)
        self.rng = np.random.default_rng(0)
        self.reset()

    def reset(self) -> None:
        self.obs = self.envs.reset()[0].copy()

    def step(self) -> dict[str, Any]:
        obs, action = self.obs, self.rng.integers(9, size=ENVIRONMENTS)
        next_obs, reward, terminated, truncated, infos = self.envs.step(action)
        next_obs, ended = next_obs.copy(), terminated | truncated
        self.obs = next_obs.copy()
        if self.mode == AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(ended):
                next_obs[i] = infos["final_obs"][i]
        elif self.mode == AutoresetMode.DISABLED and ended.any():
            self.obs = self.envs.reset(options={"reset_mask": ended})[0].copy()
        flags = {"terminated": terminated, "truncated": truncated}
        return {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, **flags}

    def episodes(self) -> list[list[list[dict[str, Any]]]]:
        """The episodes of each environment."""
        return [[episode for episode in env.episodes if episode] for env in self.envs.envs]


def each_way(thing: Any, steps: dict[str, Any], way: str) -> list[Any]:
    """Add one step of every environment, at once or one by one."""
    if way == "add_step":
        return [thing.add_step(**steps)]
    return [thing.add(e, **{name: column[e] for name, column in steps.items()}) for e in range(ENVIRONMENTS)]


def rows_of(loop: Loop, n: int) -> dict[str, Any]:
    """The n-step rows of the recorded episodes."""
    plain = PlainBuffer(10**6, FIELDS, N_STEP._replace(n=n))
    for episodes in loop.episodes():
        for episode in episodes:
            plain.add({name: [step[name] for step in episode] for name in FIELDS}, len(episode))
            plain.end_episode()
    return columns(plain.rows, plain.output_specs())


def in_order(rows: dict[str, Any]) -> dict[str, Any]:
    order = np.lexsort(rows["obs"].T[::-1])
    return {name: array[order] for name, array in rows.items()}


def assert_same_rows(rows: dict[str, Any], expected: dict[str, Any]) -> None:
    rows, expected = in_order(rows), in_order(expected)
    assert rows.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(rows[name], array, err_msg=name)


@pytest.mark.parametrize("way", ["add_step", "add"])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_n_step_rows_are_those_of_the_true_transitions(mode, n, way):
    """Also across states that are saved and restored, and environments that the caller resets."""
    loop = Loop(mode)
    n_step = NStepWindow(FIELDS, N_STEP._replace(n=n), num_envs=ENVIRONMENTS, autoreset=mode)
    returned: list[Any] = []
    for time in range(60):
        returned += each_way(n_step, loop.step(), way)
        if time % 4 == 1:
            state = n_step.state()
            n_step = NStepWindow(FIELDS, N_STEP._replace(n=n), num_envs=ENVIRONMENTS, autoreset=mode.value)
            n_step.restore(state)
        if time in (13, 23, 24, 30, 41):
            loop.reset()
            returned += [n_step.end_episode(e) for e in range(ENVIRONMENTS)]
        elif time % 7 == 0:  # superfluous calls
            ended = [e for e, env in enumerate(loop.envs.envs) if env.t == 5 - env.number % 2]
            returned += [n_step.end_episode(e) for e in ended if mode == AutoresetMode.NEXT_STEP]
    returned += [n_step.end_episode(e) for e in range(ENVIRONMENTS)]
    rows = {name: np.concatenate([each[name] for each in returned if each]) for name in n_step.fields}
    assert_same_rows(rows, rows_of(loop, n))


def achieved(goals: Any, *_: Any) -> Any:
    return np.zeros(len(goals), bool)


def of_goals(size: int, fields: Any, **options: Any) -> HindsightReplayBuffer:
    names = {"goal": "goal", "achieved_goal": "obs"}
    fields = {**fields, "goal": FIELDS["obs"]}
    return HindsightReplayBuffer(size, fields, achieved, achieved, **names, **options)


EPISODE_BUFFERS: dict[str, Any] = {
    "episodes": EpisodeReplayBuffer,
    "sequences": lambda *given, **options: SequenceReplayBuffer(*given, 3, **options),
    "hindsight": of_goals,
}


@pytest.mark.parametrize("way", ["add_step", "add"])
@pytest.mark.parametrize("kind", EPISODE_BUFFERS)
@pytest.mark.parametrize("mode", MODES)
def test_episode_buffers_hold_the_true_episodes(mode, kind, way, tmp_path):
    """Also across files, and environments that the caller resets."""
    loop = Loop(mode)

    def new_buffer() -> Any:
        options = {"num_envs": ENVIRONMENTS, "autoreset": mode, "alpha": 1.0, "eps": 0.0, "seed": 0}
        return EPISODE_BUFFERS[kind](1000, FIELDS, **options)

    buffer = new_buffer()
    for time in range(60):
        steps = loop.step()
        if kind == "hindsight":
            steps["goal"] = steps["obs"]
        each_way(buffer, steps, way)
        if time % 4 == 1:
            buffer.save(tmp_path / "saved")
            buffer = new_buffer()
            buffer.load(tmp_path / "saved")
        elif time % 4 == 2:
            buffer = copy.deepcopy(buffer)
        if time in (13, 23, 24, 30, 41):
            loop.reset()
            for e in range(ENVIRONMENTS):
                buffer.end_episode(e)
        elif time % 7 == 0:  # superfluous calls
            for e, env in enumerate(loop.envs.envs):
                if env.t == 5 - env.number % 2 and mode == AutoresetMode.NEXT_STEP:
                    buffer.end_episode(e)
    table = buffer.episodes()
    for e, episodes in enumerate(loop.episodes()):
        numbers = table["episode"][table["environment"] == e].tolist()
        for number, episode in zip(numbers, episodes, strict=True):
            stored = buffer.get_episode(number)
            assert stored["action"].tolist() == [step["action"] for step in episode]
            for name in ("reward", "terminated", "truncated"):
                np.testing.assert_array_equal(stored[name], [step[name] for step in episode])
            path = [step["obs"] for step in episode] + [episode[-1]["next_obs"]]
            np.testing.assert_array_equal(stored["obs"], path)
    if kind == "sequences":
        batch = buffer.sample(200)
        obs, valid = batch["obs"][:, :3], batch["valid"]
        assert ((obs[..., 0] == obs[:, :1, 0]) | ~valid).all(), "a window mixes episodes"


def test_an_environment_that_waits_for_its_reset_still_does_after_clear(tmp_path):
    loop = Loop(AutoresetMode.NEXT_STEP)
    buffer, loaded = (
        EpisodeReplayBuffer(90, FIELDS, num_envs=ENVIRONMENTS, autoreset="next_step") for _ in range(2)
    )
    for _ in range(5):
        buffer.add_step(**loop.step())
    buffer.clear()
    buffer.save(tmp_path / "saved")
    loaded.load(tmp_path / "saved")
    for steps in (loop.step(), loop.step()):
        first, second = buffer.add_step(**steps), loaded.add_step(**steps)
        np.testing.assert_array_equal(first, second)
    assert (buffer.sample(50)["obs"][:, 1] < 5).all() and len(buffer) == len(loaded) == 4


def test_priorities_of_steps_that_only_reset_do_not_count():
    loop = Loop(AutoresetMode.NEXT_STEP)
    buffer = EpisodeReplayBuffer(90, FIELDS, num_envs=ENVIRONMENTS, autoreset="next_step", alpha=1.0, eps=0.0)
    for time in range(6):
        priorities = [9.0 if time == 5 else 1.0, 9.0 if time == 4 else 2.0, 9.0 if time == 5 else 3.0]
        buffer.add_step(priorities=priorities, **loop.step())
    assert buffer.max_priority == 3.0
    batch = buffer.sample(200, 1.0)
    weights = dict(zip((batch["obs"][:, 0] // 100).tolist(), batch["weights"].tolist(), strict=True))
    assert weights == pytest.approx({0: 1.0, 1: 1 / 2, 2: 1 / 3})


@pytest.mark.parametrize("make", [NStepWindow, EpisodeReplayBuffer])
def test_a_mode_that_is_not_that_of_the_environments_is_reported(make):
    """Otherwise, the first transition of each episode would be lost."""
    arguments = (FIELDS, N_STEP._replace(n=1)) if make is NStepWindow else (90, FIELDS)
    loop = Loop(AutoresetMode.SAME_STEP)
    thing = make(*arguments, num_envs=ENVIRONMENTS, autoreset="next_step")
    for _ in range(4):
        thing.add_step(**loop.step())
    with pytest.raises(NotConsecutive, match=r'environment 1.*"same_step".*end_episode\(1\)'):
        thing.add_step(**loop.step())


@pytest.mark.parametrize("mode", ["NextStep ", "next", 1, True])
def test_unknown_mode_is_refused(mode):
    for make in (lambda: NStepWindow(FIELDS, N_STEP._replace(n=1), autoreset=mode),
                 lambda: EpisodeReplayBuffer(90, FIELDS, autoreset=mode)):  # fmt: skip
        with pytest.raises(ValueError, match=r"autoreset must be one of .*metadata"):
            make()


def test_a_state_that_waits_for_a_reset_is_refused_without_autoreset():
    loop = Loop(AutoresetMode.NEXT_STEP)
    window = N_STEP._replace(n=3)
    saved, other = (
        NStepWindow(FIELDS, window, num_envs=ENVIRONMENTS, autoreset=mode)
        for mode in ("next_step", "disabled")
    )
    for _ in range(5):
        saved.add_step(**loop.step())
    with pytest.raises(ValueError, match='autoreset="next_step"'):
        other.restore(saved.state())


def test_a_batch_leaves_out_the_steps_that_reset():
    """A batch of consecutive steps of one environment, across the ends of its episodes."""
    loop, window = Loop(AutoresetMode.NEXT_STEP), N_STEP._replace(n=3)
    steps = [loop.step() for _ in range(40)]
    for first in (0, 1, 4, 5, 6):
        n_step = NStepWindow(FIELDS, window, autoreset="next_step")
        buffer = EpisodeReplayBuffer(90, FIELDS, autoreset="next_step")
        returned: list[Any] = []
        for part in (steps[:first], steps[first:]):
            if part:
                batch = {name: np.array([step[name][0] for step in part]) for name in FIELDS}
                returned.append(n_step.add(**batch))
                buffer.add(**batch)
        returned.append(n_step.end_episode())
        loop.envs.envs[1].episodes = loop.envs.envs[2].episodes = []
        rows = {name: np.concatenate([each[name] for each in returned if each]) for name in n_step.fields}
        assert_same_rows(rows, rows_of(loop, 3))
        assert buffer.episodes()["length"].tolist() == [5] * 6 + [4]


class Unrewarded(gym.Env):
    """A walk without rewards from 0 to 3; the next episode begins at `begin`, or where the last one ended."""

    observation_space, action_space = gym.spaces.Box(0, 9, (1,), np.float32), gym.spaces.Discrete(2)
    position = 0

    def __init__(self, begin: int | None, way: list[int], is_truncated: bool = False) -> None:
        self.begin, self.way, self.is_truncated = begin, way, is_truncated

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t, self.position = 0, self.position if self.begin is None else self.begin
        return np.full(1, self.position, np.float32), {}

    def step(self, action: Any) -> Any:
        self.position, self.t = self.way[self.t], self.t + 1
        return np.full(1, self.position, np.float32), 0.0, *self.flags(), {}

    def flags(self) -> tuple[bool, bool]:
        ended = self.t == len(self.way)
        return ended and not self.is_truncated, ended and self.is_truncated


def tell(made: Any, env: Any, mode: AutoresetMode, count: int, with_final_obs: bool = True) -> None:
    """Add steps of vector environments to something that isn't told their mode."""
    add_step = getattr(made, "add_step", made.add)
    envs = SyncVectorEnv([lambda: copy.copy(env)] * ENVIRONMENTS, autoreset_mode=mode)
    obs, _ = envs.reset()
    for _ in range(count):
        actions = np.ones(ENVIRONMENTS, int)
        following, rewards, terminated, truncated, infos = envs.step(actions)
        ended, shown = terminated | truncated, following.copy()
        if mode is AutoresetMode.SAME_STEP and with_final_obs and ended.any():
            shown[ended] = np.stack(infos["final_obs"][ended])
        step = {"obs": obs, "action": actions, "reward": rewards, "next_obs": shown}
        add_step(**step, terminated=terminated, truncated=truncated)
        obs = following
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})


ONE = fields_from_spaces(Unrewarded.observation_space, Unrewarded.action_space)
LIKE_ONE: dict[str, Any] = {
    "NStepWindow": lambda **options: NStepWindow(ONE, N_STEP._replace(n=3), num_envs=ENVIRONMENTS, **options),
    "episodes": lambda **options: EpisodeReplayBuffer(900, ONE, num_envs=ENVIRONMENTS, **options),
}


@pytest.mark.parametrize("kind", LIKE_ONE)
def test_resets_at_the_next_step_are_reported_once_if_the_mode_is_not_passed(kind):
    env, mode = Unrewarded(0, [1, 2, 3]), AutoresetMode.NEXT_STEP
    made = LIKE_ONE[kind]()
    with pytest.warns(UserWarning, match=r"After 10 ends.*autoreset=envs.metadata") as told:
        tell(made, env, mode, 90)
    assert [warning.filename for warning in told] == [__file__]
    tell(LIKE_ONE[kind](autoreset=mode), env, mode, 90)  # a warning would be an error
    tell(LIKE_ONE[kind](autoreset="disabled"), env, mode, 90)


@pytest.mark.parametrize("kind", LIKE_ONE)
@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_other_modes_are_not_taken_for_resets_at_the_next_step(kind, begin, mode):
    """Also if each episode ends where it began."""
    tell(LIKE_ONE[kind](), Unrewarded(begin, [1, 2, 3]), mode, 150)


@pytest.mark.parametrize("kind", [*LIKE_ONE, "buffer"])
def test_final_observations_that_are_not_passed_in_the_same_step_are_reported_once(kind):
    env, mode = Unrewarded(0, [1, 2, 3], is_truncated=True), AutoresetMode.SAME_STEP
    make = LIKE_ONE.get(kind, make_vector_buffer)
    with pytest.warns(UserWarning, match=r"After 10 ends.*with_final_obs") as told:
        tell(make(autoreset=mode), env, mode, 90, with_final_obs=False)
    assert [warning.filename for warning in told] == [__file__]
    tell(make(autoreset=mode), env, mode, 90)  # a warning would be an error
    tell(make(autoreset=mode), Unrewarded(0, [0, 0], is_truncated=True), mode, 90, with_final_obs=False)
    # as CleanRL does: the target of a terminated step doesn't use its next observation
    tell(make(autoreset=mode), Unrewarded(0, [1, 2, 3]), mode, 90, with_final_obs=False)


@pytest.mark.parametrize("kind", LIKE_ONE)
def test_an_environment_that_shows_nothing_is_not_taken_for_one_that_resets(kind):
    tell(LIKE_ONE[kind](), Unrewarded(0, [0, 0]), AutoresetMode.NEXT_STEP, 150)


NUMBER: dict[str, Any] = {}
STEP = {name: NUMBER for name in ("obs", "action", "reward", "next_obs")}
STEP |= {"terminated": {**NUMBER, "dtype": bool}}
EPISODE = SimpleNamespace(
    observations=np.array([7, 8, 9, 7]), actions=np.zeros(3), rewards=np.ones(3), infos={}
)
EPISODE.terminations = EPISODE.truncations = np.array([False, False, True])


def test_an_imported_episode_begins_with_a_transition_even_where_the_last_one_ended():
    buffer = EpisodeReplayBuffer(90, STEP, autoreset="next_step")
    for _ in range(2):
        assert import_minari(buffer, [EPISODE, EPISODE]) == 2
    assert buffer.add(obs=7, action=0, reward=0, next_obs=8, terminated=False) is not None
    assert buffer.episodes()["length"].tolist() == [3, 3, 3, 3, 1]


@pytest.mark.parametrize("ended_by", ["flag", "flag and call"])
def test_episodes_are_not_imported_between_an_end_and_the_step_that_resets(ended_by):
    buffer = EpisodeReplayBuffer(90, STEP, num_envs=2, autoreset="next_step")
    step = {"action": np.zeros(2), "reward": np.ones(2)}
    buffer.add_step(obs=[1, 5], next_obs=[2, 6], terminated=[False, True], **step)
    if ended_by == "flag and call":
        buffer.end_episode(1)
    before = buffer.episodes()
    with pytest.raises(ValueError, match=r"environment 1 has ended.*Add that step first"):
        import_minari(buffer, [EPISODE])
    assert_same_columns(buffer.episodes(), before)
    buffer.add_step(obs=[2, 6], next_obs=[3, 4], terminated=[False, False], **step)
    assert import_minari(buffer, [EPISODE]) == 1
    buffer.add_step(obs=[3, 4], next_obs=[4, 5], terminated=[False, False], **step)
    assert sorted(zip(*(buffer[:][name] for name in ("obs", "next_obs")), strict=True)) == [
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 5),
        (5, 6),
        (7, 8),
        (8, 9),
        (9, 7),
    ]


def make_vector_buffer(**options: Any) -> Any:
    return ReplayBuffer(900, ONE, num_envs=ENVIRONMENTS, **options)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (LIKE_ONE["NStepWindow"], (Windows, "_batch")),
        (make_vector_buffer, (Windows, "_batch")),
        (make_vector_buffer, (Stages, "_append_completed")),
    ],
)
def test_a_step_that_is_interrupted_and_repeated_is_seen_once(make, where, monkeypatch):
    made = make()
    add, flag = getattr(made, "add_step", made.add), np.ones(ENVIRONMENTS, bool)
    step = dict.fromkeys(("action", "reward"), np.zeros(ENVIRONMENTS))
    step |= {"obs": np.zeros((ENVIRONMENTS, 1)), "next_obs": np.ones((ENVIRONMENTS, 1))}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(*where, Mock(side_effect=KeyboardInterrupt))
        add(**step, terminated=flag, truncated=~flag)
    resets = {**step, "obs": step["next_obs"], "next_obs": step["obs"]}

    def play() -> None:
        for _ in range(5):
            add(**step, terminated=flag, truncated=~flag)
            add(**resets, terminated=~flag, truncated=~flag)

    with pytest.warns(UserWarning, match="After 10 ends"):
        play()


@pytest.mark.parametrize("is_reset_by_caller", [False, True])
def test_a_window_that_is_restored_after_end_episode_accepts_a_reset_by_the_caller(is_reset_by_caller):
    saved, restored = (NStepWindow(STEP, 1, autoreset="next_step") for _ in range(2))
    saved.add(obs=1, action=0, reward=0, next_obs=2, terminated=True)
    saved.end_episode()
    restored.restore(saved.state())
    step = {name: 0 for name in STEP} | {"obs": 7 if is_reset_by_caller else 2, "next_obs": 8}
    assert [made.add(**step) is not None for made in (saved, restored)] == [is_reset_by_caller] * 2
