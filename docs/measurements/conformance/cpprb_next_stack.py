"""With next_of and stack_compress, an episode across the ring's end: its next stack must be its stack, moved.

With stack_compress=["obs", "next_obs"] instead of next_of, all rows are right.
"""

from cpprb import ReplayBuffer

buffer = ReplayBuffer(8, {"obs": {"shape": (1, 3)}}, next_of="obs", stack_compress="obs")
for first in (10, 20, 30, 40):
    frames = [first, first, first, first + 1, first + 2, first + 3]
    for t in range(3):
        buffer.add(obs=[frames[t : t + 3]], next_obs=[frames[t + 1 : t + 4]])
    buffer.on_episode_end()
rows = buffer.get_all_transitions()
assert (rows["next_obs"][..., :2] == rows["obs"][..., 1:]).all(), rows["next_obs"]
