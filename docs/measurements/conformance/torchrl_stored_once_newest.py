"""The newest of 8 steps does not end the episode: its next observation is not stored yet, and must be NaN.

Two slices of one episode that are neighbours in a batch are joined. With step_count_key="step_count" and a
StepCounter, or with SliceSamplerWithoutReplacement, they are not.
"""

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler
from torchrl.envs.transforms import NextStateReconstructor

obs, ids, done = torch.arange(8.0)[:, None], torch.zeros(8, dtype=int), torch.zeros(8, 1, dtype=bool)
sampler = SliceSampler(slice_len=4, traj_key=("collector", "traj_ids"))
buffer = ReplayBuffer(storage=LazyTensorStorage(8), sampler=sampler, transform=NextStateReconstructor())
buffer.extend(TensorDict({"observation": obs, "next": {"done": done}, "collector": {"traj_ids": ids}}, [8]))
following = (rows := buffer.sample(400))["next", "observation"][rows["observation"] == 7]
assert following.isnan().all(), following.unique()
