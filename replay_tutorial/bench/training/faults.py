"""`python -m replay_tutorial bench faults`: what is left of a training run when something happens to it?

Runs of `train` meet a fault at a random moment, from their first instruction on: Ctrl-C, or the sudden
death of an actor, of the learner, or of the parent. After each of them no process and no shared memory may
be left, and `resume` must go on from the checkpoint, if there was time for one. What must not happen is
counted, and one such thing makes the exit status 1.

Left out: full disks and full memory; the tests have those.
"""

import csv
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from replay_tutorial.apex.runs.checkpoint import newest_checkpoint, whole_checkpoints
from replay_tutorial.bench.method.markdown import table
from replay_tutorial.bench.method.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.system_memory import memory_left, memory_names
from replay_tutorial.bench.training.victim import Victim, wait_until

FAULTS = {"ctrl-c": 50, "actor": 10, "learner": 10, "parent": 10}  # how often each happens
PATIENCE_SECONDS = 120.0  # that anything may take on a busy machine
EXIT_SECONDS = 10.0  # that processes may outlive their run
MORE_STEPS = 1_000  # that a resumed run makes
INTERRUPTED = 130  # the exit status of `train` after Ctrl-C
# Small, so that there is much starting and saving; none ends by itself.
FLAGS = (
    *("--actors", "1", "--hidden-sizes", "32", "--replay-start", "200", "--record-interval", "5"),
    *("--evaluation-episodes", "2", "--confirmation-episodes", "2", "--final-episodes", "2"),
    *("--solved-at", "1000", "--total-steps", "1000000000", "--checkpoint-seconds", "0.5", "--no-progress"),
)
HEADS = ("fault", "times", "before anything was saved", "resumed", "slowest end, s", "what must not happen")


@dataclass
class Outcome:
    """What came of one fault."""

    fault: str
    moment: float  # seconds after the start
    status: int | None = None  # exit status; None if it did not end
    seconds: float = 0.0  # from the fault to the end; for an actor from Ctrl-C
    saved_step: int | None = None  # of the newest checkpoint; None if there is none
    resumed_step: int | None = None  # where the resumed run ended
    wrong: list[str] = field(default_factory=list[str])  # what must not happen


class Trial:
    """A run, one fault, and a check of what is left.

    Args:
        fault: One of FAULTS.
        folder: Empty, for the run.
        seed: Of the run.
    """

    def __init__(self, fault: str, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.outcome = Outcome(fault, 0.0)

    def run(self, wait: float | None) -> Outcome:
        """Let the fault happen, and check what is left.

        Args:
            wait: Seconds before it; None waits for the first updates. An actor and a learner are killed
                this many seconds after the last process was started, because before there is none.
        """
        before = memory_names()
        runs = self.folder / "runs"
        flags = ("train", "CartPole-v1", *FLAGS, "--seed", str(self.seed), "--runs", str(runs))
        with Victim(self.folder, *flags) as victim:
            self._await_moment(victim, wait)
            self.outcome.moment = victim.age
            self._cause(victim)
            start = victim.age
            self.outcome.status = victim.end(PATIENCE_SECONDS)
            self.outcome.seconds = victim.age - start
            self._check_end(victim)
        if names := memory_left(before):
            self.outcome.wrong.append(f"shared memory left: {names}")
        self._resume()
        return self.outcome

    def _await_moment(self, victim: Victim, wait: float | None) -> None:
        if wait is None:
            self._check(victim.wait_for(self._has_learned, PATIENCE_SECONDS), "nothing was learned")
            return
        if self.outcome.fault in ("actor", "learner"):
            all_there = victim.wait_for(lambda: victim.role("evaluator") is not None, PATIENCE_SECONDS)
            self._check(all_there, "not all processes were started")
        wait_until(lambda: False, wait)

    def _cause(self, victim: Victim) -> None:
        match self.outcome.fault:
            case "ctrl-c":
                victim.signal_all(signal.SIGINT)
            case "parent":
                victim.process.kill()
            case role:
                process = victim.role(role)
                self._check(process is not None, f"there was no {role}")
                if process is not None:
                    os.kill(process, signal.SIGKILL)
                if role == "actor":
                    replaced = victim.wait_for(self._has_replaced, PATIENCE_SECONDS)
                    self._check(replaced, "the run did not go on with another actor")
                    victim.signal_all(signal.SIGINT)

    def _check_end(self, victim: Victim) -> None:
        fault, status, errors = self.outcome.fault, self.outcome.status, victim.errors.read_text()
        expected = {"learner": [1], "parent": [-signal.SIGKILL]}.get(fault, [INTERRUPTED])
        if fault == "ctrl-c" and not self._rows():
            # Python's own answer while the package is imported: before `main` there is no other.
            expected.append(-signal.SIGINT)
        self._check(status in expected, f"exit status {status}: {errors.strip()[-500:]}")
        if fault == "learner":
            self._check("learner was killed by SIGKILL" in errors, "nobody said that the learner was killed")
        elif status != -signal.SIGINT:
            self._check("Traceback" not in errors and "leaked" not in errors, errors.strip()[-500:])
        left = victim.left(EXIT_SECONDS)
        self._check(left == 0, f"{left} processes left")

    def _resume(self) -> None:
        runs = self._runs()
        if not runs or not whole_checkpoints(runs[0]):
            # A run that ends cleanly loses nothing that was learned.
            lost = self.outcome.fault in ("ctrl-c", "actor") and bool(self._rows())
            self._check(not lost, "there is no checkpoint")
            return
        self.outcome.saved_step = newest_checkpoint(runs[0]).step
        budget = self.outcome.saved_step + MORE_STEPS
        flags = ("resume", str(runs[0]), "--total-steps", str(budget), "--no-progress")
        with Victim(self.folder, *flags) as victim:
            status = victim.end(PATIENCE_SECONDS)
            self._check(
                status == 0, f"resume ended with {status}: {victim.errors.read_text().strip()[-500:]}"
            )
            left = victim.left(EXIT_SECONDS)
            self._check(left == 0, f"{left} processes left by resume")
        self.outcome.resumed_step = newest_checkpoint(runs[0]).step
        self._check(self.outcome.resumed_step >= budget, "resume did not go on")

    def _runs(self) -> list[Path]:
        return list((self.folder / "runs").glob("*"))

    def _rows(self) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        for run in self._runs():
            if (run / "progress.csv").exists():
                with (run / "progress.csv").open(newline="") as file:
                    rows += csv.DictReader(file)
        return rows

    def _has_learned(self) -> bool:
        return len(self._rows()) > 1

    def _has_replaced(self) -> bool:
        # The last row may be half written.
        return any(float(row["restarts"] or 0) > 0 for row in self._rows()[:-1])

    def _check(self, holds: bool, what: str) -> None:
        if not holds:
            self.outcome.wrong.append(what)


def trials(times: dict[str, int], seed: int) -> list[Outcome]:
    """Let each fault happen this often, in turns, and print each outcome as it comes."""
    generator = np.random.default_rng(seed)
    outcomes: list[Outcome] = []
    ready = 0.0  # seconds from the start to the first updates, on this machine
    for number in range(max(times.values())):
        for fault in (fault for fault, count in times.items() if number < count):
            # Half of the moments lie before the first updates. The first run shows when those come.
            wait = generator.uniform(0.0, 2.0 * ready) if ready else None
            with tempfile.TemporaryDirectory() as folder:
                outcome = Trial(fault, Path(folder), seed=number).run(wait)
            ready = ready or outcome.moment
            outcomes.append(outcome)
            print(text_line(outcome), flush=True)
    return outcomes


def text_line(outcome: Outcome) -> str:
    """Return one outcome as a line of text."""
    saved = "nothing saved" if outcome.saved_step is None else f"saved at step {outcome.saved_step:,}"
    resumed = "" if outcome.resumed_step is None else f", resumed to {outcome.resumed_step:,}"
    wrong = "".join(f"; WRONG: {what}" for what in outcome.wrong)
    moments = f"after {outcome.moment:.2f} s: ended {outcome.seconds:.2f} s later"
    return f"{outcome.fault} {moments}, {saved}{resumed}{wrong}"


def lines_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the outcomes as a Markdown table."""
    rows: list[list[str]] = []
    for fault in dict.fromkeys(outcome.fault for outcome in outcomes):
        group = [outcome for outcome in outcomes if outcome.fault == fault]
        counts = [
            len(group),
            sum(outcome.saved_step is None for outcome in group),
            sum(outcome.resumed_step is not None for outcome in group),
            f"{max(outcome.seconds for outcome in group):.1f}",
            sum(bool(outcome.wrong) for outcome in group),
        ]
        rows.append([fault, *map(str, counts)])
    return table(HEADS, rows)


def main(argv: Sequence[str]) -> int:
    """Let the faults happen; return 1 if one left what it must not, or the table was not written, else 0."""
    parser = new_parser("faults", "Interrupt and kill training runs at random moments, and resume them.")
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=list(FAULTS), help="which (default: all)"
    )
    add_count(parser, "--times", None, f"of each fault (default: {FAULTS})")
    add_count(parser, "--seed", 0, "of the random moments", minimum=0)
    add_outputs(parser, "faults")
    arguments = parser.parse_args(argv)
    if os.name != "posix":
        print("bench faults needs a system with process groups and signals: Linux or macOS.", file=sys.stderr)
        return 1
    times = {fault: arguments.times or FAULTS[fault] for fault in arguments.faults}
    outcomes = trials(times, arguments.seed)
    provenance = Provenance.of("faults", argv, ("torch", "gymnasium"))
    status = hand_over(arguments, "faults", provenance, {"outcomes": outcomes}, lines_of(outcomes), "")
    return status if not any(outcome.wrong for outcome in outcomes) else 1
