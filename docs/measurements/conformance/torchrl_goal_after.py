"""An episode leads from 0 to 1 in one step: 1 is the only goal that was achieved after an action.

With achieved_goal_key=("next", "achieved_goal") instead of the default, the goal is 1.
"""

import torch
from tensordict import TensorDict
from torchrl.data import HERReplayBuffer, LazyTensorStorage

buffer = HERReplayBuffer(lambda rows: rows["next", "reward"], her_ratio=1.0, storage=LazyTensorStorage(4))
end = {"reward": torch.zeros(1), "done": torch.tensor([True])}
before = {"achieved_goal": torch.tensor([0]), "desired_goal": torch.tensor([-1])}
buffer.add(TensorDict({**before, "next": {**before, **end, "achieved_goal": torch.tensor([1])}}, []))
goal = buffer.sample(1)["desired_goal"]
assert goal == 1, goal
