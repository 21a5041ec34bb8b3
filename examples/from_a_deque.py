"""The same replay memory as a deque of tuples and as a buffer."""

# --8<-- [start:before]
import random
from collections import deque

import numpy as np


def with_a_deque(transitions):
    memory = deque(maxlen=500)
    for obs, action, reward, next_obs, terminated in transitions:
        memory.append((obs, action, reward, next_obs, terminated))
    chosen = random.sample(memory, 32)
    obs, action, reward, next_obs, terminated = map(np.array, zip(*chosen, strict=True))
    batch = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
    return memory, {**batch, "terminated": terminated}


# --8<-- [end:before]


# --8<-- [start:after]
from replay_tutorial import ReplayBuffer

FIELDS = {
    "obs": {"shape": 4},
    "action": {"dtype": np.int64},
    "reward": {},  # a float32 scalar
    "next_obs": {"shape": 4},
    "terminated": {"dtype": bool},
}


def with_a_buffer(transitions):
    buffer = ReplayBuffer(500, FIELDS)
    for obs, action, reward, next_obs, terminated in transitions:
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated)
    return buffer, buffer.sample(32)


# --8<-- [end:after]


# --8<-- [start:main]
def random_transitions(steps=800):
    rng = np.random.default_rng(0)
    for step in range(steps):
        obs, next_obs = rng.random((2, 4), np.float32)
        yield obs, step % 2, float(step), next_obs, step % 100 == 99


def buffer_from(memory):
    """Return a buffer with the contents of a deque."""
    buffer = ReplayBuffer(500, FIELDS)
    columns = map(np.array, zip(*memory, strict=True))
    buffer.add(**dict(zip(FIELDS, columns, strict=True)))  # the tuples are in the same order as FIELDS
    return buffer


if __name__ == "__main__":
    memory, old = with_a_deque(random_transitions())
    buffer, new = with_a_buffer(random_transitions())
    for name in FIELDS:
        print(f"{name:10} {old[name].shape!s:8} {old[name].dtype}, in the buffer {new[name].dtype}")
        assert old[name].shape == new[name].shape

    rows, copies = buffer[:], buffer_from(memory)[:]
    assert all(np.array_equal(rows[name], copies[name]) for name in FIELDS)  # oldest first, as in the deque
# --8<-- [end:main]
