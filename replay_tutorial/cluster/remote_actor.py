"""An actor on any host of a cluster: the same actor as on one machine, with its ends at the gateways.

It lives as long as its task. A task that is killed is not repeated by Ray: the driver starts the next life,
with other seeds, wherever there is room (`workers`).
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
from replay_tutorial.apex.runs.run_provenance import digest_of_sources
from replay_tutorial.cluster.actor_link import ActorLink
from replay_tutorial.cluster.remote_context import remote_context
from replay_tutorial.cluster.remote_gateway import call, fetch, is_lost


class SourcesDiffer(RuntimeError):
    """A host runs another version of this package than the learner's."""


class ActorTask(NamedTuple):
    """An actor's part in a run."""

    config: Config
    spaces: Spaces
    number: int  # of the actor
    restart_count: int
    seed: np.random.SeedSequence
    sources: str  # the digest of the learner's host
    path: tuple[str, ...]  # where that finds modules; an environment may be one that is not installed


def play(part: ActorTask, gateways: Sequence[Any]) -> None:
    """Play until the run is over.

    Args:
        part: Who plays.
        gateways: Ray's handles of them.

    Raises:
        SourcesDiffer: If this host has another version of the package.
    """
    if digest_of_sources() != part.sources:
        raise SourcesDiffer(
            f"{socket.gethostname()} has another version of replay_tutorial than the learner's host: install "
            "the same one on all hosts."
        )
    place = f"{socket.gethostname()} {ray.util.get_node_ip_address()}"
    call(gateways[part.number % len(gateways)].begin, part.number, part.restart_count, place)

    import torch  # takes seconds, on a busy host a minute: after this host is known

    from replay_tutorial.apex.actor import Actor

    sys.path.extend(place for place in part.path if place not in sys.path)
    torch.set_num_threads(part.config.threads)
    sends = [partial(call, gateway.send) for gateway in gateways]
    link = ActorLink(sends, part.number, part.restart_count, is_lost)
    context = remote_context(part.config, part.spaces, link, fetch)
    Actor(context, part.number, part.seed).run()
