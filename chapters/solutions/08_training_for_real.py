"""Solutions to the exercises of chapter 08."""

# 1. Q stays at the sum of three rewards; Q stays low and the evaluations jump; rows are rarely sampled.
my_diagnoses = {"A": "target never renewed", "B": "steps too large", "C": "learner starved"}


def my_updates(steps, batch_size, samples_per_insert, replay_start):
    """2. Divide the number of samples that may be drawn by the batch size."""
    return max(0, int((steps - replay_start) * samples_per_insert) // batch_size)


def my_state(replay):
    """3. Save the counter, which determines the next slot, and the state of the random generator."""
    return {"numbers": replay.numbers.copy(), "added": replay.added, "rng": replay.rng.bit_generator.state}
