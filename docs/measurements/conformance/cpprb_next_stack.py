"""Episodes of 3 steps, stacks of 3 frames, 8 slots: the next stack must be the stack moved by one frame."""

from cpprb import ReplayBuffer

buffer = ReplayBuffer(8, {"obs": {"shape": (1, 3)}}, next_of="obs", stack_compress="obs")
for first in (10, 20, 30, 40):
    frames = [first, first, first, first + 1, first + 2, first + 3]
    for t in range(3):
        buffer.add(obs=[frames[t : t + 3]], next_obs=[frames[t + 1 : t + 4]])
    buffer.on_episode_end()
rows = buffer.get_all_transitions()
assert (rows["next_obs"][..., :2] == rows["obs"][..., 1:]).all(), rows["next_obs"]
