"""Tabular Q-learning with a replay buffer that is too large (Zhang and Sutton 2017)."""

# --8<-- [start:grid]
import sys

import numpy as np

from replay_tutorial import ReplayBuffer
from replay_tutorial.buffers.schemes import Combined, Geometric, Uniform

SIDE, EPSILON, STEP_SIZE, BATCH_SIZE = 20, 0.1, 0.1, 10
GOAL = SIDE * SIDE - 1  # the corner opposite to the start, 38 steps away
integer = {"dtype": np.int64}
FIELDS = {"obs": integer, "action": integer, "next_obs": integer, "terminated": {"dtype": bool}}


def move(state, action):
    """Move up, right, down or left; at the edge of the grid, a move may have no effect."""
    row, column = divmod(state, SIDE)
    row += (action == 2) - (action == 0)
    column += (action == 1) - (action == 3)
    return int(np.clip(row, 0, SIDE - 1) * SIDE + np.clip(column, 0, SIDE - 1))


# --8<-- [end:grid]


# --8<-- [start:learn]
def main(scheme, size=1_000_000, steps=50_000, seed=0):
    """Learn for some steps; return the length of each finished episode."""
    buffer, rng = ReplayBuffer(size, FIELDS, seed=seed), np.random.default_rng(seed)
    values = np.zeros((SIDE * SIDE, 4))  # optimistic, because every step costs 1
    state, started, lengths = 0, 0, []
    for step in range(steps):
        best = np.flatnonzero(values[state] == values[state].max())
        action = int(rng.integers(4) if rng.random() < EPSILON else rng.choice(best))
        next_state = move(state, action)
        buffer.add(obs=state, action=action, next_obs=next_state, terminated=next_state == GOAL)
        state = next_state

        batch = buffer.sample(BATCH_SIZE, scheme=scheme)
        target = -1 + ~batch.terminated * values[batch.next_obs].max(1)
        error = target - values[batch.obs, batch.action]
        values[batch.obs, batch.action] += STEP_SIZE * error  # a pair that is drawn twice counts once

        if state == GOAL:
            lengths.append(step + 1 - started)
            state, started = 0, step + 1
    return lengths


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000
    for scheme in (Uniform(), Geometric(half_life=100), Combined()):
        lengths = main(scheme, steps=steps)
        print(f"{type(scheme).__name__}: {len(lengths)} episodes in {steps:,} steps")
# --8<-- [end:learn]
