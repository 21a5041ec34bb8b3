"""All random numbers of a run, grown from one seed so that no two parts share a stream."""

import numpy as np

from replay_tutorial.agents.evaluation import draw_seeds
from replay_tutorial.apex.config import Config


class RunSeeds:
    """The seed of each part of a run."""

    def __init__(self, config: Config) -> None:
        self._entropy = config.seed
        network, replay, episodes = np.random.SeedSequence(config.seed).spawn(3)
        self.network = int(network.generate_state(1)[0])  # of torch, for the first parameters
        self.replay = replay  # of the sampler
        first, second = config.evaluation_episodes, config.confirmation_episodes
        seeds = draw_seeds(episodes, first + second + config.final_episodes)
        self.evaluation = seeds[:first]  # of the episodes of each evaluation
        self.confirmation = seeds[first : first + second]  # of those that confirm the best policies
        self.final = seeds[first + second :]  # of those that play no part in choosing the policy

    def actor(self, number: int, first_update: int, restart_count: int) -> np.random.SeedSequence:
        """Return the seed of an actor: another one for each number, each resumption, and each life."""
        return np.random.SeedSequence(self._entropy, spawn_key=(3, number, first_update, restart_count))
