"""Prioritized experience replay: what surprised the network is drawn more often, and weighted down."""

import json
import sys

import gymnasium
import numpy as np
from q_network import MockModel, QNetwork

from replay_tutorial import PrioritizedReplayBuffer

buffer_size = int(1e6)
batch_size = 32


def main(n_training_step, model):
    env = gymnasium.make("CartPole-v1")
    weights = []

    obs_shape = 4
    act_dim = 1
    rb = PrioritizedReplayBuffer(
        buffer_size,
        env_dict={
            "obs": {"shape": obs_shape},
            "act": {"shape": act_dim},
            "rew": {},
            "next_obs": {"shape": obs_shape},
            "done": {},
        },
        alpha=0.4,
    )

    obs, _ = env.reset(seed=0)
    for _ in range(n_training_step):
        act = model.get_action(obs)
        next_obs, rew, done, truncated, _ = env.step(act)
        rb.add(obs=obs, act=act, rew=rew, next_obs=next_obs, done=done)

        if done or truncated:
            rb.on_episode_end()
            obs, _ = env.reset()
        else:
            obs = next_obs

        sample = rb.sample(batch_size, beta=0.4)
        assert sample["weights"].shape == (32,) and sample["indexes"].shape == (32,)
        weights.append([sample["weights"].min(), sample["weights"].max()])
        model.train(sample)

        abs_TD = model.compute_abs_TD(sample)
        rb.update_priorities(sample["indexes"], abs_TD)

    everything = rb.get_all_transitions()
    return {
        "stored": rb.get_stored_size(),
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
        "least_weight": float(np.min(weights)),
        "greatest_weight": float(np.max(weights)),
        "max_priority": float(rb.get_max_priority()),
    }


if __name__ == "__main__":
    steps = int(sys.argv[1])
    print(json.dumps([main(steps, MockModel(seed=0)), main(steps, QNetwork(seed=0))]))
