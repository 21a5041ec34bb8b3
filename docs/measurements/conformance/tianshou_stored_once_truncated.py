"""An episode is truncated in observation 7, the next one begins with 0: the target needs the value of 7.

With ignore_obs_next, obs_next is 6, as tianshou's own tests expect. By default, it is False and obs_next is
right.
"""

import numpy as np
from tianshou.data import Batch, ReplayBuffer

buffer = ReplayBuffer(4, ignore_obs_next=True)
for obs, truncated in [(6, True), (0, False)]:
    step = {"act": 0, "rew": 1.0, "terminated": False, "truncated": truncated, "info": {}}
    buffer.add(Batch(obs=np.array([obs]), obs_next=np.array([obs + 1]), **step))
assert buffer[0].obs_next == [7], buffer[0].obs_next
