"""Store steps of vector environments in gymnasium's default autoreset mode, with CleanRL's interface."""

# --8<-- [start:main]
import gymnasium as gym

from replay_tutorial.agents.cleanrl import ReplayBuffer


def collect(envs, steps):
    rb = ReplayBuffer(
        10_000,
        envs.single_observation_space,
        envs.single_action_space,
        "cpu",
        n_envs=envs.num_envs,
        handle_timeout_termination=False,
        autoreset=envs.metadata["autoreset_mode"],
    )
    obs, _ = envs.reset(seed=1)
    for _ in range(steps):
        actions = envs.action_space.sample()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        # At the end of an episode, next_obs is its final observation in this mode.
        rb.add(obs, next_obs, actions, rewards, terminations, infos, truncations)
        obs = next_obs
    return rb


if __name__ == "__main__":
    rb = collect(gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync"), steps=500)
    print(f"{rb.size():,} of 2,000 steps are stored; the others only reset an environment")
# --8<-- [end:main]
