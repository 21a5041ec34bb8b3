"""`python tests/stress/crash.py`: kill and stop writers of the shared buffer at random moments.

Runs with small and large buffers of short and long rows, and exits with status 1 if an invariant of our
buffer is violated. `--peer cpprb` also tests cpprb's buffer, for comparison. `faults.py` kills the other
processes of a training run.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from statistics import median

from script import new_parser, provenance_of
from shared_names import memory_left, memory_names
from storm import MakeBuffer, Outcome, WatchedBuffer, survive

from benchmarks.measuring.output import add_count, add_outputs, write_results
from benchmarks.peers.buffer import OURS
from replay_course.number_tables import table

CAPACITIES, ROW_BYTES = (7, 1000), (40, 16 * 1024)
# seconds without a report; the peer is known to hang
HANG_SECONDS, PEER_HANG_SECONDS = 60.0, 5.0
HEADS = (
    *("buffer", "capacity", "row bytes", "kills", "kills during a write", "stops", "samples"),
    *("rejected rows", "torn rows", "unwritten rows", "slowest sample, ms", "samples/s before"),
    *("samples/s after", "slots held after a lap", "outcome"),
)


def cells(name: str, outcome: Outcome) -> list[str]:
    counts = (
        *(outcome.capacity, outcome.row_bytes, outcome.kills, outcome.kills_inside, outcome.stops),
        *(outcome.samples, outcome.rejected, outcome.torn, outcome.never_written),
    )
    speeds = (outcome.speed_before, outcome.speed_after)
    return [
        *(name, *("-" if count is None else str(count) for count in counts)),
        f"{1000 * outcome.worst_sample:.1f}",
        *(f"{median(speed):.0f}" if speed else "-" for speed in speeds),
        "-" if outcome.held_after_lap is None else str(outcome.held_after_lap),
        outcome.end,
    ]


def main(argv: Sequence[str]) -> int:
    """Run the test; return 1 if our buffer violates an invariant or the table can't be written, else 0."""
    parser = new_parser("crash", "Kill and stop writers of the shared buffer, and check its invariants.")
    add_count(parser, "--kills", 10_000, "total number of kills")
    add_count(
        parser, "--capacity", None, f"rows in the buffer (default: {CAPACITIES[0]}, then {CAPACITIES[1]})"
    )
    parser.add_argument("--peer", choices=["cpprb"], help="also test this library")
    add_count(parser, "--seed", 0, "seed of the random moments", minimum=0)
    add_outputs(parser, "crash")
    arguments = parser.parse_args(argv)
    if arguments.peer and importlib.util.find_spec(arguments.peer) is None:
        parser.error(f"--peer {arguments.peer}: not installed; pip install {arguments.peer}")
    if not hasattr(os, "fork"):
        print("crash.py requires fork and POSIX signals; run it on Linux or macOS", file=sys.stderr)
        return 1
    makers: dict[str, MakeBuffer] = {OURS: WatchedBuffer}
    if arguments.peer:
        makers[arguments.peer] = importlib.import_module(arguments.peer).MPPrioritizedReplayBuffer
    capacities = CAPACITIES if arguments.capacity is None else (arguments.capacity,)
    sizes = [(capacity, row_bytes) for capacity in capacities for row_bytes in ROW_BYTES]
    outcomes, left = run_storms(makers, sizes, arguments.kills, arguments.seed)
    good = all(outcome.good for outcome in outcomes[OURS]) and not left[OURS]
    leftovers = "; ".join(f"{name} {', '.join(names) or 'none'}" for name, names in left.items())
    verdict = "All invariants held for our buffer." if good else "OUR BUFFER VIOLATED AN INVARIANT."
    about = f"{verdict} Leftover shared memory: {leftovers}."
    lines = table(HEADS, [cells(name, outcome) for name, each in outcomes.items() for outcome in each])
    provenance = provenance_of("crash", argv, [name for name in makers if name != OURS])
    body = {"storms": outcomes, "shared_memory_left": left}
    status = write_results(arguments, "crash", provenance, body, lines, about)
    return status if good else 1


def run_storms(
    makers: dict[str, MakeBuffer], sizes: Sequence[tuple[int, int]], kills: int, seed: int
) -> tuple[dict[str, list[Outcome]], dict[str, list[str]]]:
    """Run every storm over every buffer; return the outcomes, and what each left in shared memory."""
    before = memory_names()
    outcomes: dict[str, list[Outcome]] = {}
    left: dict[str, list[str]] = {}
    for name, make in makers.items():
        outcomes[name] = []
        patience = HANG_SECONDS if name == OURS else PEER_HANG_SECONDS
        for capacity, row_bytes in sizes:
            share = -(-kills // len(sizes))
            outcome = survive(make, capacity, row_bytes, share, patience=patience, seed=seed)
            print(f"{name}, {outcome}", flush=True)
            outcomes[name].append(outcome)
        left[name] = memory_left(before)
        before |= set(left[name])
    return outcomes, left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
