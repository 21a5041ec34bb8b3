"""SAC (Haarnoja et al. 2018) with half of each batch from offline data (Ball et al. 2023), on Pendulum-v1.

The offline data are episodes of a mediocre policy, or those of a Minari dataset.

    python docs/recipes/programs/half_offline_sac.py [STEPS [DATASET]]
"""

import copy
import importlib
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import torch
from torch import nn

from replay_tutorial import Mixture, ReplayBuffer
from replay_tutorial.buffers.episodes.minari import import_minari

LENGTH, RANDOM_STEPS, UPDATES = 200, 200, 4  # steps of an episode; steps without updates; updates per step
BATCH_SIZE, GAMMA, TAU, LEARNING_RATE = 128, 0.99, 0.005, 1e-3
NAMES = "actions", "rewards", "terminations", "truncations"  # of Minari


def make_env():
    """Return Pendulum-v1 with actions in [-1, 1]."""
    return gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1))


def mediocre(obs, rng):
    """Swing up by adding energy, but never balance; half of the actions are random."""
    cosine, _, velocity = obs
    missing = 5 - (5 * cosine + velocity**2 / 6)  # at rest at the top, the energy is 5
    action = rng.uniform(-1, 1) if rng.random() < 0.5 else np.clip(0.1 * missing * velocity, -1, 1)
    return np.array([action], np.float32)


def collect(count, seed=0):
    """Return episodes of the mediocre policy, with the attributes of Minari's `EpisodeData`."""
    env, rng, episodes = make_env(), np.random.default_rng(seed), []
    for number in range(count):
        observations, steps = [env.reset(seed=seed if number == 0 else None)[0]], []
        for _ in range(LENGTH):
            action = mediocre(observations[-1], rng)
            obs, *others, _ = env.step(action)  # reward, terminated, truncated
            observations.append(obs)  # T + 1 observations of T steps, the final one included
            steps.append((action, *others))
        columns = dict(zip(NAMES, map(np.array, zip(*steps, strict=True)), strict=True))
        episodes.append(SimpleNamespace(observations=np.array(observations), infos=None, **columns))
    return episodes


def mlp(inputs, outputs):
    hidden = nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(128, outputs))


class SAC(nn.Module):
    """A Gaussian policy squashed by tanh, two critics, and the weight of the entropy."""

    def __init__(self, obs_size, action_size):
        super().__init__()
        self.policy = mlp(obs_size, 2 * action_size)
        self.critics = nn.ModuleList(mlp(obs_size + action_size, 1) for _ in range(2))
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.zeros(1))
        parts = self.policy.parameters(), self.critics.parameters(), [self.log_alpha]
        self.optimizers = [torch.optim.Adam(part, lr=LEARNING_RATE) for part in parts]

    def act(self, obs):
        """Return actions [B, action_size], their log-probabilities [B], and the most likely actions."""
        mean, log_std = self.policy(obs).chunk(2, dim=-1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        # log(1 - tanh(x)²), in a form that is stable for large |x|
        correction = 2 * (np.log(2) - raw - nn.functional.softplus(-2 * raw))
        return raw.tanh(), (normal.log_prob(raw) - correction).sum(-1), mean.tanh()

    @staticmethod
    def values(critics, obs, action):
        return torch.stack([critic(torch.cat([obs, action], -1)).squeeze(-1) for critic in critics])

    def update(self, batch):
        """Take one gradient step of the critics, the policy and the weight of the entropy."""
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_prob, _ = self.act(batch.next_obs)
            next_value = self.values(self.target_critics, batch.next_obs, next_action).amin(0)
        goal = batch.reward + GAMMA * ~batch.terminated * (next_value - alpha * next_log_prob)
        self.step(1, (goal - self.values(self.critics, batch.obs, batch.action)).square().sum(0).mean())
        action, log_prob, _ = self.act(batch.obs)
        self.step(0, (alpha * log_prob - self.values(self.critics, batch.obs, action).amin(0)).mean())
        self.step(2, -(self.log_alpha * (log_prob.detach() - batch.action.shape[1])).mean())
        for slow, fast in zip(self.target_critics.parameters(), self.critics.parameters(), strict=True):
            slow.lerp_(fast.detach(), TAU)

    def step(self, number, loss):
        self.optimizers[number].zero_grad()
        loss.backward()
        self.optimizers[number].step()


def evaluate(agent, episodes=10):
    """Return the mean return of greedy episodes."""
    envs = gymnasium.vector.SyncVectorEnv([make_env] * episodes)
    (obs, _), total = envs.reset(seed=1_000_000), np.zeros(episodes)
    for _ in range(LENGTH):
        obs, reward, *_ = envs.step(agent.act(torch.from_numpy(obs))[2].detach().numpy())
        total += reward
    return float(total.mean())


# --8<-- [start:train]
def train(episodes, share=0.5, steps=1_000, seed=0, every=250):
    """Return the mixture and the mean return of each evaluation."""
    torch.manual_seed(seed)
    env, episodes = make_env(), list(episodes)
    env.action_space.seed(seed)
    online = ReplayBuffer.for_env(env, 100_000, seed=seed)
    offline = ReplayBuffer.for_env(env, sum(len(episode.rewards) for episode in episodes), seed=seed)
    import_minari(offline, episodes)
    mixture = Mixture({"online": (online, 1 - share), "offline": (offline, share)}, seed=seed)
    agent, curve = SAC(*env.observation_space.shape, *env.action_space.shape), []
    obs, _ = env.reset(seed=seed)
    for step in range(1, steps + 1):
        action = env.action_space.sample()
        if step > RANDOM_STEPS:
            action = agent.act(torch.from_numpy(obs))[0].detach().numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        online.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
        for _ in range(UPDATES if step > RANDOM_STEPS else 0):
            agent.update(mixture.sample(BATCH_SIZE).to_torch())
        if step % every == 0:
            curve.append(evaluate(agent))
            print(f"{share:.0%} offline, {step:,} steps of Pendulum, mean return {curve[-1]:,.0f}")
    return mixture, curve


# --8<-- [end:train]


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up networks this small
    steps = int(sys.argv[1]) if sys.argv[1:] else 1_000
    episodes = importlib.import_module("minari").load_dataset(sys.argv[2]) if sys.argv[2:] else collect(20)
    train(episodes, 0.5, steps)
    train(episodes, 0.0, steps)
