"""DQN on pictures and vectors, with each frame stored once, and training that resumes exactly.

    python docs/recipes/programs/pictures_and_vectors.py [EPISODES [SEED [FOLDER]]]

The state is saved in the folder every 100 episodes. A run with the same folder and seed resumes from there.
"""

import copy
import sys

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from replay_tutorial import Checkpoints, PrioritizedReplayBuffer

SIZE, STACK, CAPACITY, WARM_UP, BATCH_SIZE, N_STEP, GAMMA = 8, 4, 20_000, 300, 32, 3, 0.95
TARGET_EVERY, EVALUATE_EVERY, SAVE_EVERY = 20, 100, 100  # episodes


class Catch(gymnasium.Env):
    """A picture shows a falling ball, and a vector the place of the paddle; the reward of a catch is 1."""

    image, vector = spaces.Box(0, 255, (STACK, SIZE, SIZE), np.uint8), spaces.Box(0, 1, (1,), np.float32)
    observation_space, action_space = spaces.Dict(image=image, vector=vector), spaces.Discrete(3)

    def observe(self):
        frame = np.zeros((1, SIZE, SIZE), np.uint8)
        frame[0, self.row, self.column] = 255
        self.frames = np.concatenate([self.frames[1:], frame]) if self.row else np.repeat(frame, STACK, 0)
        return {"image": self.frames, "vector": np.float32([self.paddle / (SIZE - 1)])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.column, self.paddle = self.np_random.integers(SIZE, size=2)
        self.row, self.drift = 0, self.np_random.integers(-1, 2)
        return self.observe(), {}

    def step(self, action):
        self.drift *= 1 if 0 <= self.column + self.drift < SIZE else -1  # the ball bounces off the sides
        self.row, self.column = self.row + 1, self.column + self.drift
        self.paddle = np.clip(self.paddle + action - 1, 0, SIZE - 1)
        ended = self.row == SIZE - 1
        return self.observe(), float(ended and abs(self.paddle - self.column) <= 1), ended, False, {}


class Network(nn.Module):
    """Q-values of the three actions, from pictures and vectors."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv2d(STACK, 16, 3), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(16 * (SIZE - 2) ** 2 + 1, 128), nn.ReLU(), nn.Linear(128, 3))

    def forward(self, obs):
        features = self.convolution(obs["image"].float() / 255)
        return self.head(torch.cat([features, obs["vector"]], dim=1))


def act(network, obs):
    with torch.no_grad():
        return int(network({name: torch.from_numpy(array[None]) for name, array in obs.items()}).argmax())


def update(network, target, optimizer, batch):
    """Take one step of double Q-learning; return the |TD errors|: float32[B]."""
    with torch.no_grad():
        best = network(batch.next_obs).argmax(1, keepdim=True)
        goal = batch.reward + batch.discount * target(batch.next_obs).gather(1, best).squeeze(1)
    td_errors = goal - network(batch.obs).gather(1, batch.action[:, None]).squeeze(1)
    optimizer.zero_grad()
    (batch.weights * td_errors.square()).mean().backward()
    optimizer.step()
    return td_errors.detach().abs()


def evaluate(network, episodes=100):
    """Return the share of balls that the greedy policy catches."""
    env, caught = Catch(), 0.0
    for episode in range(episodes):
        (obs, _), ended = env.reset(seed=1_000_000 + episode), False
        while not ended:
            obs, reward, ended, _, _ = env.step(act(network, obs))
            caught += reward
    return caught / episodes


def save(folder, episode, buffer, parts, generators):
    """Save the state after an episode to a folder."""
    buffer.save(folder / "buffer.npz")
    state = {name: part.state_dict() for name, part in parts.items()}
    state |= {"episode": episode, "generators": [each.bit_generator.state for each in generators]}
    torch.save(state, folder / "state.pt")


def restore(folder, buffer, parts, generators):
    """Restore the state that `save` saved; return the number of episodes."""
    state = torch.load(folder / "state.pt")
    buffer.load(folder / "buffer.npz")
    for name, part in parts.items():
        part.load_state_dict(state[name])
    for generator, saved in zip(generators, state["generators"], strict=True):
        generator.bit_generator.state = saved
    return state["episode"]


def train(episodes=400, seed=0, folder=None):
    """Return the buffer, the network, and the share of caught balls in each evaluation."""
    torch.manual_seed(seed)
    env, rng, curve, first = Catch(), np.random.default_rng(seed), [], 0
    checkpoints = folder and Checkpoints(
        folder
    )  # a crash at any time leaves the previous state or the new one
    options = {"n_step": N_STEP, "gamma": GAMMA, "dedupe_next": "obs", "dedupe_frames": "obs/image"}
    buffer = PrioritizedReplayBuffer.for_env(env, CAPACITY, seed=seed, **options)
    network = Network()
    target, optimizer = copy.deepcopy(network), torch.optim.Adam(network.parameters(), lr=2e-3)
    env.reset(seed=seed)
    run = (buffer, {"network": network, "target": target, "optimizer": optimizer}, (rng, env.np_random))
    if checkpoints and checkpoints.newest:
        first = restore(checkpoints.newest, *run)
    for episode in range(first + 1, episodes + 1):
        (obs, _), ended, epsilon = env.reset(), False, max(0.05, 1 - episode / 200)
        while not ended:
            action = int(rng.integers(3)) if rng.random() < epsilon else act(network, obs)
            next_obs, reward, ended, _, _ = env.step(action)
            ends = {"terminated": ended, "truncated": False}
            buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
            obs = next_obs
            if len(buffer) >= WARM_UP:
                batch = buffer.sample(BATCH_SIZE).to_torch()
                buffer.update_priorities(batch.indexes, update(network, target, optimizer, batch))
        if episode % TARGET_EVERY == 0:
            target.load_state_dict(network.state_dict())
        if checkpoints and episode % SAVE_EVERY == 0:
            with checkpoints.write(episode) as new:
                save(new, episode, *run)
        if episode % EVALUATE_EVERY == 0 or episode == episodes:
            curve.append(evaluate(network))
            print(f"{episode:,} episodes, {curve[-1]:.0%} of the balls caught")
    return buffer, network, curve


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    train(*map(int, sys.argv[1:3]), *sys.argv[3:])
