"""Draw and transfer the next batches while the GPU computes on the current one."""

# --8<-- [start:learn]
import numpy as np
import torch

from replay_tutorial import PrioritizedReplayBuffer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def learn(network, optimizer, buffer, updates, batch_size=32):
    """Train on rewards; meanwhile, a thread copies the next two batches to the device."""
    losses = []
    with buffer.batches(batch_size, device=DEVICE, beta=0.4, prefetch=2) as batches:
        for _ in range(updates):
            batch = next(batches)
            td_error = batch.reward - network(batch.obs).squeeze(1)
            loss = (batch.weights * td_error**2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # only queues work on the GPU
            buffer.update_priorities(batch.indexes, td_error.abs())  # waits for the GPU
            losses.append(loss.item())
    return losses


# --8<-- [end:learn]


# --8<-- [start:main]
def new_buffer(capacity=1_000):
    """Return a full buffer; the reward of each row is the mean of its observation."""
    buffer = PrioritizedReplayBuffer(capacity, {"obs": {"shape": 8}, "reward": {}}, seed=0)
    obs = np.random.default_rng(0).random((capacity, 8))
    buffer.add(obs=obs, reward=obs.mean(1))
    return buffer


def main(updates=200):
    torch.manual_seed(0)
    network = torch.nn.Linear(8, 1).to(DEVICE)
    return learn(network, torch.optim.Adam(network.parameters(), lr=1e-2), new_buffer(), updates)


if __name__ == "__main__":
    losses = main()
    print(f"{DEVICE}: loss {np.mean(losses[:20]):.4f} at first, {np.mean(losses[-20:]):.4f} at last")
# --8<-- [end:main]
