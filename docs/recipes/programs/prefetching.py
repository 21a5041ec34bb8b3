"""A network that learns from pictures, with the next two batches copied by a thread, and without.

A picture has a bright square in one of its quarters, and the action that names the quarter has the reward 1.
Both loops learn from the same batches, so they compute the same network. Prefetching only saves time: on a
GPU, or if a core is free to copy the next batch while the network learns from this one.

    python docs/recipes/programs/prefetching.py [UPDATES [SEED]]
"""

import sys
import time

import numpy as np
import torch
from torch import nn

from replay_tutorial import ReplayBuffer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CAPACITY, BATCH_SIZE, ROUNDS = 4_000, 256, 5
SIZE, SQUARE, ACTIONS = 64, 12, 4  # pixels; quarters of a picture


def pictures(count, rng):
    """Return noisy pictures, uint8[count, 3, 64, 64], and the quarters with the square, int64[count]."""
    images = rng.integers(128, size=(count, 3, SIZE, SIZE), dtype=np.uint8)
    quarters = rng.integers(ACTIONS, size=count)
    corners = SIZE // 2 * np.stack(np.divmod(quarters, 2))
    tops, lefts = corners + rng.integers(SIZE // 2 - SQUARE, size=(2, count))
    for image, top, left in zip(images, tops, lefts, strict=True):
        image[:, top : top + SQUARE, left : left + SQUARE] += 100
    return images, quarters


def new_buffer(seed=0):
    """Return a full buffer of pictures, random actions and their rewards."""
    rng = np.random.default_rng(seed)
    picture = {"shape": (3, SIZE, SIZE), "dtype": np.uint8}
    fields = {"obs": picture, "action": {"dtype": np.int64}, "reward": {}}
    buffer = ReplayBuffer(CAPACITY, fields, seed=seed)
    images, quarters = pictures(CAPACITY, rng)
    action = rng.integers(ACTIONS, size=CAPACITY)
    buffer.add(obs=images, action=action, reward=action == quarters)
    return buffer


def new_network(seed=0):
    torch.manual_seed(seed)
    convolutions = nn.Conv2d(3, 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU()
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(32 * 6 * 6, ACTIONS)).to(DEVICE)


def values(network, images):
    """Return the value of each action; the bytes become floats on the device."""
    return network(images.to(DEVICE).float() / 255)


def update(network, optimizer, batch):
    """Take one gradient step on the values of the actions taken; return the loss."""
    chosen = values(network, batch.obs).gather(1, batch.action[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(chosen, batch.reward)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def train(buffer, network, updates, prefetch, batch_size=BATCH_SIZE):
    """Train, and return the seconds per update."""
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    with buffer.batches(batch_size, device=DEVICE, prefetch=prefetch) as batches:
        update(network, optimizer, next(batches))  # the first batches are not ahead yet
        start = time.perf_counter()
        for _ in range(updates - 1):
            loss = update(network, optimizer, next(batches))
        loss.item()  # waits for the device
        return (time.perf_counter() - start) / (updates - 1)


def accuracy(network, count=1_000, seed=1_000_000):
    """Return the share of new pictures in which the best action is the quarter of the square."""
    images, quarters = pictures(count, np.random.default_rng(seed))
    with torch.no_grad():
        best = values(network, torch.from_numpy(images)).argmax(1).cpu().numpy()
    return float((best == quarters).mean())


def main(updates=100, seed=0):
    """Train several times with and without prefetching, in turns, and print the medians."""
    buffer, seconds = new_buffer(seed), {0: [], 2: []}
    for _ in range(ROUNDS):
        for prefetch, times in seconds.items():
            network = new_network(seed)
            buffer.reseed(seed)  # to draw the same batches
            times.append(train(buffer, network, updates, prefetch))
    plain, prefetched = (1_000 * float(np.median(times)) for times in seconds.values())
    print(f"{plain:.2f} ms per update, {prefetched:.2f} ms with prefetch=2: ratio {plain / prefetched:.2f}")
    print(f"accuracy on new pictures after {updates} updates: {accuracy(network):.1%}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # leaves the other cores to the thread that copies
    main(*map(int, sys.argv[1:]))
