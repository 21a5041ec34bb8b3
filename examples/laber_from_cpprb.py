"""LaBER: draw a batch from a larger one, by priorities of the current estimate."""

# --8<-- [start:main]
import numpy as np

from replay_tutorial import ReplayBuffer, laber

buffer = ReplayBuffer(1_000, {"target": {}}, seed=0)
buffer.add(target=np.random.default_rng(0).normal(size=1_000) ** 3)
rng, estimate = np.random.default_rng(1), 0.0

for step in range(1, 501):
    large = buffer.sample(4 * 32)  # m = 4
    positions, weights = laber(np.abs(large.target - estimate), 32, rng, "mean")
    gradient = (weights * (estimate - large.target[positions])).mean()
    estimate -= gradient / (step + 10)

print("learned:", estimate, "mean of all rows:", buffer[:].target.mean())
# --8<-- [end:main]
