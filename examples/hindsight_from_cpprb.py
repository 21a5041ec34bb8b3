"""The arguments of cpprb's HindsightReplayBuffer, and their equivalents."""

# --8<-- [start:buffer]
import numpy as np

from replay_tutorial import HindsightReplayBuffer


def goal_func(state):  # as in cpprb: the goal that a state achieves
    return state[..., :2]


def reward_func(next_state, act, goal):  # as in cpprb
    return -(goal_func(next_state) != goal).any(axis=1).astype(np.float32)


def compute_reward(achieved, goal, rows):
    return reward_func(rows["next_obs"], rows["action"], goal)


def compute_terminated(achieved, goal, rows):  # cpprb keeps the `done` of the original goal
    return rows["done"] | (achieved == goal).all(axis=1)


k = 4
FIELDS = {"obs": {"shape": 3}, "next_obs": {"shape": 3}, "action": {}, "reward": {}, "done": {"dtype": bool}}
FIELDS |= {name: {"shape": 2} for name in ("goal", "achieved", "next_achieved")}

buffer = HindsightReplayBuffer(
    10_000,  # observations; no copies of the rows are stored
    FIELDS,
    compute_reward,
    compute_terminated,
    strategy="future",
    relabel=k / (k + 1),  # additional_goals=4
    goal="goal",
    achieved_goal="achieved",
    alpha=0.6,  # prioritized=True; the default, 0, samples uniformly
    seed=0,
)
# --8<-- [end:buffer]


# --8<-- [start:main]
rng = np.random.default_rng(0)
for _ in range(20):
    goal, obs = rng.integers(10, size=2), np.zeros(3)
    for _ in range(10):
        next_obs = obs + np.append(rng.integers(2, size=2), 1)
        achieved, next_achieved = goal_func(obs), goal_func(next_obs)
        done = bool((next_achieved == goal).all())
        goals = {"goal": goal, "achieved": achieved, "next_achieved": next_achieved}
        buffer.add(obs=obs, action=0, reward=done - 1, next_obs=next_obs, done=done, **goals)
        if done:
            break
        obs = next_obs
    buffer.end_episode()  # on_episode_end(goal) in cpprb, which stores no row before this call

batch = buffer.sample(256, beta=0.4)
print("relabelled:", batch.relabelled.mean(), "reached:", batch.done.mean())
buffer.update_priorities(batch.indexes, np.ones(256))
# --8<-- [end:main]
