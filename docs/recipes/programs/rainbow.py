"""Rainbow (Hessel et al. 2018) without noisy networks, on eight environments at once: learns CartPole-v1.

Double Q-learning, a dueling network, 3-step returns, prioritized replay, and distributions of returns (C51).

    python docs/recipes/programs/rainbow.py [STEPS [SEED]]        # steps of each environment
"""

import copy
import sys

import gymnasium
import numpy as np
import torch
from torch import nn

from replay_tutorial import PrioritizedReplayBuffer

ENVS, CAPACITY, WARM_UP, BATCH_SIZE = 8, 50_000, 1_000, 64
UPDATES = 2  # after each step of all environments, so that each row is sampled 16 times on average
N_STEP, GAMMA, ALPHA, BETA = 3, 0.99, 0.5, 0.4
LEARNING_RATE, TARGET_EVERY, EXPLORE_STEPS, FINAL_EPSILON = 1e-3, 50, 800, 0.02
ATOMS = torch.linspace(0, 100, 51)  # possible returns; 1 per step, discounted, is at most 100


class Network(nn.Module):
    """Log-probabilities of the returns of each action, from a dueling network."""

    def __init__(self, obs_size, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_size, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.value, self.advantage = nn.Linear(128, len(ATOMS)), nn.Linear(128, actions * len(ATOMS))

    def forward(self, obs):
        """Return log p(return | obs, action): [B, actions, atoms]."""
        features = self.body(obs)
        advantage = self.advantage(features).unflatten(1, (-1, len(ATOMS)))
        return (self.value(features)[:, None] + advantage - advantage.mean(1, keepdim=True)).log_softmax(2)

    def best(self, obs):
        """Return the actions with the highest mean return: int64[B]."""
        with torch.no_grad():
            return (self(obs).exp() @ ATOMS).argmax(1)


def project(probabilities, returns):
    """Distribute the probabilities of arbitrary returns, both [B, atoms], among the atoms: [B, atoms]."""
    spacing = ATOMS[1] - ATOMS[0]
    distance = (returns.clamp(ATOMS[0], ATOMS[-1])[:, :, None] - ATOMS).abs() / spacing
    return (probabilities[:, :, None] * (1 - distance).clamp(min=0)).sum(1)


def update(network, target, optimizer, batch):
    """Take one gradient step; return the new priorities, KL divergences: float32[B]."""
    rows = torch.arange(len(batch.reward))
    with torch.no_grad():
        following = target(batch.next_obs)[rows, network.best(batch.next_obs)].exp()
        returns = batch.reward[:, None] + batch.discount[:, None] * ATOMS  # discount: γ^3, or 0 at the end
        goal = project(following, returns)
    log_probabilities = network(batch.obs)[rows, batch.action]
    divergence = (torch.special.xlogy(goal, goal) - goal * log_probabilities).sum(1)
    optimizer.zero_grad()
    (batch.weights * divergence).mean().backward()
    nn.utils.clip_grad_norm_(network.parameters(), 10.0)
    optimizer.step()
    return divergence.detach().clamp(min=0)  # rounding may lead to -1e-7


def evaluate(network, seed):
    """Return the mean return of one greedy episode in each of eight environments."""
    envs = gymnasium.make_vec("CartPole-v1", ENVS, "sync")
    obs, _ = envs.reset(seed=seed)
    returns, running = np.zeros(ENVS), np.ones(ENVS, bool)
    while running.any():
        obs, reward, terminated, truncated, _ = envs.step(network.best(torch.from_numpy(obs)).numpy())
        returns += reward * running
        running &= ~(terminated | truncated)
    return float(returns.mean())


def train(envs, steps=1_000, seed=0, evaluate_every=250):
    """Return the buffer and the mean return of each evaluation."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    # The environments reset in the step after the end of an episode. The buffer ignores these steps.
    buffer = PrioritizedReplayBuffer.for_env(
        envs, CAPACITY, n_step=N_STEP, gamma=GAMMA, alpha=ALPHA, seed=seed
    )
    actions = envs.single_action_space.n
    network = Network(*envs.single_observation_space.shape, actions)
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    updates, curve = 0, []
    obs, _ = envs.reset(seed=seed)
    for step in range(1, steps + 1):
        epsilon = max(FINAL_EPSILON, 1 - step / EXPLORE_STEPS)
        greedy, explore = network.best(torch.from_numpy(obs)).numpy(), rng.random(ENVS) < epsilon
        action = np.where(explore, rng.integers(actions, size=ENVS), greedy)
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = next_obs
        if len(buffer) >= WARM_UP:
            beta = BETA + (1 - BETA) * step / steps
            for _ in range(UPDATES):
                batch = buffer.sample(BATCH_SIZE, beta=beta).to_torch()
                buffer.update_priorities(batch.indexes, update(network, target, optimizer, batch))
                updates += 1
                if updates % TARGET_EVERY == 0:
                    target.load_state_dict(network.state_dict())
        if step % evaluate_every == 0 or step == steps:
            curve.append(evaluate(network, seed=1_000 * step))
            print(f"{step * ENVS:,} steps of CartPole, mean return {curve[-1]:.0f}")
    return buffer, curve


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    train(gymnasium.make_vec("CartPole-v1", ENVS, "sync"), *map(int, sys.argv[1:]))
