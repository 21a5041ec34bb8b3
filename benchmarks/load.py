"""`python -m benchmarks load`: 64 clients that write to a server of tables, and 4 that sample, beside Reverb.

Our server is measured at a path and at a port, where connections are encrypted and authenticated with CURVE;
Reverb's at its port, without encryption. The clients are threads of eight processes for each server. All
servers and clients are idle while others are measured. With `--network MS`, servers and clients are on two
hosts (network namespaces), and a relay between them delays data by MS milliseconds in each direction.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measuring.namespaces import NEAR, TwoHosts, relay_command
from benchmarks.measuring.output import add_count, add_outputs, add_seconds, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from benchmarks.peers.buffer import OURS, NotMeasurable
from benchmarks.peers.helper import HelperProcess, run_beside
from benchmarks.peers.helper_program import IN_FLIGHT, LOAD_BATCH, MAX_SIZE
from benchmarks.tables import REVERB
from replay_course.number_tables import spread_text, table
from replay_course.timing import FloatArray, Spread

PATH, PORT = f"{OURS}, path", f"{OURS}, port with CURVE"
PROCESSES = 4  # that write, and that sample
WRITERS = 16  # threads in each process that writes
NETWORK_PREFETCH = 8  # batches in flight between hosts, for both libraries
RELAYED = 5001
WARM_UP = 0.5  # seconds of the first round, which isn't reported
# key of the record → row of the table, unit, and whether more is better
FIGURES = {
    "write": (f"{PROCESSES} clients write", "items/s", True),
    "write_time": (f"{PROCESSES} clients write: processor time", "µs/item", False),
    "sample": (f"{PROCESSES} clients sample", "items/s", True),
    "sample_time": (f"{PROCESSES} clients sample: processor time", "µs/item", False),
    "both_write": (f"{PROCESSES * WRITERS} clients write while {PROCESSES} sample", "items/s", True),
    "both_sample": (f"{PROCESSES} clients sample while {PROCESSES * WRITERS} write", "items/s", True),
    "write_p99": ("99th percentile of these writing calls", "ms", False),
    "sample_p99": ("99th percentile of these sampling calls", "ms", False),
    "processors": ("processors that they used", "", False),
}


@dataclass
class Side:
    """A server and the processes of its clients."""

    name: str
    server: HelperProcess
    clients: list[HelperProcess]
    prefetched: int  # batches in flight of a client that samples; 0: each library's fastest way here

    def loaded(self, writers: int, samplers: int, seconds: float) -> tuple[dict[str, FloatArray], float]:
        """Return the durations of all calls in µs, and the processor time of all processes in seconds.

        `writers` and `samplers` are the numbers of threads in each process of their kind.
        """
        half = len(self.clients) // 2
        counts = [(writers, 0)] * half + [(0, samplers)] * half
        before = self.server.request("processor_time")["processor_time"]
        busy = [(client, each) for client, each in zip(self.clients, counts, strict=True) if any(each)]
        for client, (w, s) in busy:
            client.send("load", writers=w, samplers=s, prefetched=self.prefetched, seconds=seconds)
        answers = [client.receive() for client, _ in busy]
        took = self.server.request("processor_time")["processor_time"] - before
        took += sum(answer["processor_time"] for answer in answers)
        durations = {
            name: np.concatenate([np.array(answer[name], np.float64) for answer in answers])
            for name in ("write", "sample")
        }
        return durations, took

    def figures(self, seconds: float) -> dict[str, float]:
        """Return one round of `FIGURES`."""
        alone, writing = self.loaded(1, 0, seconds)
        written = len(alone["write"])
        alone, sampling = self.loaded(0, 1, seconds)
        sampled = LOAD_BATCH * len(alone["sample"])
        both, took = self.loaded(WRITERS, 1, seconds)
        return {
            "write": written / seconds,
            "write_time": 1e6 * writing / written,
            "sample": sampled / seconds,
            "sample_time": 1e6 * sampling / sampled,
            "both_write": len(both["write"]) / seconds,
            "both_sample": LOAD_BATCH * len(both["sample"]) / seconds,
            "write_p99": float(np.percentile(both["write"], 99)) / 1e3,
            "sample_p99": float(np.percentile(both["sample"], 99)) / 1e3,
            "processors": took / seconds,
        }


def start_side(stack: ExitStack, name: str, hosts: TwoHosts | None, delay: float, number: int) -> Side:
    """Start a server and its clients; raises NotMeasurable if its library isn't installed."""
    near, far = (hosts.on("near"), hosts.on("far")) if hosts else ([], [])
    serve = f"{stack.enter_context(TemporaryDirectory())}/socket"
    if name == PORT:
        serve = f"tcp://{NEAR}:0" if hosts else "127.0.0.1:0"

    def start(serve: str, address: str, prefix: Sequence[str]) -> HelperProcess:
        options = {"table": "uniform", "serve": serve, "address": address}
        reverb = name == REVERB
        return stack.enter_context(closing(HelperProcess(name, options, reverb=reverb, prefix=prefix)))

    server = start(serve, "", near)
    address: str = server.description["address"]
    if hosts:
        target = f"{NEAR}:{address.rpartition(':')[2]}"
        address = f"{NEAR}:{RELAYED + number}"
        stack.enter_context(run_beside([*near, *relay_command(delay, 0.0, address, target)]))
        address = f"tcp://{address}" if name == PORT else address
    clients = [start("", address, far) for _ in range(2 * PROCESSES)]
    return Side(name, server, clients, NETWORK_PREFETCH if hosts else 0)


def measure(sides: Sequence[Side], rounds: int, seconds: float) -> dict[str, dict[str, FloatArray]]:
    """Return each figure of each side, float64[rounds]; a first, short round isn't reported."""
    found: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
    for number in range(-1, rounds):
        for side in sides:
            figures = side.figures(WARM_UP if number < 0 else seconds)
            if number >= 0:
                found[side.name].append(figures)
                print(side.name, *(f"{name} {value:,.4g}" for name, value in figures.items()), flush=True)
    return {
        name: {figure: np.array([each[figure] for each in found[name]]) for figure in FIGURES}
        for name in found
    }


def lines_of(measured: Mapping[str, Mapping[str, FloatArray]]) -> tuple[list[str], dict[str, object]]:
    """Return the table, and the record of its figures."""
    ours = [name for name in measured if name != REVERB]
    ratios = ours if REVERB in measured else []
    heads = ["figure", "unit", *measured, *(f"times better: {name}" for name in ratios)]
    rows: list[list[str]] = []
    record: dict[str, object] = {}
    for figure, (label, unit, more) in FIGURES.items():
        spreads = {name: Spread.of(each[figure]) for name, each in measured.items()}
        better = {
            name: Spread.of((measured[name][figure] / measured[REVERB][figure]) ** (1 if more else -1))
            for name in ratios
            if unit
        }
        rows.append([label, unit, *map(spread_text, spreads.values()), *map(spread_text, better.values())])
        rows[-1] += [""] * (len(heads) - len(rows[-1]))
        record[figure] = {"measured": spreads, "times_better": better}
    return table(heads, rows, words=2), record


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here or can't write the table, else 0."""
    parser = new_parser("load", "Measure 64 clients that write to tables and 4 that sample, beside Reverb.")
    add_count(parser, "--rounds", 5, "rounds in which all servers are measured in turn")
    add_seconds(parser, 2.0, "seconds per figure and round")
    parser.add_argument(
        "--network", type=float, metavar="MS", help="measure between two hosts with this delay (Linux)"
    )
    add_outputs(parser, "load, or load-network")
    arguments = parser.parse_args(argv)
    if sys.platform == "win32":
        print("load can't run on Windows; run it on Linux or macOS", file=sys.stderr)
        return 1
    provenance = Provenance.of("load", argv, ("pyzmq",))
    is_network = arguments.network is not None
    sides: list[Side] = []
    skipped: dict[str, str] = {}
    with ExitStack() as stack:
        hosts = stack.enter_context(TwoHosts()) if is_network else None
        for name in [*([] if is_network else [PATH]), PORT, REVERB]:
            try:
                sides.append(start_side(stack, name, hosts, (arguments.network or 0.0) / 1e3, len(sides)))
            except NotMeasurable as error:
                skipped[name] = str(error)
                print(f"skipped {name}: {error}")
        for side in sides:
            if side.name == REVERB:
                provenance.versions["dm-reverb"] = side.server.description["version"]
        measured = measure(sides, arguments.rounds, arguments.seconds)
    lines, record = lines_of(measured)
    body = {"rounds": arguments.rounds, "skipped": skipped, "figures": record}
    name = "load-network" if is_network else "load"
    return write_results(arguments, name, provenance, body, lines, how_measured(arguments))


def how_measured(arguments: argparse.Namespace) -> str:
    """Return the caption of the table."""
    where = (
        f"Two network namespaces; a relay delays data by {arguments.network:g} ms in each direction, and "
        f"clients that sample have {NETWORK_PREFETCH} batches in flight. "
        if arguments.network is not None
        else ""
    )
    return (
        f"{where}Medians of {arguments.rounds} rounds of {arguments.seconds:g} s, quartiles in brackets; "
        f"ratios are computed within each round. Full tables of {MAX_SIZE:,} items; a writing client has at "
        f"most {IN_FLIGHT} items in flight, and a sampling client asks for batches of {LOAD_BATCH}. "
        f"{PROCESSES} processes write, with one or {WRITERS} threads each; {PROCESSES} others sample. "
        "Processor time: of the server and all clients."
    )
