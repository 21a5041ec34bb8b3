"""The learner: each update reaches the replay as priorities, and in time the actors as parameters."""

from dataclasses import replace

import numpy as np
import torch
from run_parts import parts

from replay_tutorial.agents.dqn import td_errors
from replay_tutorial.agents.td_error import Transitions
from replay_tutorial.apex.learner import Learner


def test_td_errors_of_an_update_are_the_new_priorities_and_every_second_update_is_published():
    context, agent = parts()
    context = replace(context, config=replace(context.config, publish_interval=2))
    learner = Learner(context, agent)
    version = context.parameters.pull().version
    assert agent.updates == 3
    for published in (True, False, True):
        sample = context.replay.sample(16, beta=0.4, timeout=300.0)
        with torch.no_grad():
            errors, _ = td_errors(agent.online, agent.target, Transitions.from_batch(sample.rows))
        learner.update(sample)
        given = context.replay.buffer.priorities[sample.indexes]
        np.testing.assert_allclose(given, errors.abs().numpy(), rtol=1e-5, atol=1e-6)
        assert context.counters.updates == agent.updates
        newer = context.parameters.pull(version)
        assert (newer is not None) == published
        if newer is not None:
            version = newer.version
            np.testing.assert_array_equal(newer.parameters, agent.parameters())
