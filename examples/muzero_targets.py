"""The targets of MuZero: values, rewards and policies for a model that is unrolled over several steps."""

# --8<-- [start:buffer]
import numpy as np

from replay_tutorial import SequenceReplayBuffer

ACTIONS, UNROLL = 2, 3
FIELDS = {
    "obs": {},
    "action": {"dtype": np.int64},
    "reward": {},
    "next_obs": {},
    "terminated": {"dtype": bool},
    "truncated": {"dtype": bool},
    "value": {},  # of the search at obs
    "next_value": {},  # of the search at next_obs; stored only once, as next_obs
    "policy": {"shape": ACTIONS},  # share of the visits of each action
}
buffer = SequenceReplayBuffer(
    1_000, FIELDS, length=UNROLL + 1, n_step=2, gamma=0.5, alpha=1.0, eps=0.0, seed=0
)
# --8<-- [end:buffer]


# --8<-- [start:targets]
def targets(batch):
    """Return the targets of each window: value and policy of UNROLL + 1 steps, and which of them count."""
    searched = np.take_along_axis(batch.value, batch.bootstrap, axis=1)
    value = batch.n_step_return + batch.discount * searched  # 0 after the end
    policy = np.where(batch.valid[..., None], batch.policy, 1 / ACTIONS)
    terminated = batch.terminated.cumsum(axis=1) > 0
    return value, policy, batch.valid | terminated  # steps after a truncation are unknown


# --8<-- [end:targets]


# --8<-- [start:play]
def add_game(steps, truncated=False, seed=0):
    """Add a finished game of random moves, and return the index of its first step."""
    rng = np.random.default_rng(seed)
    obs, values = np.arange(steps + 1), rng.normal(size=steps + 1)
    ends = np.arange(steps) == steps - 1
    return buffer.add(
        obs=obs[:-1],
        action=rng.integers(ACTIONS, size=steps),
        reward=rng.normal(size=steps),
        next_obs=obs[1:],
        terminated=ends & (not truncated),
        truncated=ends & truncated,
        value=values[:-1],
        next_value=values[1:],
        policy=rng.dirichlet(np.ones(ACTIONS), size=steps),
    )


def main():
    """Sample windows, compute their targets, and update the priorities of their first steps."""
    for game in range(20):
        add_game(steps=5 + game, truncated=game % 4 == 3, seed=game)
    batch = buffer.sample(64, beta=1.0)
    value, policy, counts = targets(batch)
    buffer.update_priorities(batch.indexes, np.abs(batch.value[:, 0] - value[:, 0]))
    print("targets of values:", value.shape, "of policies:", policy.shape, "that count:", counts.mean())
    return batch, value, policy, counts


# --8<-- [end:play]


if __name__ == "__main__":
    main()
