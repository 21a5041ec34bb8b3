"""Ape-X in a single loop: several actors, one prioritized replay buffer and one learner take turns.

Each actor acts with a copy of the network and its own epsilon, so some actors explore a lot and others hardly
at all. It computes initial priorities, |TD error|, with its copy. The learner never acts: it samples, learns,
updates priorities and publishes its parameters. Improvement over the one-file DQN: many actors fill the
buffer, and every row has a TD error from the start. Remaining problem: actors and learner take turns, but
each could be a process, as in the package's `apex/` and `local/`. N-step returns are left out. Source: Horgan
et al. 2018, "Distributed Prioritized Experience Replay", algorithms 1 and 2.
"""

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

GAMMA, LEARNING_RATE, BATCH_SIZE = 0.99, 1e-3, 64
ALPHA, BETA, CAPACITY, WARM_UP = 0.6, 0.4, 20_000, 1_000
CHUNK = 16  # steps of each actor per turn
STEPS_PER_UPDATE, TARGET_EVERY = 8, 50  # steps of all actors; updates


class Replay:
    """Rows and their masses, sampled with a cumulative sum as in `steps/prioritized/cumulative_sum.py`."""

    def __init__(self, capacity: int, seed: int) -> None:
        """Allocate the masses of `capacity` rows."""
        self.rows: list[Any] = [None] * capacity
        self.masses = np.zeros(capacity)  # float64[capacity], (|TD error| + 0.0001) ** ALPHA
        self.added = 0
        self.rng = np.random.default_rng(seed)

    def add(self, rows: list[Any], errors: torch.Tensor) -> None:
        """Add rows with their TD errors; a full buffer overwrites the oldest rows."""
        slots = np.arange(self.added, self.added + len(rows)) % len(self.rows)
        for slot, row in zip(slots.tolist(), rows, strict=True):
            self.rows[slot] = row
        self.set(slots, errors)
        self.added += len(rows)

    def set(self, slots: np.ndarray, errors: torch.Tensor) -> None:
        """Set the masses of slots, int64[n], from TD errors, float32[n]."""
        self.masses[slots] = (errors.detach().abs().numpy() + 1e-4) ** ALPHA

    def sample(self, size: int) -> tuple[np.ndarray, torch.Tensor, list[Any]]:
        """Sample rows in proportion to their masses: slots int64[size], weights float32[size], rows."""
        sums = np.cumsum(self.masses)
        # Kept below the total, even after rounding, because the total itself would lead to an empty slot.
        queries = np.minimum(self.rng.random(size) * sums[-1], np.nextafter(sums[-1], 0))
        slots = np.searchsorted(sums, queries, side="right")
        weights = torch.tensor(self.masses[slots] ** -BETA, dtype=torch.float32)  # ∝ (N · P(i))^-β
        return slots, weights / weights.max(), [self.rows[slot] for slot in slots]


def td_errors(online: nn.Module, target: nn.Module, rows: list[Any]) -> torch.Tensor:
    """Return target - Q(s, a), float32[B]; gradients flow through Q(s, a)."""
    columns = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
    obs, action, reward, next_obs, terminated = columns  # each [B, ...]
    with torch.no_grad():
        best = online(next_obs).argmax(1, keepdim=True)  # the online network selects, the target evaluates
        goals = reward + GAMMA * target(next_obs).gather(1, best).squeeze(1) * ~terminated
    return goals - online(obs).gather(1, action[:, None]).squeeze(1)


class Actor:
    """An environment, a copy of the network, and an epsilon."""

    def __init__(self, number: int, actors: int, network: nn.Module, seed: int) -> None:
        """Start an episode."""
        # ε_i = ε^(1 + i/(N-1) · α)   with ε = 0.4, α = 7   (Horgan et al. 2018, section 4.1)
        self.epsilon = 0.4 ** (1 + 7 * number / max(1, actors - 1))
        self.network = copy.deepcopy(network)
        self.rng = np.random.default_rng([seed, number])
        self.env = gymnasium.make("CartPole-v1")
        self.obs, _ = self.env.reset(seed=int(self.rng.integers(2**31)))
        self.returns = [0.0]  # return of each episode; the last one is not finished

    def play(self, steps: int) -> tuple[list[Any], torch.Tensor]:
        """Take a number of steps; return their rows and TD errors."""
        rows: list[Any] = []
        with torch.inference_mode():
            for _ in range(steps):
                q_values = self.network(torch.from_numpy(self.obs))  # float32[2]
                action = int(self.rng.integers(2) if self.rng.random() < self.epsilon else q_values.argmax())
                next_obs, reward, terminated, truncated, _ = self.env.step(action)
                rows.append((self.obs, np.int64(action), np.float32(reward), next_obs, np.bool_(terminated)))
                self.obs = next_obs
                self.returns[-1] += float(reward)
                if terminated or truncated:
                    self.obs, _ = self.env.reset()
                    self.returns.append(0.0)
            return rows, td_errors(self.network, self.network, rows)


def train(actors: int, total_steps: int, seed: int = 0) -> tuple[nn.Module, list[Actor]]:
    """Alternate between actors and learner for `total_steps` steps in total; return network and actors."""
    torch.manual_seed(seed)
    online = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=LEARNING_RATE)
    replay, updates = Replay(CAPACITY, seed), 0
    players = [Actor(number, actors, online, seed) for number in range(actors)]
    while replay.added < total_steps:
        for player in players:  # the actors' turn, with the newest parameters
            player.network.load_state_dict(online.state_dict())
            replay.add(*player.play(CHUNK))
        while replay.added >= WARM_UP + STEPS_PER_UPDATE * updates:  # the learner's turn
            slots, weights, rows = replay.sample(BATCH_SIZE)
            errors = td_errors(online, target, rows)
            optimizer.zero_grad()
            (weights * errors.square()).mean().backward()
            nn.utils.clip_grad_norm_(online.parameters(), 10.0)
            optimizer.step()
            replay.set(slots, errors)
            updates += 1
            if updates % TARGET_EVERY == 0:
                target.load_state_dict(online.state_dict())
    return online, players
