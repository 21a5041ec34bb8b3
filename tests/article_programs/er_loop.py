"""Experience replay: an agent adds every step and learns from uniform samples."""

import json
import sys

import gymnasium
import numpy as np
from q_network import QNetwork

from replay_tutorial import ReplayBuffer

buffer_size = 1e4
env_dict = {
    "obs": {"shape": 4},
    "act": {"shape": 1, "dtype": np.ubyte},
    "rew": {},
    "next_obs": {"shape": 4},
    "done": {},
}


def main(steps):
    rng = np.random.default_rng(0)
    rb = ReplayBuffer(buffer_size, env_dict)
    env = gymnasium.make("CartPole-v1")
    model = QNetwork(seed=0)
    episodes = 0

    obs, _ = env.reset(seed=0)
    for step in range(steps):
        act = model.action(obs, 0.3, rng)
        next_obs, rew, terminated, truncated, _ = env.step(act)
        rb.add(obs=obs, act=act, rew=rew, next_obs=next_obs, done=terminated)
        if terminated or truncated:
            rb.on_episode_end()
            episodes += 1
            obs, _ = env.reset()
        else:
            obs = next_obs
        if step >= 200:
            sample = rb.sample(32)
            assert sample["rew"].shape == (32, 1) and sample["obs"].shape == (32, 4)
            model.train(sample)

    everything = rb.get_all_transitions()
    return {
        "stored": rb.get_stored_size(),
        "episodes": episodes,
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
        "lesson": model.lesson(),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
