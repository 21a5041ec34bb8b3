"""R2D2: sequences that overlap by half, with the recurrent state at their first step."""

# --8<-- [start:pattern]
import numpy as np

from replay_tutorial import tables

BURN_IN, LENGTH = 4, 8  # steps that only warm up the state, and steps that are trained on
COLUMNS = {"obs": {"shape": 2}, "reward": {}, "state": {"shape": 16}, "td_error": {}}


def sequences():
    """Return a pattern for BURN_IN + LENGTH steps, created every LENGTH / 2 steps."""
    step = tables.reference(COLUMNS)
    parts = {name: step[name][-BURN_IN - LENGTH :] for name in ("obs", "reward")}
    parts["state"] = step["state"][-BURN_IN - LENGTH]  # a single value, without a time axis
    parts["td_error"] = step["td_error"][-LENGTH:]
    every = [lambda state: state.steps_since_applied >= LENGTH // 2]
    return tables.Pattern(
        "sequences", parts, when=every, priority=tables.td_error("td_error", max_weight=0.9)
    )


# --8<-- [end:pattern]


# --8<-- [start:learn]
def learn(sample, unroll):
    """Return priorities: 0.9 * max + 0.1 * mean of |TD error| over the steps after the burn-in."""
    states = sample.data["state"]
    for t in range(BURN_IN):
        states, _ = unroll(states, sample.data["obs"][:, t])
    errors = []
    for t in range(BURN_IN, BURN_IN + LENGTH):
        states, values = unroll(states, sample.data["obs"][:, t])
        errors.append(np.abs(sample.data["reward"][:, t] - values))
    return 0.9 * np.max(errors, axis=0) + 0.1 * np.mean(errors, axis=0)


# --8<-- [end:learn]


# --8<-- [start:main]
if __name__ == "__main__":
    limiter = tables.SampleToInsertRatio(samples_per_insert=4.0, min_size=5, error_buffer=200.0)
    table = tables.Table(
        "sequences",
        sampler=tables.Prioritized(0.9),
        remover=tables.Fifo(),
        max_size=500,
        rate_limiter=limiter,
    )
    client = tables.Client(tables.Server([table], COLUMNS, capacity=2_100, seed=0))
    with client.structured_writer([sequences()]) as writer:
        for step in range(100):
            state = np.full(16, step)  # recurrent state of the actor before this step
            writer.append({"obs": [step, -step], "reward": step % 3, "state": state, "td_error": step % 5})
    sample = client.sample("sequences", 8)
    priorities = learn(sample, lambda states, obs: (states, obs[:, 0] * 0.0))
    client.mutate_priorities("sequences", (sample.info.keys, priorities))
    print("sequences", sample.data["obs"].shape, "states", sample.data["state"].shape)
    assert (sample.data["state"][:, 0] == sample.data["obs"][:, 0, 0]).all()
    assert (np.diff(sample.data["obs"][:, :, 0]) == 1).all()
# --8<-- [end:main]
