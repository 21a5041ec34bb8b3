"""All random numbers of a run, grown from one seed so that no two parts share a stream."""

import numpy as np

from replay_tutorial.agents.evaluation import draw_seeds
from replay_tutorial.apex.config import Config


class RunSeeds:
    """The seed of each part of a run.

    Attributes:
        network: Of torch, for the first parameters.
        replay: Of the sampler.
        evaluation: Of the episodes of each evaluation.
        confirmation: Of the episodes that confirm the best ones.
        final: Of the episodes that played no part in choosing the policy.
    """

    def __init__(self, config: Config) -> None:
        self._entropy = config.seed
        network, replay, episodes = np.random.SeedSequence(config.seed).spawn(3)
        self.network = int(network.generate_state(1)[0])
        self.replay = replay
        first, second = config.evaluation_episodes, config.confirmation_episodes
        seeds = draw_seeds(episodes, first + second + config.final_episodes)
        self.evaluation = seeds[:first]
        self.confirmation = seeds[first : first + second]
        self.final = seeds[first + second :]

    def actor(self, number: int, first_update: int, life: int) -> np.random.SeedSequence:
        """Return the seed of an actor: another one for each number, each resumption, and each life."""
        return np.random.SeedSequence(self._entropy, spawn_key=(3, number, first_update, life))
