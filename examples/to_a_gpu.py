"""Sample and transfer the next batch while the GPU computes on the current one."""

# --8<-- [start:pinned]
import numpy as np
import torch

from replay_tutorial import PrioritizedReplayBuffer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PIN = torch.cuda.is_available()  # without a GPU, the program uses ordinary memory


def sample_and_transfer(buffer, batch_size):
    """Sample, start the transfer, and return the batch on the device and its indexes."""
    sample = buffer.sample(batch_size, beta=0.4)
    indexes = sample.pop("indexes")  # stay on the CPU, for update_priorities
    batch = {}
    for name, array in sample.items():
        tensor = torch.from_numpy(array)
        if PIN:
            tensor = tensor.contiguous().pin_memory()
        batch[name] = tensor.to(DEVICE, non_blocking=True)
    return batch, indexes


# --8<-- [end:pinned]


# --8<-- [start:learn]
def learn(network, optimizer, buffer, updates, batch_size=32):
    """Train on rewards; sample and transfer the next batch before waiting for the current errors."""
    batch, indexes = sample_and_transfer(buffer, batch_size)
    losses = []
    for _ in range(updates):
        td_error = batch["reward"] - network(batch["obs"]).squeeze(1)
        loss = (batch["weights"] * td_error**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # only queues work on the GPU

        batch, following = sample_and_transfer(buffer, batch_size)  # meanwhile
        buffer.update_priorities(indexes, td_error.detach().abs().cpu().numpy())  # waits for the GPU
        indexes = following
        losses.append(loss.item())
    return losses


# --8<-- [end:learn]


# --8<-- [start:main]
def new_buffer(size=1_000):
    """Return a full buffer; the reward of each row is the mean of its observation."""
    buffer = PrioritizedReplayBuffer(size, {"obs": {"shape": 8}, "reward": {}}, seed=0)
    obs = np.random.default_rng(0).random((size, 8))
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
