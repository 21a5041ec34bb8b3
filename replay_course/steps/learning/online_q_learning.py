"""Online Q-learning: a network learns from each transition once, when it arrives, and discards it.

The target, r + γ max_a Q(s', a), uses a copy of the network that is updated only at intervals.

With a table of Q-values this works. A network fails: consecutive transitions are similar, so many small
updates point in the same direction and overwrite what was learned about other states.

Remaining problems: the order of the data, and the single use of each transition.

Source: Watkins 1989 (Q-learning); Lin 1992 (why a network needs its past); Mnih et al. 2015 (the copy).
"""

import copy

import gymnasium
import numpy as np
import torch
from torch import nn

GAMMA, LEARNING_RATE = 0.99, 5e-4
EXPLORE_STEPS, FINAL_EPSILON = 4_000, 0.05  # epsilon falls from 1 to FINAL_EPSILON
TARGET_EVERY = 400  # steps between copies to the target network


class OnlineQLearning:
    """A network that estimates Q(s, a) and learns from one transition at a time."""

    def __init__(self, seed: int = 0) -> None:
        """Initialise the network with random parameters."""
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.network = nn.Sequential(  # observation float32[4] → Q(s, a) of both actions float32[2]
            nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)
        )
        self.target = copy.deepcopy(self.network)  # fixed between copies
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=LEARNING_RATE)
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

    def learn(
        self, obs: np.ndarray, action: int, reward: float, next_obs: np.ndarray, terminated: bool
    ) -> float:
        """Move Q(s, a) towards its target; return the TD error before the update."""
        with torch.no_grad():
            # no future value after termination
            future = 0.0 if terminated else float(self.target(torch.from_numpy(next_obs)).max())
        goal = torch.tensor(reward + GAMMA * future)  # y = r + γ max_a Q(s', a)
        value = self.network(torch.from_numpy(obs))[action]
        loss = nn.functional.huber_loss(value, goal, delta=10.0)  # quadratic up to 10, linear beyond
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(goal - value.detach())


def train(agent: OnlineQLearning, total_steps: int, seed: int = 0) -> list[tuple[int, float]]:
    """Train an agent; return the last step and the return of each episode."""
    env = gymnasium.make("CartPole-v1")
    (obs, _), episode_return = env.reset(seed=seed), 0.0
    episodes: list[tuple[int, float]] = []
    for step in range(1, total_steps + 1):
        action = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        agent.learn(obs, action, float(reward), next_obs, terminated)
        obs, episode_return = next_obs, episode_return + float(reward)
        if terminated or truncated:
            episodes.append((step, episode_return))
            (obs, _), episode_return = env.reset(), 0.0
    return episodes
