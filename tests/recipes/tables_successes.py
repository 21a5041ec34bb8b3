"""A table of successes: what has been sampled, and was worth it, is kept in a table of its own."""

# --8<-- [start:server]
import numpy as np

from replay_tutorial.tables import (
    Client,
    Fifo,
    InsertOnSample,
    MaxHeap,
    MinHeap,
    MinSize,
    Server,
    Table,
    Uniform,
)

COLUMNS = {"obs": {"shape": 3}, "return": {"shape": ()}}


def new_client():
    """An episode is copied when it is first sampled; the 10 best copies stay. The steps are shared."""
    recent = Table(
        "recent",
        sampler=Uniform(),
        remover=Fifo(),
        max_size=50,
        rate_limiter=MinSize(1),
        hooks=[InsertOnSample("best")],
    )
    best = Table("best", sampler=MaxHeap(), remover=MinHeap(), max_size=10, rate_limiter=MinSize(1))
    return Client(Server([recent, best], COLUMNS, capacity=2_000, seed=0))


# --8<-- [end:server]


# --8<-- [start:main]
if __name__ == "__main__":
    client = new_client()
    rng = np.random.default_rng(0)
    with client.writer(num_keep_alive_refs=20) as writer:
        for episode in range(200):
            length = int(rng.integers(5, 20))
            for step in range(length):
                writer.append({"obs": [episode, step, length]}, partial_step=step == length - 1)
            writer.append({"return": length})  # closes the last step
            whole = {"obs": writer.history["obs"][:], "return": writer.history["return"][-1]}
            writer.create_item("recent", float(length), whole)  # the priority is what the best are chosen by
            writer.end_episode()
            client.sample("recent", 4)
    best = client.items("best")
    print("the best", best.data["return"], "of", client.info()["recent"].inserts)
    assert client.info()["best"].size == 10
    assert best.data["return"].min() >= 18
    assert (best.lengths is None) or (best.lengths["obs"] == best.data["return"]).all()
# --8<-- [end:main]
