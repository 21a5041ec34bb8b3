"""One fault of a training run, and what may be left of it: no process, no file, and a run that goes on.

The run is `python -m replay_tutorial train`, in a group of processes of its own. A fault is Ctrl-C for all of
them, or the sudden death (SIGKILL) of one. Afterwards `resume` must go on with the learner and the best
policy that were saved: never with blank ones, and never with a worse one.

Left out: when the fault happens (`faults`).
"""

import csv
import multiprocessing
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from shared_names import memory_left, memory_names
from victim import Victim, wait_until

import replay_tutorial
from replay_tutorial.apex.runs.checkpoint import complete_checkpoints, newest_checkpoint
from replay_tutorial.apex.runs.run_folder import RunFolder

PATIENCE_SECONDS = 120.0  # that anything may take on a busy machine
EXIT_SECONDS = 30.0  # that processes may outlive their run: on a busy machine torch alone is imported for ten
DEATH_SECONDS = 10.0  # in which a run ends, or says that it does, without a process that it needs
MORE_STEPS = 1_000  # that a resumed run makes
REASON = "train: "  # begins the last words of a run that has failed
INTERRUPTED = 130  # the exit status of `train` after Ctrl-C
PROGRAM = (replay_tutorial.__path__[0], multiprocessing.__path__[0])  # who may not answer by a traceback
# Small, so that there is much starting and saving; none ends by itself.
FLAGS = (
    *("--actors", "1", "--hidden-sizes", "32", "--replay-start", "200", "--record-interval", "5"),
    *("--evaluation-episodes", "2", "--confirmation-episodes", "2", "--final-episodes", "2"),
    *("--solved-at", "1000", "--total-steps", "1000000000", "--checkpoint-seconds", "0.5", "--no-progress"),
)


@dataclass
class Outcome:
    fault: str
    moment: float  # seconds after the start
    hit: str = ""  # the process that was killed, if it was one of several
    status: int | None = None  # exit status; None if it did not end
    seconds: float = 0.0  # from the fault to the end; where the run goes on, from the Ctrl-C that ends it
    saved_step: int | None = None  # of the newest checkpoint; None if there is none
    resumed_step: int | None = None  # where the resumed run ended
    before_program: bool = False  # Ctrl-C came before Python had found the program
    wrong: list[str] = field(default_factory=list[str])  # what must not happen


def is_pythons_own(errors: str) -> bool:
    """Return whether Ctrl-C ended Python in its own start-up: no line of the program had been read."""
    return "KeyboardInterrupt" in errors and not any(folder in errors for folder in PROGRAM)


class Trial:
    """A run in an empty folder, one fault of `faults.FAULTS`, and a check of what is left."""

    def __init__(self, fault: str, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.outcome = Outcome(fault, 0.0)

    def run(self, wait: float | None) -> Outcome:
        """Let the fault happen after `wait` seconds, or the first updates if it is None; check what is left.

        An actor or learner is killed this long after the last process was started; before there is none.
        """
        before = memory_names()
        runs = self.folder / "runs"
        flags = ("train", "CartPole-v1", *FLAGS, "--seed", str(self.seed), "--runs", str(runs))
        with Victim(self.folder, *flags) as victim:
            self._await_moment(victim, wait)
            self.outcome.moment = victim.age
            start = self._cause(victim)
            self.outcome.status = victim.end(PATIENCE_SECONDS)
            self.outcome.seconds = victim.age - start
            self._check_end(victim)
            self._check_left(victim)
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

    def _cause(self, victim: Victim) -> float:
        """Let the fault happen; return since when the run has been asked to end."""
        goes_on = False
        match self.outcome.fault:
            case "ctrl-c":
                victim.signal_all(signal.SIGINT)
            case "parent":
                victim.process.kill()
            case "child":
                children: list[tuple[int, str]] = []  # one look: a second may find that they have gone
                victim.wait_for(
                    lambda: children.extend(victim.children()) or bool(children), PATIENCE_SECONDS
                )
                chosen = int(np.random.default_rng(self.seed).integers(max(1, len(children))))
                self._kill(*children[chosen] if children else (None, "child"))
                ends = victim.wait_for(lambda: REASON in victim.errors.read_text(), DEATH_SECONDS)
                goes_on = not ends and victim.process.poll() is None  # it can do so without that one
            case role:
                self._kill(victim.role(role), role)
                if goes_on := role == "actor":
                    replaced = victim.wait_for(self._has_replaced, PATIENCE_SECONDS)
                    self._check(replaced, "the run did not go on with another actor")
        if not goes_on:
            return self.outcome.moment
        victim.signal_all(signal.SIGINT)
        return victim.age

    def _kill(self, process: int | None, name: str) -> None:
        self.outcome.hit = name
        self._check(process is not None, f"there was no {name}")
        if process is not None:
            os.kill(process, signal.SIGKILL)

    def _check_end(self, victim: Victim) -> None:
        fault, status, errors = self.outcome.fault, self.outcome.status, victim.errors.read_text()
        dead = {"learner": [1], "parent": [-signal.SIGKILL], "child": [1, INTERRUPTED]}
        expected = dead.get(fault, [INTERRUPTED])
        if fault == "ctrl-c" and not self._rows():
            expected.append(-signal.SIGINT)  # while the program is imported, Ctrl-C ends it at once
            if not self._runs() and is_pythons_own(errors):
                self.outcome.before_program = True
                expected.append(1)  # "Could not import runpy module"
        self._check(status in expected, f"exit status {status}: {errors.strip()[-500:]}")
        if fault == "learner" or (fault == "child" and status == 1):
            told = "was killed by SIGKILL" if fault == "learner" else REASON
            self._check(told in errors, f"nobody said that the {self.outcome.hit} was killed")
        if not self.outcome.before_program:
            printed = errors + victim.printed.read_text()
            self._check("Traceback" not in printed and "leaked" not in printed, printed.strip()[-1_500:])

    def _check_left(self, victim: Victim) -> None:
        left = victim.left(EXIT_SECONDS)
        self._check(left == 0, f"{left} processes left")
        files = victim.files_left()
        self._check(not files, f"temporary files left: {files}")
        if self.outcome.fault == "ctrl-c":
            self._check_finished()

    def _check_finished(self) -> None:
        """Check that no file of the run is half written; after a sudden death the next one removes them."""
        files = [path for run in self._runs() for path in run.rglob("*")]
        half = [path.name for path in files if path.name.endswith(("unfinished", ".part"))]
        self._check(not half, f"half written files left: {half}")

    def _resume(self) -> None:
        """Go on, and check that nothing that was learned is lost."""
        runs = self._runs()
        if not runs or not complete_checkpoints(runs[0]):
            # A run that ends cleanly loses nothing that was learned.
            lost = self.outcome.fault in ("ctrl-c", "actor") and bool(self._rows())
            self._check(not lost, "there is no checkpoint")
            return
        saved, best = newest_checkpoint(runs[0]), self._best_return()
        self._check(best >= self._told_return(), "the best policy is not the one that was told")
        self.outcome.saved_step = saved.step
        budget = saved.step + MORE_STEPS
        flags = ("resume", str(runs[0]), "--total-steps", str(budget), "--no-progress")
        with Victim(self.folder, *flags) as victim:
            status = victim.end(PATIENCE_SECONDS)
            self._check(
                status == 0, f"resume ended with {status}: {victim.errors.read_text().strip()[-500:]}"
            )
            self._check_left(victim)
        resumed = newest_checkpoint(runs[0])
        self.outcome.resumed_step = resumed.step
        self._check(resumed.step >= budget, "resume did not go on")
        # A blank learner would begin to count from 0.
        self._check(resumed.update > saved.update, f"{resumed.update} updates after {saved.update}")
        self._check(self._best_return() >= best, "the best policy has become worse")
        self._check_finished()

    def _best_return(self) -> float:
        """Return for which mean return the best policy was chosen; -inf if there is none."""
        best = RunFolder(self._runs()[0]).load_best()
        return -np.inf if best is None else best.confirmation.mean

    def _told_return(self) -> float:
        told = [
            float(row["confirmation"]) for row in self._rows("evaluations.csv")[:-1] if row["confirmation"]
        ]
        return max(told, default=-np.inf)

    def _runs(self) -> list[Path]:
        return list((self.folder / "runs").glob("*"))

    def _rows(self, name: str = "progress.csv") -> list[dict[str, str]]:
        rows: list[dict[str, str]] = []
        for run in self._runs():
            if (run / name).exists():
                with (run / name).open(newline="") as file:
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
