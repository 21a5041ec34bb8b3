"""`python -m replay_tutorial bench cluster`: what it costs that the actors are elsewhere.

A run with actors of Ray is measured beside one of this machine alone. Then other processes push ready-made
rows into gateways as fast as they are taken: nobody plays, so what is measured is the way of the rows, from a
chunk to the ring in the learner's memory. All hosts are this one, so the network is the machine's own and the
cores are shared: a lower bound for hosts with cores of their own.

Left out: hosts that die (`tests/stress/cluster_faults.py`).
"""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.context import InitialCounters
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.apex.runs.setup import RunSetup, new_setup
from replay_tutorial.apex.storage import frame_options, n_step_windows
from replay_tutorial.bench.throughput import PATIENCE_SECONDS, await_update, endless, speed_of
from replay_tutorial.cluster.chunk import Chunk, ChunkFormat
from replay_tutorial.cluster.connection import LOCAL, connect
from replay_tutorial.cluster.engine import ClusterEngine
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.local.local_engine import central_roles
from replay_tutorial.local.shared_context import make_shared_context
from replay_tutorial.measuring.markdown import spread_text, table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.timing import Spread

OPTIONS = ClusterOptions(LOCAL)
BATCH = 512  # of the learner
ROWS = 50  # of a chunk, as in the paper
PUSHERS = 2
# Observations as they are stored; the rest of a row is the same for both.
CARTPOLE = Spaces(Box(-5.0, 5.0, (4,), np.float32), Discrete(2))
ATARI = Spaces(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), stacked=True)
# Prints when its first update was made.
FIRST_UPDATE = """
import time
from replay_tutorial.bench.cluster import first_update
if __name__ == "__main__":
    first_update()
    print(time.time())
"""
# figure → its line of the table, and its goal
SHOWN = {
    "single": ("CartPole, one machine: updates/s", ""),
    "cluster": ("the same with gateways: updates/s", ""),
    "share": ("share, taken round by round", "≥ 0.9"),
    "cartpole_chunks": ("chunks of 50 CartPole rows into one gateway, a second", "≥ 900"),
    "atari_rows": ("Atari rows into two gateways, a second", "≥ 20,000"),
    "atari_bytes": ("bytes of an Atari row on the wire", "≤ 8,500"),
    "batches": ("learner's Atari batches of 512 a second, beside arriving rows", "≥ 75"),
    "rows_beside": ("those rows, a second", "12,000"),
    "batches_alone": ("the same batches with nobody beside", ""),
    "start": ("`--cluster local`: seconds from the start to the first update", "≤ 10"),
}


def cluster_workers(setup: RunSetup) -> Any:
    """Return the processes of a run whose actors are Ray's."""
    from replay_tutorial.cluster.workers import ClusterWorkers

    return ClusterWorkers(setup, OPTIONS, central_roles(setup))


def first_update() -> None:
    """Start a local cluster and a run on it, and return at its first update."""
    engine = ClusterEngine(OPTIONS)
    with tempfile.TemporaryDirectory() as folder, torch_threads(1):
        setup = new_setup(replace(endless(preset("CartPole-v1")), runs=Path(folder)), engine.make_context)
        with engine.workers(setup) as workers:
            await_update(setup.context, workers)
        engine.disconnect()


def start_seconds() -> float:
    """Return the seconds from the start of a program to its first update."""
    begin = time.time()
    printed = subprocess.run([sys.executable, "-c", FIRST_UPDATE], capture_output=True, text=True, check=True)
    return float(printed.stdout.split()[-1]) - begin


def settings(capacity: int) -> Config:
    """Return settings with a limiter that never stops anybody."""
    config = Config(environments_per_actor=1, send_interval=ROWS, actors=PUSHERS, progress=False)
    return replace(config, capacity=capacity, replay_start=1, slack=10**9)


def ready_chunk(config: Config, spaces: Spaces, number: int) -> Chunk:
    """Return the chunk of a pusher: rows of one environment, whose observations follow each other."""
    generator = np.random.default_rng(number)
    fields = n_step_windows(config, spaces).env_dict
    rows: dict[str, Any] = {
        name: np.ones((ROWS, *spec["shape"]), spec["dtype"]) for name, spec in fields.items()
    }
    shape, count = spaces.observation_shape, ROWS + config.n_step
    if frame_options(spaces):
        frames = generator.integers(256, size=(count + shape[0], *shape[1:]), dtype=np.uint8)
        seen: Any = np.stack([frames[step : step + shape[0]] for step in range(count)])
    else:
        seen = generator.random((count, *shape), np.float32)
    rows["obs"], rows["next_obs"] = seen[:ROWS], seen[config.n_step :]
    return ChunkFormat(config, spaces).pack(rows, np.ones(ROWS, np.float32))


def push(
    config: Config, spaces: Spaces, gateways: Sequence[Any], number: int, seconds: float, rate: float
) -> float:
    """Send chunks for a while, in a process of Ray; return the bytes of a row on the wire.

    Args:
        config: Of the run.
        spaces: Of its environment.
        gateways: Ray's handles of them.
        number: Of this pusher.
        seconds: How long.
        rate: Rows a second at most; infinity for as many as are taken.
    """
    from replay_tutorial.cluster.actor_link import ActorLink
    from replay_tutorial.cluster.remote_gateway import call, is_lost

    chunk = ready_chunk(config, spaces, number)
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
    return chunk.nbytes / ROWS


def arriving(
    config: Config, spaces: Spaces, gateways: int, seconds: float, rate: float, learn: bool = False
) -> tuple[float, float, float]:
    """Push rows from two processes; return rows/s that arrive, bytes a row, and the learner's batches/s."""
    import ray

    from replay_tutorial.cluster import placement
    from replay_tutorial.cluster.remote_gateway import RemoteGateway

    remote_push: Any = ray.remote(**placement.actor_options(OPTIONS))(push)
    remote_gateway: Any = ray.remote(**placement.gateway_options())(RemoteGateway)
    context = make_shared_context(config, spaces, 1, InitialCounters())
    handles = [remote_gateway.remote(RemoteGateway.pack(context)) for _ in range(gateways)]
    try:
        pushing = [
            remote_push.remote(config, spaces, handles, number, seconds + 2.0, rate / PUSHERS)
            for number in range(PUSHERS)
        ]
        counters, replay = context.counters, context.replay
        until = time.monotonic() + PATIENCE_SECONDS
        while counters.steps < 2 * BATCH and time.monotonic() < until:
            time.sleep(0.01)
        begin, steps, batches = time.monotonic(), counters.steps, 0
        while time.monotonic() - begin < seconds:
            if not learn:
                time.sleep(0.01)
            elif (sample := replay.sample(BATCH, 0.4, timeout=1.0)) is not None:
                replay.update_priorities(sample.indexes, np.ones(BATCH, np.float32))
                batches += 1
        taken = time.monotonic() - begin
        rows = (counters.steps - steps) / taken
        row_bytes = ray.get(pushing, timeout=PATIENCE_SECONDS)[0]
    finally:
        for handle in handles:
            ray.kill(handle)
    return rows, row_bytes, batches / taken


def measure(rounds: int, warm_up: float, seconds: float) -> dict[str, list[float]]:
    """Measure all in turns, and print each round as it comes."""
    figures: dict[str, list[float]] = {name: [] for name in SHOWN}

    def note(**measured: float) -> None:
        for name, figure in measured.items():
            figures[name].append(figure)
        print(", ".join(f"{name} {figure:,.2f}" for name, figure in measured.items()), flush=True)

    run, cartpole, atari = endless(preset("CartPole-v1")), settings(200_000), settings(60_000)
    for _ in range(rounds):
        _, single = speed_of(run, warm_up, seconds)
        _, cluster = speed_of(run, warm_up, seconds, cluster_workers)
        note(single=single, cluster=cluster, share=cluster / single)
        rows, _, _ = arriving(cartpole, CARTPOLE, 1, seconds, math.inf)
        note(cartpole_chunks=rows / ROWS)
        rows, row_bytes, _ = arriving(atari, ATARI, 2, seconds, math.inf)
        note(atari_rows=rows, atari_bytes=row_bytes)
        rows, _, batches = arriving(atari, ATARI, 2, seconds, 12_000.0, learn=True)
        note(batches=batches, rows_beside=rows)
        _, _, alone = arriving(atari, ATARI, 1, seconds, 1.0, learn=True)
        note(batches_alone=alone)
        note(start=start_seconds())
    return figures


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    parser = new_parser("cluster", "Measure what it costs that the actors are elsewhere.")
    add_count(parser, "--rounds", 5, "how many")
    add_count(parser, "--seconds", 10, "of each figure in a round")
    add_count(parser, "--warm-up", 4, "seconds before that, of the runs")
    add_outputs(parser, "cluster")
    arguments = parser.parse_args(argv)
    connect(LOCAL, preset("CartPole-v1").actors)
    try:
        with torch_threads(1):
            figures = measure(arguments.rounds, arguments.warm_up, arguments.seconds)
    finally:
        sys.modules["ray"].shutdown()
    spreads = {name: Spread.of(np.array(values)) for name, values in figures.items()}
    lines = table(
        ("what", "measured", "goal"),
        [[what, spread_text(spreads[name]), goal] for name, (what, goal) in SHOWN.items()],
    )
    about = f"Medians of {arguments.rounds} rounds of {arguments.seconds} s, quartiles in brackets."
    provenance = Provenance.of("cluster", argv, ("torch", "gymnasium", "ray"))
    return hand_over(arguments, "cluster", provenance, {"figures": spreads}, lines, about)
