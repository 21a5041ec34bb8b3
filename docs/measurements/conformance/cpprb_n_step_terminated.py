"""The third step of an episode terminates it: the 3-step row from the first step must have done = 1."""

from cpprb import ReplayBuffer

n_step = {"size": 3, "gamma": 0.5, "rew": "rew", "next": "next_obs"}
buffer = ReplayBuffer(8, {"obs": {}, "rew": {}, "next_obs": {}, "done": {}}, Nstep=n_step)
for t in range(3):
    buffer.add(obs=t, rew=1.0, next_obs=t + 1, done=t == 2)
buffer.on_episode_end()
row = {name: column[0, 0] for name, column in buffer.get_all_transitions().items()}
assert row["next_obs"] == 3 and row["done"] == 1, row
