"""Save and restore a buffer, the steps waiting in n-step windows, and a random generator."""

# --8<-- [start:parts]
import json
import tempfile

import numpy as np

from replay_tutorial import Checkpoints, NStepWindow, PrioritizedReplayBuffer

FIELDS = {"obs": {}, "reward": {}, "next_obs": {}, "terminated": {"dtype": bool}}
STEPS = 1_000
# --8<-- [end:parts]


# --8<-- [start:beta]
def beta_at(step, steps=STEPS, first=0.4):
    """Increase beta linearly from `first` at step 0 to 1 at step `steps`; it stays 1 afterwards."""
    return np.interp(step, (0, steps), (first, 1.0))


# --8<-- [end:beta]


# --8<-- [start:save]
def save(folder, buffer, window, rng):
    buffer.save(folder / "buffer.npz")
    np.savez(folder / "windows.npz", *window.state())
    (folder / "random.json").write_text(json.dumps(rng.bit_generator.state))


def restore(folder, buffer, window, rng):
    buffer.load(folder / "buffer.npz")
    with np.load(folder / "windows.npz") as pending:
        window.restore([pending[name] for name in pending.files])
    rng.bit_generator.state = json.loads((folder / "random.json").read_text())


# --8<-- [end:save]


# --8<-- [start:main]
def new_parts(num_envs=12):
    window = NStepWindow(FIELDS, 3, gamma=0.9, num_envs=num_envs)
    return PrioritizedReplayBuffer(500, window.fields, seed=0), window, np.random.default_rng(0)


def play(steps, buffer, window, rng):
    """Step random environments, add their rows, sample, and update priorities; return the samples."""
    drawn = []
    for step in steps:
        obs = np.full(12, step)
        step_of_each = {"obs": obs, "reward": rng.random(12), "next_obs": obs + 1}
        rows = window.add_step(**step_of_each, terminated=rng.random(12) < 0.1)
        if rows is not None:
            buffer.add(**rows)
        if len(buffer) >= 32:
            batch = buffer.sample(32, beta=beta_at(step))
            buffer.update_priorities(batch.indexes, rng.random(32))
            drawn.append(batch)
    return drawn


def main():
    uninterrupted = new_parts()
    play(range(500), *uninterrupted)
    expected = play(range(500, STEPS), *uninterrupted)

    with tempfile.TemporaryDirectory() as folder:
        checkpoints, stopped = Checkpoints(folder), new_parts()
        play(range(500), *stopped)
        with checkpoints.write(step=500) as new:
            save(new, *stopped)

        resumed = new_parts()  # in the new process, with the same arguments
        restore(checkpoints.newest, *resumed)
    return expected, play(range(500, STEPS), *resumed)


if __name__ == "__main__":
    expected, drawn = main()
    same = all(np.array_equal(a[name], b[name]) for a, b in zip(expected, drawn, strict=True) for name in a)
    print(f"{len(drawn)} batches sampled after the restore, all identical: {same}")
# --8<-- [end:main]
