"""SAC with half of each batch from offline data (RLPD, Ball et al. 2023), against SAC alone."""

# --8<-- [start:collect]
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import gymnasium
import numpy as np
import torch
from sac import BATCH_SIZE, SAC, evaluate, rescaled

from replay_tutorial import Mixture, ReplayBuffer, fields_from_spaces

ENVIRONMENT, LENGTH = "Pendulum-v1", 200  # steps of an episode
RANDOM_STEPS, UPDATES = 200, 4  # updates per step


def mediocre(obs, rng):
    """Swing up by adding energy, but never balance; half of the actions are random."""
    cosine, _, velocity = obs
    missing = 5 - (5 * cosine + velocity**2 / 6)  # at rest at the top, the energy is 5
    action = rng.uniform(-1, 1) if rng.random() < 0.5 else np.clip(0.1 * missing * velocity, -1, 1)
    return np.array([action], np.float32)


def collect(path, episodes, seed=0):
    """Write episodes of the mediocre policy to a file; return their mean return."""
    env, rng, columns = rescaled(gymnasium.make(ENVIRONMENT)), np.random.default_rng(seed), defaultdict(list)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed if episode == 0 else None)
        columns["observations"].append(obs)
        for _ in range(LENGTH):
            action = mediocre(obs, rng)
            obs, reward, terminated, truncated, _ = env.step(action)
            columns["observations"].append(obs)  # T + 1 observations of T steps, the final one included
            columns["actions"].append(action)
            columns["rewards"].append(reward)
            columns["terminations"].append(terminated)
            columns["truncations"].append(truncated)
    arrays = {name: np.array(column) for name, column in columns.items()}
    np.savez(path, **{name: array.reshape(episodes, -1, *array.shape[1:]) for name, array in arrays.items()})
    return float(arrays["rewards"].sum() / episodes)


# --8<-- [end:collect]


# --8<-- [start:load]
def read_episodes(path):
    """Yield the episodes of a file, with the attributes of Minari's `EpisodeData`."""
    with np.load(path) as file:
        columns = dict(file)
    for values in zip(*columns.values(), strict=True):
        yield SimpleNamespace(**dict(zip(columns, values, strict=True)))


def offline_buffer(episodes, fields, seed=0):
    """Store the steps of all episodes in a buffer that is just large enough."""
    episodes = list(episodes)
    buffer = ReplayBuffer(sum(len(episode.rewards) for episode in episodes), fields, seed=seed)
    for episode in episodes:
        buffer.add(
            obs=episode.observations[:-1],
            action=episode.actions,
            reward=episode.rewards,
            next_obs=episode.observations[1:],
            terminated=episode.terminations,
            truncated=episode.truncations,
        )
    return buffer


# --8<-- [end:load]


# --8<-- [start:train]
def train(episodes, share=0.5, steps=1_500, seed=0, every=250):
    """Train with a share of offline data in each batch; return the mixture and the learning curve."""
    env = rescaled(gymnasium.make(ENVIRONMENT))
    torch.manual_seed(seed)
    env.action_space.seed(seed)
    fields = fields_from_spaces(env.observation_space, env.action_space)
    online, offline = ReplayBuffer(100_000, fields, seed=seed), offline_buffer(episodes, fields, seed)
    mixture = Mixture({"online": (online, 1 - share), "offline": (offline, share)}, seed=seed)
    agent = SAC(env.observation_space.shape[0], env.action_space.shape[0])

    (obs, _), curve = env.reset(seed=seed), []
    for step in range(1, steps + 1):
        if step <= RANDOM_STEPS:
            action = env.action_space.sample()
        else:
            with torch.no_grad():
                action = agent.policy(torch.as_tensor(obs[None]))[0][0].numpy()
        next_obs, reward, terminated, truncated, _ = env.step(action)
        ends = {"terminated": terminated, "truncated": truncated}
        online.add(obs=obs, action=action, reward=reward, next_obs=next_obs, **ends)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step > RANDOM_STEPS:
            for _ in range(UPDATES):
                agent.update(mixture.sample(BATCH_SIZE).to_torch())
        if step % every == 0:
            curve.append(float(evaluate(agent, ENVIRONMENT)))
    return mixture, curve


# --8<-- [end:train]


# --8<-- [start:main]
if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads don't speed up networks this small
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 220
    with TemporaryDirectory() as folder:
        path = Path(folder) / "pendulum.npz"
        print(f"mean return of the offline data: {collect(path, episodes=20):.0f}")
        episodes = list(read_episodes(path))
    for name, share in {"half offline": 0.5, "online alone": 0.0}.items():
        curve = train(episodes, share, steps, every=min(steps, 250))[1]
        print(f"{name}, mean returns:", " ".join(f"{mean:.0f}" for mean in curve))
# --8<-- [end:main]
