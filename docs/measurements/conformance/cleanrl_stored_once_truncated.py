"""As in dqn_atari.py. An episode is truncated in observation 7, the next one begins with 0: 7 must be kept.

By default, optimize_memory_usage is False and next_observations are right. SB3's buffer does the same, but
SB3's DQN doesn't bootstrap then; dqn_atari.py does, because it passes terminations as done.
"""

import numpy as np
from cleanrl_utils.buffers import ReplayBuffer
from gymnasium.spaces import Box, Discrete

options = {"optimize_memory_usage": True, "handle_timeout_termination": False}
buffer = ReplayBuffer(4, Box(0, 9, (1,)), Discrete(2), "cpu", **options)
for obs, next_obs in [(6, 7), (0, 1)]:
    terminations = np.array([False])
    buffer.add(np.array([[obs]]), np.array([[next_obs]]), np.array([0]), np.zeros(1), terminations, {})
rows = buffer.sample(50)
assert (following := rows.next_observations[rows.observations == 6]).eq(7).all(), following.unique()
