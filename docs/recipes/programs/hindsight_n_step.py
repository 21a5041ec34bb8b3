"""DQN with hindsight experience replay (Andrychowicz et al. 2017) and n-step returns: learns to reach goals.

The environment shows bits and a goal. An action flips one bit, and the reward is 0 only at the goal.

    python docs/recipes/programs/hindsight_n_step.py [BITS [EPISODES [SEED]]]
"""

import copy
import sys

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from replay_tutorial import HindsightReplayBuffer

GAMMA, N_STEP, RELABEL = 0.98, 3, 0.8
TAU, LEARNING_RATE, BATCH_SIZE, EPSILON, UPDATES = 0.05, 1e-3, 128, 0.1, 4


# --8<-- [start:environment]
def reached(achieved, goals, rows=None):
    """Return whether each goal is reached: bool[n]."""
    return (achieved == goals).all(-1)


def reward(achieved, goals, rows=None):
    """Return -1 for each step until the goal is reached, then 0: float[n]."""
    return reached(achieved, goals) - 1.0


class BitFlip(gymnasium.Env):
    """Flip one bit at a time, until the bits equal the goal; at most one flip per bit."""

    def __init__(self, bits):
        parts = dict.fromkeys(["observation", "achieved_goal", "desired_goal"], spaces.MultiBinary(bits))
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Discrete(bits)
        self.size = bits

    def observe(self):
        bits = self.bits.copy()
        return {"observation": bits, "achieved_goal": bits, "desired_goal": self.goal}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bits, self.goal = self.np_random.integers(2, size=(2, self.size), dtype=np.int8)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.bits[action] ^= 1
        self.steps += 1
        terminated = bool(reached(self.bits, self.goal))
        return self.observe(), float(reward(self.bits, self.goal)), terminated, self.steps == self.size, {}


def new_buffer(env, relabel=RELABEL, n_step=N_STEP, seed=0):
    functions = {"compute_reward": reward, "compute_terminated": reached}
    settings = {"relabel": relabel, "n_step": n_step, "gamma": GAMMA, "seed": seed}
    return HindsightReplayBuffer.for_env(env, 1_000_000, **functions, **settings)


# --8<-- [end:environment]


# --8<-- [start:update]
def inputs(obs):
    """Concatenate bits and goals, which are both part of the network's input: float32[n, 2 * bits]."""
    parts = [torch.as_tensor(obs[name]) for name in ("observation", "desired_goal")]
    return torch.cat(parts, dim=-1).float()


def update(network, target, optimizer, batch):
    """Take one step of Q-learning; return the loss. A relabelled row has the new goal in obs and next_obs."""
    with torch.no_grad():
        goal = batch.reward + batch.discount * target(inputs(batch.next_obs)).amax(1)
        goal = goal.clamp(-1 / (1 - GAMMA), 0)  # no return is outside
    values = network(inputs(batch.obs)).gather(1, batch.action[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(values, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
        slow.data.lerp_(fast.data, TAU)
    return loss.item()


# --8<-- [end:update]


def act(network, obs):
    with torch.no_grad():
        return int(network(inputs(obs)).argmax())


def success_rate(network, bits, episodes=200):
    """Return the share of greedy episodes that reach their goal."""
    env, successes = BitFlip(bits), 0
    for episode in range(episodes):
        (obs, _), ended, terminated = env.reset(seed=1_000_000 + episode), False, False
        while not ended:
            obs, _, terminated, truncated, _ = env.step(act(network, obs))
            ended = terminated or truncated
        successes += terminated
    return successes / episodes


def train(bits=10, episodes=300, seed=0, relabel=RELABEL, n_step=N_STEP):
    """Return the buffer and the success rate after training."""
    env, rng = BitFlip(bits), np.random.default_rng(seed)
    torch.manual_seed(seed)
    buffer = new_buffer(env, relabel, n_step, seed)
    network = nn.Sequential(nn.Linear(2 * bits, 256), nn.ReLU(), nn.Linear(256, bits))
    target, optimizer = copy.deepcopy(network), torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    for episode in range(episodes):
        (obs, _), ended = env.reset(seed=seed if episode == 0 else None), False
        while not ended:
            action = int(rng.integers(bits)) if rng.random() < EPSILON else act(network, obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            ends = {"terminated": terminated, "truncated": truncated}
            buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
            obs, ended = next_obs, terminated or truncated
        for _ in range(UPDATES):
            update(network, target, optimizer, buffer.sample(BATCH_SIZE).to_torch())
    return buffer, success_rate(network, bits)


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    for name, relabel in {"with hindsight": RELABEL, "without": 0.0}.items():
        _, rate = train(*map(int, sys.argv[1:]), relabel=relabel)
        print(f"{name}: {rate:.1%} of greedy episodes reach their goal")
