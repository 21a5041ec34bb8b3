"""Q-learning for many goals: the goal is part of the network's input, so one network serves all goals.

    target = r + γ max_a Q(s', g, a)        and only r, if the step has terminated

The agent learns from whatever its memory returns; the memory decides which goal a sampled step has.

Source: Schaul et al. 2015, "Universal Value Function Approximators"; Andrychowicz et al. 2017, section 3.1.
"""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from replay_course.steps.goals.bit_flip import Bits, OneGoal, play, random_bits

GAMMA, LEARNING_RATE, BATCH_SIZE = 0.98, 1e-3, 128
EPSILON, UPDATES, TAU = 0.1, 4, 0.05  # updates per episode; share of the network copied to the target network


class GoalQLearning:
    """A network that estimates Q(s, g, a) for all actions: float32[2 * bits] → float32[bits]."""

    def __init__(self, bits: int, seed: int = 0) -> None:
        """Initialise the network with random parameters."""
        torch.manual_seed(seed)
        self.bits, self.rng = bits, np.random.default_rng(seed)
        self.network = nn.Sequential(nn.Linear(2 * bits, 256), nn.ReLU(), nn.Linear(256, bits))
        self.target = copy.deepcopy(self.network)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)

    def act(self, obs: Bits, goal: Bits) -> int:
        """Return a random action with probability EPSILON, otherwise the best one."""
        return int(self.rng.integers(self.bits)) if self.rng.random() < EPSILON else self.greedy(obs, goal)

    @torch.inference_mode()
    def greedy(self, obs: Bits, goal: Bits) -> int:
        """Return the action with the largest Q-value."""
        return int(self.network(inputs(obs, goal)).argmax())

    def update(self, batch: dict[str, NDArray[Any]]) -> None:
        """Move Q(s, g, a) of a batch towards its targets."""
        with torch.no_grad():
            future = self.target(inputs(batch["next_obs"], batch["goal"])).amax(1).numpy()
        # All rewards are in [-1, 0], so Q-values are in [-1 / (1 - γ), 0].
        targets = (batch["reward"] + GAMMA * ~batch["terminated"] * future).clip(-1 / (1 - GAMMA), 0)
        rows = torch.arange(len(targets))
        values = self.network(inputs(batch["obs"], batch["goal"]))[rows, torch.from_numpy(batch["action"])]
        loss = nn.functional.mse_loss(values, torch.from_numpy(targets).float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, fast in zip(self.target.parameters(), self.network.parameters(), strict=True):
            slow.data.lerp_(fast.data, TAU)


def inputs(obs: Bits, goal: Bits) -> torch.Tensor:
    """Concatenate states and goals: float32[..., 2 * bits]."""
    return torch.from_numpy(np.concatenate([obs, goal], axis=-1, dtype=np.float32))


def train(agent: GoalQLearning, memory: OneGoal, episodes: int) -> list[bool]:
    """Play and learn; return for each episode whether it reached its goal."""
    successes: list[bool] = []
    for _ in range(episodes):
        episode = play(*random_bits(agent.bits, agent.rng), agent.act)
        memory.add_episode(episode)
        successes.append(episode[-1].terminated)
        for _ in range(UPDATES):
            agent.update(memory.sample(BATCH_SIZE))
    return successes


def success_rate(agent: GoalQLearning, episodes: int = 200) -> float:
    """Return the share of greedy episodes that reach their goal; these are the same for every agent."""
    rng = np.random.default_rng(1_000_000)
    played = (play(*random_bits(agent.bits, rng), agent.greedy) for _ in range(episodes))
    return float(np.mean([episode[-1].terminated for episode in played]))
