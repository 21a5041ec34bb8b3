"""Solutions to the skeleton and the exercises of chapter 08."""

import gymnasium
import numpy as np


class MyCorridor(gymnasium.Env):
    """Eleven positions from -5 to 5: start at 0 and reach the exit at 5. Each step costs 1."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)  # position / 5
    action_space = gymnasium.spaces.Discrete(2)  # 0: left, 1: right

    def reset(self, *, seed=None, options=None):
        """Start an episode at 0."""
        super().reset(seed=seed)
        self.position = 0
        return self.observe(), {}

    def step(self, action):
        """Move by one position; at -5, a move to the left changes nothing."""
        self.position = max(-5, self.position + (1 if action == 1 else -1))
        return self.observe(), -1.0, self.position == 5, False, {}

    def observe(self):
        """Return the scaled position, a new array."""
        return np.array([self.position / 5], np.float32)


# 1. Q stays low and the evaluations jump; both rise; rows are rarely sampled; Q stays at the sum of three rewards.
my_faults = {"A": "steps too large", "B": "healthy", "C": "too few updates", "D": "target never updated"}


def my_updates(steps, batch_size, samples_per_insert, replay_start):
    """2. Divide the number of samples that may be drawn by the batch size."""
    return max(0, int((steps - replay_start) * samples_per_insert) // batch_size)


def my_state(replay):
    """3. Save the counter, which determines the next slot, and the state of the random generator."""
    return {"numbers": replay.numbers.copy(), "added": replay.added, "rng": replay.rng.bit_generator.state}
