"""Use the indexes of a sample: update an array of your own, and look up the sampled rows."""

# --8<-- [start:main]
import numpy as np

from replay_tutorial import PrioritizedReplayBuffer

size = 100
buffer = PrioritizedReplayBuffer(size, {"obs": {"shape": 4}, "reward": {}}, seed=0)
draws = np.zeros(size, int)  # for each stored row: how often it was sampled

rng = np.random.default_rng(0)
for _ in range(30):
    first = buffer.add(obs=rng.random((10, 4)), reward=rng.random(10))
    draws[np.arange(first, buffer.next_index) % size] = 0  # new rows reuse the slots of old ones

    sample = buffer.sample(8, beta=0.4)
    np.add.at(draws, sample["indexes"] % size, 1)

print("largest index sampled:", sample["indexes"].max(), "rows stored:", len(buffer))

again = buffer[sample["indexes"]]["obs"]
print("same rows:", np.array_equal(again, sample["obs"]))
# --8<-- [end:main]
