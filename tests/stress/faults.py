"""`python tests/stress/faults.py`: interrupt and kill training runs at random moments.

A fault is Ctrl-C, or SIGKILL of an actor, the learner, the parent or any other process of the run, from its
first instruction on. Afterwards no process, shared memory or file may be left, and `resume` must continue
from the newest checkpoint, if there is one. The script exits with status 1 if a check fails. Full disks and
full memory are covered by the unit tests.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import numpy as np
from script import new_parser, provenance_of
from trial import Outcome, Trial
from victim import accept_ctrl_c

from benchmarks.measuring.output import add_count, add_outputs, write_results
from replay_course.number_tables import table

FAULTS = {"ctrl-c": 50, "actor": 10, "learner": 10, "parent": 10, "child": 20}  # fault → default number
# One tenth of the moments is in the first seconds, while Python imports the package, and one tenth after a
# minute, when all processes have long been running. Half of the others are before the first updates.
EARLY, LATE = (0.0, 2.0), (60.0, 65.0)
SHARE = 0.1
HEADS = (
    *("fault", "times", "before the program started", "before the first checkpoint", "resumed"),
    *("slowest exit, s", "failed checks"),
)


class Plan(NamedTuple):
    """One fault that is to happen, the same whenever it is asked for by its seed and number."""

    fault: str
    number: int
    seed: int

    def wait(self, ready: float) -> float:
        """Return the seconds to wait; `ready` are those from the start to the first updates."""
        generator = np.random.default_rng((self.seed, list(FAULTS).index(self.fault), self.number))
        which = generator.random()
        low, high = EARLY if which < SHARE else LATE if which < 2 * SHARE else (0.0, 2.0 * ready)
        return float(generator.uniform(low, high))

    def carry_out(self, wait: float | None) -> Outcome:
        """Start a run in a temporary folder, cause the fault after `wait` seconds, and check what is left."""
        with tempfile.TemporaryDirectory() as folder:
            return Trial(self.fault, Path(folder), seed=self.number).run(wait)


def plans(times: dict[str, int], seed: int) -> list[Plan]:
    """Return the planned faults, with the kinds alternating."""
    numbers = range(max(times.values()))
    return [
        Plan(fault, number, seed) for number in numbers for fault, count in times.items() if number < count
    ]


def trials(times: dict[str, int], seed: int, at_once: int) -> list[Outcome]:
    """Cause all faults and print each outcome; after Ctrl-C, return the outcomes so far."""
    first, *others = plans(times, seed)
    outcomes = [first.carry_out(None)]  # also measures the time to the first updates on this machine
    print(text_line(outcomes[0]), flush=True)
    ready = outcomes[0].moment
    with ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(plan.carry_out, plan.wait(ready)) for plan in others]
        try:
            for done in as_completed(waiting):
                outcomes.append(done.result())
                print(text_line(outcomes[-1]), flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    return outcomes


def text_line(outcome: Outcome) -> str:
    hit = f" ({outcome.hit})" if outcome.fault == "child" else ""
    saved = "nothing saved" if outcome.saved_step is None else f"saved at step {outcome.saved_step:,}"
    resumed = "" if outcome.resumed_step is None else f", resumed to {outcome.resumed_step:,}"
    wrong = "".join(f"; WRONG: {what}" for what in outcome.wrong)
    moments = f"after {outcome.moment:.2f} s: ended {outcome.seconds:.2f} s later"
    return f"{outcome.fault}{hit} {moments}, {saved}{resumed}{wrong}"


def lines_of(outcomes: Sequence[Outcome]) -> list[str]:
    rows: list[list[str]] = []
    for fault in (fault for fault in FAULTS if any(outcome.fault == fault for outcome in outcomes)):
        group = [outcome for outcome in outcomes if outcome.fault == fault]
        counts = [
            len(group),
            sum(outcome.before_program for outcome in group),
            sum(outcome.saved_step is None for outcome in group),
            sum(outcome.resumed_step is not None for outcome in group),
            f"{max(outcome.seconds for outcome in group):.1f}",
            sum(bool(outcome.wrong) for outcome in group),
        ]
        rows.append([fault, *map(str, counts)])
    return table(HEADS, rows)


def fault(text: str) -> tuple[str, int | None]:
    """Parse a fault with an optional number, such as `ctrl-c` or `ctrl-c=200`."""
    name, _, times = text.partition("=")
    if name not in FAULTS:
        raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(FAULTS)}")
    if times and not (times.isascii() and times.isdigit() and int(times)):
        raise argparse.ArgumentTypeError(f"{text}: {times} must be an integer of at least 1")
    return name, int(times) if times else None


def main(argv: Sequence[str]) -> int:
    """Cause the faults; return 1 if a check fails or the table could not be written, else 0."""
    parser = new_parser("faults", "Interrupt and kill training runs at random moments, and resume them.")
    which = f"kinds of faults and their numbers, of {', '.join(FAULTS)} (default: all)"
    parser.add_argument("--faults", nargs="+", type=fault, metavar="NAME[=TIMES]", help=which)
    defaults = ", ".join(f"{name} {count}" for name, count in FAULTS.items())
    add_count(
        parser, "--times", None, f"number of faults of each kind without a number (default: {defaults})"
    )
    add_count(parser, "--at-once", 1, "number of parallel runs")
    add_count(parser, "--seed", 0, "seed of the random moments", minimum=0)
    add_outputs(parser, "faults")
    arguments = parser.parse_args(argv)
    if os.name != "posix":
        print("faults.py requires process groups and signals; run it on Linux or macOS", file=sys.stderr)
        return 1
    accept_ctrl_c()  # here, because only the main thread can set signal handlers
    chosen = dict(arguments.faults or dict.fromkeys(FAULTS))
    times = {name: count or arguments.times or FAULTS[name] for name, count in chosen.items()}
    outcomes = trials(times, arguments.seed, arguments.at_once)
    provenance = provenance_of("faults", argv, ("torch", "gymnasium"))
    mark = "faults" if len(times) > 1 else f"faults-{next(iter(times))}"
    status = write_results(
        arguments, "faults", provenance, {"outcomes": outcomes}, lines_of(outcomes), "", mark=mark
    )
    return status if not any(outcome.wrong for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
