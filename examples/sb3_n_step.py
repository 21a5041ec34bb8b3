"""Add n-step returns to an algorithm of Stable-Baselines3."""

# --8<-- [start:main]
from stable_baselines3 import DDPG

from replay_tutorial.agents.sb3 import NStepReturns


class NStepDDPG(NStepReturns, DDPG):
    pass


if __name__ == "__main__":
    model = NStepDDPG("MlpPolicy", "Pendulum-v1", n_steps=3, gamma=0.98, device="cpu")
    print(model.learn(150).replay_buffer.rows)
# --8<-- [end:main]
