"""Episodes of several environments: keep the best ones, read one, and exchange them with Minari."""

# --8<-- [start:collect]
import os
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import gymnasium

from replay_tutorial import EpisodeReplayBuffer


def new_buffer(envs, size=2_000):
    return EpisodeReplayBuffer.for_env(envs, size, seed=0)


def collect(envs, buffer, steps):
    """Add steps of a random policy; the buffer ignores those that only reset an environment."""
    obs, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(steps):
        action = envs.action_space.sample()
        next_obs, reward, terminated, truncated, _ = envs.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add_step(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = next_obs


# --8<-- [end:collect]


# --8<-- [start:best]
def best_episode(buffer, n=10):
    """Evict all finished episodes except the best n; return the best episode."""
    buffer.keep_best(n)
    table = buffer.episodes()
    finished = table["episode"][table["finished"]]
    return buffer.get_episode(finished[table["return"][table["finished"]].argmax()])


# --8<-- [end:best]


# --8<-- [start:minari]
def exchange(buffer, other):
    """Export the episodes to a Minari dataset, and import them into another buffer."""
    from replay_tutorial.buffers.episodes.minari import export_minari, import_minari

    dataset = export_minari(buffer, "cartpole/best-v0", env="CartPole-v1", algorithm_name="random")
    return import_minari(other, dataset)  # the number of episodes


# --8<-- [end:minari]


# --8<-- [start:main]
def main():
    envs = gymnasium.make_vec("CartPole-v1", num_envs=4)
    buffer = new_buffer(envs)
    collect(envs, buffer, steps=600)
    best = best_episode(buffer)
    return envs, buffer, best


if __name__ == "__main__":
    envs, buffer, best = main()
    print(buffer)
    print("best episode:", len(best.reward), "steps,", len(best.obs), "observations")
    print("a batch to learn from:", buffer.sample(256).next_obs.shape)
    if find_spec("minari"):
        with TemporaryDirectory() as folder:
            os.environ["MINARI_DATASETS_PATH"] = folder  # the default is ~/.minari/datasets
            print(exchange(buffer, new_buffer(envs)), "episodes exchanged")
# --8<-- [end:main]
