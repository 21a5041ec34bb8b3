"""Solutions of chapter 00: the update and the exercises."""

from replay_course.steps.learning.online_q_learning import OnlineQLearning

# The update: the class that the chapter shows.
MyQLearning = OnlineQLearning

# 1. The targets are 1 + 0.9 · 6 = 6.4, 1 (terminated), and 1 + 0.9 · 0 = 1.
my_td_errors = [6.4 - 5.0, 1.0 - 5.0, 1.0 - 2.0]


def my_targets(reward, next_values, terminated, gamma):
    """2. `~terminated` is 0 where no value follows."""
    return reward + gamma * next_values.max(axis=1) * ~terminated


def my_store(env, steps):
    """3. Store the row before the reset, so that its `next_obs` belongs to the same episode."""
    rows, obs = [], env.reset()
    for _ in range(steps):
        next_obs, ended = env.step()
        rows.append((obs, next_obs))
        obs = env.reset() if ended else next_obs
    return rows
