"""The prioritized algorithms for Stable-Baselines3 beside its own, and what its loop stores and saves."""

import copy

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3")

from gymnasium.spaces import Box, Dict
from small_environments import Counting, Endless
from stable_baselines3 import DDPG, DQN, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from replay_tutorial.agents.sb3 import (
    HindsightReplayBuffer,
    NStepReturns,
    PrioritizedDQN,
    PrioritizedReplayBuffer,
    PrioritizedSAC,
    PrioritizedTD3,
    ReplayBuffer,
)

PAIRS = {"dqn": (PrioritizedDQN, DQN), "sac": (PrioritizedSAC, SAC), "td3": (PrioritizedTD3, TD3)}


class TwoKeys(Counting):
    """The numbers of `Counting` under two keys, for continuous actions."""

    observation_space = Dict(episode=Box(0, 99, (1,)), step=Box(0, 5, (1, 1), np.float32))
    action_space = Box(-2, 2, (1,))

    def observation(self):
        return {
            "episode": np.array([self.episode], np.float32),
            "step": np.array([[self.step_number]], np.float32),
        }


class Pushed(Counting):
    action_space = Box(-2, 2, (1,))


def model_of(kind, environment=Counting, policy="MlpPolicy", **options):
    usual = {"learning_starts": 8, "batch_size": 16, "buffer_size": 60, "seed": 0, "device": "cpu"}
    environments = environment
    if not isinstance(environment, VecEnv):
        environments = make_vec_env(environment, n_envs=2, seed=0)
    return kind(policy, environments, policy_kwargs={"net_arch": [8]}, **usual | options)


def parameters(model):
    entropy = [model.log_ent_coef] if isinstance(model, SAC) else []
    return [each.detach().clone() for each in [*model.policy.parameters(), *entropy]]


def pair(name):
    """Return our model, SB3's with the same parameters, and a batch of n-step rows of equal priorities."""
    models = [model_of(kind, Counting if name == "dqn" else Pushed, n_steps=3) for kind in PAIRS[name]]
    for model in models:
        model.learning_starts = 1_000
        model.learn(50)
    return *models, models[0].replay_buffer.sample(16)


@pytest.mark.parametrize("name", PAIRS)
def test_at_equal_priorities_the_update_is_that_of_stable_baselines(name, monkeypatch) -> None:
    ours, theirs, data = pair(name)
    assert (data.weights == 1).all()
    assert data.dones.any() and data.discounts.any()
    before = parameters(theirs)
    for model in (ours, theirs):
        monkeypatch.setattr(model.replay_buffer, "sample", lambda *_, **__: data)
        torch.manual_seed(0)
        model.train(3, 16)
        assert model._n_updates == 3
    for one, other in zip(parameters(ours), parameters(theirs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    changed = [bool((one != old).any()) for one, old in zip(parameters(ours), before, strict=True)]
    assert sum(changed) >= len(changed) // 2, "the other half of DQN's are the target network's"


@pytest.mark.parametrize("name", PAIRS)
def test_rows_of_weight_zero_change_no_q_network(name, monkeypatch) -> None:
    ours, _, data = pair(name)
    without = data._replace(weights=torch.zeros_like(data.weights))
    monkeypatch.setattr(ours.replay_buffer, "sample", lambda *_, **__: without)
    network = ours.q_net if name == "dqn" else ours.critic
    before = copy.deepcopy(list(network.parameters()))
    ours.train(1, 16)
    assert all(torch.equal(*both) for both in zip(before, network.parameters(), strict=True))


def test_priorities_are_the_td_errors_before_the_update(monkeypatch) -> None:
    ours, _, data = pair("dqn")
    with torch.no_grad():
        targets = data.rewards + data.discounts * ours.q_net_target(data.next_observations).amax(1, True)
        errors = targets - ours.q_net(data.observations).gather(1, data.actions)
    monkeypatch.setattr(ours.replay_buffer, "sample", lambda *_, **__: data)
    given = []
    monkeypatch.setattr(ours.replay_buffer.rows, "update_priorities", lambda *each: given.append(each))
    ours.train(1, 16)
    ((indexes, priorities),) = given
    np.testing.assert_array_equal(indexes, data.indexes)
    np.testing.assert_allclose(priorities, errors.abs().flatten(), rtol=1e-5)


def test_no_row_crosses_a_reset_of_an_episode_or_by_learn() -> None:
    model = model_of(PrioritizedDQN, n_steps=3, gamma=0.9, optimize_memory_usage=True)
    for _ in range(2):
        model.learn(24)  # of each environment two episodes and two steps, and then SB3 resets it
    rows = model.replay_buffer.rows[:]
    (episodes, steps), (next_episodes, next_steps) = [
        rows[name].T.astype(float) for name in ("obs", "next_obs")
    ]
    taken, odd = next_steps - steps, episodes % 2 == 1
    assert len(steps) == 2 * (24 - 2), "two steps of each environment are pending"
    np.testing.assert_array_equal(next_episodes, episodes)
    cut = taken < np.minimum(3, 5 - steps)
    assert sorted(zip(steps[cut], taken[cut], strict=True)) == [(0, 2), (0, 2), (1, 1), (1, 1)]
    np.testing.assert_array_equal(rows["steps"], taken)
    np.testing.assert_array_equal(rows["reward"], np.arange(3) < taken[:, np.newaxis])
    np.testing.assert_array_equal(rows["terminated"], (next_steps == 5) & odd)
    np.testing.assert_array_equal(rows["truncated"], (next_steps == 5) & ~odd)
    data = model.replay_buffer._samples(rows, None)
    np.testing.assert_allclose(data.rewards[:, 0], (1 - 0.9**taken) / (1 - 0.9), rtol=1e-6)
    np.testing.assert_allclose(data.discounts[:, 0], ~rows["terminated"] * 0.9**taken, rtol=1e-6)
    assert model._n_updates == 4
    assert model.replay_buffer.rows.stale_updates == 0


def test_refused_step_ends_no_window() -> None:
    model = model_of(PrioritizedDQN, n_steps=3)
    model.learn(24)
    buffer, rows = model.replay_buffer, model.replay_buffer.size()
    obs, flags = np.zeros((2, 2), np.float32), np.zeros(2, bool)
    with pytest.raises(ValueError, match="obs"):
        buffer.add(obs[:, :1], obs, np.zeros(2, int), np.zeros(2), flags, [{}, {}])
    assert buffer.size() == rows, "two pending steps of each environment are still pending"
    buffer.end_episodes()
    assert buffer.size() == rows + 4


def test_dict_observations_are_those_of_stable_baselines_and_normalized_as_there(monkeypatch) -> None:
    environments = VecNormalize(make_vec_env(TwoKeys, n_envs=2, seed=0))
    model = model_of(PrioritizedSAC, environments, "MultiInputPolicy")
    ours, spaces = model.replay_buffer, (TwoKeys.observation_space, TwoKeys.action_space)
    theirs, add = DictReplayBuffer(24, *spaces, "cpu", n_envs=2), ours.add

    def add_to_both(*step):
        theirs.add(*copy.deepcopy(step))
        add(*step)

    monkeypatch.setattr(ours, "add", add_to_both)
    model.learn(24)
    assert model._n_updates > 4
    places, numbers = np.divmod(np.arange(24), 2)
    monkeypatch.setattr(np.random, "randint", lambda *_, **__: numbers)
    expected = theirs._get_samples(places, environments)
    found = ours._samples(ours.rows[:], environments)
    for name in ("observations", "next_observations"):
        for key in ("episode", "step"):
            torch.testing.assert_close(getattr(found, name)[key], getattr(expected, name)[key])
    for name in ("actions", "dones", "rewards"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_a_loaded_buffer_goes_on_exactly_as_the_saved_one_does(tmp_path, monkeypatch) -> None:
    model = model_of(PrioritizedDQN, n_steps=3)
    model.learn(26)  # in the middle of an episode, with pending steps
    model.save_replay_buffer(tmp_path / "replay.pkl")
    other = model_of(PrioritizedDQN, n_steps=3, seed=1)
    other.load_replay_buffer(tmp_path / "replay.pkl")
    saved, loaded, samples = model.replay_buffer, other.replay_buffer, []

    def in_both(name, call):
        def called(*arguments, **options):
            again = getattr(loaded, name)(*arguments, **options)
            result = call(*arguments, **options)
            if name == "sample":
                samples.append((result, again))
            return result

        return called

    for name in ("add", "sample", "update_priorities"):
        monkeypatch.setattr(saved, name, in_both(name, getattr(saved, name)))
    model.learn(40, reset_num_timesteps=False)
    assert len(samples) == model._n_updates - 3 == 5
    for one, other in samples:
        for tensor, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(tensor, same)
    assert saved.rows.total_mass == loaded.rows.total_mass


def test_any_algorithm_of_stable_baselines_accepts_the_uniform_buffer() -> None:
    model = model_of(DDPG, Pushed, replay_buffer_class=ReplayBuffer).learn(24)
    assert model._n_updates > 4
    assert not isinstance(model.replay_buffer, PrioritizedReplayBuffer)
    assert model.replay_buffer.sample(8).weights is None


class NStepDQN(NStepReturns, DQN):
    pass


class NStepTD3(NStepReturns, TD3):
    pass


class PushedForEver(Endless):
    action_space = Box(-2, 2, (1,))


def learner(kind, **options):
    """Return an algorithm in an environment with reward 1 for ever, and 60 stored steps."""
    continuous = not issubclass(kind, DQN)
    if issubclass(kind, SAC):
        options["ent_coef"] = 0.0
    model = model_of(kind, PushedForEver if continuous else Endless, **options)
    model.learning_starts = 1_000
    return model.learn(60)


def loss_at(model, value):
    """Return the loss of the Q-networks in an update if all of them and their targets are constant."""
    networks = [model.q_net.q_net, model.q_net_target.q_net] if isinstance(model, DQN) else []
    networks = networks or [*model.critic.q_networks, *model.critic_target.q_networks]
    for network in networks:
        for parameter in network.parameters():
            torch.nn.init.zeros_(parameter)
        torch.nn.init.constant_(network[-1].bias, value)
    model.train(1, 16)
    logged = model.logger.name_to_value
    return logged["train/loss" if isinstance(model, DQN) else "train/critic_loss"]


def assigned(model, _):
    model.gamma = 0.5
    return model


def loaded(model, folder):
    model.save(folder / "model.zip")
    model.save_replay_buffer(folder / "replay.pkl")
    other = type(model).load(folder / "model.zip", model.env, gamma=0.5, device="cpu")
    other.load_replay_buffer(folder / "replay.pkl")
    other.learn(10)
    return other


@pytest.mark.parametrize("change", [None, assigned, loaded])
@pytest.mark.parametrize(
    "kind, n_steps, options",
    [
        (DQN, 1, {"replay_buffer_class": ReplayBuffer}),
        *[(kind, n, {"n_steps": n}) for kind in (NStepDQN, NStepTD3) for n in (1, 3)],
        *[(kind, n, {"n_steps": n}) for kind, _ in PAIRS.values() for n in (1, 3)],
    ],
)
def test_the_right_value_for_the_gamma_of_the_algorithm_is_a_fixed_point(
    kind, n_steps, options, change, tmp_path
) -> None:
    model = learner(kind, gamma=0.9 if change else 0.5, **options)
    if change:
        assert loss_at(model, 10.0) == pytest.approx(0, abs=1e-9)
        assert loss_at(model, 2.0) > 1e-3
        model = change(model, tmp_path)
    assert loss_at(model, 2.0) == 0
    assert (model.replay_buffer.sample(4).discounts is None) == (n_steps == 1)


def test_a_copied_algorithm_learns_with_its_own_gamma() -> None:
    model = learner(NStepDQN, n_steps=3, gamma=0.9)
    twin = copy.deepcopy(model)
    twin.gamma = 0.5
    twin.learn(10)
    assert loss_at(twin, 2.0) == 0
    assert loss_at(model, 10.0) == pytest.approx(0, abs=1e-9)


def test_n_steps_or_gamma_beside_those_of_the_algorithm_are_refused() -> None:
    for settings in [{"n_steps": 3}, {"n_steps": 3, "gamma": 0.9}, {"gamma": 0.9}]:
        options = {"replay_buffer_class": ReplayBuffer, "replay_buffer_kwargs": settings}
        with pytest.raises(ValueError, match=f"n_steps={settings.get('n_steps', 1)}.*NStepReturns"):
            model_of(DQN, gamma=0.5, **options)
    for name, value, own in [
        ("gamma", 0.9, "gamma=0.5"),
        ("n_steps", 2, "n_steps=3"),
        ("n_step", 2, "n_steps=3"),
    ]:
        for kind, environment, policy, settings in [
            (PrioritizedReplayBuffer, Counting, "MlpPolicy", {}),
            (HindsightReplayBuffer, Corridor, "MultiInputPolicy", HINDSIGHT["replay_buffer_kwargs"]),
        ]:
            options = {"replay_buffer_class": kind, "replay_buffer_kwargs": {**settings, name: value}}
            with pytest.raises(ValueError, match=rf"{name}={value}.*{own}"):
                model_of(PrioritizedDQN, environment, policy, gamma=0.5, n_steps=3, **options)
    with pytest.raises(ValueError, match=r"n_step=3.*NStepReturns"):
        model_of(DQN, replay_buffer_class=ReplayBuffer, replay_buffer_kwargs={"n_step": 3})
    with pytest.raises(ValueError, match=r"num_envs=3.*n_envs=2"):
        model_of(PrioritizedDQN, replay_buffer_kwargs={"num_envs": 3})


def test_a_buffer_with_other_rows_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match=r"PrioritizedSAC.*HerReplayBuffer.*PrioritizedReplayBuffer"):
        model_of(PrioritizedSAC, Pushed, replay_buffer_class=HerReplayBuffer)
    with pytest.raises(TypeError, match=r"NStepDQN.*DictReplayBuffer"):
        model_of(NStepDQN, replay_buffer_class=DictReplayBuffer)


def test_a_buffer_with_other_returns_is_not_loaded(tmp_path) -> None:
    model_of(PrioritizedDQN, n_steps=3).save_replay_buffer(tmp_path / "three.pkl")
    model_of(NStepDQN, n_steps=2).save_replay_buffer(tmp_path / "uniform.pkl")
    model = model_of(PrioritizedDQN, n_steps=2)
    own = model.replay_buffer
    with pytest.raises(ValueError, match=r"n_steps=3.*n_steps=2"):
        model.load_replay_buffer(tmp_path / "three.pkl")
    with pytest.raises(TypeError, match=r"ReplayBuffer.*PrioritizedDQN requires a PrioritizedReplayBuffer"):
        model.load_replay_buffer(tmp_path / "uniform.pkl")
    assert model.replay_buffer is own
    plain = model_of(DQN, replay_buffer_class=ReplayBuffer, learning_starts=0)
    plain.load_replay_buffer(tmp_path / "three.pkl")
    with pytest.raises(ValueError, match="n_steps=3, but no algorithm"):
        plain.learn(8)


def test_a_buffer_continues_in_an_algorithm_with_another_number_of_environments(tmp_path) -> None:
    model = model_of(PrioritizedDQN, n_steps=3, gamma=0.9)
    model.learn(2 * 8)  # the fifth step ends an episode, and two steps of each environment are pending
    model.save_replay_buffer(tmp_path / "replay.pkl")
    other = model_of(PrioritizedDQN, make_vec_env(Counting, n_envs=4, seed=0), n_steps=3, gamma=0.9)
    other.load_replay_buffer(tmp_path / "replay.pkl")
    other.learn(4 * 8)
    rows = other.replay_buffer.rows[:]
    steps = (rows["next_obs"] - rows["obs"]).astype(int)
    assert len(steps) == 2 * 8 + 4 * (8 - 2)
    np.testing.assert_array_equal(steps[:, 0], 0)
    np.testing.assert_array_equal(steps[:, 1], rows["steps"])
    assert rows["steps"][12:16].tolist() == [2, 1, 2, 1], "those that were pending"
    assert other._n_updates > 0


class Rewarded(Counting):
    """Rewards that differ, so that a window shows which of them it contains."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(self.step_number**2), *rest


@pytest.mark.parametrize("clip_reward", [0.5, 10.0])
def test_each_reward_of_a_return_is_normalized_and_clipped_as_stable_baselines_does(
    clip_reward, monkeypatch
) -> None:
    environments = VecNormalize(make_vec_env(Rewarded, 1, seed=0), clip_reward=clip_reward, gamma=0.9)
    model = model_of(PrioritizedDQN, environments, n_steps=3, gamma=0.9)
    ours, spaces = model.replay_buffer, (Counting.observation_space, Counting.action_space)
    theirs, add = NStepReplayBuffer(20, *spaces, "cpu", n_steps=3, gamma=0.9), ours.add

    def add_to_both(*step):
        theirs.add(*copy.deepcopy(step))
        add(*step)

    monkeypatch.setattr(ours, "add", add_to_both)
    model.learn(20)
    expected = theirs._get_samples(np.arange(20), environments)
    found = ours._samples(ours.rows[:], environments)
    for name in ("observations", "next_observations", "dones", "rewards"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
    torch.testing.assert_close(found.discounts, expected.discounts * (1 - expected.dones))
    deviation = np.sqrt(environments.ret_rms.var + environments.epsilon)
    first = [min(step**2 / deviation, clip_reward) for step in (1, 2, 3)]
    assert found.rewards[0].item() == pytest.approx(first[0] + 0.9 * first[1] + 0.81 * first[2])


class Corridor(Counting):
    """A walk to a goal, which ends the episode there or after 5 steps; its numbers show where a row is from.

    `history` contains the positions and the goal of each episode.
    """

    observation_space = Dict(
        observation=Box(0, 99, (2,)), achieved_goal=Box(-9, 9, (1,)), desired_goal=Box(-9, 9, (1,))
    )

    def __init__(self):
        self.history = []

    def reset(self, *, seed=None, options=None):
        self.history.append(([0], 2 if len(self.history) % 2 else 9))
        return super().reset(seed=seed)

    def step(self, action):
        positions, goal = self.history[-1]
        positions.append(positions[-1] + 2 * action - 1)
        observation, *_ = super().step(action)
        reached = positions[-1] == goal
        return observation, float(reached) - 1, reached, self.step_number == 5 and not reached, {}

    def observation(self):
        positions, goal = self.history[-1]
        numbers = super().observation()
        return {
            "observation": numbers,
            "achieved_goal": np.array([positions[-1]], np.float32),
            "desired_goal": np.array([goal], np.float32),
        }


def cost(achieved, goals, rows):
    return (achieved == goals)[:, 0] - 1.0


def reached(achieved, goals, rows):
    return (achieved == goals)[:, 0]


HINDSIGHT = {
    "replay_buffer_class": HindsightReplayBuffer,
    "replay_buffer_kwargs": {"compute_reward": cost, "compute_terminated": reached},
}


class PushedCorridor(Corridor):
    action_space = Box(-2, 2, (1,))

    def step(self, action):
        return super().step(int(action[0] > 0))


@pytest.mark.parametrize("kind, n", [(PrioritizedDQN, 1), (PrioritizedSAC, 3), (PrioritizedTD3, 3)])
def test_hindsight_rows_have_the_returns_of_their_goals(kind, n) -> None:
    environment = Corridor if kind is PrioritizedDQN else PushedCorridor
    model = model_of(kind, environment, "MultiInputPolicy", n_steps=n, gamma=0.9, **HINDSIGHT)
    model.learn(64)
    assert model._n_updates > 4
    histories = model.env.get_attr("history")
    model.gamma = 0.5
    data, relabelled = model.replay_buffer.sample(500), 0
    assert (data.discounts is None) == (n == 1)
    for i in range(500):
        episode, first = data.observations["observation"][i].int().tolist()
        goal, after = data.observations["desired_goal"][i].item(), data.next_observations
        ends = []
        for history in histories:  # both environments have an episode of this number
            positions, own = history[episode]
            gained, k, done = 0.0, 0, False
            while k < n and first + k + 1 < len(positions) and not done:
                done = positions[first + k + 1] == goal
                gained += 0.5**k * (done - 1)
                k += 1
            discount = None if n == 1 else 0.5**k * (not done)
            ends.append((gained, done, discount, positions[first + k], first + k, goal))
            relabelled += goal != own and history is histories[0]
        found = (data.rewards[i].item(), bool(data.dones[i]), None if n == 1 else data.discounts[i].item())
        found += (after["achieved_goal"][i].item(), after["observation"][i, 1].item())
        assert (*found, after["desired_goal"][i].item()) in ends
    assert 300 < relabelled < 500
    assert len(set(model.replay_buffer.rows.priorities[model.replay_buffer.rows.indexes])) > 10
    assert 0 < data.dones.sum() < 500


def test_hindsight_resumes_with_the_same_number_of_environments_and_normalizes_no_summed_reward(
    tmp_path,
) -> None:
    model = model_of(PrioritizedDQN, Corridor, "MultiInputPolicy", n_steps=3, **HINDSIGHT)
    model.learn(24)  # in the middle of an episode
    model.save_replay_buffer(tmp_path / "replay.pkl")
    environments = VecNormalize(make_vec_env(Corridor, 2))
    other = model_of(PrioritizedDQN, environments, "MultiInputPolicy", n_steps=3, **HINDSIGHT)
    other.load_replay_buffer(tmp_path / "replay.pkl")
    with pytest.raises(ValueError, match="norm_reward=False"):
        other.learn(24)
    environments.norm_reward = False
    assert other.learn(24)._n_updates > 0
    third = model_of(PrioritizedDQN, make_vec_env(Corridor, 3), "MultiInputPolicy", n_steps=3, **HINDSIGHT)
    with pytest.raises(ValueError, match="2 environments, and the algorithm has 3"):
        third.load_replay_buffer(tmp_path / "replay.pkl")


def test_hindsight_refuses_a_step_of_another_number_of_environments_and_goes_on() -> None:
    model = model_of(PrioritizedDQN, make_vec_env(Corridor, 2), "MultiInputPolicy", **HINDSIGHT)
    model.learn(24)
    replay = model.replay_buffer
    before = replay.rows.episodes()["finished"].tolist()
    assert False in before, "an episode is running"
    step = {
        "observation": np.zeros((3, 2)),
        "achieved_goal": np.zeros((3, 1)),
        "desired_goal": np.zeros((3, 1)),
    }
    with pytest.raises(ValueError, match=r"2 environments.*of 3.*n_envs=3"):
        replay.add(step, step, np.zeros(3, int), np.zeros(3), np.zeros(3, bool), [{}] * 3)
    assert replay.rows.episodes()["finished"].tolist() == before
    size = replay.size()
    model.learn(24, reset_num_timesteps=False)
    assert replay.size() == size + 24


class Clock(Counting):
    """Shows seconds since 1970, which float32 rounds to multiples of 128, or small float16 numbers."""

    def __init__(self, dtype):
        self.observation_space = Box(-np.inf, np.inf, (2,), dtype)

    def observation(self):
        dtype = self.observation_space.dtype
        return super().observation().astype(dtype) + dtype.type(1.7e9 if dtype == np.float64 else 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_observations_keep_the_dtype_of_their_space(dtype) -> None:
    model = model_of(PrioritizedDQN, make_vec_env(Clock, env_kwargs={"dtype": dtype}), n_steps=3)
    model.learn(20)
    data = model.replay_buffer.sample(32)
    theirs = DQN("MlpPolicy", model.env, buffer_size=20, device="cpu", learning_starts=20).learn(20)
    expected = theirs.replay_buffer.sample(4).observations.dtype
    assert data.observations.dtype == data.next_observations.dtype == expected
    passed = data.next_observations[:, 1] - data.observations[:, 1]
    assert set(passed.tolist()) == {1.0, 2.0, 3.0}


def test_float64_actions_are_float32_as_in_stable_baselines() -> None:
    class Precise(Counting):
        action_space = Box(-2, 2, (1,), np.float64)

    model = model_of(PrioritizedTD3, Precise).learn(24)
    assert model._n_updates > 4
    assert model.replay_buffer.sample(8).actions.dtype == torch.float32


class SameDraws(ReplayBuffer):
    """The uniform buffer, drawing with the random numbers of SB3's buffer: steps, then environments."""

    def sample(self, batch_size, env=None):
        steps = np.random.randint(0, self.size() // 2, size=batch_size)
        drawn = 2 * steps + np.random.randint(0, 2, size=batch_size)
        rows = self.rows[:]
        return self._samples({name: column[drawn] for name, column in rows.items()}, env)


@pytest.mark.parametrize("name", PAIRS)
def test_the_uniform_buffer_changes_nothing_but_the_random_numbers(name) -> None:
    environment = "CartPole-v1" if name == "dqn" else "Pendulum-v1"

    def learned(**options):
        envs = make_vec_env(environment, 2, seed=0, env_kwargs={"max_episode_steps": 15})
        return model_of(PAIRS[name][1], envs, buffer_size=500, **options).learn(120)

    ours = learned(replay_buffer_class=SameDraws, replay_buffer_kwargs={"seed": 0})
    theirs = learned()
    assert theirs._n_updates > 10
    for own, other in zip(parameters(ours), parameters(theirs), strict=True):
        assert own.equal(other)
