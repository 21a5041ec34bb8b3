"""Train Stable-Baselines3's DQN with a prioritized buffer and n-step returns, and save and resume it."""

# --8<-- [start:main]
import tempfile
from pathlib import Path

from stable_baselines3.common.env_util import make_vec_env

from replay_tutorial.agents.sb3 import PrioritizedDQN as DQN  # instead of stable_baselines3.DQN


def train(steps=1_000):
    envs = make_vec_env("CartPole-v1", n_envs=4, seed=0)
    model = DQN("MlpPolicy", envs, n_steps=3, learning_starts=500, seed=0, device="cpu")
    return model.learn(steps)


def save(model, folder):
    model.save(folder / "model.zip")
    model.save_replay_buffer(folder / "replay.pkl")


def resume(folder, steps=500):
    model = DQN.load(folder / "model.zip", make_vec_env("CartPole-v1", n_envs=4, seed=1))
    model.load_replay_buffer(folder / "replay.pkl")
    return model.learn(steps, reset_num_timesteps=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        save(train(), Path(name))
        print(resume(Path(name)).replay_buffer.rows)
# --8<-- [end:main]
