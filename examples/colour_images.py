"""Store stacks of colour images, each image once, and pass a batch of them to a network."""

# --8<-- [start:store]
import gymnasium
import numpy as np
import torch

from replay_tutorial import ReplayBuffer


def colour_buffer(env, size, seed=0):
    """Store each image once."""
    return ReplayBuffer.for_env(env, size, dedupe_next="obs", dedupe_frames={"obs": 0}, seed=seed)


# --8<-- [end:store]


# --8<-- [start:network]
def as_input(stacks, device="cpu"):
    """Convert uint8 (B, 4, 64, 64, 3) to float32 (B, 12, 64, 64) on the device, from 0 to 1."""
    images = stacks.to(device)  # transfer bytes, then convert
    return images.permute(0, 1, 4, 2, 3).flatten(1, 2).float() / 255


# --8<-- [end:network]


# --8<-- [start:main]
class Walk(gymnasium.Env):
    """A white square walks over a coloured background until it leaves the image."""

    observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def image(self):
        image = np.broadcast_to(self.colour, (64, 64, 3)).copy()
        image[28:36, self.place : self.place + 8] = 255
        return image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.colour, self.place = self.np_random.integers(200, size=3, dtype=np.uint8), 28
        return self.image(), {}

    def step(self, action):
        self.place += 4 if action else -4
        done = not 0 <= self.place <= 56
        self.place = min(max(self.place, 0), 56)
        return self.image(), float(self.place == 56), done, False, {}


def main(size=1_000, steps=1_500):
    env = gymnasium.wrappers.FrameStackObservation(Walk(), 4)  # (4, 64, 64, 3)
    buffer = colour_buffer(env, size)
    env.action_space.seed(0)
    obs, _ = env.reset(seed=0)
    for _ in range(steps):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
    return buffer


if __name__ == "__main__":
    buffer = main()
    plain = 2 * 4 * 64 * 64 * 3
    print(f"{buffer.bytes_per_transition:,.0f} bytes per row, instead of {plain:,} for two stacks")

    batch = buffer.sample(32).to_torch()
    network = torch.nn.Sequential(torch.nn.Conv2d(12, 16, 8, stride=4), torch.nn.ReLU(), torch.nn.Flatten())
    print("features", tuple(network(as_input(batch.obs)).shape))
# --8<-- [end:main]
