"""A recurrent DQN, a small R2D2 (Kapturowski et al. 2019), on a task that requires memory.

Stored states, burn-in, masks, n-step returns, and priorities of sequences.

    python docs/recipes/programs/recurrent.py [STEPS [SEED]]        # steps in each of eight corridors
"""

import copy
import sys

import numpy as np
import torch
from torch import nn

from replay_tutorial import SequenceReplayBuffer, sequence_priorities

CORRIDORS, HIDDEN, BURN_IN, BATCH_SIZE, WARM_UP, TARGET_EVERY, EPSILON = 8, 32, 4, 32, 1_000, 50, 0.1


# --8<-- [start:buffer]
def new_buffer(seed=0):
    number, flag = {}, {"dtype": bool}
    fields = {
        "obs": {"shape": 2},
        "state": {"shape": HIDDEN},  # the actor's recurrent state before the step
        "action": {"dtype": np.int64},
        "reward": number,
        "next_obs": {"shape": 2},
        "terminated": flag,
    }
    settings = {"length": 12, "burn_in": BURN_IN, "period": 6, "n_step": 3, "gamma": 0.97, "alpha": 0.9}
    # With first_of, a sample has only the state before the first step to unroll.
    return SequenceReplayBuffer(50_000, fields, first_of="state", num_envs=CORRIDORS, seed=seed, **settings)


# --8<-- [end:buffer]


class Corridors:
    """A cue, 1 or -1, is visible only at the entrance; at the exit, action 1 or 0 must match it."""

    def __init__(self, rng):
        self.rng = rng
        self.cues, self.left = np.zeros(CORRIDORS), np.zeros(CORRIDORS, np.int64)
        self.obs = np.zeros((CORRIDORS, 2), np.float32)  # the cue, and whether this is the exit
        self.reset(np.ones(CORRIDORS, bool))

    def reset(self, which):
        self.cues[which] = self.rng.choice([-1, 1], which.sum())
        self.left[which] = self.rng.integers(8, 12, which.sum())  # steps before the step at the exit
        self.obs[which, 0], self.obs[which, 1] = self.cues[which], 0

    def step(self, action):
        """Return next observations, rewards and which episodes ended; reset those corridors."""
        ends = self.left == 0
        rewards = np.where(ends, np.where((action == 1) == (self.cues == 1), 1, -1), 0)
        self.left -= 1
        self.obs[:, 0], self.obs[:, 1] = 0, self.left == 0
        next_obs = self.obs.copy()
        self.reset(ends)
        return next_obs, rewards, ends


# --8<-- [start:learn]
class Network(nn.Module):
    """A GRU and the Q-values of two actions; without `memory`, it forgets its state before every step."""

    def __init__(self, memory=True):
        super().__init__()
        self.memory, self.cell, self.head = memory, nn.GRUCell(2, HIDDEN), nn.Linear(HIDDEN, 2)

    def forward(self, obs, state):
        state = self.cell(obs, state if self.memory else torch.zeros_like(state))
        return self.head(state), state


def unroll(network, batch):
    """Return the Q-values at all times, [T + N, B, 2]."""
    state, valid, values = batch.state, batch.valid, []
    for time, obs in enumerate(batch.obs):
        if time == BURN_IN:
            state = state.detach()  # no gradient flows into the burn-in
        q, new = network(obs, state)
        values.append(q)
        # Padding doesn't change the state. The last N times have only observations, to bootstrap from.
        state = torch.where(valid[time, :, None], new, state) if time < len(valid) else new
    return torch.stack(values)


def update(network, target, optimizer, batch):
    """Take one step of double Q-learning on sequences; return their priorities: float32[B]."""
    learn = batch.learn  # [T, B]
    q = unroll(network, batch)
    with torch.no_grad():
        value = unroll(target, batch).gather(2, q.argmax(2, keepdim=True))[:, :, 0]  # [T + N, B]
        goal = batch.n_step_return + batch.discount * value.gather(0, batch.bootstrap)
    estimate = q[: len(learn)].gather(2, batch.action[:, :, None])[:, :, 0]
    td_errors = torch.where(learn, goal - estimate, 0.0)
    loss = (batch.weights * td_errors.square().sum(0) / learn.sum(0)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 10.0)
    optimizer.step()
    return sequence_priorities(td_errors.detach(), learn, time_major=True)


# --8<-- [end:learn]


def play(network, corridors, steps, epsilon, buffer=None, after_step=lambda step: None):
    """Act in all corridors; return the returns of the finished episodes."""
    state, returns = torch.zeros(CORRIDORS, HIDDEN), []
    for step in range(steps):
        obs = corridors.obs.copy()
        with torch.no_grad():
            q, new = network(torch.from_numpy(obs), state)
        random = corridors.rng.random(CORRIDORS) < epsilon
        action = np.where(random, corridors.rng.integers(2, size=CORRIDORS), q.argmax(1).numpy())
        next_obs, reward, ends = corridors.step(action)
        if buffer is not None:
            row = {"obs": obs, "state": state.numpy(), "action": action, "reward": reward}
            buffer.add_step(**row, next_obs=next_obs, terminated=ends)
        returns += reward[ends].tolist()
        state = torch.where(torch.from_numpy(ends)[:, None], 0.0, new)  # an episode begins with zeros
        after_step(step)
    return returns


def train(steps=700, seed=0, memory=True):
    """Return the buffer and the mean return of greedy episodes after training, between -1 and 1."""
    torch.manual_seed(seed)
    network, buffer = Network(memory), new_buffer(seed)
    target, optimizer = copy.deepcopy(network), torch.optim.Adam(network.parameters(), lr=2e-3)

    def learn(step):
        if len(buffer) >= WARM_UP:
            batch = buffer.sample(BATCH_SIZE, beta=0.6, time_major=True).to_torch()
            buffer.update_priorities(batch.indexes, update(network, target, optimizer, batch))
        if step % TARGET_EVERY == 0:
            target.load_state_dict(network.state_dict())

    play(network, Corridors(np.random.default_rng(seed)), steps, EPSILON, buffer, learn)
    return buffer, float(np.mean(play(network, Corridors(np.random.default_rng(seed + 1_000)), 500, 0.0)))


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    for memory in (True, False):
        _, mean_return = train(*map(int, sys.argv[1:]), memory=memory)
        print(f"{'with' if memory else 'without'} memory: mean return {mean_return:.2f}")
