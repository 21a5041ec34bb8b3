"""An episode is truncated in observation 7: the next stack of its last step must be 6 and 7.

As in the Atari examples, ignore_obs_next is True: 7 is not stored. By default, it is False, and 7 is
stored, but the next stacks of an episode's first steps lack its first frame, unless sample_avail=True leaves
these steps out.
"""

import numpy as np
from tianshou.data import Batch, ReplayBuffer

buffer = ReplayBuffer(8, stack_num=2, ignore_obs_next=True)
for obs, truncated in [(5, False), (6, True), (0, False)]:
    step = {"act": 0, "rew": 1.0, "terminated": False, "truncated": truncated, "info": {}}
    buffer.add(Batch(obs=np.array([obs]), obs_next=np.array([obs + 1]), **step))
following = buffer[[1]].obs_next.reshape(-1).tolist()
assert following == [6, 7], following
