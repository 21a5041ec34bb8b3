"""Experience replay: an agent adds every step and learns from samples, uniform or by what surprised it."""

import json
import sys

import gymnasium
import numpy as np
from q_network import QNetwork

from replay_tutorial.cpprb import PrioritizedReplayBuffer, ReplayBuffer

buffer_size = int(1e6)
batch_size = 32


def main(kind, n_training_step):
    env = gymnasium.make("CartPole-v1")
    model = QNetwork(seed=0)
    prioritized = kind == "prioritized"
    episodes = 0
    weights = []

    obs_shape = 4
    act_dim = 1
    env_dict = {
        "obs": {"shape": obs_shape},
        "act": {"shape": act_dim},
        "rew": {},
        "next_obs": {"shape": obs_shape},
        "done": {},
    }
    if prioritized:
        rb = PrioritizedReplayBuffer(buffer_size, env_dict, alpha=0.4)
    else:
        rb = ReplayBuffer(buffer_size, env_dict=env_dict)

    obs, _ = env.reset(seed=0)
    for _ in range(n_training_step):
        act = model.get_action(obs)
        next_obs, rew, done, truncated, _ = env.step(act)
        rb.add(obs=obs, act=act, rew=rew, next_obs=next_obs, done=done)

        if done or truncated:
            rb.on_episode_end()
            episodes += 1
            obs, _ = env.reset()
        else:
            obs = next_obs

        sample = rb.sample(batch_size, beta=0.4) if prioritized else rb.sample(batch_size)
        assert sample["rew"].shape == (32, 1) and sample["obs"].shape == (32, 4)
        model.train(sample)

        if prioritized:
            assert sample["weights"].shape == sample["indexes"].shape == (32,)
            weights.append([sample["weights"].min(), sample["weights"].max()])
            rb.update_priorities(sample["indexes"], model.abs_TD_error(sample))

    everything = rb.get_all_transitions()
    told = {
        "stored": rb.get_stored_size(),
        "episodes": episodes,
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
    }
    if prioritized:
        told["least_weight"], told["greatest_weight"] = float(np.min(weights)), float(np.max(weights))
        told["max_priority"] = float(rb.get_max_priority())
    return told


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
