"""Buffers with the steps of several environments, beside the episodes that each environment records."""

import copy
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from oracles import PlainBuffer, columns
from test_autoreset import FIELDS, GAMMA, Unrewarded, assert_same_rows

import replay_tutorial
from replay_tutorial import (
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStep,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers.n_step.autoreset import NotConsecutive, with_final_obs

MODES = list(AutoresetMode)
BOTH = [ReplayBuffer, PrioritizedReplayBuffer]
ALPHA, EPS = 0.7, 0.01


class Random(gym.Env):
    """Episodes of 1 to 6 steps; the observation says which step it is, and every transition is recorded."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(9)

    def __init__(self, number: int, seed: int) -> None:
        self.number, self.episodes = number, list[list[dict[str, Any]]]()
        self.rng = np.random.default_rng([seed, number])

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episodes.append([])
        self.t, self.length, self.terminates = 0, self.rng.integers(1, 7), bool(self.rng.integers(2))
        return self.observation(), {}

    def step(self, action: Any) -> Any:
        obs, self.t = self.observation(), self.t + 1
        over = self.t >= self.length
        step = {"obs": obs, "action": action, "reward": float(action), "next_obs": self.observation()}
        step |= {"terminated": over and self.terminates, "truncated": over and not self.terminates}
        self.episodes[-1].append(step)
        return step["next_obs"], step["reward"], step["terminated"], step["truncated"], {}

    def observation(self) -> Any:
        return np.array([1000 * self.number + len(self.episodes), self.t], np.float32)


class Loop:
    """The loop of a user, in any mode."""

    def __init__(self, mode: AutoresetMode, envs: list[Any]) -> None:
        makers: list[Any] = [lambda env=env: env for env in envs]
        self.mode, self.envs, self.count = mode, SyncVectorEnv(makers, autoreset_mode=mode), len(envs)
        self.envs.action_space.seed(0)
        self.obs = self.envs.reset(seed=0)[0]

    def step(self) -> dict[str, Any]:
        obs, action = self.obs, self.envs.action_space.sample()
        self.obs, reward, terminated, truncated, infos = self.envs.step(action)
        next_obs, ended = with_final_obs(self.obs, infos), terminated | truncated
        if self.mode == AutoresetMode.DISABLED and ended.any():
            self.obs = self.envs.reset(options={"reset_mask": ended})[0]
        flags = {"terminated": terminated, "truncated": truncated}
        return {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs, **flags}


def recorded_rows(envs: list[Any], n_step: Any) -> dict[str, Any]:
    """The rows of all recorded episodes."""
    plain = PlainBuffer(10**6, FIELDS, n_step)
    for env in envs:
        for episode in env.episodes:
            if episode:
                plain.add({name: [step[name] for step in episode] for name in FIELDS}, len(episode))
                plain.end_episode()
    return columns(plain.rows, plain.output_specs())


def priority_of(obs: Any) -> Any:
    """A priority that shows which step it belongs to."""
    return (obs[..., 0] % 97 + 10 * obs[..., 1] + 1).astype(np.float64)


@pytest.mark.parametrize("options", [{}, {"dedupe_next": "obs"}], ids=["plain", "frames"])
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n, num_envs", [(None, 1), (None, 5), (1, 8), (2, 1), (3, 3), (5, 2)])
def test_rows_are_those_of_the_recorded_episodes(n, num_envs, mode, kind, options, tmp_path):
    """Also across files, copies and superfluous ends."""
    n_step = n and NStep(n, gamma=GAMMA)
    rates = {"alpha": ALPHA, "eps": EPS} if kind is PrioritizedReplayBuffer else {}
    envs = [Random(number, num_envs) for number in range(num_envs)]
    loop = Loop(mode, envs)

    def new() -> Any:
        return kind.for_env(loop.envs, 5000, n_step=n_step, **options, **rates)

    buffer = new()
    for time in range(80):
        step = loop.step()
        if rates:
            step["priorities"] = priority_of(step["obs"])
        buffer.add(**step)
        if time % 7 == 3:
            buffer.save(tmp_path / "saved")
            buffer = new()
            buffer.load(tmp_path / "saved")
        elif time % 7 == 5:
            buffer = copy.deepcopy(buffer)
        if time in (20, 51):
            buffer.end_episode(num_envs - 1)
            buffer.end_episode()
            loop.obs = loop.envs.reset()[0]
    buffer.end_episode()
    rows = buffer[:]
    assert_same_rows(rows, recorded_rows(envs, n_step))
    if rates:
        np.testing.assert_allclose(
            buffer._ring.leaves[: len(buffer)], (priority_of(rows["obs"]) + EPS) ** ALPHA, rtol=1e-6
        )
        seen = [priority_of(step["obs"]) for env in envs for episode in env.episodes for step in episode]
        assert buffer.max_priority == max(seen)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("capacity", [3, 40])
@pytest.mark.parametrize("num_envs", [3, 40])
def test_a_full_buffer_keeps_the_newest_rows_and_their_frames(num_envs, capacity, kind):
    """Frames of pending steps stay, although rows of other environments replace all that refer to them."""
    envs = [Random(number, 1) for number in range(num_envs)]
    loop = Loop(AutoresetMode.NEXT_STEP, envs)
    buffer, large = (
        kind.for_env(loop.envs, size, n_step=4, gamma=GAMMA, **options)
        for size, options in ((capacity, {"dedupe_next": "obs"}), (10_000, {}))
    )
    for _ in range(60):
        step = loop.step()
        buffer.add(**step)
        large.add(**step)
        newest = {name: array[-len(buffer) :] for name, array in large[:].items()}
        for name, array in buffer[:].items():
            np.testing.assert_array_equal(array, newest[name] if len(buffer) else newest[name][:0])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_cart_pole_has_the_transitions_that_its_environments_went_through(mode):
    """Written down by hand: each environment's steps, between the ends that it reports."""

    class Recorder(gym.Wrapper):
        def reset(self, **options: Any) -> Any:
            obs, info = self.env.reset(**options)
            self.path = [*getattr(self, "path", []), ("reset", obs)]
            return obs, info

        def step(self, action: Any) -> Any:
            result = self.env.step(action)
            self.path.append((action, *result[:4]))
            return result

    envs = [Recorder(gym.make("CartPole-v1", max_episode_steps=20)) for _ in range(4)]
    loop = Loop(mode, envs)
    buffer = PrioritizedReplayBuffer.for_env(loop.envs, 10_000, n_step=3, gamma=GAMMA)
    for _ in range(200):
        buffer.add(**loop.step())
    buffer.end_episode()
    expected: dict[bytes, Any] = {}
    for env in envs:
        steps: list[Any] = []
        for entry in [*env.path, ("reset", None)]:
            if isinstance(entry[0], str):
                for i in range(len(steps)):
                    window = steps[i : i + 3]
                    value = sum(GAMMA**k * step[1][2] for k, step in enumerate(window))
                    discount = 0.0 if window[-1][1][3] else GAMMA ** len(window)
                    expected[steps[i][0].tobytes()] = value, window[-1][1][1].tobytes(), discount
                steps, obs = [], entry[1]
            else:
                steps.append((obs, entry))
                obs = entry[1]
    rows = buffer[:]
    assert len(buffer) == len(expected)
    for obs, reward, next_obs, discount in zip(
        *(rows[name] for name in ("obs", "reward", "next_obs", "discount")), strict=True
    ):
        assert expected[obs.tobytes()] == (reward, next_obs.tobytes(), discount)


def vector_step(num_envs: int, **changes: Any) -> dict[str, Any]:
    step = {"obs": np.zeros((num_envs, 2)), "action": np.zeros(num_envs, int), "reward": np.ones(num_envs)}
    step |= {"next_obs": np.ones((num_envs, 2)), "terminated": np.zeros(num_envs, bool)}
    return step | {"truncated": np.zeros(num_envs, bool)} | changes


@pytest.mark.parametrize("kind", BOTH)
def test_any_other_number_of_steps_is_refused_and_changes_nothing(kind):
    buffer = kind(90, FIELDS, num_envs=3)
    for count in (1, 2, 4):
        with pytest.raises(ValueError, match=rf"num_envs=3.*one step of every environment.*not {count}"):
            buffer.add(**vector_step(count))
    assert buffer.add(**vector_step(3)) == 0 and len(buffer) == 3
    one = kind(90, FIELDS, autoreset="next_step")
    with pytest.raises(ValueError, match="num_envs=1"):
        one.add(**vector_step(2))
    assert one.add(**{name: column[0] for name, column in vector_step(1).items()}) == 0


@pytest.mark.parametrize("kind", BOTH)
def test_a_step_that_does_not_continue_its_environment_is_refused_and_changes_nothing(kind):
    for options in ({}, {"dedupe_next": "obs"}):
        buffer = kind(90, FIELDS, num_envs=2, n_step=3, **options)
        buffer.add(**vector_step(2))
        wrong = np.ones((2, 2))
        wrong[1] = 7
        with pytest.raises(NotConsecutive, match="environment 1"):
            buffer.add(**vector_step(2, obs=wrong))
        assert buffer.add(**vector_step(2, obs=np.ones((2, 2)))) is None
        buffer.end_episode()
        assert len(buffer) == 4


def test_episodes_end_for_all_environments_or_for_one():
    buffer = ReplayBuffer(90, FIELDS, num_envs=3, n_step=3)
    buffer.add(**vector_step(3))
    assert buffer._stages.pending_count == 3 and len(buffer) == 0
    buffer.end_episode(1)
    assert buffer._stages.pending_count == 2 and len(buffer) == 1
    buffer.end_episode()
    assert buffer._stages.pending_count == 0 and len(buffer) == 3
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match="between 0 and 2"):
            buffer.end_episode(wrong)


def test_a_return_that_overflows_discards_the_steps_of_its_environment_only():
    fields = FIELDS | {"reward": {"dtype": np.float16}}
    buffer = ReplayBuffer(90, fields, num_envs=3, n_step=3, gamma=1.0)
    buffer.add(**vector_step(3, reward=[1, 60_000, 1]))
    buffer.add(**vector_step(3, obs=np.ones((3, 2)), reward=[1, 60_000, 1]))
    with pytest.raises(ValueError, match=r"too large.*discarded"):
        buffer.end_episode()
    assert buffer[:]["reward"].tolist() == [2, 1, 2, 1]
    assert buffer._stages.pending_count == 0
    buffer.end_episode()
    assert len(buffer) == 4


@pytest.mark.parametrize("kind", BOTH)
def test_an_environment_that_waits_for_its_reset_still_does_after_clear(kind):
    loop = Loop(AutoresetMode.NEXT_STEP, envs := [Random(number, 3) for number in range(6)])
    buffer = kind.for_env(loop.envs, 900, n_step=3, gamma=GAMMA)
    for _ in range(9):
        buffer.add(**loop.step())
    buffer.clear()
    for env in envs:
        env.episodes = [[] for _ in env.episodes]
    for _ in range(9):
        buffer.add(**loop.step())
    buffer.end_episode()
    expected = recorded_rows(envs, NStep(3, gamma=GAMMA))
    assert_same_rows(buffer[:], expected)


def test_steps_that_only_reset_do_not_raise_the_largest_priority():
    buffer = PrioritizedReplayBuffer(90, FIELDS, num_envs=2, autoreset="next_step")
    buffer.add(**vector_step(2, terminated=[True, True]), priorities=[2, 3])
    after = {"obs": np.ones((2, 2)), "next_obs": np.zeros((2, 2)), "reward": np.zeros(2)}
    assert buffer.add(**vector_step(2, **after), priorities=[90, 80]) is None
    assert buffer.max_priority == 3 and len(buffer) == 2


def test_resets_at_the_next_step_are_reported_if_the_mode_is_not_passed():
    envs = SyncVectorEnv([lambda: Unrewarded(0, [1, 2, 3])] * 3)
    buffer = ReplayBuffer.for_env(envs, 900, autoreset=None)

    def collect() -> None:
        obs, _ = envs.reset()
        for _ in range(90):
            following, reward, terminated, truncated, _ = envs.step(np.ones(3, int))
            flags = {"terminated": terminated, "truncated": truncated}
            buffer.add(obs=obs, action=np.ones(3, int), reward=reward, next_obs=following, **flags)
            obs = following

    with pytest.warns(UserWarning, match="After 10 ends") as told:
        collect()
    assert [warning.filename for warning in told] == [__file__]


def test_a_file_of_other_environments_is_refused(tmp_path):
    ReplayBuffer(90, FIELDS, num_envs=2).save(tmp_path / "two")
    for options in ({"num_envs": 3}, {"num_envs": 2, "autoreset": "next_step"}, {}):
        with pytest.raises(ValueError):
            ReplayBuffer(90, FIELDS, **options).load(tmp_path / "two")


def test_fields_without_an_end_are_refused():
    with pytest.raises(ValueError, match="num_envs requires the field 'terminated' or 'done'"):
        ReplayBuffer(90, {"obs": FIELDS["obs"]}, num_envs=2)


def test_final_observations_of_nested_spaces_replace_those_of_the_next_episode():
    obs = {"image": np.zeros((3, 2)), "two": (np.zeros(3), np.ones(3))}
    final = {"image": np.full(2, 5.0), "two": (np.float64(6), np.float64(7))}
    infos = {"final_obs": np.array([None, final, None], object), "_final_obs": np.array([False, True, False])}
    seen = with_final_obs(obs, infos)
    assert seen["image"].tolist() == [[0, 0], [5, 5], [0, 0]] and not obs["image"].any()
    assert [part.tolist() for part in seen["two"]] == [[0, 6, 0], [1, 7, 1]]
    assert with_final_obs(obs, {}) is obs


class TestForEnv:
    def test_a_single_environment_has_its_fields_and_no_stages(self):
        buffer = ReplayBuffer.for_env(gym.make("CartPole-v1"), 90)
        assert list(buffer.field_specs) == list(FIELDS) and buffer._stages is None
        assert buffer.capacity == 90

    def test_a_wrapped_vector_environment_is_read(self):
        envs = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec("CartPole-v1", 3))
        buffer = ReplayBuffer.for_env(envs, 90)
        assert buffer._layout["num_envs"] == 3 and buffer._layout["next_step"]
        assert not ReplayBuffer.for_env(envs, 90, autoreset="disabled")._layout["next_step"]

    @pytest.mark.parametrize("kind", [MPReplayBuffer, MPPrioritizedReplayBuffer])
    def test_shared_buffers_refuse_steps_that_only_reset_and_n_step(self, kind):
        with pytest.raises(ValueError, match=r"next_step.*NStepWindow\("):
            kind.for_env(gym.make_vec("CartPole-v1", 3), 90)
        with pytest.raises(TypeError, match="with NStepWindow"):
            kind.for_env(gym.make("CartPole-v1"), 90, n_step=3)
        with pytest.raises(TypeError, match=r"'num_envs'.*with NStepWindow"):
            kind(90, FIELDS, num_envs=3)
        with kind.for_env(gym.make("CartPole-v1"), 90, dedupe_next="obs") as buffer:
            assert "next_obs" in buffer.field_specs

    def test_episode_buffers_have_a_ring_for_each_environment(self):
        envs = gym.make_vec("CartPole-v1", 3)
        for buffer in (
            EpisodeReplayBuffer.for_env(envs, 90),
            SequenceReplayBuffer.for_env(envs, 90, length=4),
        ):
            assert buffer._ring.environments == 3 and buffer._next_step
        part = gym.spaces.Box(0, 1, (2,))
        space = gym.spaces.Dict({"observation": part, "achieved_goal": part, "desired_goal": part})

        class Goals(Random):
            observation_space = space

        rules = {"compute_reward": lambda *_: 0, "compute_terminated": lambda *_: False}
        assert HindsightReplayBuffer.for_env(Goals(0, 0), 90, **rules).capacity >= 87

    def test_a_vector_environment_without_a_number_or_metadata(self):
        cart = gym.make("CartPole-v1")
        envs = SimpleNamespace(
            single_observation_space=cart.observation_space, single_action_space=cart.action_space
        )
        with pytest.raises(TypeError, match="env must have num_envs"):
            ReplayBuffer.for_env(envs, 90)
        envs.num_envs = 3
        for _ in range(2):
            buffer = ReplayBuffer.for_env(envs, 90)
            assert buffer._layout["num_envs"] == 3 and not buffer._layout["next_step"]
            envs.metadata = None

    def test_anything_else_is_refused(self):
        with pytest.raises(TypeError, match="env must be an environment or vector environment"):
            ReplayBuffer.for_env("CartPole-v1", 90)

    def test_gymnasium_is_not_imported_by_a_buffer(self):
        program = (
            "import sys, replay_tutorial as r; "
            "r.ReplayBuffer(9, {'terminated': {'dtype': bool}}, num_envs=2); "
            "assert 'gymnasium' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", program], check=True)


def test_rows_are_those_of_an_n_step_window_before_the_buffer():
    loop = Loop(AutoresetMode.NEXT_STEP, [Random(number, 5) for number in range(4)])
    settings = NStep(3, gamma=GAMMA)
    n_step = NStepWindow(FIELDS, settings, num_envs=4, autoreset="next_step")
    buffer = ReplayBuffer.for_env(loop.envs, 900, n_step=settings)
    beside = replay_tutorial.ReplayBuffer(900, n_step.fields)
    for _ in range(50):
        step = loop.step()
        buffer.add(**step)
        if (rows := n_step.add_step(**step)) is not None:
            beside.add(**rows)
    for name, array in beside[:].items():
        np.testing.assert_array_equal(buffer[:][name], array)
