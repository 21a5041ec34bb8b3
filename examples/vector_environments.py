"""Vector environments of gymnasium in each autoreset mode, with n-step rows in a prioritized buffer."""

# --8<-- [start:store]
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from replay_tutorial import NStep, PrioritizedReplayBuffer, fields_from_spaces


class Store:
    """N-step windows for the environments, and a buffer for the rows that they return."""

    def __init__(self, envs, size=10_000, n=3, gamma=0.99, seed=0):
        fields = fields_from_spaces(envs.single_observation_space, envs.single_action_space)
        window = {"size": n, "gamma": gamma, "rew": "rew", "next": "next_obs"}
        mode = envs.metadata["autoreset_mode"]
        self.n_step = NStep(fields, window, environments=envs.num_envs, autoreset=mode)
        self.buffer = PrioritizedReplayBuffer(size, self.n_step.env_dict, seed=seed)

    def add(self, **steps):
        """Add a step of every environment."""
        rows = self.n_step.add_step(**steps)
        if rows is not None:  # None while all windows are filling
            self.buffer.add(**rows)


# --8<-- [end:store]


# --8<-- [start:same_step]
def collect_same_step(envs, policy, store, steps):
    """Collect rows if the last step of an episode returns the first observation of the next episode."""
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        act = policy(obs)
        following_obs, rew, terminated, truncated, infos = envs.step(act)
        next_obs = following_obs.copy()
        for i in np.flatnonzero(terminated | truncated):
            next_obs[i] = infos["final_obs"][i]
        flags = {"terminated": terminated, "truncated": truncated}
        store.add(obs=obs, act=act, rew=rew, next_obs=next_obs, **flags)
        obs = following_obs


# --8<-- [end:same_step]


# --8<-- [start:next_step]
def collect_next_step(envs, policy, store, steps):
    """Collect rows if the step after the end of an episode resets: `NStep` ignores this step."""
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        act = policy(obs)
        next_obs, rew, terminated, truncated, _ = envs.step(act)
        flags = {"terminated": terminated, "truncated": truncated}
        store.add(obs=obs, act=act, rew=rew, next_obs=next_obs, **flags)
        obs = next_obs


# --8<-- [end:next_step]


# --8<-- [start:disabled]
def collect_disabled(envs, policy, store, steps):
    """Collect rows if environments do not reset themselves: every step is a transition."""
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        act = policy(obs)
        next_obs, rew, terminated, truncated, _ = envs.step(act)
        flags = {"terminated": terminated, "truncated": truncated}
        store.add(obs=obs, act=act, rew=rew, next_obs=next_obs, **flags)
        ended = terminated | truncated
        obs = envs.reset(options={"reset_mask": ended})[0] if ended.any() else next_obs


# --8<-- [end:disabled]


# --8<-- [start:main]
COLLECT = {
    AutoresetMode.SAME_STEP: collect_same_step,
    AutoresetMode.NEXT_STEP: collect_next_step,
    AutoresetMode.DISABLED: collect_disabled,
}


def main(name="CartPole-v1", mode=AutoresetMode.SAME_STEP, num_envs=8, steps=500):
    envs = gymnasium.make_vec(name, num_envs, "sync", vector_kwargs={"autoreset_mode": mode})
    envs.action_space.seed(0)
    store = Store(envs)
    COLLECT[mode](envs, lambda obs: envs.action_space.sample(), store, steps)
    envs.close()
    return store


if __name__ == "__main__":
    for mode in AutoresetMode:
        print(mode.value, main(mode=mode).buffer)
# --8<-- [end:main]
