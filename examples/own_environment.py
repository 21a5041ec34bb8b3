"""An environment of your own: registered, scaled, with a time limit, and trained."""

# --8<-- [start:environment]
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """Ten metres lead to the exit. Each step moves one metre and costs 1, so the best return is -10."""

    length = 10.0  # metres
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)  # back, forward

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = 0.0
        return self.observe(), {}

    def step(self, action):
        self.position = float(np.clip(self.position + (1 if action == 1 else -1), 0, self.length))
        terminated = self.position == self.length  # the task is over: nothing follows
        return self.observe(), -1.0, terminated, False, {}

    def observe(self):
        return np.array([self.position / self.length], np.float32)  # between 0 and 1, not in metres


# After 50 steps gymnasium truncates the episode. That isn't an end: the learner still bootstraps.
gymnasium.register("Corridor-v0", Corridor, max_episode_steps=50)
# --8<-- [end:environment]


# --8<-- [start:main]
if __name__ == "__main__":
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    from gymnasium.utils.env_checker import check_env

    from replay_tutorial.apex import preset, train

    check_env(gymnasium.make("Corridor-v0").unwrapped)  # gymnasium's own check of the interface
    with TemporaryDirectory() as folder:
        config = replace(preset("Corridor-v0"), actors=0, total_steps=6_000, solved_at=-11.0)
        result = train(replace(config, runs=folder, progress=False))
    print(result.end, result.evaluation)
# --8<-- [end:main]
