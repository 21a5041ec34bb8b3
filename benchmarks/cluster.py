"""`python -m benchmarks cluster`: throughput of the cluster engine on one machine.

Compares a run with Ray actors with a run of the local engine. Then processes send prepared rows to gateways,
without environments, to measure the transport from a chunk to the ring in the learner's memory. All processes
share the cores and the loopback network of one machine, so the figures are lower bounds for several hosts.
`tests/stress/cluster_faults.py` tests the failure of hosts.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from benchmarks.measuring.fresh import run_fresh
from benchmarks.measuring.output import add_count, add_outputs, add_seconds, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from benchmarks.throughput import PATIENCE_SECONDS, await_update, endless, speed_of
from replay_course.number_tables import spread_text, table
from replay_course.timing import Spread
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.context import Context, InitialCounters, Replay
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.apex.runs.setup import RunSetup, new_setup
from replay_tutorial.apex.storage import frame_options, n_step_windows
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.connection import LOCAL, connect
from replay_tutorial.cluster.engine import ClusterEngine
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.local.local_engine import central_roles
from replay_tutorial.local.shared_context import make_shared_context

OPTIONS = ClusterOptions(LOCAL)
BATCH = 512  # the learner's batch size
ROWS = 50  # rows per chunk, as in the Ape-X paper
PRIORITIES = np.ones(ROWS, np.float32)
SENDERS = 2
# Spaces of the stored observations; the other fields are the same for both.
CARTPOLE = Spaces(Box(-5.0, 5.0, (4,), np.float32), Discrete(2))
ATARI = Spaces(Box(0, 255, (4, 84, 84), np.uint8), Discrete(6), stacked=True)
# Prints the time of the run's first update.
FIRST_UPDATE = """
import time
from benchmarks.cluster import first_update
if __name__ == "__main__":
    first_update()
    print(time.time())
"""
# figure → its row of the table
ROW_LABELS = {
    "single": "CartPole, local engine: updates/s",
    "cluster": "CartPole, cluster engine: updates/s",
    "share": "cluster engine / local engine, within each round",
    "cartpole_chunks": "CartPole chunks of 50 rows received by one gateway, per second",
    "atari_rows": "Atari rows received by two gateways, per second",
    "atari_bytes": "bytes per Atari row in a chunk",
    "batches": "Atari batches of 512 sampled from 60,000 rows and updated while rows arrive, per second",
    "rows_beside": "Atari rows that arrive meanwhile (12,000 requested), per second",
    "batches_alone": "the same batches while no rows arrive, per second",
    "start": "`--cluster local`: time from start to first update, s",
}


def cluster_workers(setup: RunSetup) -> Any:
    """Return the workers of a run with Ray actors."""
    from replay_tutorial.cluster.workers import ClusterWorkers

    return ClusterWorkers(setup, OPTIONS, central_roles(setup))


def first_update() -> None:
    """Start a run on a local cluster, and return after its first update."""
    engine = ClusterEngine(OPTIONS)
    with tempfile.TemporaryDirectory() as folder, torch_threads(1):
        setup = new_setup(replace(endless(preset("CartPole-v1")), runs=Path(folder)), engine.make_context)
        with engine.workers(setup) as workers:
            await_update(setup.context, workers)
        engine.disconnect()


def settings(capacity: int) -> Config:
    """Return settings with a rate limiter that never blocks."""
    config = Config(environments_per_actor=1, send_interval=ROWS, actors=SENDERS, progress=False)
    return replace(config, capacity=capacity, replay_start=1, slack=10**9)


def prepared_rows(config: Config, spaces: Spaces, number: int) -> dict[str, Any]:
    """Return a chunk's rows: consecutive rows of one environment, with random observations."""
    generator = np.random.default_rng(number)
    fields = n_step_windows(config, spaces).fields
    rows: dict[str, Any] = {
        name: np.ones((ROWS, *spec["shape"]), spec["dtype"]) for name, spec in fields.items()
    }
    shape, count = spaces.observation_shape, ROWS + config.n_step
    if frame_options(spaces):
        frames = generator.integers(256, size=(count + shape[0], *shape[1:]), dtype=np.uint8)
        seen: Any = np.stack([frames[step : step + shape[0]] for step in range(count)])
    else:
        seen = generator.random((count, *shape), np.float32)
    return {**rows, "obs": seen[:ROWS], "next_obs": seen[config.n_step :]}


def send(
    config: Config, spaces: Spaces, gateways: Sequence[Any], number: int, seconds: float, rate: float
) -> float:
    """Send at most `rate` rows per second to gateways from a Ray process; return a chunk's bytes per row."""
    from replay_tutorial.cluster.actor_link import ActorLink
    from replay_tutorial.cluster.ray_processes import call, is_lost

    chunk = ChunkFormat(config, spaces).pack(prepared_rows(config, spaces, number), PRIORITIES)
    link = ActorLink([partial(call, gateway.send) for gateway in gateways], number, 0, is_lost)
    while not link.has_room(1.0):
        pass
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic()) - begin < seconds:
        if sent >= (now - begin) * rate:
            time.sleep(0.001)
        elif link.has_room(0.1):
            chunk.frames[:, :8] += 1  # new content, because the ring stores a repeated frame only once
            link.send(chunk)
            sent += ROWS
    return chunk.nbytes / ROWS


def new_context(config: Config, spaces: Spaces) -> Context:
    """Return the context of a run without a neural network."""
    return make_shared_context(config, spaces, 1, InitialCounters())


def full_context(config: Config, spaces: Spaces) -> Context:
    """Return a context whose replay is full; a small one would stay in the cache."""
    context = new_context(config, spaces)
    for start in range(0, config.capacity, ROWS):
        context.replay.insert(prepared_rows(config, spaces, start), PRIORITIES, timeout=0.0)
    return context


def learn(replay: Replay) -> None:
    """Sample a batch, and update its priorities."""
    sample = replay.sample(BATCH, 0.4, timeout=0.0)
    assert sample is not None, "the limiter must not block"
    replay.update_priorities(sample.indexes, np.ones(BATCH, np.float32))


def rates_of(context: Context, work: Callable[[Replay], None], seconds: float) -> tuple[float, float]:
    """Return the calls of `work` per second, and the rows that arrive meanwhile per second."""
    begin, steps, calls = time.monotonic(), context.counters.steps, 0
    while (taken := time.monotonic() - begin) < seconds:
        work(context.replay)
        calls += 1
    return calls / taken, (context.counters.steps - steps) / taken


def arriving(
    context: Context, gateways: int, seconds: float, rate: float, work: Callable[[Replay], None]
) -> tuple[float, float, float]:
    """Send at most `rate` rows per second from two processes to gateways, and work in this process meanwhile.

    Returns the calls of `work` per second, the received rows per second, and the bytes per row of a chunk.
    """
    import ray

    from replay_tutorial.cluster import placement
    from replay_tutorial.cluster.ray_processes import RemoteGateway

    remote_send: Any = ray.remote(**placement.actor_options(OPTIONS))(send)
    remote_gateway: Any = ray.remote(**placement.gateway_options())(RemoteGateway)
    handles = [remote_gateway.remote(RemoteGateway.pack(context)) for _ in range(gateways)]
    try:
        counters, before = context.counters, context.counters.steps
        until = time.monotonic() + PATIENCE_SECONDS
        sending = [
            remote_send.remote(
                *(context.config, context.spaces, handles, number, seconds + 2.0, rate / SENDERS)
            )
            for number in range(SENDERS)
        ]
        while counters.steps < before + 2 * BATCH:
            if time.monotonic() >= until:
                raise RuntimeError(f"{counters.steps - before} rows arrived within {PATIENCE_SECONDS:g} s")
            time.sleep(0.01)
        calls, rows = rates_of(context, work, seconds)
        return calls, rows, ray.get(sending, timeout=PATIENCE_SECONDS)[0]
    finally:
        for handle in handles:
            ray.kill(handle)


def measure(rounds: int, warm_up: float, seconds: float) -> dict[str, list[float]]:
    """Measure every figure once per round, and print each as soon as it is known."""
    figures: dict[str, list[float]] = {name: [] for name in ROW_LABELS}

    def note(**measured: float) -> None:
        for name, figure in measured.items():
            figures[name].append(figure)
        print(", ".join(f"{name} {figure:,.2f}" for name, figure in measured.items()), flush=True)

    def wait(_: Replay) -> None:
        time.sleep(0.01)

    run, cartpole, atari = endless(preset("CartPole-v1")), settings(200_000), settings(60_000)
    for _ in range(rounds):
        _, single = speed_of(run, warm_up, seconds)
        _, cluster = speed_of(run, warm_up, seconds, cluster_workers)
        note(single=single, cluster=cluster, share=cluster / single)
        _, rows, _ = arriving(new_context(cartpole, CARTPOLE), 1, seconds, math.inf, wait)
        note(cartpole_chunks=rows / ROWS)
        _, rows, row_bytes = arriving(new_context(atari, ATARI), 2, seconds, math.inf, wait)
        note(atari_rows=rows, atari_bytes=row_bytes)
        full = full_context(atari, ATARI)
        alone, _ = rates_of(full, learn, seconds)
        batches, rows, _ = arriving(full, 2, seconds, 12_000.0, learn)
        note(batches=batches, rows_beside=rows, batches_alone=alone)
        begin = time.time()
        note(start=run_fresh("-c", FIRST_UPDATE) - begin)
    return figures


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table could not be written, else 0."""
    parser = new_parser("cluster", "Measure the throughput of the cluster engine on this machine.")
    add_count(parser, "--rounds", 5, "number of rounds")
    add_seconds(parser, 10.0, "seconds per figure and round")
    add_seconds(parser, 4.0, "seconds of warm-up before a training run is measured", "--warm-up")
    add_outputs(parser, "cluster")
    arguments = parser.parse_args(argv)
    connect(LOCAL, preset("CartPole-v1").actors)
    import ray

    try:
        with torch_threads(1):
            figures = measure(arguments.rounds, arguments.warm_up, arguments.seconds)
    finally:
        ray.shutdown()
    spreads = {name: Spread.of(np.array(values)) for name, values in figures.items()}
    about = f"Medians of {arguments.rounds} rounds of {arguments.seconds:g} s, quartiles in brackets."
    provenance = Provenance.of("cluster", argv, ("torch", "gymnasium", "ray"))
    lines = table(
        ("figure", "measured"), [[ROW_LABELS[name], spread_text(spreads[name])] for name in spreads]
    )
    return write_results(arguments, "cluster", provenance, {"figures": spreads}, lines, about)
