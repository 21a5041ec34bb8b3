"""A task that requires memory, and small recurrent agents that learn it from windows.

A corridor has `STEPS` steps. The observation is (cue, exit): the cue, 1 or -1, is visible only in the first
step, and `exit` is 1 only in the last one. There, action 1 is right if the cue was 1, and action 0 if it was
-1; the reward is 1 or -1. All other rewards are 0.

Actions are random, so that agents with the same seed learn from the same corridors and differ only in the
recurrent state at the start of a window. No window that contains the exit contains the cue.
"""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from replay_tutorial import SequenceReplayBuffer

STEPS, CORRIDORS, HIDDEN, GAMMA = 12, 16, 16, 0.97
LENGTH, BURN_IN = 4, 4  # steps of a window to learn from, and before them
UPDATES, UPDATES_PER_WALK, UPDATES_PER_TARGET = 1_500, 2, 50
FIELDS: dict[str, Any] = {
    "obs": {"shape": 2},
    "state": {"shape": HIDDEN},  # the recurrent state before the step
    "action": {"dtype": np.int64},
    "reward": {},
    "next_obs": {"shape": 2},
    "terminated": {"dtype": bool},
}
# How the state at the start of a window is obtained: whether the stored state is used, and the burn-in.
STARTS = {
    "zeros": (False, 0),
    "zeros, burn-in": (False, BURN_IN),
    "stored": (True, 0),
    "stored, burn-in": (True, BURN_IN),
}
Steps = dict[str, NDArray[Any]]
"""The steps of a walk, [STEPS, CORRIDORS, ...] per field."""


class Network(nn.Module):
    """A recurrent network (GRU) with the Q-values of two actions."""

    def __init__(self) -> None:
        """Initialise the parameters."""
        super().__init__()
        self.cell, self.head = nn.GRUCell(2, HIDDEN), nn.Linear(HIDDEN, 2)
        with torch.no_grad():  # the update gate, so that a step changes little of the state at first
            self.cell.bias_hh[HIDDEN : 2 * HIDDEN] = 2.0

    def forward(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the Q-values, [n, 2], and the next state, [n, HIDDEN]."""
        state = self.cell(obs, state)
        return self.head(state), state


def unroll(network: Network, batch: Mapping[str, torch.Tensor], burn_in: int) -> torch.Tensor:
    """Return the Q-values at all times, [T + 1, n, 2], starting from `batch["state"]`."""
    state, valid, values = batch["state"], batch["valid"], list[torch.Tensor]()
    for time, obs in enumerate(batch["obs"]):
        if time == burn_in:
            state = state.detach()  # no gradient flows into the burn-in
        q, new = network(obs, state)
        values.append(q)
        if time < len(valid):  # padding doesn't change the state
            state = torch.where(valid[time, :, np.newaxis], new, state)
    return torch.stack(values)


def update(
    network: Network, target: Network, optimizer: Any, batch: Mapping[str, torch.Tensor], burn_in: int
) -> None:
    """Do one step of Q-learning on windows."""
    values = unroll(network, batch, burn_in)
    with torch.no_grad():
        best = unroll(target, batch, burn_in).max(dim=2).values
        goal = batch["reward"] + GAMMA * ~batch["terminated"] * best[1:]
    estimate = values[:-1].gather(2, batch["action"][:, :, np.newaxis])[:, :, 0]
    errors = torch.where(batch["learn"], goal - estimate, 0.0)
    loss = errors.square().sum() / batch["learn"].sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def walk(network: Network, rng: np.random.Generator) -> Steps:
    """Walk through all corridors with random actions, and return the steps."""
    obs = np.zeros((STEPS + 1, CORRIDORS, 2), np.float32)
    obs[0, :, 0], obs[-2, :, 1] = rng.choice([-1, 1], CORRIDORS), 1
    action = rng.integers(2, size=(STEPS, CORRIDORS))
    reward = np.zeros((STEPS, CORRIDORS))
    reward[-1] = np.where((action[-1] == 1) == (obs[0, :, 0] == 1), 1, -1)
    terminated = np.zeros((STEPS, CORRIDORS), bool)
    terminated[-1] = True
    state, states = torch.zeros(CORRIDORS, HIDDEN), np.zeros((STEPS, CORRIDORS, HIDDEN), np.float32)
    with torch.no_grad():
        for time in range(STEPS):
            states[time] = state.numpy()
            _, state = network(torch.from_numpy(obs[time]), state)
    return {
        "obs": obs[:-1],
        "state": states,
        "action": action,
        "reward": reward,
        "next_obs": obs[1:],
        "terminated": terminated,
    }


class Trained(NamedTuple):
    """A trained network, and the walks that it has learned from.

    Attributes:
        network: The trained network.
        walks: The result of each `walk`, the oldest first. `UPDATES_PER_WALK` updates follow each of them.
    """

    network: Network
    walks: list[Steps]


def train(start: str, seed: int, *, kept: int = 50) -> Trained:
    """Train a network on windows.

    Args:
        start: How to obtain the state at the start of a window, a key of `STARTS`.
        seed: Seed for the parameters, the corridors, the actions and the samples.
        kept: Number of walks in the replay buffer.
    """
    stored, burn_in = STARTS[start]
    torch.manual_seed(seed)
    network, rng = Network(), np.random.default_rng(seed)
    target, optimizer = copy.deepcopy(network), torch.optim.Adam(network.parameters(), lr=2e-3)
    buffer = SequenceReplayBuffer(
        kept * CORRIDORS * (STEPS + 1),  # an episode also occupies a slot for its final observation
        FIELDS,
        length=LENGTH,
        burn_in=burn_in,
        period=LENGTH // 2,
        first_of="state",
        num_envs=CORRIDORS,
        seed=seed,
    )
    walks: list[Steps] = []
    for number in range(UPDATES):
        if number % UPDATES_PER_WALK == 0:
            walks.append(walk(network, rng))
            for time in range(STEPS):
                buffer.add_step(**{name: steps[time] for name, steps in walks[-1].items()})
        if number % UPDATES_PER_TARGET == 0:
            target.load_state_dict(network.state_dict())
        batch = buffer.sample(32, time_major=True).to_torch()
        if not stored:
            batch["state"] = torch.zeros_like(batch["state"])
        update(network, target, optimizer, batch, burn_in)
    return Trained(network, walks)


def value_gap(network: Network) -> float:
    """Return the mean Q-value of the right action at the exit, minus that of the wrong one; ideally 2."""
    steps = walk(network, np.random.default_rng(0))
    with torch.no_grad():
        q, _ = network(torch.from_numpy(steps["obs"][-1]), torch.from_numpy(steps["state"][-1]))
    return float((steps["obs"][0, :, 0] * (q[:, 1] - q[:, 0]).numpy()).mean())


def values_from(network: Network, obs: NDArray[Any], state: NDArray[Any]) -> NDArray[np.float32]:
    """Return the Q-values of consecutive observations, float32[steps, n, 2], starting from a state."""
    hidden, values = torch.from_numpy(state), list[Any]()
    with torch.no_grad():
        for each in obs:
            q, hidden = network(torch.from_numpy(each), hidden)
            values.append(q.numpy())
    return np.stack(values)


def discrepancy(network: Network, steps: Steps, start: str) -> NDArray[np.float32]:
    """Return ΔQ at each step of a window that ends with the exit: float32[LENGTH], medians over corridors."""
    begin, (stored, burn_in) = STEPS - LENGTH, STARTS[start]
    state = steps["state"][begin - burn_in]
    q = values_from(network, steps["obs"][begin - burn_in :], state if stored else np.zeros_like(state))
    right = values_from(network, steps["obs"], np.zeros_like(state))  # an episode starts with zeros
    # ΔQ = ‖q(ĥ) − q(h)‖₂ / |max q(ĥ)|   (Kapturowski et al. 2019, section 3)
    errors = np.linalg.norm(q[burn_in:] - right[begin:], axis=2)
    return np.median(errors / np.abs(q[burn_in:].max(axis=(0, 2))), axis=1)


def discrepancy_by_age(trained: Trained, start: str, walks_per_bin: int = 50) -> NDArray[np.float32]:
    """Return the mean ΔQ of each bin of walks, the newest first: float32[bins, LENGTH]."""
    errors = np.array([discrepancy(trained.network, steps, start) for steps in reversed(trained.walks)])
    return errors.reshape(-1, walks_per_bin, LENGTH).mean(axis=1)
