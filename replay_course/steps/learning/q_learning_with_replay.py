"""Q-learning with replay: transitions are stored and sampled many times, in random order.

Improvement over online Q-learning: a batch mixes transitions of many episodes, so its updates do not all
point in the same direction, and rare transitions are repeated. Network, learning rate, exploration, target
network and the number of updates are the same.

Remaining problem: all transitions are sampled equally often, even those with nothing left to learn.

Source: Lin 1992, "Self-improving reactive agents"; Mnih et al. 2015.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from replay_course.steps.learning.online_q_learning import GAMMA, OnlineQLearning
from replay_course.steps.uniform.list_of_tuples import ListOfTuples

CAPACITY, BATCH_SIZE, WARM_UP = 20_000, 64, 500
FIELDS: dict[str, Any] = {
    "obs": {"shape": (4,), "dtype": np.float32},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float32},
    "next_obs": {"shape": (4,), "dtype": np.float32},
    "terminated": {"dtype": np.bool_},
}


class ReplayQLearning(OnlineQLearning):
    """A network that estimates Q(s, a) and learns from stored transitions."""

    def __init__(self, seed: int = 0, kind: Any = ListOfTuples) -> None:
        """Initialise the network and an empty buffer; `kind` is a class from `steps/uniform`."""
        super().__init__(seed)
        self.replay = kind(CAPACITY, FIELDS, seed)

    def learn(
        self, obs: np.ndarray, action: int, reward: float, next_obs: np.ndarray, terminated: bool
    ) -> float:
        """Store the transition, and learn from a batch of stored ones; return its mean TD error, or 0."""
        self.replay.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated)
        if len(self.replay) <= WARM_UP:
            return 0.0
        batch = self.replay.sample(BATCH_SIZE)
        return self.update(**{name: torch.from_numpy(array) for name, array in batch.items()})

    def update(
        self,
        obs: torch.Tensor,  # float32[B, 4]
        action: torch.Tensor,  # int64[B]
        reward: torch.Tensor,  # float32[B]
        next_obs: torch.Tensor,  # float32[B, 4]
        terminated: torch.Tensor,  # bool[B]
    ) -> float:
        """Move Q(s, a) of a batch towards the targets; return the mean TD error before the update."""
        with torch.no_grad():
            future = self.target(next_obs).amax(1) * ~terminated  # float32[B], 0 after termination
            goals = reward + GAMMA * future  # y = r + γ max_a Q(s', a)
        values = self.network(obs).gather(1, action[:, None]).squeeze(1)  # float32[B]
        loss = nn.functional.huber_loss(values, goals, delta=10.0)  # quadratic up to 10, linear beyond
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float((goals - values.detach()).mean())
