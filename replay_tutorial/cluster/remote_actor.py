"""An actor on any host of a cluster: the same actor as on one machine, connected to the gateways.

It runs in a Ray task. Ray doesn't retry the task: if it dies, the driver starts a new one with other seeds,
wherever there is room (`workers`).
"""

import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import ray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.messages import Note
from replay_tutorial.apex.runs.run_provenance import digest_of_sources
from replay_tutorial.cluster.actor_link import ActorLink
from replay_tutorial.cluster.gateway import Report
from replay_tutorial.cluster.remote_context import remote_context
from replay_tutorial.cluster.remote_gateway import call, fetch, is_lost


class SourcesDiffer(RuntimeError):
    """A host has another version of this package than the learner's host."""


class ActorTask(NamedTuple):
    """The arguments of an actor's task."""

    config: Config
    spaces: Spaces
    number: int  # number of the actor
    restart_count: int
    seed: np.random.SeedSequence
    sources: str  # digest of the sources on the learner's host
    path: tuple[str, ...]  # sys.path of the learner's host: the environment's module may not be installed


def play(task: ActorTask, gateways: Sequence[Any]) -> None:
    """Act until the run is over; raise SourcesDiffer if this host has another version of the package."""
    if digest_of_sources() != task.sources:
        raise SourcesDiffer(
            f"{socket.gethostname()} has a different version of replay_tutorial from the learner's host. "
            "Install the same version on all hosts."
        )
    place = f"{socket.gethostname()} {ray.util.get_node_ip_address()}"
    call(gateways[task.number % len(gateways)].record_start, task.number, task.restart_count, place)

    import torch  # after the host is reported, because it takes seconds, on a busy host a minute

    from replay_tutorial.apex.actor import Actor
    from replay_tutorial.apex.slow_steps import slow_steps_reported

    sys.path.extend(place for place in task.path if place not in sys.path)
    torch.set_num_threads(task.config.threads)
    sends = [partial(call, gateway.send) for gateway in gateways]
    link = ActorLink(sends, task.number, task.restart_count, is_lost)
    context = remote_context(task.config, task.spaces, link, fetch)

    def report_slow_step(line: str) -> None:
        # Not through the link, which sends messages only between two steps.
        note = Note(f"actor {task.number}: {line}")
        report = Report(task.number, task.restart_count, link.rows_lost, (note,))
        link.gateways[link.turn % len(sends)](None, link.version, report)

    with slow_steps_reported(report_slow_step, task.config.slow_step_seconds):
        Actor(context, task.number, task.seed).run()
