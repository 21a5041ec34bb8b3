"""Store stacked game frames once each, and pass a batch of them to a network."""

# --8<-- [start:store]
import numpy as np
import torch

from replay_tutorial import ReplayBuffer

STACK = {"shape": (4, 84, 84), "dtype": np.uint8}  # the four newest frames
REST = {"action": {"dtype": np.int64}, "reward": {}, "terminated": {"dtype": bool}}


def plain_buffer(size, seed=0):
    return ReplayBuffer(size, {"obs": STACK, "next_obs": STACK, **REST}, seed=seed)


def small_buffer(size, seed=0):
    """Store the same rows in less memory; `dedupe_next` adds the field `next_obs`."""
    return ReplayBuffer(size, {"obs": STACK, **REST}, dedupe_next="obs", dedupe_frames="obs", seed=seed)


# --8<-- [end:store]


# --8<-- [start:network]
def as_input(stacks, device="cpu"):
    """Convert uint8 (B, 4, 84, 84) from 0 to 255 to float32 on the device, from 0 to 1."""
    return stacks.to(device).float() / 255  # transfer bytes, then convert


# --8<-- [end:network]


# --8<-- [start:main]
def play(steps, rng):
    """Yield rows of random frames; an episode has 100 steps and begins with one frame four times."""
    for step in range(steps):
        if step % 100 == 0:
            obs = np.repeat(rng.integers(256, size=(1, 84, 84), dtype=np.uint8), 4, axis=0)
        frame = rng.integers(256, size=(1, 84, 84), dtype=np.uint8)
        next_obs = np.concatenate([obs[1:], frame])
        yield {"obs": obs, "next_obs": next_obs, "action": 0, "reward": 1.0, "terminated": step % 100 == 99}
        obs = next_obs


def main(size=1_000, steps=1_500):
    plain, small = plain_buffer(size), small_buffer(size)
    for row in play(steps, np.random.default_rng(0)):
        plain.add(**row)
        small.add(**row)
    return plain, small


if __name__ == "__main__":
    plain, small = main()
    print(f"{plain.bytes_per_transition:,.0f} bytes per row, or {small.bytes_per_transition:,.0f}")

    batch, same = plain.sample(32), small.sample(32)  # with the same seed
    assert all(np.array_equal(batch[name], same[name]) for name in batch)

    network = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 8, stride=4), torch.nn.ReLU(), torch.nn.Flatten())
    print("features", tuple(network(as_input(same.to_torch().obs)).shape))
# --8<-- [end:main]
