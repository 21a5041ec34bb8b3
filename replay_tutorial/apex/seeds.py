"""Seeds: all random numbers of a run are derived from one seed, in a separate stream for each part."""

import numpy as np

from replay_tutorial.agents.evaluation import draw_seeds
from replay_tutorial.apex.config import Config


class RunSeeds:
    """The seed of each part of a run.

    Attributes:
        network: Seed of torch's global generator, for the initial parameters.
        replay: Seed of the sampler.
        evaluation: Seeds of the episodes of each evaluation.
        confirmation: Seeds of the episodes that confirm the best policies.
        final: Seeds of the final evaluation, which are not used to select the policy.
    """

    def __init__(self, config: Config) -> None:
        self._entropy = config.seed
        network, self.replay, episodes = np.random.SeedSequence(config.seed).spawn(3)
        self.network = int(network.generate_state(1)[0])
        first, second = config.evaluation_episodes, config.confirmation_episodes
        seeds = draw_seeds(episodes, first + second + config.final_episodes)
        self.evaluation = seeds[:first]
        self.confirmation = seeds[first : first + second]
        self.final = seeds[first + second :]

    def actor(self, number: int, first_step: int, restart_count: int) -> np.random.SeedSequence:
        """Return the seed of an actor.

        Args:
            number: Number of the actor, from 0.
            first_step: Environment step from which the run was resumed, or 0. Not the update: a run may be
                resumed twice without an update in between, and its actors must not repeat their episodes.
            restart_count: Number of times that this actor has been restarted.
        """
        return np.random.SeedSequence(self._entropy, spawn_key=(3, number, first_step, restart_count))
