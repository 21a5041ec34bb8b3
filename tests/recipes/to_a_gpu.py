"""Batches for a GPU: the next one is drawn and sent while the GPU still computes on this one."""

# --8<-- [start:places]
import numpy as np
import torch

from replay_tutorial import PrioritizedReplayBuffer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PIN = torch.cuda.is_available()  # without a GPU the same program runs in ordinary memory


class Place:
    """Memory for one batch: tensors to send from, and the same bytes as NumPy arrays to draw into."""

    def __init__(self, buffer, batch_size):
        sample = buffer.sample(batch_size, beta=0.4)
        del sample["indexes"]  # they stay here, for update_priorities
        self.tensors = {
            name: torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, pin_memory=PIN)
            for name, array in sample.items()
        }
        self.arrays = {name: tensor.numpy() for name, tensor in self.tensors.items()}  # views, no copies
        self.batch_size = batch_size
        self.sent = torch.cuda.Event() if PIN else None

    def draw_and_send(self, buffer):
        """Return the batch on the device, which may still be on its way there, and its indexes."""
        if self.sent is not None:
            # The trap: without this line the draw may write over a batch that is still being copied. The GPU
            # gets rows of two batches then, and nothing tells.
            self.sent.synchronize()
        sample = buffer.sample(self.batch_size, beta=0.4, out=self.arrays)
        batch = {name: tensor.to(DEVICE, non_blocking=True) for name, tensor in self.tensors.items()}
        if self.sent is not None:
            self.sent.record()  # happens when the copies are done
        return batch, sample["indexes"]


# --8<-- [end:places]


# --8<-- [start:learn]
def learn(network, optimizer, buffer, updates, batch_size=32):
    """Learn rewards; the next batch is on its way before this one's errors are waited for."""
    places = [Place(buffer, batch_size) for _ in range(2)]
    batch, indexes = places[0].draw_and_send(buffer)
    losses = []
    for update in range(updates):
        td_error = batch["rew"] - network(batch["obs"]).squeeze(1)
        loss = (batch["weights"] * td_error**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # up to here the GPU was only told what to do

        batch, following = places[(update + 1) % 2].draw_and_send(buffer)  # meanwhile
        buffer.update_priorities(indexes, td_error.detach().abs().cpu().numpy())  # here Python waits for it
        indexes = following
        losses.append(loss.item())
    return losses


# --8<-- [end:learn]


# --8<-- [start:main]
def new_buffer(size=1_000):
    """Full of rows whose reward is the mean of their observation."""
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
