"""An episode of 8 steps, sampled in slices of 4: next observations must be those of the next steps, or NaN.

Two slices of one episode that are neighbours in a batch are joined. With step_count_key="step_count" and a
StepCounter, or with SliceSamplerWithoutReplacement, they are not.
"""

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer, SliceSampler
from torchrl.envs.transforms import NextStateReconstructor

obs, ids, done = torch.arange(8.0)[:, None], torch.zeros(8, dtype=int), torch.arange(8)[:, None] == 7
sampler = SliceSampler(slice_len=4, traj_key=("collector", "traj_ids"))
buffer = ReplayBuffer(storage=LazyTensorStorage(8), sampler=sampler, transform=NextStateReconstructor())
buffer.extend(TensorDict({"observation": obs, "next": {"done": done}, "collector": {"traj_ids": ids}}, [8]))
steps = (rows := buffer.sample(400))["next", "observation"] - rows["observation"]
assert set(steps[~steps.isnan()].tolist()) == {1}, steps.unique()
