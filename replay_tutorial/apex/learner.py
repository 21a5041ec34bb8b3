"""The learner: draws rows from the replay, learns from them, and tells the replay how surprising they still are.

The circle that makes prioritized replay work is closed here: sample → TD errors → gradient step → the same errors are
the rows' new priorities. Between two updates the learner waits for the limiter, so that a row is sampled as often on a
slow machine as on a fast one; every so often it puts its weights into the mailbox for actors and evaluator, and all that
it knows onto the disk.

Left out: several learners.

Paper: Horgan et al. 2018, algorithm 2.
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from replay_tutorial.agents.agent import Agent, make_agent
from replay_tutorial.agents.td_error import Update
from replay_tutorial.apex.batch_source import Sample, sampling
from replay_tutorial.apex.messages import QUANTILES, Progress
from replay_tutorial.apex.runs.checkpoint import Checkpoint, load_checkpoint, restore_learner, save_checkpoint
from replay_tutorial.local.shared_context import POLL_SECONDS, SharedContext, Tell
from replay_tutorial.local.worker import run_worker


class Learner:
    """The agent and its ends of the replay, the limiter and the mailbox.

    Args:
        common: What it shares with the others.
        agent: What learns.
        tell: How its messages get to the parent.
        published: Weights for the mailbox, for the actors to begin with; None takes the agent's.
    """

    def __init__(
        self, common: SharedContext, agent: Agent, tell: Tell, published: NDArray[np.float32] | None = None
    ) -> None:
        self.common = common
        self.agent = agent
        self.tell = tell
        common.count_updates(agent.updates)
        common.mailbox.publish(agent.parameters() if published is None else published)

    @property
    def is_due(self) -> bool:
        """Whether the rows that have been inserted are owed an update: the middle of the limiter's band."""
        limiter = self.common.limiter
        return limiter.inserts >= limiter.min_size and limiter.error >= self.common.config.batch_size

    def update(self, sample: Sample) -> None:
        """Make one update, and all that belongs to it."""
        config, agent = self.common.config, self.agent
        update = agent.update(sample.rows, sample.weights)
        self.common.replay.update_priorities(sample.indexes, update.priorities)
        self.common.count_updates(agent.updates)
        if agent.updates % config.publish_interval == 0:
            self.common.mailbox.publish(agent.parameters())
        if agent.updates % config.record_interval == 0:
            self.tell(self.progress(sample, update))

    def progress(self, sample: Sample, update: Update) -> Progress:
        """Return the numbers of a record, by the last sample and update."""
        common = self.common
        ages = common.replay.get_next_index() - sample.indexes  # int64[B], in rows
        values = {
            **update.metrics,
            "replay_ratio": self.agent.updates * common.config.batch_size / max(1, common.steps),
            "stale_updates": float(common.replay.stale_updates),
        }
        of_batch = {"priority": update.priorities, "weight": np.asarray(sample.weights), "row_age": ages}
        for name, numbers in of_batch.items():
            for suffix, value in zip(QUANTILES, np.quantile(numbers, list(QUANTILES.values())), strict=True):
                values[f"{name}_{suffix}"] = float(value)
        return Progress(common.steps, self.agent.updates, values)


@dataclass(frozen=True)
class LearnerTask:
    """What the learner's process is started with."""

    common: SharedContext
    seed: int  # of the first weights
    folder: Path  # of the run
    checkpoint: Path | None  # to go on from
    messages: Connection


def make_learner(common: SharedContext, seed: int, checkpoint: Checkpoint | None, tell: Tell) -> Learner:
    """Return a new learner, or the one that wrote a checkpoint; then the replay has its rows, too."""
    torch.manual_seed(seed)
    agent = make_agent(common.config, common.spaces)
    published = None if checkpoint is None else restore_learner(checkpoint, agent, common.replay)
    return Learner(common, agent, tell, published)


def run_learner(task: LearnerTask) -> None:
    """Be the learner's process: learn until told to stop, or until the parent is gone."""
    run_worker(lambda: learn(task), task.messages, task.common.config.threads)


def learn(task: LearnerTask) -> None:
    """Learn until told to stop; leave a checkpoint every so often and at the end."""
    common, config = task.common, task.common.config
    checkpoint = None if task.checkpoint is None else load_checkpoint(task.checkpoint)
    learner = make_learner(common, task.seed, checkpoint, task.messages.send)
    with sampling(common) as next_sample:
        next_checkpoint = time.monotonic() + config.checkpoint_seconds
        while not common.stopped:
            sample = next_sample(POLL_SECONDS)
            if sample is not None:
                learner.update(sample)
            if time.monotonic() >= next_checkpoint:
                learner.tell(save_checkpoint(task.folder, common, learner.agent))
                next_checkpoint = time.monotonic() + config.checkpoint_seconds
    learner.tell(save_checkpoint(task.folder, common, learner.agent))
