"""`python -m replay_tutorial bench crash`: does the shared buffer outlive the death of those who write to it?

Storms rage over small and large buffers of short and long rows. What must not happen is counted, and one such thing
makes the exit status 1. With `--peer cpprb` the same storms rage over cpprb's buffer, for comparison.
"""

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from replay_tutorial.bench.many_processes.storm import MakeBuffer, Outcome, WatchedBuffer, survive
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import add_outputs, at_least
from replay_tutorial.bench.method.report import put_table
from replay_tutorial.bench.peers.lineup import OURS

PROGRAM = "python -m replay_tutorial bench crash"
CAPACITIES, ROW_BYTES = (7, 1000), (40, 16 * 1024)
POLL_SECONDS, PEER_PATIENCE = 60.0, 5.0  # seconds; the peer is known to hang
SHARED_MEMORY = Path("/dev/shm")
HEADS = (
    "buffer", "rows", "row bytes", "kills", "inside a row", "stops", "samples", "drawn again", "torn",
    "never written", "worst sample, ms", "samples/s before", "after", "held after a lap", "end",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Describes the arguments."""
    arguments = argparse.ArgumentParser(
        prog=PROGRAM, description="Kill and stop writers of the shared buffer, and look for damage."
    )
    arguments.add_argument(
        "--kills", type=at_least(1), default=10_000, help="of all storms (default: %(default)s)"
    )
    arguments.add_argument(
        "--capacity", type=at_least(1), help=f"rows in the buffer (default: {CAPACITIES} in turn)"
    )
    arguments.add_argument("--peer", choices=["cpprb"], help="let the storms rage over this library as well")
    arguments.add_argument("--seed", type=at_least(0), default=0, help="of the storms' random moments")
    add_outputs(arguments, "crash")
    return arguments


def memory_names() -> set[str]:
    """The names in shared memory, where the system shows them."""
    return {entry.name for entry in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def memory_left(before: set[str]) -> list[str]:
    """The names that are new in shared memory, and stay."""
    left = memory_names() - before
    deadline = time.monotonic() + 2.0
    while left and time.monotonic() < deadline:  # others use this machine as well
        time.sleep(0.1)
        left &= memory_names()
    return sorted(left)


def cells(name: str, outcome: Outcome) -> list[str]:
    """One row of the table."""
    end = "hung" if outcome.hung else outcome.error or "whole"
    speeds = [
        f"{median(speed):.0f}" if speed else "-" for speed in (outcome.speed_before, outcome.speed_after)
    ]
    counts = [
        outcome.capacity, outcome.row_bytes, outcome.kills, outcome.kills_inside, outcome.stops, outcome.samples,
        outcome.rejected, outcome.torn, outcome.never_written,
    ]  # fmt: skip
    held = "-" if outcome.held_after_lap is None else str(outcome.held_after_lap)
    texts = ["-" if count is None else str(count) for count in counts]
    return [name, *texts, f"{1000 * outcome.worst_sample:.1f}", *speeds, held, end]


def line(texts: Sequence[str]) -> str:
    """One line of the table, in Markdown."""
    return "| " + " | ".join(texts) + " |"


def main(argv: Sequence[str]) -> int:
    """Lets the storms rage.

    Args:
        argv: What follows `bench crash` on the command line.

    Returns:
        The exit status: 0, or 1 if anything happened to our buffer that must not, or the table was not written.
    """
    arguments = parser().parse_args(argv)
    if arguments.peer and importlib.util.find_spec(arguments.peer) is None:
        parser().error(f"--peer {arguments.peer}: it is not installed; pip install {arguments.peer}")
    if not hasattr(os, "fork"):
        print("bench crash needs a system with fork and signals: Linux or macOS.", file=sys.stderr)
        return 1
    makers: dict[str, MakeBuffer] = {OURS: WatchedBuffer}
    if arguments.peer:
        makers[arguments.peer] = importlib.import_module(arguments.peer).MPPrioritizedReplayBuffer
    capacities = CAPACITIES if arguments.capacity is None else (arguments.capacity,)
    settings = [(capacity, row_bytes) for capacity in capacities for row_bytes in ROW_BYTES]
    kills = -(-arguments.kills // len(settings))
    before = memory_names()
    outcomes: dict[str, list[Outcome]] = {}
    left: dict[str, list[str]] = {}
    lines = [line(HEADS), line(["---"] * len(HEADS))]
    print(*lines, sep="\n")
    for name, make in makers.items():
        outcomes[name] = []
        patience = POLL_SECONDS if name == OURS else PEER_PATIENCE
        for capacity, row_bytes in settings:
            outcome = survive(make, capacity, row_bytes, kills, patience=patience, seed=arguments.seed)
            lines.append(line(cells(name, outcome)))
            print(lines[-1], flush=True)
            outcomes[name].append(outcome)
        left[name] = memory_left(before)
        before |= set(left[name])
    good = all(outcome.good for outcome in outcomes[OURS]) and not left[OURS]
    provenance = Provenance.of(PROGRAM, argv, [name for name in makers if name != OURS])
    remains = "; ".join(f"{name} left {', '.join(names) or 'none'}" for name, names in left.items())
    judgement = "Nothing happened to ours that must not." if good else "OURS WAS DAMAGED."
    lines += ["", f"{judgement} Shared memory: {remains}. {provenance}"]
    print(*lines[-2:], sep="\n")
    if arguments.json is not None:
        storms = {name: [asdict(outcome) for outcome in each] for name, each in outcomes.items()}
        whole = {"benchmark": "crash", **provenance._asdict(), "storms": storms, "shared_memory_left": left}
        arguments.json.write_text(json.dumps(whole, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    written = put_table(arguments.markdown, "crash", "\n".join(lines) + "\n")
    return 0 if good and written else 1
