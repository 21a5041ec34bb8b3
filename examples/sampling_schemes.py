"""Choose rows in other ways: by age, by rank, from several buffers, from a large batch."""

# --8<-- [start:buffer]
import numpy as np

from replay_tutorial import Mixture, PrioritizedReplayBuffer, ReplayBuffer, laber
from replay_tutorial.buffers.schemes import Combined, Distribution, Drawn, Geometric, Proportional, RankBased

FIELDS = {"step": {"dtype": np.int64}, "reward": {}, "error": {}}
rng, size = np.random.default_rng(0), 10_000
errors = rng.exponential(size=size)
errors[0] = 1e6  # an outlier

buffer = PrioritizedReplayBuffer(size, FIELDS, seed=0)
buffer.add(step=np.arange(size), reward=np.linspace(0, 1, size), error=errors, priorities=errors)
# --8<-- [end:buffer]


# --8<-- [start:age]
recent = buffer.sample(256, beta=0.0, scheme=Geometric(half_life=1_000))
print("mean age:", (size - 1 - recent.step).mean())

combined = buffer.sample(256, beta=0.0, scheme=Combined(newest=2, scheme=Geometric(half_life=1_000)))
print("the newest rows come first:", combined.step[:2])
# --8<-- [end:age]


# --8<-- [start:weights]
correction = 1 / (recent.probabilities * len(buffer))
mean = (correction * recent.reward).mean()
print("mean reward in the batch:", recent.reward.mean(), "of all rows:", mean)
# --8<-- [end:weights]


# --8<-- [start:rank]
for scheme in (Proportional(), RankBased(alpha=0.7)):
    batch = buffer.sample(256, beta=0.4, scheme=scheme)
    print(type(scheme).__name__, "copies of the outlier:", np.count_nonzero(batch.step == 0))
# --8<-- [end:rank]


# --8<-- [start:mixture]
demonstrations = ReplayBuffer(500, FIELDS, seed=1)
demonstrations.add(step=np.arange(-500, 0), reward=np.ones(500), error=np.ones(500))

mixture = Mixture({"online": (buffer, 0.75), "demonstrations": (demonstrations, 0.25)}, seed=0)
batch = mixture.sample(256, beta=0.4)
print("rows from each buffer:", np.bincount(batch.source))
mixture.update_priorities(batch, np.abs(batch.error))  # skips rows of buffers without priorities
# --8<-- [end:mixture]


# --8<-- [start:laber]
large = demonstrations.sample(4 * 64)
fresh = np.abs(rng.normal(size=4 * 64))  # |TD error| of the large batch, by the current network
positions, weights = laber(fresh, 64, rng)
batch = {name: array[positions] for name, array in large.items()}
print("mean priority in the large batch:", fresh.mean(), "in the batch:", fresh[positions].mean())
# --8<-- [end:laber]


# --8<-- [start:own]
class Newest(Distribution):
    """Uniform over the newest rows."""

    def __init__(self, count):
        self.count = count

    def draw(self, stored, batch_size, rng):
        count = min(self.count, stored.row_count)
        indexes = stored.next_index - 1 - rng.integers(count, size=batch_size)
        return Drawn(indexes, np.full(batch_size, 1 / count), least=1 / count)

    def probabilities(self, stored, indexes):
        count = min(self.count, stored.row_count)
        return np.where(indexes >= stored.next_index - count, 1 / count, 0.0)


updates = 200  # after an episode of 200 steps
for k in range(1, updates + 1):
    newest = max(int(len(buffer) * 0.996 ** (1_000 * k / updates)), 500)
    batch = buffer.sample(256, beta=0.0, scheme=Newest(newest))
print("the last update draws from the newest", newest, "rows; greatest age:", size - 1 - batch.step.min())
# --8<-- [end:own]
