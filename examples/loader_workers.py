"""Sample in the worker processes of a DataLoader: each worker has a copy of the buffer."""

from itertools import islice

# --8<-- [start:main]
import numpy as np
from torch.utils.data import DataLoader

from replay_tutorial import ReplayBuffer


def new_loader(buffer, **options):
    """Return an endless loader; without batch_size=None, it would collect batches of batches."""
    return DataLoader(buffer.batches(32), batch_size=None, **options)


# --8<-- [end:main]


def main(workers=2):
    rng, drawn = np.random.default_rng(0), []
    for _ in range(2):
        buffer = ReplayBuffer(1_000, {"obs": {"shape": 4}, "row": {"dtype": np.int64}}, seed=0)
        buffer.add(obs=rng.random((1_000, 4)), row=np.arange(1_000))
        loader = new_loader(buffer, num_workers=workers)
        drawn.append([batch.row.tolist() for batch in islice(loader, 20)])
    return drawn


if __name__ == "__main__":
    first, second = main()
    print("all batches differ:", len(set(map(tuple, first))) == len(first))
    print("the same with the same seed:", first == second)
