"""A program written for Reverb, ported call by call to the tables of this package."""

# --8<-- [start:server]
import numpy as np

import replay_tutorial.tables as reverb

SIZE, BATCH, ALPHA, BETA = 1_000, 32, 0.8, 0.4
COLUMNS = {"obs": {"shape": 4}, "action": {"shape": 1}, "reward": {"shape": 1}, "done": {"shape": 1}}


def table(name):
    return reverb.Table(
        name=name,
        sampler=reverb.selectors.Prioritized(ALPHA),
        remover=reverb.selectors.Fifo(),
        max_size=SIZE,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )


server = reverb.Server(tables=[table("steps"), table("episodes")], columns=COLUMNS)
client = reverb.Client(server)
# --8<-- [end:server]

step = {"obs": np.zeros(4), "action": np.ones(1), "reward": np.ones(1), "done": np.zeros(1)}

# --8<-- [start:insert]
client.insert(step, priorities={"steps": 1.0})
client.insert_batch(
    {name: np.stack([step[name]] * 5) for name in step}, priorities={"steps": np.full(5, 0.5)}
)
# --8<-- [end:insert]

# --8<-- [start:write]
with client.writer(num_keep_alive_refs=3) as writer:
    history = writer.history
    for _ in range(3):
        writer.append(step)
        writer.create_item("steps", 1.0, {name: history[name][-1] for name in history})
    writer.create_item("episodes", 1.0, {name: history[name][-3:] for name in history})
# --8<-- [end:write]

# --8<-- [start:sample]
for item in client.sample("steps", BATCH):  # as in Reverb: item by item
    obs, probability = item.data["obs"], item.info.probability

sample = client.sample("steps", BATCH)  # faster: arrays whose first axis is the item
weights = reverb.importance_weights(sample.info, beta=BETA)
# --8<-- [end:sample]

# --8<-- [start:update]
client.mutate_priorities("steps", updates={item.info.key: 0.3}, deletes=[])
client.mutate_priorities("steps", (sample.info.keys, np.abs(np.random.standard_normal(BATCH))))
# --8<-- [end:update]

# --8<-- [start:dataset]
for sample in reverb.TrajectoryDataset(client, "episodes", batch_size=BATCH, max_samples=3 * BATCH):
    assert sample.data["obs"].shape == (BATCH, 3, 4)
# --8<-- [end:dataset]

info = client.info()
print({name: (table.size, table.samples) for name, table in info.items()})
assert obs.shape == (4,) and 0 < probability < 1 and weights.shape == (BATCH,)
assert (info["steps"].size, info["steps"].samples, info["episodes"].samples) == (9, 64, 96)
