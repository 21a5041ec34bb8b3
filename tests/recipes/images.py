"""Stacks of game frames: each frame stored once, and a batch of them for a network."""

# --8<-- [start:store]
import numpy as np
import torch

from replay_tutorial import ReplayBuffer

number, flag = {"shape": ()}, {"shape": (), "dtype": bool}
STACK = {"shape": (4, 84, 84), "dtype": np.uint8}  # the four newest frames
REST = {"act": {"shape": (), "dtype": np.int64}, "rew": number, "terminated": flag}


def plain_buffer(size, seed=0):
    return ReplayBuffer(size, {"obs": STACK, "next_obs": STACK, **REST}, seed=seed)


def small_buffer(size, seed=0):
    """Takes and gives the same rows; `next_obs` is a field although nobody declares it."""
    return ReplayBuffer(size, {"obs": STACK, **REST}, next_of="obs", stack_compress="obs", seed=seed)


# --8<-- [end:store]


# --8<-- [start:network]
def as_input(stacks, device="cpu"):
    """uint8 (B, 4, 84, 84), 0 to 255 → float32 on the device, 0 to 1."""
    return torch.from_numpy(stacks).to(device).float() / 255  # bytes travel; the device makes floats of them


# --8<-- [end:network]


# --8<-- [start:main]
def play(steps, rng):
    """A game of noise, 100 steps an episode; the first stack of each is one frame four times."""
    for step in range(steps):
        if step % 100 == 0:
            obs = np.repeat(rng.integers(256, size=(1, 84, 84), dtype=np.uint8), 4, axis=0)
        frame = rng.integers(256, size=(1, 84, 84), dtype=np.uint8)
        next_obs = np.concatenate([obs[1:], frame])
        yield {"obs": obs, "next_obs": next_obs, "act": 0, "rew": 1.0, "terminated": step % 100 == 99}
        obs = next_obs


def main(size=1_000, steps=1_500):
    plain, small = plain_buffer(size), small_buffer(size)
    for row in play(steps, np.random.default_rng(0)):
        plain.add(**row)
        small.add(**row)
    return plain, small


if __name__ == "__main__":
    plain, small = main()
    print(f"{plain.bytes_per_transition:,.0f} bytes a transition, or {small.bytes_per_transition:,.0f}")

    batch, same = plain.sample(32), small.sample(32)  # of the same seed
    assert all(np.array_equal(batch[name], same[name]) for name in batch)

    network = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 8, stride=4), torch.nn.ReLU(), torch.nn.Flatten())
    print("features", tuple(network(as_input(same["obs"])).shape))
# --8<-- [end:main]
