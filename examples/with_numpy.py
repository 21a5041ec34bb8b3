"""Train in NumPy: select the values of the chosen actions, and copy a field of a batch."""

# --8<-- [start:main]
import numpy as np

from replay_tutorial import ReplayBuffer

GAMMA, LEARNING_RATE = 0.99, 0.5

fields = {
    "obs": {"shape": 4},
    "action": {"dtype": np.int64},
    "reward": {},  # a float32 scalar
    "next_obs": {"shape": 4},
    "terminated": {"dtype": bool},
}
buffer = ReplayBuffer(1_000, fields, seed=0)

rng = np.random.default_rng(0)
obs, action = rng.random((1_000, 4)), rng.integers(2, size=1_000)
buffer.add(obs=obs, action=action, reward=obs[:, 0] * action, next_obs=obs, terminated=np.ones(1_000, bool))

q = np.zeros((4, 2), np.float32)  # a linear Q-network
errors = []
for _ in range(2_000):
    batch = buffer.sample(32)
    chosen = np.take_along_axis(batch.obs @ q, batch.action[:, None], 1)[:, 0]  # (B,)
    next_value = (batch.next_obs @ q).max(1)
    td_error = batch.reward + GAMMA * ~batch.terminated * next_value - chosen
    np.add.at(q.T, batch.action, LEARNING_RATE / 32 * td_error[:, None] * batch.obs)
    errors.append(np.abs(td_error).mean())

kept = np.ascontiguousarray(batch.obs)  # a copy of this field; the batch can be freed
print(f"mean |TD error| {np.mean(errors[:20]):.3f} at first, {np.mean(errors[-20:]):.3f} at last")
# --8<-- [end:main]
