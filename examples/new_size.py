"""Copy the rows of a buffer, with their priorities, to a buffer of another size or with another alpha."""

# --8<-- [start:copy]
import numpy as np

from replay_tutorial import NStepWindow, PrioritizedReplayBuffer


def copy_rows(old, new):
    """Add the rows of a prioritized buffer to another one, oldest first, with their priorities."""
    for rows in old.epoch(10_000, shuffle=False):
        indexes = rows.pop("indexes")
        new.add(**rows, priorities=old.priorities[indexes])


# --8<-- [end:copy]


# --8<-- [start:n_step]
def with_n_step(old, fields, n_step, gamma, size, **options):
    """Return a larger copy of a buffer of n-step rows, and the window that combines the next steps."""
    window = NStepWindow(fields, n_step, gamma=gamma)
    old.end_episode()  # stores the rows that are pending
    new = PrioritizedReplayBuffer(size, window.fields, **options)
    copy_rows(old, new)
    return new, window


# --8<-- [end:n_step]


# --8<-- [start:episodes]
def copy_episodes(old, new):
    """Add the episodes of an EpisodeReplayBuffer to another one, without priorities."""
    table = old.episodes()
    for episode, environment, finished in zip(
        table["episode"], table["environment"], table["finished"], strict=True
    ):
        steps = old.get_episode(episode)
        del steps["indexes"]
        obs = steps.pop("obs")  # includes the final observation
        new.add(environment, **steps, obs=obs[:-1], next_obs=obs[1:])
        if finished:
            new.end_episode(environment)


# --8<-- [end:episodes]


# --8<-- [start:main]
def main():
    fields = {"obs": {"shape": 4}, "reward": {}}
    old = PrioritizedReplayBuffer(1_000, fields, alpha=0.6, seed=0)
    rng = np.random.default_rng(0)
    old.add(obs=rng.random((1_500, 4)), reward=rng.random(1_500), priorities=rng.random(1_500))

    new = PrioritizedReplayBuffer(5_000, fields, alpha=0.4, seed=0)
    copy_rows(old, new)
    return old, new


if __name__ == "__main__":
    old, new = main()
    print(f"{len(new)} rows; the priorities are the same:", end=" ")
    print(np.allclose(new.priorities[np.arange(1_000)], old.priorities[np.arange(500, 1_500)]))
# --8<-- [end:main]
