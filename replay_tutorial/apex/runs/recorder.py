"""Records: the progress of a run, as a progress bar, CSV files and TensorBoard events.

Every `record_interval` updates, the learner sends its metrics. The recorder adds the actors' metrics, writes
one line to `progress.csv` and the same values to TensorBoard, under the names that CleanRL uses, and updates
the progress bar. Only TensorBoard gets the returns for each ε, because their number depends on the run. The
recorder writes the evaluator's reports to `evaluations.csv`. All records are indexed by environment steps,
which don't depend on the machine; seconds are a separate column.
"""

import contextlib
import csv
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TextIO, cast

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column

from replay_tutorial.apex import messages
from replay_tutorial.apex.messages import Message
from replay_tutorial.apex.runs.event_file import EventFile
from replay_tutorial.apex.runs.files import read_columns, read_table
from replay_tutorial.apex.runs.signals import TerminalOutput
from replay_tutorial.buffers.runtime.atomic_file import replace_file, with_path

# Column of progress.csv → name in TensorBoard
COLUMNS = {
    "episodic_return": "charts/episodic_return",  # mean of the last episodes of all actors
    "episodic_length": "charts/episodic_length",
    "SPS": "charts/SPS",  # environment steps per second
    "UPS": "charts/UPS",  # updates per second
    "replay_ratio": "charts/replay_ratio",  # rows sampled per row inserted
    "parameters_age": "charts/parameters_age",  # mean number of updates that actors lag behind the learner
    "restarts": "charts/restarts",  # actors restarted after they were killed
    "td_loss": "losses/td_loss",
    "policy_loss": "losses/policy_loss",  # empty for DQN
    "q_values": "losses/q_values",
    "stale_updates": "replay/stale_updates",  # priorities dropped because their rows had been overwritten
    **{
        f"{name}_{p}": f"replay/{name}_{p}"
        for name in ("priority", "weight", "row_age")
        for p in messages.QUANTILES
    },
    # Only on a cluster:
    "hosts": "cluster/hosts",
    "actors": "cluster/actors",  # running, as far as the driver knows
    "rows_lost": "cluster/rows_lost",  # total number of rows sent but not acknowledged
}
TIME_COLUMNS = ("seconds", "SPS", "UPS")  # columns that differ between two runs with the same seed
INDEX_COLUMNS = ("step", "update", "seconds")  # the first columns of both files
# The other columns of evaluations.csv
EVALUATION_COLUMNS = ("mean", "standard_error", "min", "max", "episodes", "confirmation")
EVALUATED_RETURN = "evaluation/mean_return"  # in TensorBoard
EPISODE_WINDOW = 50  # number of episodes over which the actors' returns are averaged
EPSILON_GROUP = "returns_by_epsilon/"  # of the curves in TensorBoard
MAX_CURVES = 8  # in this group; 256 actors have 256 values of ε


class Recorder:
    """Writes the records of a run; a context manager that closes the files and the progress bar.

    Args:
        folder: Folder for the files; existing records are continued.
        total_steps: Environment steps at which the bar is full.
        progress: Whether to show the bar.
        first_step: Environment steps made before the run was resumed.
        first_update: Updates made before the run was resumed.
        exploration: Exploration parameter of each environment, float[environments].
    """

    def __init__(
        self,
        folder: Path,
        total_steps: int,
        progress: bool,
        first_step: int = 0,
        first_update: int = 0,
        exploration: Sequence[float] = (),
    ) -> None:
        self.curves = epsilon_curves(exploration)
        self.curve_returns: list[tuple[int, float]] = []  # environment and return, since the last record
        self.returns: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.lengths: deque[int] = deque(maxlen=EPISODE_WINDOW)
        self.ages: deque[int] = deque(maxlen=EPISODE_WINDOW)
        self.restarts = 0
        self.cluster: dict[str, float] = {}  # the last report of a cluster
        self.values: dict[str, float | None] = dict.fromkeys(COLUMNS)  # the last record
        self.last_step, self.last_update = first_step, first_update
        self.last_time = time.monotonic()
        self.started = self.last_time - last_seconds(folder / "progress.csv")
        files = {"progress.csv": COLUMNS, "evaluations.csv": EVALUATION_COLUMNS}
        for name, columns in files.items():
            write_header(folder / name, (*INDEX_COLUMNS, *columns))
        self.files = [(folder / name).open("a", newline="", encoding="utf-8") for name in files]
        self.progress, self.evaluations = map(csv.writer, self.files)
        self.tensorboard = EventFile(folder, first_step + 1 if first_step else None)
        if self.curves:
            self.tensorboard.set_chart("return for each ε", [EPSILON_GROUP, EVALUATED_RETURN])
        self.bar = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
            # With a table column, the text wraps in a narrow terminal.
            TextColumn("{task.fields[numbers]}", table_column=Column()),
            # Without a bar, lines of text: in a notebook, rich would print each as HTML.
            console=Console(file=cast(TextIO, TerminalOutput()), force_jupyter=None if progress else False),
            disable=not progress,
        )
        self.task = self.bar.add_task("train", total=total_steps, completed=first_step, numbers="starting")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        for file in (self.tensorboard.file, *self.files):
            with contextlib.suppress(OSError):  # from a record whose failed write has already been reported
                file.close()

    @property
    def seconds(self) -> float:
        """Seconds since the start of the run, including those before it was resumed."""
        return time.monotonic() - self.started

    def receive(self, message: Message) -> None:
        """Record a message from a role."""
        match message:
            case messages.Episodes():
                self.returns.extend(message.returns)
                self.lengths.extend(message.lengths)
                self.ages.append(message.parameters_age)
                ended = zip(message.environments, message.returns, strict=True)
                self.curve_returns += [episode for episode in ended if episode[0] in self.curves]
            case messages.Progress():
                self.record(message)
            case messages.EvaluationReport():
                self.record_evaluation(message)
            case messages.Saved():
                if message.error is not None:
                    failed = f"could not write a checkpoint at step {message.step:,}"
                    self.print_line(f"{failed}: {message.error}")
            case messages.Cluster():
                self.cluster = {name: float(n) for name, n in message._asdict().items()}
                self.values |= self.cluster
                # While the learner waits for rows, it sends no records that would update the bar.
                self.bar.update(self.task, numbers=numbers_text(self.values))
            case messages.Note():
                self.print_line(message.text)
            case messages.Failure():
                self.print_line(message.traceback)

    def record(self, message: messages.Progress) -> None:
        """Write a record of the learner's metrics."""
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
        shown = {COLUMNS[name]: value for name, value in values.items()}
        self.tensorboard.add(step, shown | self.mean_of_each_curve())
        self.bar.update(self.task, completed=step, numbers=numbers_text(values))

    def mean_of_each_curve(self) -> dict[str, float | None]:
        """Return the mean return of each curve since the last call; None if no episode has ended."""
        returns: dict[str, list[float]] = {name: [] for name in self.curves.values()}
        for environment, episode_return in self.curve_returns:
            returns[self.curves[environment]].append(episode_return)
        self.curve_returns.clear()
        return {name: mean(values) for name, values in returns.items()}

    def record_evaluation(self, message: messages.EvaluationReport) -> None:
        """Write a record of an evaluation, and print it if the policy is the best so far."""
        step, evaluation, confirmation = message.step, message.evaluation, message.confirmation
        returns = evaluation.returns
        cells = [step, message.update, f"{self.seconds:.2f}", evaluation.mean, evaluation.standard_error]
        cells += [returns.min(), returns.max(), len(returns)]
        self._write(self.evaluations, [*cells, None if confirmation is None else confirmation.mean])
        self.tensorboard.add(step, {EVALUATED_RETURN: evaluation.mean})
        if confirmation is not None and not message.is_tie:
            self.print_line(f"{step:>9,} steps, {message.update:>7,} updates: best so far, {confirmation}")

    def update_progress(self, step: int) -> None:
        """Set the progress bar to `step`."""
        self.bar.update(self.task, completed=step)

    def print_line(self, line: str) -> None:
        """Print a line above the progress bar."""
        self.bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def state(self) -> dict[str, Any]:
        """Return the state that the next records depend on, except the times."""
        recent = {"returns": list(self.returns), "lengths": list(self.lengths), "ages": list(self.ages)}
        return {**recent, "curve_returns": list(self.curve_returns)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state that `state` returned."""
        self.returns.extend(state["returns"])
        self.lengths.extend(state["lengths"])
        self.ages.extend(state["ages"])
        self.curve_returns += map(tuple, state["curve_returns"])

    def _write(self, writer: Any, cells: Sequence[Any]) -> None:
        writer.writerow([f"{cell:.9g}" if isinstance(cell, float) else cell for cell in cells])
        for file in self.files:
            try:
                file.flush()
            except OSError as error:
                raise with_path(error, Path(file.name)) from error


def epsilon_curves(exploration: Sequence[float]) -> dict[int, str]:
    """Return the environments whose returns have a curve in TensorBoard, with the names of the curves.

    Up to `MAX_CURVES` values of ε have a curve, at equal distances in the schedule and with both ends. If all
    environments explore equally, there are none, because `charts/episodic_return` is that curve.

    Args:
        exploration: Exploration parameter of each environment, float[environments].

    Example:
        >>> epsilon_curves([0.4, 0.0162, 0.000655])
        {0: 'returns_by_epsilon/0.4', 1: 'returns_by_epsilon/0.0162', 2: 'returns_by_epsilon/0.000655'}
    """
    if len(set(exploration)) < 2:
        return {}
    gaps = min(MAX_CURVES, len(exploration)) - 1
    names: dict[int, str] = {}
    for curve in range(gaps + 1):
        environment = round(curve * (len(exploration) - 1) / gaps)
        # Never in scientific notation, so that the names have the same order as texts and as numbers.
        epsilon = np.format_float_positional(exploration[environment], 3, fractional=False, trim="-")
        names[environment] = EPSILON_GROUP + epsilon
    return names


def write_header(path: Path, header: Sequence[str]) -> None:
    """Write the header of an empty file immediately, because a run may be killed before its first record."""
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            if file.tell() == 0:
                csv.writer(file).writerow(header)
    except OSError as error:
        raise with_path(error, path) from error


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None if there are no values."""
    return float(np.mean(values)) if values else None


def updates_and_seconds(path: Path) -> list[list[Any]]:
    """Return the columns `update` and `seconds` of a CSV file; both are empty if there is no file."""
    if not path.exists() or path.stat().st_size == 0:
        return [[], []]
    return read_columns(path, {"update": int, "seconds": float})


def last_seconds(path: Path) -> float:
    """Return the time of the last record in seconds, or 0 if there is none."""
    return max(updates_and_seconds(path)[1], default=0.0)


def truncate_records(path: Path, update: int) -> int:
    """Remove the records after an update, and an incomplete last line, from the CSV file of a run.

    Return the last update that is left, or 0.
    """
    updates, _ = updates_and_seconds(path)
    if not path.exists() or path.stat().st_size == 0:
        return 0
    header, rows = read_table(path)
    kept = [row for row, of_row in zip(rows, updates, strict=True) if of_row <= update]

    def write(unfinished: Path) -> None:
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *kept])

    replace_file(path, write)
    return max((of_row for of_row in updates if of_row <= update), default=0)


def numbers_text(values: dict[str, float | None]) -> str:
    """Return the numbers that are shown beside the progress bar."""

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
    return f"{numbers} · {shown('actors', '.0f')} actors on {shown('hosts', '.0f')} hosts · {lost} rows lost"
