"""CleanRL's loop, with its own buffer and with ours."""

import re
import textwrap
from itertools import pairwise
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation
from places import ROOT
from small_environments import Counting, Film
from torch.nn import functional

from replay_tutorial.agents.cleanrl import ReplayBuffer

COUNTING = Counting.observation_space, Counting.action_space, "cpu"


def steps_of(make, num_envs, count, final="final_observation"):
    """Yield what CleanRL's scripts pass to `rb.add`; newer versions of gymnasium say final_obs."""
    envs = SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.single_action_space.seed(1)
    obs, _ = envs.reset(seed=1)
    for _ in range(count):
        actions = np.array([envs.single_action_space.sample() for _ in range(envs.num_envs)])
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        infos = {name.replace("final_obs", final): value for name, value in infos.items()}
        real_next_obs = next_obs.copy()
        for idx, trunc in enumerate(truncations):
            if trunc:
                real_next_obs[idx] = infos[final][idx]
        yield obs, real_next_obs, actions, rewards, terminations, infos
        obs = next_obs


def all_of(theirs, monkeypatch):
    """Return the rows of a full buffer of SB3, which CleanRL has adopted, in the order of adding."""
    places, environments = np.divmod(np.arange(theirs.buffer_size * theirs.n_envs), theirs.n_envs)
    with monkeypatch.context() as patch:
        patch.setattr(np.random, "randint", lambda *_, **__: environments)
        return theirs._get_samples(places)


@pytest.mark.parametrize("n, num_envs, final", [(1, 3, "final_observation"), (3, 1, "final_obs")])
def test_rows_are_those_of_the_buffer_that_cleanrl_uses(n, num_envs, final, monkeypatch) -> None:
    theirs_of = pytest.importorskip("stable_baselines3.common.buffers")
    options = {"n_envs": num_envs, "handle_timeout_termination": False}
    ours = ReplayBuffer(60, *COUNTING, n_steps=n, gamma=None if n == 1 else 0.99, **options)
    theirs = theirs_of.ReplayBuffer(60, *COUNTING, **options)
    if n > 1:
        theirs = theirs_of.NStepReplayBuffer(60, *COUNTING, n_steps=n)
    for obs, next_obs, actions, rewards, terminations, infos in steps_of(
        Counting, num_envs, 60 // num_envs, final
    ):
        ours.add(obs, next_obs, actions, rewards, terminations, infos)
        done = terminations
        if n > 1:  # CleanRL has no n-step returns here, and SB3's need its flags
            done = obs[:, 1] == 4
            infos = [{"TimeLimit.truncated": truncated} for truncated in done & ~terminations]
        theirs.add(obs, next_obs, actions, rewards, done, infos)
    assert ours.size() == 60
    found, expected = ours._samples(ours.rows[:], None), all_of(theirs, monkeypatch)
    assert 0 < found.dones.sum() < 60
    assert (found.discounts is None) == (expected.discounts is None) == (n == 1)
    for name in expected._fields[: 5 if n == 1 else 6]:
        one, other = getattr(found, name), getattr(expected, name)
        assert (one.shape, one.dtype) == (other.shape, other.dtype), name
        if name == "discounts":  # ours is 0 as well after an episode has terminated
            other = other * (1 - expected.dones)
        np.testing.assert_allclose(one, other, rtol=1e-6, err_msg=name)


def test_a_truncation_without_its_last_observation_is_refused_by_n_step_returns() -> None:
    rb = ReplayBuffer(60, *COUNTING, handle_timeout_termination=False, n_steps=3, gamma=0.9)
    with pytest.raises(ValueError, match="differs from the 'next_obs' of the step before it"):
        for obs, next_obs, actions, rewards, terminations, _ in steps_of(Counting, 1, 10):
            rb.add(obs, next_obs, actions, rewards, terminations, {})


def test_discounts_are_those_of_the_present_gamma_and_missing_without_one() -> None:
    with pytest.raises(ValueError, match="n_steps=3 requires gamma"):
        ReplayBuffer(60, *COUNTING, n_steps=3)
    with pytest.raises(ValueError, match=r"gamma must be in \[0, 1\], not nan"):
        ReplayBuffer(60, *COUNTING, gamma=float("nan"))
    with pytest.raises(TypeError, match=r"gamma must be a .*number.*'0.9'"):
        ReplayBuffer(60, *COUNTING, gamma="0.9")
    plain, rb = ReplayBuffer(60, *COUNTING), ReplayBuffer(60, *COUNTING, n_steps=3, gamma=0.9)
    for step in steps_of(Counting, 1, 15):
        plain.add(*step)
        rb.add(*step)
    assert plain.sample(4).discounts is None
    for gamma in (0.9, 0.5):
        rb.gamma = gamma
        data = rb.sample(64)
        count = torch.clamp(5 - data.observations[:, 1:], max=3)
        torch.testing.assert_close(data.discounts, gamma**count * (1 - data.dones))
        torch.testing.assert_close(data.rewards, (1 - gamma**count) / (1 - gamma))


OF_TWO = {"reward": np.zeros(2), "done": np.zeros(2, bool), "truncations": np.zeros(2, bool)}


@pytest.mark.parametrize("wrong", [np.zeros(1), np.zeros(3), np.zeros((2, 1)), 0.0])
@pytest.mark.parametrize("name", OF_TWO)
@pytest.mark.parametrize("infos", [{}, [{}, {}]])
def test_arguments_of_another_shape_are_refused_by_name(name, wrong, infos) -> None:
    rb = ReplayBuffer(60, *COUNTING, n_envs=2)
    zeros = np.zeros((2, 2), np.float32)
    given = {**OF_TWO, name: wrong}
    message = f"{name} must have the shape (2,), not {np.shape(wrong)}"
    with pytest.raises(ValueError, match=re.escape(message)):
        rb.add(zeros, zeros, np.zeros(2, int), infos=infos, **given)
    assert rb.size() == 0


def test_a_list_of_infos_for_other_environments_is_refused() -> None:
    rb = ReplayBuffer(60, *COUNTING, n_envs=2)
    zeros = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match="infos must have 2 dicts, one per environment, not 3"):
        rb.add(zeros, zeros, np.zeros(2, int), infos=[{}] * 3, **OF_TWO)


def steps_in_mode(mode, count):
    """Yield what a loop for an autoreset mode passes to `rb.add`, with its `truncations`."""
    envs = SyncVectorEnv([Counting] * 3, autoreset_mode=mode)
    obs, _ = envs.reset(seed=1)
    envs.envs[1].unwrapped.step_number = 2  # so that the episodes end at different times
    obs[1, 1] = 2
    for _ in range(count):
        actions = np.zeros(3, int)
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        real_next_obs, ended = next_obs.copy(), terminations | truncations
        if mode is AutoresetMode.SAME_STEP:
            for i in np.flatnonzero(ended):
                real_next_obs[i] = infos["final_obs"][i]
        yield obs, real_next_obs, actions, rewards, terminations, infos, truncations
        obs = next_obs
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_no_row_crosses_an_episode_in_any_autoreset_mode(mode, n) -> None:
    rb = ReplayBuffer(500, *COUNTING, n_envs=3, n_steps=n, gamma=0.9, autoreset=mode)
    transitions, last_steps = [], {}
    for obs, *step in steps_in_mode(mode, 60):
        rb.add(obs, *step)
        for i, (episode, number) in enumerate(obs.tolist()):
            if number < 5:  # otherwise, the step only resets the environment
                transitions.append((i, episode, number))
                last_steps[i, episode] = number + 1
    rb.end_episodes()
    rows = rb.rows[:]
    (episodes, steps), (next_episodes, next_steps) = rows["obs"].T, rows["next_obs"].T
    expected = [(episode, step, min(step + n, last_steps[i, episode])) for i, episode, step in transitions]
    assert sorted(zip(episodes, steps, next_steps, strict=True)) == sorted(expected)
    np.testing.assert_array_equal(next_episodes, episodes)
    np.testing.assert_array_equal(rows["steps"], next_steps - steps)
    np.testing.assert_array_equal(rows["terminated"], (episodes % 2 == 1) & (next_steps == 5))
    np.testing.assert_array_equal(rows["truncated"], (episodes % 2 == 0) & (next_steps == 5))


def test_other_autoreset_modes_are_noticed_at_the_first_termination() -> None:
    rb = ReplayBuffer(500, *COUNTING, n_envs=3)
    with pytest.raises(ValueError, match=r"environment 1 ended.*SAME_STEP.*autoreset=envs.metadata"):
        for *step, _ in steps_in_mode(AutoresetMode.NEXT_STEP, 30):
            rb.add(*step)
    rb = ReplayBuffer(500, *COUNTING, n_envs=3, autoreset="next_step")
    with pytest.raises(ValueError, match=r"autoreset='next_step'.*truncations"):
        for *step, _ in steps_in_mode(AutoresetMode.NEXT_STEP, 30):
            rb.add(*step)
    with pytest.raises(ValueError, match="autoreset must be one of"):
        ReplayBuffer(500, *COUNTING, autoreset="sometimes")


def test_with_frames_stored_once_the_rows_are_the_same_and_smaller() -> None:
    def make():
        return FrameStackObservation(Film(), 4)

    spaces = make().observation_space, make().action_space
    options = {"n_envs": 2, "n_steps": 3, "gamma": 0.9, "handle_timeout_termination": False, "seed": 0}
    whole, small = [ReplayBuffer(200, *spaces, "cpu", optimize_memory_usage=o, **options) for o in (0, 1)]
    for step in steps_of(make, 2, 120):
        whole.add(*step)
        small.add(*step)
    assert whole.size() == 200
    assert small.rows.bytes_per_transition < whole.rows.bytes_per_transition / 2
    for one, other in zip(whole.sample(64)[:6], small.sample(64)[:6], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", [(12, 12, 3), (3, 12, 12), (10, 10, 10)])
def test_images_that_are_no_stacks_are_stored_once_and_whole(shape) -> None:
    box = Box(0, 255, shape, np.uint8)
    rb = ReplayBuffer(1500, box, Discrete(2), "cpu", optimize_memory_usage=True)
    images = np.random.default_rng(0).integers(0, 256, (1201, 1, *shape)).astype(np.uint8)
    for before, after in pairwise(images):  # a warning about frames that are not shared would be an error
        rb.add(before, after, np.zeros(1, int), np.zeros(1), np.zeros(1, bool), [{}])
    assert rb.rows.bytes_per_transition < 1.2 * np.prod(shape) + 100


def test_the_seed_of_a_script_determines_its_batches() -> None:
    batches = []
    for seed in (1, 1, 2):
        np.random.seed(seed)
        rb = ReplayBuffer(60, *COUNTING, n_envs=3)
        for step in steps_of(Counting, 3, 20):
            rb.add(*step)
        batches.append(rb.sample(32).observations)
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def lines_of_the_page(script, signs):
    """Return the code of each change to a script of CleanRL: signs are " -" before it, " +" after it."""
    page = (ROOT / "docs" / "recipes" / "from_cleanrl.md").read_text("utf-8")
    (diff,) = re.findall(rf"^```diff\n--- cleanrl/{script}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        yield textwrap.dedent("\n".join(line[1:] for line in hunk.splitlines() if line[0] in signs))


class Scripts:
    """What CleanRL's scripts have made when they come to the lines that the page changes."""

    torch, F, device, alpha = torch, functional, "cpu", 0.2

    def __init__(self, make):
        env = make()
        self.envs = SimpleNamespace(
            single_observation_space=env.observation_space, single_action_space=env.action_space
        )
        self.args = SimpleNamespace(buffer_size=100, gamma=0.9, batch_size=16, num_envs=1)

    def q_network(self, obs):
        return obs[:, :2].cos()

    def target_network(self, obs):
        return obs[:, :2].sin()

    def qf1(self, obs, action):
        return obs[:, :1] + action

    def qf2(self, obs, action):
        return obs[:, :1] * action


@pytest.mark.parametrize("script", ["dqn.py", "sac_continuous_action.py"])
def test_with_equal_priorities_the_patched_scripts_have_the_same_loss(script) -> None:
    def make():
        return gym.make("CartPole-v1" if script == "dqn.py" else "Pendulum-v1")

    scripts = Scripts(make)
    names = {name: getattr(scripts, name) for name in dir(scripts) if name[0] != "_"}
    _, _, *before = lines_of_the_page(script, " -")
    imports, creates, *after = lines_of_the_page(script, " +")
    run(imports, names)
    run(creates.replace("n_steps=3", "n_steps=1, seed=0"), names)
    rb, losses = names["rb"], []
    for step in steps_of(make, 1, 50):
        rb.add(*step)
    data = names["data"] = rb.sample(50)
    names["min_qf_next_target"] = data.next_observations[:, :1].sin()
    names["rb"] = SimpleNamespace(sample=lambda _: data, update_priorities=rb.update_priorities)
    for code in (before, after):
        run("\n".join(code), names)
        losses.append(names["loss" if script == "dqn.py" else "qf_loss"].item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert data.dones.any() == (script == "dqn.py")
    assert rb.sample(16).weights.min() < 1, "the priorities are those of the errors"


def run(code, names):
    exec(code, names)  # noqa: S102 - the lines of a page


@pytest.mark.parametrize("n", [1, 3])
def test_a_reward_that_is_no_number_is_refused_at_its_step_if_that_is_asked_for(n) -> None:
    rb = ReplayBuffer(60, *COUNTING, n_steps=n, gamma=0.9, check_finite=True)
    obs, zero = np.zeros((3, 1, 2), np.float32), np.zeros(1, int)
    obs[:, 0, 1] = np.arange(3)
    for _ in range(2):
        with pytest.raises(ValueError, match="'reward' contains nan, which check_finite=True"):
            rb.add(obs[0], obs[1], zero, np.array([np.nan]), np.zeros(1, bool), {})
    rb.add(obs[0], obs[1], zero, np.ones(1), np.zeros(1, bool), {})
    rb.end_episodes()
    assert rb.rows[:]["obs"].tolist() == [[0, 0]]
