"""Records: how the run is going, for the eye while it runs and for the curves afterwards.

The learner sends its numbers every `record_interval` updates; the recorder adds what the actors have told it,
and writes one line of `progress.csv`, points in TensorBoard under the names that CleanRL's users know, and
the progress bar. The evaluator's reports go to `evaluations.csv` in the same way. Everything is counted in
environment steps, the one measure that doesn't depend on the machine: seconds stand in columns of their own.
"""

import contextlib
import csv
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from replay_tutorial.apex import messages
from replay_tutorial.apex.messages import Message
from replay_tutorial.apex.runs.event_file import EventFile
from replay_tutorial.apex.runs.files import read_columns, read_table
from replay_tutorial.buffers.atomic_file import replace_file, with_path

# Columns of progress.csv → their names in TensorBoard.
COLUMNS = {
    "episodic_return": "charts/episodic_return",  # mean of the last episodes of all actors
    "episodic_length": "charts/episodic_length",
    "SPS": "charts/SPS",  # environment steps a second
    "UPS": "charts/UPS",  # updates a second
    "replay_ratio": "charts/replay_ratio",  # rows sampled for each row inserted
    "parameters_age": "charts/parameters_age",  # updates by which the actors are behind the learner, mean
    "restarts": "charts/restarts",  # of actors that were killed
    "td_loss": "losses/td_loss",
    "policy_loss": "losses/policy_loss",  # empty where there is no policy network
    "q_values": "losses/q_values",
    "stale_updates": "replay/stale_updates",  # priorities that came too late for their rows
    **{
        f"{name}_{p}": f"replay/{name}_{p}"
        for name in ("priority", "weight", "row_age")
        for p in messages.QUANTILES
    },
    # Empty on one machine.
    "hosts": "cluster/hosts",
    "actors": "cluster/actors",  # heard within the last seconds
    "rows_lost": "cluster/rows_lost",  # sent and never answered, so far
}
TIMES = ("seconds", "SPS", "UPS")  # the columns in which two runs with the same seed differ
WHEN = ("step", "update", "seconds")  # the first columns of both files
RETURNS = ("mean", "standard_error", "min", "max", "episodes", "confirmation")  # of evaluations.csv
LAST_EPISODES = 50  # that the means of the actors are taken over


class Recorder:
    """Makes the records. A context manager, because files and progress bar have to be closed.

    Args:
        folder: Where the files go; records that stand there already are continued.
        total_steps: The end of the bar.
        progress: Whether to show the bar.
        first_step: Environment steps made before, in a run that is resumed.
        first_update: Updates made before.
    """

    def __init__(
        self, folder: Path, total_steps: int, progress: bool, first_step: int = 0, first_update: int = 0
    ) -> None:
        self.returns: deque[float] = deque(maxlen=LAST_EPISODES)
        self.lengths: deque[int] = deque(maxlen=LAST_EPISODES)
        self.ages: deque[int] = deque(maxlen=LAST_EPISODES)
        self.restarts = 0
        self.cluster: dict[str, float] = {}  # of a run on many machines
        self.values: dict[str, float | None] = dict.fromkeys(COLUMNS)  # of the last record
        self.last_step, self.last_update = first_step, first_update
        self.last_time = time.monotonic()
        self.started = self.last_time - last_seconds(folder / "progress.csv")
        files = {"progress.csv": COLUMNS, "evaluations.csv": RETURNS}
        for name, columns in files.items():
            write_header(folder / name, (*WHEN, *columns))
        self.files = [(folder / name).open("a", newline="") for name in files]
        self.progress, self.evaluations = map(csv.writer, self.files)
        self.tensorboard = EventFile(folder, first_step + 1 if first_step else None)
        self.bar = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
            # In a column of its own, so that it is wrapped where the terminal is narrow.
            TextColumn("{task.fields[numbers]}", table_column=Column()),
            console=Console(),
            disable=not progress,
        )
        self.task = self.bar.add_task("train", total=total_steps, completed=first_step, numbers="starting")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        for file in (self.tensorboard.file, *self.files):
            with contextlib.suppress(OSError):  # of a record that could not be written, which has been told
                file.close()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning, those before a resumption included."""
        return time.monotonic() - self.started

    def receive(self, message: Message) -> None:
        """Record what a role says."""
        match message:
            case messages.Episodes():
                self.returns.extend(message.returns)
                self.lengths.extend(message.lengths)
                self.ages.append(message.parameters_age)
            case messages.Progress():
                self.record(message)
            case messages.EvaluationReport():
                self.record_evaluation(message)
            case messages.Saved():
                if message.error is not None:
                    self.print_line(f"no checkpoint at step {message.step:,}: {message.error}")
            case messages.Cluster():
                self.cluster = {name: float(n) for name, n in message._asdict().items()}
                self.values |= self.cluster
                self.bar.update(self.task, numbers=numbers_text(self.values))  # also if the learner waits
            case messages.Note():
                self.print_line(message.text)
            case messages.Failure():
                self.print_line(message.traceback)

    def record(self, message: messages.Progress) -> None:
        """Write a record."""
        step, update, now = message.step, message.update, time.monotonic()
        seconds = max(now - self.last_time, 1e-9)
        told = {
            "episodic_return": mean(self.returns),
            "episodic_length": mean(self.lengths),
            "SPS": (step - self.last_step) / seconds,
            "UPS": (update - self.last_update) / seconds,
            "parameters_age": mean(self.ages),
            "restarts": float(self.restarts),
            **self.cluster,
        }
        self.values = values = {name: (told | message.values).get(name) for name in COLUMNS}
        self.last_time, self.last_step, self.last_update = now, step, update
        self._write(self.progress, [step, update, f"{self.seconds:.2f}", *values.values()])
        self.tensorboard.add(step, {COLUMNS[name]: value for name, value in values.items()})
        self.bar.update(self.task, completed=step, numbers=numbers_text(values))

    def record_evaluation(self, message: messages.EvaluationReport) -> None:
        """Write down what the evaluator reports."""
        step, evaluation, confirmation = message.step, message.evaluation, message.confirmation
        returns = evaluation.returns
        cells = [step, message.update, f"{self.seconds:.2f}", evaluation.mean, evaluation.standard_error]
        cells += [returns.min(), returns.max(), len(returns)]
        self._write(self.evaluations, [*cells, None if confirmation is None else confirmation.mean])
        self.tensorboard.add(step, {"evaluation/mean_return": evaluation.mean})
        if confirmation is not None and not message.is_tie:
            self.print_line(f"{step:>9,} steps, {message.update:>7,} updates: best so far, {confirmation}")

    def update_progress(self, step: int) -> None:
        """Move the progress bar."""
        self.bar.update(self.task, completed=step)

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def state(self) -> dict[str, Any]:
        """Copy what the next records depend on, except the times."""
        return {"returns": list(self.returns), "lengths": list(self.lengths), "ages": list(self.ages)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self.ages.extend(state["ages"])

    def _write(self, writer: Any, cells: Sequence[Any]) -> None:
        writer.writerow([f"{cell:.9g}" if isinstance(cell, float) else cell for cell in cells])
        for file in self.files:
            try:
                file.flush()
            except OSError as error:
                raise with_path(error, Path(file.name)) from error


def write_header(path: Path, header: Sequence[str]) -> None:
    """Write the header if there is none; at once, because a run may be killed before its first record."""
    try:
        with path.open("a", newline="") as file:
            if file.tell() == 0:
                csv.writer(file).writerow(header)
    except OSError as error:
        raise with_path(error, path) from error


def mean(values: Sequence[float]) -> float | None:
    """Return the mean; None of nothing."""
    return float(np.mean(values)) if values else None


def updates_and_seconds(path: Path) -> list[list[Any]]:
    """Read the first columns of a file of records; two empty ones if there is none.

    Raises:
        DamagedFile: If they can't be read.
    """
    if not path.exists() or path.stat().st_size == 0:
        return [[], []]
    return read_columns(path, {"update": int, "seconds": float})


def last_seconds(path: Path) -> float:
    """Return the time of the last record; 0 if there is none."""
    return max(updates_and_seconds(path)[1], default=0.0)


def truncate_records(path: Path, update: int) -> int:
    """Remove the records after an update from a file; return the last update that is left, 0 if none is.

    The run is resumed at a checkpoint that came before them. A last line that is half written goes, too.
    """
    updates, _ = updates_and_seconds(path)
    if not path.exists() or path.stat().st_size == 0:
        return 0
    header, rows = read_table(path)
    kept = [row for row, of_row in zip(rows, updates, strict=True) if of_row <= update]

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="") as file:
            csv.writer(file).writerows([header, *kept])

    replace_file(path, write)
    return max((of_row for of_row in updates if of_row <= update), default=0)


def numbers_text(values: dict[str, float | None]) -> str:
    """Return the numbers beside the bar."""

    def shown(name: str, form: str) -> str:
        value = values[name]
        return "-" if value is None else format(value, form)

    numbers = (
        f"return {shown('episodic_return', '.1f')} · {shown('SPS', ',.0f')} steps/s · "
        f"{shown('UPS', ',.0f')} updates/s · ratio {shown('replay_ratio', '.2f')} · "
        f"parameters {shown('parameters_age', '.0f')} updates old"
    )
    if values["hosts"] is None:
        return numbers
    lost = shown("rows_lost", ",.0f")
    return f"{numbers} · {shown('actors', '.0f')} actors, {shown('hosts', '.0f')} hosts · {lost} rows lost"
