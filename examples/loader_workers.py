"""Sample in the worker processes of a DataLoader: each worker has a copy of the buffer."""

# --8<-- [start:main]
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from replay_tutorial import ReplayBuffer


class Batches(IterableDataset):
    def __init__(self, buffer, batch_size, count):
        self.buffer, self.batch_size, self.count = buffer, batch_size, count

    def __iter__(self):
        for _ in range(self.count):
            yield self.buffer.sample(self.batch_size)


def new_loader(buffer, **options):
    return DataLoader(Batches(buffer, batch_size=32, count=10), batch_size=None, num_workers=2, **options)


# --8<-- [end:main]


# --8<-- [start:seed]
def reseed(worker):
    """Let `torch.manual_seed` determine the batches; pass it as `worker_init_fn`."""
    info = get_worker_info()
    info.dataset.buffer.reseed(info.seed)  # another seed in each worker and in each epoch


# --8<-- [end:seed]


def main():
    buffer = ReplayBuffer(1_000, {"obs": {"shape": 4}, "row": {"dtype": np.int64}})
    buffer.add(obs=np.random.default_rng(0).random((1_000, 4)), row=np.arange(1_000))
    batches = [batch.row.tolist() for batch in new_loader(buffer)]
    seeded = []
    for _ in range(2):
        torch.manual_seed(0)
        seeded.append([batch.row.tolist() for batch in new_loader(buffer, worker_init_fn=reseed)])
    return batches, seeded


if __name__ == "__main__":
    batches, seeded = main()
    print("all batches differ:", len(set(map(tuple, batches))) == len(batches))
    print("the same with the same seed:", seeded[0] == seeded[1])
