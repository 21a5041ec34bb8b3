"""A program written for cpprb, with another import, and the same program with the native interface."""

# --8<-- [start:same]
import numpy as np

from replay_tutorial.cpprb import PrioritizedReplayBuffer  # from cpprb import PrioritizedReplayBuffer


def with_cpprbs_names(steps=500, batch_size=32):
    env_dict = {"obs": {"shape": 4}, "act": {}, "rew": {}, "next_obs": {"shape": 4}, "done": {}}
    rb = PrioritizedReplayBuffer(1_000, env_dict, Nstep={"size": 3, "rew": "rew", "next": "next_obs"})
    for step in range(steps):
        done = step % 50 == 49
        rb.add(obs=np.full(4, step), act=0, rew=1, next_obs=np.full(4, step + 1), done=done)
        if done:
            rb.on_episode_end()
    sample = rb.sample(batch_size, beta=0.4)
    rb.update_priorities(sample["indexes"], np.abs(sample["rew"]).ravel())  # sample["rew"] is (32, 1)
    return rb.get_stored_size(), rb.get_max_priority()


# --8<-- [end:same]


# --8<-- [start:native]
import replay_tutorial


def with_native_names(steps=500, batch_size=32):
    fields = {"obs": {"shape": 4}, "action": {}, "reward": {}, "next_obs": {"shape": 4}, "terminated": {}}
    buffer = replay_tutorial.PrioritizedReplayBuffer(1_000, fields, n_step=3, gamma=0.99)
    for step in range(steps):
        end = step % 50 == 49
        buffer.add(obs=np.full(4, step), action=0, reward=1, next_obs=np.full(4, step + 1), terminated=end)
    batch = buffer.sample(batch_size, beta=0.4)
    buffer.update_priorities(batch.indexes, np.abs(batch.reward))  # batch.reward is (32,)
    return len(buffer), buffer.max_priority


# --8<-- [end:native]


if __name__ == "__main__":
    print("rows and largest priority:", with_cpprbs_names(), with_native_names())
