"""N-step rows of one environment: what `discount` is for, where an episode ends, and where it is cut off."""

# --8<-- [start:buffer]
import numpy as np

from replay_tutorial import ReplayBuffer

GAMMA = 0.5
number, flag = {"shape": ()}, {"shape": (), "dtype": bool}
FIELDS = {"obs": number, "rew": number, "next_obs": number, "terminated": flag, "truncated": flag}


def new_buffer(n=3):
    return ReplayBuffer(
        1_000, FIELDS, Nstep={"size": n, "gamma": GAMMA, "rew": "rew", "next": "next_obs"}, seed=0
    )


# --8<-- [end:buffer]


# --8<-- [start:target]
def target(batch, value):
    return batch["rew"] + batch["discount"] * value(batch["next_obs"])  # no gamma, no n, no 1 - terminated


# --8<-- [end:target]


# --8<-- [start:main]
def walk(buffer, terminates):
    """Five steps with a reward of 1 each; then the walk is over, or only a time limit says so."""
    for step in range(5):
        last = step == 4
        buffer.add(
            obs=step,
            rew=1,
            next_obs=step + 1,
            terminated=last and terminates,
            truncated=last and not terminates,  # a row that bootstraps: its walk would have gone on
        )


def value_of_the_ending_walk(obs):
    return (1 - GAMMA ** (5 - obs)) / (1 - GAMMA)  # the discounted rewards from here to step 5


def value_of_the_endless_walk(obs):
    return np.full(len(obs), 1 / (1 - GAMMA))  # 1 + 0.5 + 0.25 + ... = 2, from everywhere


def main(terminates, value):
    """Return the walk's rows, their targets, and what the targets must be."""
    buffer = new_buffer()
    walk(buffer, terminates)
    rows = buffer.get_all_transitions()
    return rows, target(rows, value), value(rows["obs"])


if __name__ == "__main__":
    for terminates, value in [(True, value_of_the_ending_walk), (False, value_of_the_endless_walk)]:
        rows, targets, values = main(terminates, value)
        print("from", rows["obs"], "to", rows["next_obs"], "discount", rows["discount"])
        assert np.allclose(targets, values)  # true values give true targets, in the short rows, too
# --8<-- [end:main]
