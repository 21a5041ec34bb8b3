"""A run on hosts of this machine, watched from outside: by what it prints, and what it writes down."""

import csv
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hosts import HEAD_PORT, Hosts
from numpy.typing import NDArray
from victim import processes, wait_until

from replay_tutorial.apex.runs.checkpoint import ROWS, complete_checkpoints, newest_checkpoint
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.shared.processes import start_time

LEARNER = 0  # the host of learner and driver
ACTORS = 4
# It never ends by itself, saves often, and writes down every fifth update.
FLAGS = (
    *("--actors", str(ACTORS), "--cpus-per-actor", "0.5", "--solved-at", "inf", "--record-interval", "5"),
    *("--total-steps", "1000000000", "--evaluation-interval", "2000", "--checkpoint-seconds", "10"),
    *("--restart-limit", "1000", "--no-progress"),
)


class ClusterRun:
    """`train`, or `resume` if there is a run in the folder already, as a process of the learner's host."""

    def __init__(self, hosts: Hosts, runs: Path, seed: int) -> None:
        self.hosts = hosts
        self.runs = runs
        cluster = ("--cluster", f"{hosts.address(LEARNER)}:{HEAD_PORT}")
        command = ("train", "CartPole-v1", *FLAGS, "--seed", str(seed), "--runs", str(runs), *cluster)
        self.resumes = self.folder is not None and bool(complete_checkpoints(self.folder))
        if self.resumes:
            command = ("resume", str(self.folder), "--no-progress", *cluster)
        elif self.folder is not None:
            shutil.rmtree(self.folder)  # it was killed before it had saved anything: begin anew
        self.started = time.time()
        arguments = [sys.executable, "-u", "-m", "replay_tutorial", *command]
        # A session of its own: Ctrl-C is for this process alone, as it is sent to it.
        self.process = hosts.run(LEARNER, arguments, stdout=-1, stderr=-2, text=True, start_new_session=True)
        self.lines: list[tuple[float, str]] = []  # when, by time.time(), and what was printed
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def folder(self) -> Path | None:
        return next(iter(sorted(self.runs.glob("*"))), None)

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append((time.time(), line.rstrip()))

    def printed(self, pattern: str, since: float) -> float | None:
        """Return when a line with a pattern was printed, the first since a moment; None if none was."""
        return next((when for when, line in self.lines if when >= since and re.search(pattern, line)), None)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, as long as the run lives; return whether it holds."""
        return wait_until(lambda: condition() or self.process.poll() is not None, seconds) and condition()

    def records(self) -> list[dict[str, str]]:
        if self.folder is None or not (self.folder / "progress.csv").exists():
            return []
        with (self.folder / "progress.csv").open(newline="") as file:
            return list(csv.DictReader(file))[:-1]

    def is_at_work(self) -> bool:
        begun = self.printed("resuming from", self.started) if self.resumes else self.started
        since = self.seconds_since_update()
        if begun is None or since > 1.0 or time.time() - since <= begun:
            return False
        records = self.records()
        return len(records) > 2 and records[-1]["actors"] == str(ACTORS)

    def seconds_since_update(self) -> float:
        """Return the seconds since the last record was written."""
        path = None if self.folder is None else self.folder / "progress.csv"
        return time.time() - path.stat().st_mtime if path is not None and path.exists() else float("inf")

    def role(self, name: str) -> int | None:
        """Return the process number of learner or evaluator; None if there is none."""
        rows = processes()
        servers = {p for p, parent, _, _, command in rows if parent == self.process.pid and "fork" in command}
        roles = sorted((start_time(p) or 0, p) for p, parent, *_ in rows if parent in servers)
        return roles[("learner", "evaluator").index(name)][1] if len(roles) == 2 else None

    def ratio(self) -> tuple[int, float]:
        """Return the rows of the newest checkpoint, and how often one was sampled since learning began."""
        checkpoint, config = newest_checkpoint(self.folder), RunFolder(self.folder).config()
        rows = max(1, checkpoint.step - config.replay_start)
        return checkpoint.step, checkpoint.samples / rows

    def rows_twice(self) -> int:
        """Count the rows of the newest checkpoint that another row equals: CartPole never repeats itself."""
        path = complete_checkpoints(self.folder)[-1][1] / ROWS
        with np.load(path, allow_pickle=False) as file:
            rows: NDArray[np.uint64] = np.array(file["rows"])  # uint64[rows, words]
        return len(rows) - len(np.unique(rows, axis=0))
