"""Sample and transfer the next batch while the GPU computes on the current one."""

# --8<-- [start:pinned]
import numpy as np
import torch

from replay_tutorial import PrioritizedReplayBuffer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PIN = torch.cuda.is_available()  # without a GPU, the program uses ordinary memory


class PinnedBatch:
    """Memory for one batch: tensors to transfer, and NumPy arrays that share their memory to sample into."""

    def __init__(self, buffer, batch_size):
        sample = buffer.sample(batch_size, beta=0.4)
        del sample["indexes"]  # stay on the CPU, for update_priorities
        self.tensors = {
            name: torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, pin_memory=PIN)
            for name, array in sample.items()
        }
        self.arrays = {name: tensor.numpy() for name, tensor in self.tensors.items()}  # views
        self.batch_size = batch_size
        self.transferred = torch.cuda.Event() if PIN else None

    def sample_and_transfer(self, buffer):
        """Sample into this memory, start the transfer, and return the batch on the device and its indexes."""
        if self.transferred is not None:
            # Without this line, `sample` could overwrite a batch that is being copied, and the GPU would
            # receive rows of two batches without an error.
            self.transferred.synchronize()
        sample = buffer.sample(self.batch_size, beta=0.4, out=self.arrays)
        batch = {name: tensor.to(DEVICE, non_blocking=True) for name, tensor in self.tensors.items()}
        if self.transferred is not None:
            self.transferred.record()  # completes after the copies
        return batch, sample["indexes"]


# --8<-- [end:pinned]


# --8<-- [start:learn]
def learn(network, optimizer, buffer, updates, batch_size=32):
    """Train on rewards; sample and transfer the next batch before waiting for the current errors."""
    pinned = [PinnedBatch(buffer, batch_size) for _ in range(2)]
    batch, indexes = pinned[0].sample_and_transfer(buffer)
    losses = []
    for update in range(updates):
        td_error = batch["rew"] - network(batch["obs"]).squeeze(1)
        loss = (batch["weights"] * td_error**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # only queues work on the GPU

        batch, following = pinned[(update + 1) % 2].sample_and_transfer(buffer)  # meanwhile
        buffer.update_priorities(indexes, td_error.detach().abs().cpu().numpy())  # waits for the GPU
        indexes = following
        losses.append(loss.item())
    return losses


# --8<-- [end:learn]


# --8<-- [start:main]
def new_buffer(size=1_000):
    """Return a full buffer; the reward of each row is the mean of its observation."""
    buffer = PrioritizedReplayBuffer(size, {"obs": {"shape": 8}, "rew": {"shape": ()}}, seed=0)
    obs = np.random.default_rng(0).random((size, 8))
    buffer.add(obs=obs, rew=obs.mean(1))
    return buffer


def main(updates=200):
    torch.manual_seed(0)
    network = torch.nn.Linear(8, 1).to(DEVICE)
    return learn(network, torch.optim.Adam(network.parameters(), lr=1e-2), new_buffer(), updates)


if __name__ == "__main__":
    losses = main()
    print(f"{DEVICE}: loss {np.mean(losses[:20]):.4f} at first, {np.mean(losses[-20:]):.4f} at last")
# --8<-- [end:main]
