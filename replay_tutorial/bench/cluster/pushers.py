"""Ready-made rows, pushed into gateways from other processes as fast as they are taken.

Nobody plays: what is measured is the way of the rows, from a chunk to the ring in the learner's memory.
"""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import ray
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Counters
from replay_tutorial.apex.storage import frame_options, n_step_windows
from replay_tutorial.cluster import placement
from replay_tutorial.cluster.actor_link import ActorLink
from replay_tutorial.cluster.chunk import Chunk, ChunkFormat
from replay_tutorial.cluster.connection import LOCAL
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.cluster.remote_gateway import RemoteGateway, call, is_lost
from replay_tutorial.local.shared_context import make_shared_context

PATIENCE_SECONDS = 120.0  # until the first rows come, on a busy machine
BATCH = 512  # of the learner
ROWS = 50  # of a chunk, as in the paper
# Observations as they are stored; the rest of a row is the same for both.
CARTPOLE = Spaces(Box(-5.0, 5.0, (4,), np.float32), Discrete(2))
ATARI = Spaces(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), stacked=True)


def settings(capacity: int, **changes: Any) -> Config:
    """Return settings with a limiter that never stops anybody."""
    config = replace(Config(), environments_per_actor=1, send_interval=ROWS, actors=2, progress=False)
    return replace(config, capacity=capacity, replay_start=1, slack=10**9, **changes)


def ready_rows(config: Config, spaces: Spaces, generator: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Return the rows of one send of one environment: its observations follow each other."""
    fields = n_step_windows(config, spaces).env_dict
    rows: dict[str, NDArray[Any]] = {
        name: np.ones((ROWS, *spec["shape"]), spec["dtype"]) for name, spec in fields.items()
    }
    shape, count = spaces.observation_shape, ROWS + config.n_step
    if frame_options(spaces):
        frames = generator.integers(256, size=(count + shape[0], *shape[1:]), dtype=np.uint8)
        seen: NDArray[Any] = np.stack([frames[step : step + shape[0]] for step in range(count)])
    else:
        seen = generator.random((count, *shape), np.float32)
    rows["obs"], rows["next_obs"] = seen[:ROWS], seen[config.n_step :]
    return rows


class Pushed(NamedTuple):
    """What a pusher has sent."""

    rows: int
    seconds: float
    row_bytes: float  # on the wire, without the call's own


def push(
    config: Config, spaces: Spaces, gateways: Sequence[Any], number: int, seconds: float, rate: float
) -> Pushed:
    """Send chunks for a while.

    Args:
        config: Of the run.
        spaces: Of its environment.
        gateways: Ray's handles of them.
        number: Of this pusher.
        seconds: How long.
        rate: Rows a second at most; infinity for as many as are taken.
    """
    chunk = ready(config, spaces, number)
    link = ActorLink([partial(call, gateway.send) for gateway in gateways], number, 0, is_lost)
    while not link.has_room(1.0):
        pass
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic()) - begin < seconds:
        if sent >= (now - begin) * rate:
            time.sleep(0.001)
        elif link.has_room(0.1):
            chunk.frames[:, :8] += 1  # or the ring would find them all, and store none
            link.send(chunk)
            sent += ROWS
    return Pushed(sent, time.monotonic() - begin, chunk.nbytes / ROWS)


def ready(config: Config, spaces: Spaces, number: int) -> Chunk:
    """Return a chunk of a pusher's own."""
    rows = ready_rows(config, spaces, np.random.default_rng(number))
    return ChunkFormat(config, spaces).pack(rows, np.ones(ROWS, np.float32))


@contextmanager
def gateways_of(config: Config, spaces: Spaces, count: int) -> Generator[tuple[Context, list[Any]]]:
    """Make a replay and its gateways."""
    context = make_shared_context(config, spaces, 1, Counters())
    remote: Any = ray.remote(**placement.of_gateway())(RemoteGateway)
    gateways = [remote.remote(RemoteGateway.pack(context)) for _ in range(count)]
    try:
        yield context, gateways
    finally:
        for gateway in gateways:
            ray.kill(gateway)


def arriving(
    config: Config, spaces: Spaces, gateways: int, seconds: float, rate: float, learn: bool = False
) -> tuple[float, float, float]:
    """Push rows from two processes; return rows/s that arrive, bytes a row, and the learner's batches/s."""
    remote_push: Any = ray.remote(**placement.of_actor(ClusterOptions(LOCAL)))(push)
    with gateways_of(config, spaces, gateways) as (context, handles):
        pushing = [
            remote_push.remote(config, spaces, handles, number, seconds + 2.0, rate / 2)
            for number in range(2)
        ]
        pace, replay = context.pace, context.replay
        until = time.monotonic() + PATIENCE_SECONDS
        while pace.steps < 2 * BATCH and time.monotonic() < until:
            time.sleep(0.01)
        begin, steps, batches = time.monotonic(), pace.steps, 0
        while time.monotonic() - begin < seconds:
            if not learn:
                time.sleep(0.01)
                continue
            sample = replay.sample(BATCH, 0.4, timeout=1.0)
            if sample is not None:
                replay.update_priorities(sample.indexes, np.ones(BATCH, np.float32))
                batches += 1
        taken = time.monotonic() - begin
        rows = (pace.steps - steps) / taken
        pushed = ray.get(pushing, timeout=PATIENCE_SECONDS)
    return rows, pushed[0].row_bytes, batches / taken
