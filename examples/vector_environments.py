"""Vector environments of gymnasium in each autoreset mode, with n-step rows in a prioritized buffer."""

# --8<-- [start:collect]
import gymnasium
from gymnasium.vector import AutoresetMode

from replay_tutorial import PrioritizedReplayBuffer, with_final_obs


def collect(envs, policy, buffer, steps):
    """Collect rows in any autoreset mode."""
    obs, _ = envs.reset(seed=0)
    for _ in range(steps):
        action = policy(obs)
        following_obs, reward, terminated, truncated, infos = envs.step(action)
        next_obs = with_final_obs(following_obs, infos)  # SAME_STEP: the true next observations
        ends = {"terminated": terminated, "truncated": truncated}
        buffer.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs, ended = following_obs, terminated | truncated
        if envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})


# --8<-- [end:collect]


# --8<-- [start:main]
def main(name="CartPole-v1", mode=AutoresetMode.SAME_STEP, num_envs=8, steps=500):
    envs = gymnasium.make_vec(name, num_envs, "sync", vector_kwargs={"autoreset_mode": mode})
    envs.action_space.seed(0)
    buffer = PrioritizedReplayBuffer.for_env(envs, 10_000, n_step=3, gamma=0.99, seed=0)
    collect(envs, lambda obs: envs.action_space.sample(), buffer, steps)
    envs.close()
    return buffer


if __name__ == "__main__":
    for mode in AutoresetMode:
        print(mode.value, main(mode=mode))
# --8<-- [end:main]
