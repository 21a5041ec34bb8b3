"""The exercises of chapter 08, solved."""

# 1. Q of three rewards, forever; Q that rises and falls; rows that hardly anybody draws.
my_diagnoses = {"A": "target never renewed", "B": "steps too large", "C": "learner starved"}


def my_updates(steps, batch_size, samples_per_insert, replay_start):
    """2. So many samples may be drawn, and an update draws a batch of them."""
    return max(0, int((steps - replay_start) * samples_per_insert) // batch_size)


def my_state(replay):
    """3. The counter is not the number of rows: it says where the next one goes. And what decides the drawing."""
    return {"numbers": replay.numbers.copy(), "added": replay.added, "rng": replay.rng.bit_generator.state}
