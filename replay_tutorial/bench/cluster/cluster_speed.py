"""`python -m replay_tutorial bench cluster`: what it costs that the actors are elsewhere.

All hosts are this one, so the network is the machine's own and the cores are shared: the figures are those of
calls, copies and processes, and a lower bound for hosts with cores of their own.

Left out: hosts that die (`tests/stress/cluster_faults.py`).
"""

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.apex.runs.setup import RunSetup, new_setup
from replay_tutorial.bench.training.throughput import await_update, speed_of
from replay_tutorial.cluster.connection import LOCAL, connect
from replay_tutorial.cluster.engine import ClusterEngine
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.local.local_engine import central_roles
from replay_tutorial.measuring.markdown import spread_text, table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.measuring.provenance import Provenance
from replay_tutorial.measuring.timing import Spread

OPTIONS = ClusterOptions(LOCAL)
HEADS = ("what", "measured", "goal")
# Prints when its first update was made.
FIRST_UPDATE = """
import time
from replay_tutorial.bench.cluster.cluster_speed import first_update
if __name__ == "__main__":
    first_update()
    print(time.time())
"""


def run_settings() -> Config:
    """Return CartPole's settings, for a run that never ends by itself."""
    return replace(preset("CartPole-v1"), progress=False, total_steps=10**12, solved_at=1e9)


def cluster_workers(setup: RunSetup) -> Any:
    """Return the processes of a run whose actors are Ray's."""
    from replay_tutorial.cluster.workers import ClusterWorkers

    return ClusterWorkers(setup, OPTIONS, central_roles(setup))


def first_update() -> None:
    """Start a local cluster and a run on it, and return at its first update."""
    engine = ClusterEngine(OPTIONS)
    with tempfile.TemporaryDirectory() as folder, torch_threads(1):
        setup = new_setup(replace(run_settings(), runs=Path(folder)), engine.make_context)
        with engine.workers(setup) as workers:
            await_update(setup.context, workers)
        engine.disconnect()


def start_seconds() -> float:
    """Return the seconds from the start of a program to its first update."""
    begin = time.time()
    printed = subprocess.run([sys.executable, "-c", FIRST_UPDATE], capture_output=True, text=True, check=True)
    return float(printed.stdout.split()[-1]) - begin


def measure(rounds: int, warm_up: float, seconds: float) -> dict[str, list[float]]:
    """Measure all in turns, and print each round as it comes."""
    figures: dict[str, list[float]] = {}

    def note(**measured: float) -> None:
        for name, figure in measured.items():
            figures.setdefault(name, []).append(figure)
        print(", ".join(f"{name} {figure:,.2f}" for name, figure in measured.items()), flush=True)

    # Connected by now: Ray is imported here.
    from replay_tutorial.bench.cluster.pushers import ATARI, CARTPOLE, arriving, settings

    cartpole, atari = settings(200_000), settings(60_000)
    for _ in range(rounds):
        _, single = speed_of(run_settings(), warm_up, seconds)
        _, cluster = speed_of(run_settings(), warm_up, seconds, cluster_workers)
        note(single=single, cluster=cluster, share=cluster / single)
        rows, _, _ = arriving(cartpole, CARTPOLE, 1, seconds, math.inf)
        note(cartpole_chunks=rows / 50)
        rows, row_bytes, _ = arriving(atari, ATARI, 2, seconds, math.inf)
        note(atari_rows=rows, atari_bytes=row_bytes)
        rows, _, batches = arriving(atari, ATARI, 2, seconds, 12_000.0, learn=True)
        note(batches=batches, rows_beside=rows)
        _, _, alone = arriving(atari, ATARI, 1, seconds, 1.0, learn=True)
        note(batches_alone=alone)
        note(start=start_seconds())
    return figures


ROWS_OF_TABLE = (
    ("single", "CartPole, one machine: updates/s", ""),
    ("cluster", "the same with gateways: updates/s", ""),
    ("share", "share, taken round by round", "≥ 0.9"),
    ("cartpole_chunks", "chunks of 50 CartPole rows into one gateway, a second", "≥ 900"),
    ("atari_rows", "Atari rows into two gateways, a second", "≥ 20,000"),
    ("atari_bytes", "bytes of an Atari row on the wire", "≤ 8,500"),
    ("batches", "learner's Atari batches of 512 a second, beside arriving rows", "≥ 75"),
    ("rows_beside", "those rows, a second", "12,000"),
    ("batches_alone", "the same batches with nobody beside", ""),
    ("start", "`--cluster local`: seconds from the start to the first update", "≤ 10"),
)


def lines_of(spreads: dict[str, Spread]) -> list[str]:
    """Return the table."""
    return table(HEADS, [[what, spread_text(spreads[name]), goal] for name, what, goal in ROWS_OF_TABLE])


def new_cluster_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = new_parser("cluster", "Measure what it costs that the actors are elsewhere.")
    add_count(parser, "--rounds", 5, "how many")
    add_count(parser, "--seconds", 10, "of each figure in a round")
    add_count(parser, "--warm-up", 4, "seconds before that, of the runs")
    add_outputs(parser, "cluster")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    arguments = new_cluster_parser().parse_args(argv)
    connect(LOCAL, run_settings().actors)
    try:
        with torch_threads(1):
            figures = measure(arguments.rounds, arguments.warm_up, arguments.seconds)
    finally:
        sys.modules["ray"].shutdown()
    spreads = {name: Spread.of(np.array(values)) for name, values in figures.items()}
    about = f"Medians of {arguments.rounds} rounds of {arguments.seconds} s, quartiles in brackets."
    provenance = Provenance.of("cluster", argv, ("torch", "gymnasium", "ray"))
    return hand_over(arguments, "cluster", provenance, {"figures": spreads}, lines_of(spreads), about)
