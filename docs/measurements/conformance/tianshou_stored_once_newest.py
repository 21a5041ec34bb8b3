"""The newest row leads from observation 6 to 7. With ignore_obs_next, its obs_next is 6.

tianshou's own tests expect this. By default, ignore_obs_next is False and obs_next is right.
"""

import numpy as np
from tianshou.data import Batch, ReplayBuffer

buffer = ReplayBuffer(4, ignore_obs_next=True)
step = {"act": 0, "rew": 1.0, "terminated": False, "truncated": False, "info": {}}
buffer.add(Batch(obs=np.array([6]), obs_next=np.array([7]), **step))
assert buffer[0].obs_next == [7], buffer[0].obs_next
