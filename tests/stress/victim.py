"""A training run that a fault will hit: the command line in a session of its own, and what is left of it.

In a session of its own a signal to the run hits nothing else, and no process of the run can hide: all of
them are in one group, whoever their parent is by now.

Left out: Windows, which has neither groups nor these signals.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from benchmarks.measuring.fresh import python_path
from replay_tutorial.shared.processes import start_time

ROLES = ("learner", "actor", "evaluator")  # in the order in which a run with one actor starts them

TORCH_CACHE = "torchinductor_"  # and the user's name


def accept_ctrl_c() -> None:
    """Accept Ctrl-C, so that the processes that are started accept it from their first instruction on.

    A script's background job ignores it, and what is ignored stays ignored in all that it starts.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Victim:
    """A command of `python -m replay_tutorial` as a process group; a context manager that none outlives.

    What it prints goes into files of `folder`.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.printed, self.errors = folder / "printed.txt", folder / "errors.txt"
        self.temporary = Path(tempfile.mkdtemp(prefix="victim-"))  # its temporary files, and nobody else's
        accept_ctrl_c()
        # Files, not pipes: a pipe stays open as long as any process of the group lives.
        with self.printed.open("w") as printed, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "replay_tutorial", *arguments],
                stdout=printed,
                stderr=errors,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": python_path(), "TMPDIR": str(self.temporary)},
            )
        self.started = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal_all(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.temporary)

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def signal_all(self, number: int) -> None:
        """Send a signal to all processes, as a terminal does at Ctrl-C."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS forbids it if all are zombies
            os.killpg(self.process.pid, number)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds, as long as the run lives; return whether it holds."""
        return wait_until(lambda: condition() or self.process.poll() is not None, seconds) and condition()

    def end(self, seconds: float) -> int | None:
        """Wait for its end; return the exit status, or None if it doesn't end in time."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def role(self, name: str) -> int | None:
        """Return the process number of a role of a run with one actor; None if not all have been started."""
        roles = [process for process, what in self.children() if what == "role"]
        return roles[ROLES.index(name)] if len(roles) == len(ROLES) else None

    def children(self) -> list[tuple[int, str]]:
        """Return the process number of each other process, the oldest first, and what it is."""
        rows = processes()
        ours = {process: command for process, parent, *_, command in rows if parent == self.process.pid}
        servers = {process for process, command in ours.items() if "forkserver" in command}
        children = [(process, kind_of(command)) for process, command in ours.items()]
        children += [(process, "role") for process, parent, *_ in rows if parent in servers]
        # By their birth, because process numbers are used again.
        return sorted(children, key=lambda child: (start_time(child[0]) or 0, child))

    def files_left(self) -> list[str]:
        """Return the names of its temporary files, except torch's cache, which is meant to stay."""
        return sorted(name for name in os.listdir(self.temporary) if not name.startswith(TORCH_CACHE))

    def left(self, seconds: float) -> int:
        """Wait until no process of the group is left; count those that still are."""
        wait_until(lambda: not self._living(), seconds)
        return self._living()

    def _living(self) -> int:
        # A zombie is dead; when init removes an orphan is not up to this run.
        return sum(
            group == self.process.pid and not state.startswith("Z") for _, _, group, state, _ in processes()
        )


def kind_of(command: str) -> str:
    kinds = {"spawn_main": "role", "forkserver": "server", "resource_tracker": "tracker"}
    return next((kind for word, kind in kinds.items() if word in command), "other")


def processes() -> list[tuple[int, int, int, str, str]]:
    """Return number, parent, group, state and command of every process of this machine."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split(None, 4) for line in listed.splitlines()]
    return [
        (int(row[0]), int(row[1]), int(row[2]), row[3], row[4] if len(row) > 4 else "")
        for row in rows
        if len(row) >= 4
    ]


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds or the time is up; return whether it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
