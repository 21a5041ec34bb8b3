"""A recurrent DQN with stored states, burn-in, masks and priorities, on a task that requires memory."""

# --8<-- [start:buffer]
import copy

import numpy as np
import torch
from torch import nn

from replay_tutorial import SequenceReplayBuffer, sequence_priorities

CORRIDORS, HIDDEN = 8, 32
number, flag = {}, {"dtype": bool}
FIELDS = {
    "obs": {"shape": 2},
    "state": {"shape": HIDDEN},  # the actor's recurrent state before the step
    "action": {"dtype": np.int64},
    "reward": number,
    "next_obs": {"shape": 2},
    "terminated": flag,
}


def new_buffer(seed=0):
    return SequenceReplayBuffer(
        50_000,
        FIELDS,
        length=12,
        burn_in=4,
        period=6,
        first_of="state",  # only the state before the first step to unroll
        n_step=3,
        gamma=0.97,
        num_envs=CORRIDORS,
        alpha=0.9,
        seed=seed,
    )


# --8<-- [end:buffer]


# --8<-- [start:environment]
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


# --8<-- [end:environment]


# --8<-- [start:network]
class Network(nn.Module):
    """A GRU and the Q-values of two actions; without `memory`, it forgets its state before every step."""

    def __init__(self, memory=True):
        super().__init__()
        self.memory, self.cell, self.head = memory, nn.GRUCell(2, HIDDEN), nn.Linear(HIDDEN, 2)

    def forward(self, obs, state):
        state = self.cell(obs, state if self.memory else torch.zeros_like(state))
        return self.head(state), state


def unroll(network, batch, burn_in=4):
    """Return the Q-values at all times, [T + N, n, 2]."""
    state, valid, values = batch["state"], batch["valid"], []
    for time, obs in enumerate(batch["obs"]):
        if time == burn_in:
            state = state.detach()  # no gradient flows into the burn-in
        q, new = network(obs, state)
        values.append(q)
        # Padding doesn't change the state. The last N times have only observations, to bootstrap from.
        state = torch.where(valid[time, :, None], new, state) if time < len(valid) else new
    return torch.stack(values)


# --8<-- [end:network]


# --8<-- [start:update]
def update(network, target, optimizer, buffer, batch_size=32):
    """Do one step of double Q-learning on sequences; return the loss."""
    sample = buffer.sample(batch_size, beta=0.6, time_major=True)
    batch = {name: torch.from_numpy(array) for name, array in sample.items()}
    learn = batch["learn"]  # [T, n]
    q = unroll(network, batch)
    with torch.no_grad():
        value = unroll(target, batch).gather(2, q.argmax(2, keepdim=True))[:, :, 0]  # [T + N, n]
        td_target = batch["n_step_return"] + batch["discount"] * value.gather(0, batch["bootstrap"])
    estimate = q[: len(learn)].gather(2, batch["action"][:, :, None])[:, :, 0]
    errors = torch.where(learn, td_target - estimate, 0.0)
    loss = (batch["weights"] * errors.square().sum(0) / learn.sum(0)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 10.0)
    optimizer.step()
    priorities = sequence_priorities(errors.detach(), learn, time_major=True)
    buffer.update_priorities(sample["indexes"], priorities)
    return loss.item()


# --8<-- [end:update]


# --8<-- [start:main]
def play(network, corridors, steps, epsilon, buffer=None, after_step=lambda: None):
    """Act in all corridors; return the returns of the finished episodes."""
    state, returns = torch.zeros(CORRIDORS, HIDDEN), []
    for _ in range(steps):
        obs = corridors.obs.copy()
        with torch.no_grad():
            q, new = network(torch.from_numpy(obs), state)
        random = corridors.rng.random(CORRIDORS) < epsilon
        action = np.where(random, corridors.rng.integers(2, size=CORRIDORS), q.argmax(1).numpy())
        next_obs, rewards, ends = corridors.step(action)
        if buffer is not None:
            buffer.add_step(
                obs=obs,
                state=state.numpy(),
                action=action,
                reward=rewards,
                next_obs=next_obs,
                terminated=ends,
            )
        returns += rewards[ends].tolist()
        state = torch.where(torch.from_numpy(ends)[:, None], 0.0, new)  # an episode begins with zeros
        after_step()
    return returns


def main(memory=True, steps=700, seed=0):
    """Learn; return the mean return of greedy episodes, between -1 and 1."""
    torch.set_num_threads(1)  # the network is small
    torch.manual_seed(seed)
    network = Network(memory)
    target, buffer = copy.deepcopy(network), new_buffer(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    updates = 0

    def learn():
        nonlocal updates
        if len(buffer) >= 1_000:
            update(network, target, optimizer, buffer)
            updates += 1
            if updates % 50 == 0:
                target.load_state_dict(network.state_dict())

    play(network, Corridors(np.random.default_rng(seed)), steps, 0.1, buffer, learn)
    return float(np.mean(play(network, Corridors(np.random.default_rng(seed + 1_000)), 1_000, 0.0)))


if __name__ == "__main__":
    print(f"with memory {main(True):.2f}, without {main(False):.2f}")
# --8<-- [end:main]
