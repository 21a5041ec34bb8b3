"""A truncated episode (done = 0, then on_episode_end) must bootstrap from its last next_obs, here 7."""

from cpprb import ReplayBuffer

n_step = {"size": 3, "gamma": 0.5, "rew": "rew", "next": "next_obs"}
buffer = ReplayBuffer(8, {"obs": {}, "rew": {}, "next_obs": {}, "done": {}}, Nstep=n_step)
buffer.add(obs=6, rew=1.0, next_obs=7, done=0)
buffer.on_episode_end()
next_obs = buffer.get_all_transitions()["next_obs"]
assert next_obs.tolist() == [[7.0]], next_obs
