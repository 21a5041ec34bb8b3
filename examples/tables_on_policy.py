"""PPO: rollouts pass through a queue, and each is used once."""

# --8<-- [start:server]
import threading

import numpy as np

from replay_tutorial.tables import Pattern, Server, StructuredWriter, Table, TrajectoryDataset, reference

LENGTH, ENVIRONMENTS = 16, 4
number = {}
COLUMNS = {"obs": {"shape": 3}, "action": {"dtype": np.int64}, "reward": number, "log_prob": number}


def new_server():
    return Server([Table.queue("rollouts", max_size=ENVIRONMENTS)], COLUMNS, capacity=1_000)


# --8<-- [end:server]


# --8<-- [start:actor]
def rollouts():
    """Return a pattern for LENGTH steps and the observation after them, created every LENGTH steps."""
    step = reference(COLUMNS)
    parts = {name: step[name][-LENGTH - 1 : -1] for name in COLUMNS} | {"last_obs": step["obs"][-1]}
    return Pattern("rollouts", parts, when=[lambda state: state.steps_since_applied >= LENGTH])


def actor(server, seed, steps):
    rng = np.random.default_rng(seed)
    with StructuredWriter(server, [rollouts()]) as writer:
        for step in range(steps):
            obs, action = [seed, step, rng.normal()], rng.integers(2)
            writer.append({"obs": obs, "action": action, "reward": action, "log_prob": np.log(0.5)})


# --8<-- [end:actor]


# --8<-- [start:learner]
if __name__ == "__main__":
    server = new_server()
    actors = [threading.Thread(target=actor, args=(server, seed, 200)) for seed in range(ENVIRONMENTS)]
    for thread in actors:
        thread.start()
    # While the queue is full, inserts block: the actors wait for the learner.
    batches = 0
    max_samples = ENVIRONMENTS * (199 // LENGTH)  # complete rollouts in 200 steps
    for sample in TrajectoryDataset(server, "rollouts", ENVIRONMENTS, max_samples=max_samples):
        steps = sample.data["obs"][:, :, 1]
        assert steps.shape == (ENVIRONMENTS, LENGTH) and (np.diff(steps) == 1).all()
        assert (sample.data["last_obs"][:, 1] == steps[:, -1] + 1).all()
        batches += 1
    for thread in actors:
        thread.join()
    print(f"{batches} batches of {ENVIRONMENTS} rollouts, each sampled once")
# --8<-- [end:learner]
