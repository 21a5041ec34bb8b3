"""N-step rows of one environment: targets with `discount` for terminated and truncated episodes."""

# --8<-- [start:buffer]
import numpy as np

from replay_tutorial import ReplayBuffer

GAMMA = 0.5
FIELDS = {"obs": {}, "reward": {}, "next_obs": {}}
FIELDS |= {"terminated": {"dtype": bool}, "truncated": {"dtype": bool}}


def new_buffer(n=3):
    return ReplayBuffer(1_000, FIELDS, n_step=n, gamma=GAMMA, seed=0)


# --8<-- [end:buffer]


# --8<-- [start:target]
def target(batch, value):
    return batch.reward + batch.discount * value(batch.next_obs)  # replaces gamma**n * (1 - terminated)


# --8<-- [end:target]


# --8<-- [start:main]
def walk(buffer, terminates):
    """Add five steps with a reward of 1 each; the last one terminates, or a time limit truncates it."""
    for step in range(5):
        last = step == 4
        buffer.add(
            obs=step,
            reward=1,
            next_obs=step + 1,
            terminated=last and terminates,
            truncated=last and not terminates,  # the row bootstraps, because the walk would have continued
        )


def value_if_terminated(obs):
    return (1 - GAMMA ** (5 - obs)) / (1 - GAMMA)  # discounted rewards until step 5


def value_if_truncated(obs):
    return np.full(len(obs), 1 / (1 - GAMMA))  # 1 + 0.5 + 0.25 + ... = 2 at every step


def main(terminates, value):
    """Return the rows of a walk, their targets, and the expected targets."""
    buffer = new_buffer()
    walk(buffer, terminates)
    rows = buffer[:]
    return rows, target(rows, value), value(rows.obs)


if __name__ == "__main__":
    for terminates, value in [(True, value_if_terminated), (False, value_if_truncated)]:
        rows, targets, values = main(terminates, value)
        print("from", rows.obs, "to", rows.next_obs, "discount", rows.discount)
        assert np.allclose(targets, values)  # exact values give exact targets, even in the shorter rows
# --8<-- [end:main]
