"""Train Stable-Baselines3's DQN with hindsight, priorities and n-step returns."""

# --8<-- [start:main]
from stable_baselines3.common.envs import BitFlippingEnv

from replay_tutorial.agents.sb3 import HindsightReplayBuffer
from replay_tutorial.agents.sb3 import PrioritizedDQN as DQN


def reached(achieved, goals, rows):
    """Return whether each goal is reached, which terminates the episode: bool[n]."""
    return (achieved == goals).all(-1)


def reward(achieved, goals, rows):
    """Return -1 for each step until the goal is reached, then 0: float[n]."""
    return reached(achieved, goals, rows) - 1.0


def train(bits=8, steps=400):
    model = DQN(
        "MultiInputPolicy",
        BitFlippingEnv(bits),
        n_steps=3,
        replay_buffer_class=HindsightReplayBuffer,
        replay_buffer_kwargs={"compute_reward": reward, "compute_terminated": reached},
        buffer_size=100_000,
        device="cpu",
    )
    return model.learn(steps)


if __name__ == "__main__":
    rows = train().replay_buffer.rows.sample(1_000)
    print(f"{rows.relabelled.mean():.0%} of the rows have a new goal")
# --8<-- [end:main]
