"""The learner: samples rows from the replay, updates the agent, and updates the rows' priorities.

The TD errors of each gradient step become the new priorities of the sampled rows. The replay's limiter keeps
the ratio of samples to inserts, so that rows are sampled equally often on slow and fast machines. The learner
publishes its parameters every `publish_interval` updates. There is one learner per run.

Paper: Horgan et al. 2018, algorithm 2.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from replay_tutorial.agents.agent import Agent
from replay_tutorial.agents.td_error import Update
from replay_tutorial.apex.batch_source import batch_source
from replay_tutorial.apex.context import POLL_SECONDS, Context, Published, Sample
from replay_tutorial.apex.messages import QUANTILES, Progress, Saved
from replay_tutorial.apex.parts import make_agent
from replay_tutorial.apex.runs.checkpoint import Checkpoint, restore_learner


class Learner:
    """The agent, connected to the replay and the other roles.

    The actors start with the parameters in `published`, or with those of the agent if it is None.
    """

    def __init__(self, context: Context, agent: Agent, published: Published | None = None) -> None:
        self.context = context
        self.agent = agent
        context.counters.count_updates(agent.updates)
        if published is None:
            self.publish()
        else:
            context.parameters.publish(published.parameters, published.update)

    def publish(self) -> None:
        """Publish the agent's parameters."""
        self.context.parameters.publish(self.agent.parameters(), self.agent.updates)

    def update(self, sample: Sample) -> None:
        """Make one update, set the new priorities, and publish and report if due."""
        config, agent = self.context.config, self.agent
        update = agent.update(sample.rows, sample.weights)
        self.context.replay.update_priorities(sample.indexes, update.priorities)
        self.context.counters.count_updates(agent.updates)
        if agent.updates % config.publish_interval == 0:
            self.publish()
        if agent.updates % config.record_interval == 0:
            self.context.send_message(self.progress(sample, update))

    def progress(self, sample: Sample, update: Update) -> Progress:
        """Return a record of the metrics of the last sample and update."""
        replay, steps = self.context.replay, self.context.counters.steps
        values = {
            **update.metrics,
            "replay_ratio": self.agent.updates * self.context.config.batch_size / max(1, steps),
            "stale_updates": float(replay.stale_updates),
        }
        ages = replay.next_index - sample.indexes  # int64[B], in rows
        of_batch = {"priority": update.priorities, "weight": np.asarray(sample.weights), "row_age": ages}
        for name, numbers in of_batch.items():
            for suffix, value in zip(QUANTILES, np.quantile(numbers, list(QUANTILES.values())), strict=True):
                values[f"{name}_{suffix}"] = float(value)
        return Progress(steps, self.agent.updates, values)


def make_learner(context: Context, seed: int, checkpoint: Checkpoint | None) -> Learner:
    """Return a new learner, or restore one and its replay from a checkpoint."""
    torch.manual_seed(seed)
    agent = make_agent(context.config, context.spaces)
    published = None if checkpoint is None else restore_learner(checkpoint, agent, context.replay)
    return Learner(context, agent, published)


def learn(learner: Learner, save: Callable[[], Saved]) -> None:
    """Learn until the run is stopped; save every `checkpoint_seconds` and at the end."""
    context, interval = learner.context, learner.context.config.checkpoint_seconds
    with batch_source(context) as next_sample:
        next_save = time.monotonic() + interval
        while not context.stop.requested:
            sample = next_sample(POLL_SECONDS)
            if sample is not None:
                learner.update(sample)
            if time.monotonic() >= next_save:
                context.send_message(save())
                next_save = time.monotonic() + interval
    context.send_message(save())
