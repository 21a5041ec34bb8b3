"""The third step terminates: the 3-step row that ends with the terminal observation 3 must say so.

By default, done_keys are left untouched, as documented. With done_keys=[], the row says so.
"""

import torch
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs.transforms import MultiStepTransform

buffer = ReplayBuffer(storage=LazyTensorStorage(8), transform=MultiStepTransform(n_steps=3, gamma=0.5))
end, obs = torch.tensor([0, 0, 1, 0, 0, 0], dtype=bool)[:, None], torch.arange(7.0)[:, None]
after = {"obs": obs[1:], "reward": torch.ones(6, 1), "done": end, "terminated": end}
buffer.extend(TensorDict({"obs": obs[:-1], "next": after}, [6]))
row = buffer[0]["next"]
assert row["obs"] == 3 and row["terminated"], row.to_dict()
