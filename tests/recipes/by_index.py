"""An array of your own beside the buffer, and a row found again: both by the indexes of a sample."""

# --8<-- [start:main]
import numpy as np

from replay_tutorial import PrioritizedReplayBuffer

size = 100
buffer = PrioritizedReplayBuffer(size, {"obs": {"shape": 4}, "rew": {}}, seed=0)
draws = np.zeros(size, int)  # of each row that is stored: how often it was drawn

rng = np.random.default_rng(0)
for _ in range(30):
    first = buffer.add(obs=rng.random((10, 4)), rew=rng.random(10))
    draws[np.arange(first, buffer.get_next_index()) % size] = 0  # new rows, in the slots of old ones

    sample = buffer.sample(8, beta=0.4)
    np.add.at(draws, sample["indexes"] % size, 1)

print("newest index drawn:", sample["indexes"].max(), "of a buffer of", len(buffer))

everything = buffer.get_all_transitions()  # oldest first: row 0 has the index of the oldest row
oldest = buffer.get_next_index() - buffer.get_stored_size()
again = everything["obs"][sample["indexes"] - oldest]
print("found again:", np.array_equal(again, sample["obs"]))
# --8<-- [end:main]
