"""Experience replay: an agent adds every step and learns from uniform samples."""

import json
import sys

import gymnasium
from q_network import QNetwork

from replay_tutorial import ReplayBuffer

buffer_size = int(1e6)
batch_size = 32


def main(n_training_step):
    env = gymnasium.make("CartPole-v1")
    model = QNetwork(seed=0)
    episodes = 0

    obs_shape = 4
    act_dim = 1
    rb = ReplayBuffer(
        buffer_size,
        env_dict={
            "obs": {"shape": obs_shape},
            "act": {"shape": act_dim},
            "rew": {},
            "next_obs": {"shape": obs_shape},
            "done": {},
        },
    )

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

        sample = rb.sample(batch_size)
        assert sample["rew"].shape == (32, 1) and sample["obs"].shape == (32, 4)
        model.train(sample)

    everything = rb.get_all_transitions()
    return {
        "stored": rb.get_stored_size(),
        "episodes": episodes,
        "explained_before": QNetwork(seed=0).explained(everything),
        "explained": model.explained(everything),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]))))
