"""A reservoir: a uniform sample of all transitions of a run, however long it is."""

# --8<-- [start:reservoir]
import numpy as np

from replay_tutorial.tables import Client, MinHeap, MinSize, Server, Table, Uniform

COLUMNS = {"obs": {"shape": 4}, "reward": {}, "next_obs": {"shape": 4}}


def new_client(size, seed=None):
    """Return a client of a table that keeps the transitions with the highest priorities."""
    options = {"sampler": Uniform(), "remover": MinHeap(), "rate_limiter": MinSize(1)}
    table = Table("reservoir", max_size=size, **options)
    return Client(Server([table], COLUMNS, capacity=size + 100, seed=seed))


def main(size=1_000, steps=10_000, seed=0):
    client, rng = new_client(size, seed), np.random.default_rng(seed)
    with client.writer(num_keep_alive_refs=20, items_per_message=20) as writer:
        for step in range(steps):
            obs = np.full(4, step)
            writer.append({"obs": obs, "reward": step, "next_obs": obs + 1})
            transition = {name: writer.history[name][-1] for name in COLUMNS}
            writer.create_item("reservoir", rng.random(), transition)  # a random priority
    return client, client.sample("reservoir", 256).data


if __name__ == "__main__":
    _, batch = main()
    print(f"mean step in the batch: {batch['reward'].mean():,.0f}, of all 10,000 steps: 4,999.5")
# --8<-- [end:reservoir]
