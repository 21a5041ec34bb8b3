"""Keep the best episodes: `InsertOnSample` copies sampled episodes into a second table."""

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

COLUMNS = {"obs": {"shape": 3}, "return": {}}


def new_client():
    """Copy each episode when it is first sampled, and keep the 10 best; copies share the steps."""
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
            writer.append({"return": length})  # completes the last step
            trajectory = {"obs": writer.history["obs"][:], "return": writer.history["return"][-1]}
            writer.create_item("recent", float(length), trajectory)  # priority: the return
            writer.end_episode()
            client.sample("recent", 4)
    best = client.items("best")
    print("best returns", best.data["return"], "of", client.info()["recent"].inserts, "episodes")
    assert client.info()["best"].size == 10
    assert best.data["return"].min() >= 18
    assert (best.lengths is None) or (best.lengths["obs"] == best.data["return"]).all()
# --8<-- [end:main]
