"""Hindsight for an environment with gymnasium's GoalEnv interface, and priorities of the original goals."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Reach(gymnasium.Env):
    """Move a point on a line for 20 steps; the reward is 0 near the goal and otherwise -1."""

    def __init__(self):
        parts = dict.fromkeys(["observation", "achieved_goal", "desired_goal"], spaces.Box(-9, 9, (1,)))
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Box(-1, 1, (1,))

    def observe(self):
        return {"observation": self.at, "achieved_goal": self.at, "desired_goal": self.goal}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.goal, self.steps = np.zeros(1, np.float32), self.np_random.random(1, np.float32) * 5, 0
        return self.observe(), {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -(np.abs(achieved_goal - desired_goal) > 0.5).all(-1).astype(float)

    def step(self, action):
        self.at, self.steps = (self.at + action).astype(np.float32), self.steps + 1
        reward = float(self.compute_reward(self.at, self.goal, {}))
        return self.observe(), reward, False, self.steps == 20, {}


# --8<-- [start:buffer]
from replay_tutorial import HindsightReplayBuffer


def buffer_for(env, capacity=1_000_000, **options):
    """Return a buffer for an environment with the GoalEnv interface, such as FetchReach."""

    def compute_reward(achieved, goals, rows):
        return env.unwrapped.compute_reward(achieved, goals, {})

    def compute_terminated(achieved, goals, rows):
        return rows["terminated"]  # only if reaching a goal doesn't end an episode, as in FetchReach

    functions = {"compute_reward": compute_reward, "compute_terminated": compute_terminated}
    return HindsightReplayBuffer.for_env(env, capacity, **functions, **options)


# --8<-- [end:buffer]


# --8<-- [start:priorities]
def update_priorities(buffer, batch, td_errors):
    """Set the priorities of the rows that have kept their goal."""
    kept = ~batch.relabelled
    buffer.update_priorities(batch.indexes[kept], np.abs(td_errors[kept]))


# --8<-- [end:priorities]


def main(episodes=20, **options):
    env = Reach()
    env.action_space.seed(0)
    buffer = buffer_for(env, 10_000, seed=0, **options)
    for episode in range(episodes):
        (obs, _), truncated = env.reset(seed=episode), False
        while not truncated:
            action = env.action_space.sample()
            next_obs, reward, terminated, truncated, _ = env.step(action)
            ends = {"terminated": terminated, "truncated": truncated}
            buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
            obs = next_obs
    return buffer


if __name__ == "__main__":
    buffer = main(alpha=0.6)
    batch = buffer.sample(256)
    update_priorities(buffer, batch, batch.reward)
    print(f"relabelled: {batch.relabelled.mean():.0%}, at the goal: {(batch.reward == 0).mean():.0%}")
