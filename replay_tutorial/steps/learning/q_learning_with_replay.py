"""Q-learning with replay: transitions are stored and sampled many times, in random order.

Improvement over online Q-learning: a batch mixes transitions of many episodes, so its updates do not all
point in the same direction, and rare transitions are repeated. Network, learning rate, exploration, target
network and the number of updates are the same.

Remaining problem: all transitions are sampled equally often, even those with nothing left to learn.

Source: Lin 1992, "Self-improving reactive agents"; Mnih et al. 2015.
"""

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from replay_tutorial.steps.uniform.list_of_tuples import ListOfTuples

GAMMA, LEARNING_RATE = 0.99, 5e-4
EXPLORE_STEPS, FINAL_EPSILON = 4_000, 0.05  # epsilon falls from 1 to FINAL_EPSILON
TARGET_EVERY = 400  # steps between copies to the target network
CAPACITY, BATCH_SIZE, WARM_UP = 20_000, 64, 500
FIELDS: dict[str, Any] = {
    "obs": {"shape": (4,), "dtype": np.float32},
    "act": {"shape": (), "dtype": np.int64},
    "rew": {"shape": (), "dtype": np.float32},
    "next_obs": {"shape": (4,), "dtype": np.float32},
    "terminated": {"shape": (), "dtype": np.bool_},
}


class ReplayQLearning:
    """A network that estimates Q(s, a) and learns from stored transitions."""

    def __init__(self, seed: int = 0, kind: Any = ListOfTuples) -> None:
        """Initialise the network and an empty buffer; `kind` is a class from `steps/uniform`."""
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.network = nn.Sequential(  # observations float32[B, 4] → Q(s, a) of both actions float32[B, 2]
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
        )
        self.target = copy.deepcopy(self.network)  # fixed between copies
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
        self.replay = kind(CAPACITY, FIELDS, seed)
        self.steps = 0

    def act(self, obs: np.ndarray) -> int:
        """Return a random action with probability epsilon, otherwise the one with the highest Q(s, a)."""
        self.steps += 1
        if self.steps % TARGET_EVERY == 0:
            self.target.load_state_dict(self.network.state_dict())
        epsilon = max(FINAL_EPSILON, 1.0 - (1.0 - FINAL_EPSILON) * self.steps / EXPLORE_STEPS)
        return int(self.rng.integers(2)) if self.rng.random() < epsilon else self.greedy(obs)

    def greedy(self, obs: np.ndarray) -> int:
        """Return the action with the highest Q(s, a)."""
        with torch.inference_mode():
            return int(self.network(torch.from_numpy(obs)).argmax())

    def learn(self, obs: np.ndarray, act: int, rew: float, next_obs: np.ndarray, terminated: bool) -> None:
        """Store the transition, and take one gradient step on a batch of stored ones."""
        self.replay.add(obs=obs, act=act, rew=rew, next_obs=next_obs, terminated=terminated)
        if len(self.replay) > WARM_UP:
            self.update(**{name: torch.from_numpy(a) for name, a in self.replay.sample(BATCH_SIZE).items()})

    def update(
        self,
        obs: torch.Tensor,  # float32[B, 4]
        act: torch.Tensor,  # int64[B]
        rew: torch.Tensor,  # float32[B]
        next_obs: torch.Tensor,  # float32[B, 4]
        terminated: torch.Tensor,  # bool[B]
    ) -> None:
        """Move Q(s, a) of a batch towards the targets."""
        with torch.no_grad():
            future = self.target(next_obs).amax(1) * ~terminated  # float32[B], 0 after termination
            goals = rew + GAMMA * future  # y = r + γ max_a Q(s', a)
        values = self.network(obs).gather(1, act[:, None]).squeeze(1)  # float32[B]
        loss = nn.functional.huber_loss(values, goals, delta=10.0)  # quadratic up to 10, linear beyond
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def train(agent: ReplayQLearning, total_steps: int, seed: int = 0) -> list[tuple[int, float]]:
    """Train an agent; return the last step and the return of each episode."""
    env = gymnasium.make("CartPole-v1")
    (obs, _), episode_return = env.reset(seed=seed), 0.0
    episodes: list[tuple[int, float]] = []
    for step in range(1, total_steps + 1):
        act = agent.act(obs)
        next_obs, rew, terminated, truncated, _ = env.step(act)
        agent.learn(obs, act, float(rew), next_obs, terminated)
        obs, episode_return = next_obs, episode_return + float(rew)
        if terminated or truncated:
            episodes.append((step, episode_return))
            (obs, _), episode_return = env.reset(), 0.0
    return episodes
