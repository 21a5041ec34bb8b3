"""Solutions to the skeleton and the exercises of chapter 08."""

from replay_tutorial.teaching.environments import Corridor

# The environment: the class that the chapter shows.
MyCorridor = Corridor

# 1. Q stays low and the evaluations jump; both rise; rows are rarely sampled; Q stays at the sum of three rewards.
my_faults = {"A": "steps too large", "B": "healthy", "C": "too few updates", "D": "target never updated"}


def my_updates(steps, batch_size, samples_per_insert, replay_start):
    """2. Divide the number of samples that may be drawn by the batch size."""
    return max(0, int((steps - replay_start) * samples_per_insert) // batch_size)


def my_state(replay):
    """3. Save the counter, which determines the next slot, and the state of the random generator."""
    return {"numbers": replay.numbers.copy(), "added": replay.added, "rng": replay.rng.bit_generator.state}
