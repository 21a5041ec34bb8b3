"""Uniform and prioritized replay of the same steps: two tables, one copy of each step."""

# --8<-- [start:server]
import numpy as np

from replay_tutorial import tables

number = {}
COLUMNS = {"obs": {"shape": 2}, "reward": number, "terminated": {"dtype": bool}}


def new_client():
    options = {"remover": tables.Fifo(), "max_size": 1_000, "rate_limiter": tables.MinSize(100)}
    replay_tables = [
        tables.Table("uniform", sampler=tables.Uniform(), **options),
        tables.Table("prioritized", sampler=tables.Prioritized(0.6), **options),
    ]
    return tables.Client(tables.Server(replay_tables, COLUMNS, capacity=1_100, seed=0))


# --8<-- [end:server]


# --8<-- [start:write]
def write(client, episodes):
    """Append steps, and create an item for each transition in both tables."""
    with client.writer(num_keep_alive_refs=2) as writer:
        for episode in range(episodes):
            for step in range(5):
                writer.append({"obs": [episode, step], "reward": 1.0, "terminated": step == 4})
                create_transition(client, writer)
            writer.append({"obs": [episode, 5]})  # the last observation, without an action
            create_transition(client, writer)
            writer.end_episode()


def create_transition(client, writer):
    if writer.episode_steps > 1:
        step = writer.history
        transition = {name: step[name][-2] for name in COLUMNS} | {"next_obs": step["obs"][-1]}
        for table in ("uniform", "prioritized"):
            writer.create_item(table, None, transition)  # None: the highest priority so far


# --8<-- [end:write]


# --8<-- [start:main]
if __name__ == "__main__":
    client = new_client()
    write(client, episodes=100)
    sample = client.sample("prioritized", 32)
    info, batch = sample.info, sample.data
    td_error = np.abs(batch["obs"][:, 1] - 3)  # stands in for the learner's errors
    weights = tables.importance_weights(info, beta=0.4)
    client.mutate_priorities("prioritized", (info.keys, td_error))
    print(batch["obs"][0], "to", batch["next_obs"][0], "weight", weights[0])
    assert (batch["next_obs"] - batch["obs"] == [0, 1]).all()
    assert (batch["terminated"] == (batch["next_obs"][:, 1] == 5)).all()
    assert client.info()["uniform"].size == client.info()["prioritized"].size == 500
# --8<-- [end:main]
