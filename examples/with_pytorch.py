"""Train in PyTorch: bools, integers, shapes and images."""

# --8<-- [start:loss]
import gymnasium
import numpy as np
import torch

from replay_tutorial import PrioritizedReplayBuffer

GAMMA = 0.99


def update(network, target_network, optimizer, buffer, batch):
    """Do one DQN update. All scalars have the shape (B,), so nothing broadcasts to (B, B)."""
    chosen = network(batch.obs).gather(1, batch.action[:, None]).squeeze(1)  # gather requires int64 (B, 1)
    with torch.no_grad():
        next_value = target_network(batch.next_obs).amax(1)
        target = batch.reward + GAMMA * ~batch.terminated * next_value  # 1 - bool raises an error
    td_error = target - chosen

    loss = (batch.weights * td_error**2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    buffer.update_priorities(batch.indexes, td_error.abs())
    return loss.item()


# --8<-- [end:loss]


# --8<-- [start:images]
def as_images(observations):
    """Convert uint8 (B, height, width, channels) to float32 (B, channels, height, width) from 0 to 1."""
    return observations.permute(0, 3, 1, 2).float() / 255


# --8<-- [end:images]


# --8<-- [start:main]
def main(steps=300):
    env = gymnasium.make("CartPole-v1")
    buffer = PrioritizedReplayBuffer.for_env(env, 10_000, alpha=0.6, seed=0)

    torch.manual_seed(0)
    network, target_network = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    env.action_space.seed(0)
    batches, losses = buffer.batches(32, beta=0.4), []

    obs, _ = env.reset(seed=0)
    for step in range(steps):
        action = env.action_space.sample()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step >= 64:
            losses.append(update(network, target_network, optimizer, buffer, next(batches)))
    return buffer, losses


if __name__ == "__main__":
    buffer, losses = main()
    print(buffer)
    print(f"loss {np.mean(losses[:20]):.3f} at first, {np.mean(losses[-20:]):.3f} at last")
# --8<-- [end:main]
