"""Episode 0 has two steps, episode 1 three so far, in 4 slots: each goal must be of the row's own episode."""

import torch
from tensordict import TensorDict
from torchrl.data import HERReplayBuffer, LazyTensorStorage

options = {"strategy": "final", "her_ratio": 1.0, "storage": LazyTensorStorage(4)}
buffer = HERReplayBuffer(lambda rows: rows["next", "reward"], **options)
for episode, done in [([0], [False]), ([0], [True]), ([1], [False]), ([1], [False]), ([1], [False])]:
    here = {"episode": torch.tensor(episode), "achieved_goal": torch.tensor(episode)}
    after = {**here, "reward": torch.zeros(1), "done": torch.tensor(done)}
    buffer.add(TensorDict({**here, "desired_goal": torch.tensor([-1]), "next": after}, []))
assert ((rows := buffer.sample(100))["desired_goal"] == rows["episode"]).all(), rows["desired_goal"].unique()
