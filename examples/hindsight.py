"""DQN with hindsight experience replay learns to flip bits (Andrychowicz et al. 2017, section 3.1)."""

# --8<-- [start:environment]
import copy
import sys

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from replay_tutorial import HindsightReplayBuffer

GAMMA, TAU, LEARNING_RATE, BATCH_SIZE, EPSILON, UPDATES = 0.98, 0.05, 1e-3, 128, 0.1, 4


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

    def compute_reward(self, achieved_goal, desired_goal, info):
        return reward(achieved_goal, desired_goal)

    def step(self, action):
        self.bits[action] ^= 1
        self.steps += 1
        terminated = bool(reached(self.bits, self.goal))
        return self.observe(), float(reward(self.bits, self.goal)), terminated, self.steps == self.size, {}


# --8<-- [end:environment]


# --8<-- [start:update]
def inputs(obs):
    """Concatenate bits and goal, which are both part of the network's input: float32[n, 2 * bits]."""
    return torch.cat([torch.as_tensor(obs[name]) for name in ("observation", "desired_goal")], -1).float()


def update(network, target_network, optimizer, buffer):
    batch = buffer.sample(BATCH_SIZE).to_torch()
    with torch.no_grad():  # obs and next_obs have the same goal: the new one, if relabelled
        next_value = target_network(inputs(batch.next_obs)).amax(1)
        target = batch.reward + GAMMA * ~batch.terminated * next_value
        target = target.clamp(-1 / (1 - GAMMA), 0)
    values = network(inputs(batch.obs)).gather(1, batch.action[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(values, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for slow, fast in zip(target_network.parameters(), network.parameters(), strict=True):
        slow.data.lerp_(fast.data, TAU)


# --8<-- [end:update]


# --8<-- [start:priorities]
def update_priorities(buffer, batch, td_errors):
    """Set the priorities of the rows that have kept their goal."""
    kept = ~batch.relabelled
    buffer.update_priorities(batch.indexes[kept], td_errors[kept].abs())


# --8<-- [end:priorities]


# --8<-- [start:goal_env]
def buffer_for(env, size=1_000_000, **options):
    """Return a buffer for an environment with the GoalEnv interface, such as FetchReach."""

    def compute_reward(achieved, goals, rows):
        return env.unwrapped.compute_reward(achieved, goals, {})

    def compute_terminated(achieved, goals, rows):
        return rows["terminated"]  # only if reaching a goal doesn't end an episode, as in FetchReach

    rules = {"compute_reward": compute_reward, "compute_terminated": compute_terminated}
    return HindsightReplayBuffer.for_env(env, size, **rules, **options)


# --8<-- [end:goal_env]


# --8<-- [start:main]
def new_buffer(env, relabel=0.8, seed=0):
    rules = {"compute_reward": reward, "compute_terminated": reached}
    return HindsightReplayBuffer.for_env(env, 1_000_000, **rules, relabel=relabel, seed=seed)


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


def main(bits=15, episodes=10_000, relabel=0.8, seed=0):
    """Train for some episodes; return the buffer and the success rate."""
    env = BitFlip(bits)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    buffer = new_buffer(env, relabel, seed)
    network = nn.Sequential(nn.Linear(2 * bits, 256), nn.ReLU(), nn.Linear(256, bits))
    target_network = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    for episode in range(episodes):
        (obs, _), ended = env.reset(seed=seed if episode == 0 else None), False
        while not ended:
            action = int(rng.integers(bits)) if rng.random() < EPSILON else act(network, obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            ends = {"terminated": terminated, "truncated": truncated}
            buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
            obs, ended = next_obs, terminated or truncated
        for _ in range(UPDATES):
            update(network, target_network, optimizer, buffer)
    return buffer, success_rate(network, bits)


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    bits, episodes = [int(text) for text in sys.argv[1:]] or [10, 200]
    for name, relabel in {"DQN with hindsight": 0.8, "DQN alone": 0.0}.items():
        rate = main(bits, episodes, relabel)[1]
        print(f"{name}: {rate:.1%} of greedy episodes reach their goal after {episodes:,} episodes")
# --8<-- [end:main]
