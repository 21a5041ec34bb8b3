"""Prioritized experience replay: what surprised the network is drawn more often, and weighted down."""

import json
import sys

import gymnasium
import numpy as np
from q_network import QNetwork

from replay_tutorial import PrioritizedReplayBuffer

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
    rb = PrioritizedReplayBuffer(buffer_size, env_dict, alpha=0.4)
    env = gymnasium.make("CartPole-v1")
    model = QNetwork(seed=0)
    weights = []

    obs, _ = env.reset(seed=0)
    for step in range(steps):
        act = model.action(obs, 0.3, rng)
        next_obs, rew, terminated, truncated, _ = env.step(act)
        rb.add(obs=obs, act=act, rew=rew, next_obs=next_obs, done=terminated)
        if terminated or truncated:
            rb.on_episode_end()
            obs, _ = env.reset()
        else:
            obs = next_obs
        if step >= 200:
            sample = rb.sample(32, beta=0.4)
            assert sample["weights"].shape == (32,) and sample["indexes"].shape == (32,)
            weights.append([sample["weights"].min(), sample["weights"].max()])
            absTD = model.train(sample)
            rb.update_priorities(sample["indexes"], absTD)

    everything = rb.get_all_transitions()
    return {
        "stored": rb.get_stored_size(),
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
        "least_weight": float(np.min(weights)),
        "greatest_weight": float(np.max(weights)),
        "max_priority": float(rb.get_max_priority()),
        "lesson": model.lesson(),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
