"""Two one-step episodes terminate, in observations 1 and 10: no row may lead from 1 to 10.

clip_episode ignores an episode of one step, so that it becomes the beginning of the next one. With
append_episode, it doesn't.
"""

import numpy as np
from d3rlpy import constants, dataset

one = dataset.Signature(dtype=[np.dtype(np.float32)], shape=[(1,)])
parts = {f"{name}_signature": one for name in ("observation", "action", "reward")}
parts |= {"action_space": constants.ActionSpace.CONTINUOUS, "action_size": 1}
buffer = dataset.ReplayBuffer(dataset.FIFOBuffer(9), **parts)
for obs in (1.0, 10.0):
    buffer.append(np.array([obs]), np.zeros(1), 0.0)
    buffer.clip_episode(terminated=True)
assert 10 not in buffer.sample_transition_batch(99).next_observations
