"""Records: how the run is going, for the eye while it runs and for the curves afterwards.

Every so many updates one record is made, and the same record goes to three places: a line of the CSV file, points in
TensorBoard under the names that CleanRL's users know, and the progress bar. Everything is counted in environment steps,
the one measure that doesn't depend on the machine.

Left out: quantiles of priorities and weights, ages of rows.
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

import csv
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch.utils.tensorboard.writer import SummaryWriter

from replay_tutorial.apex.actor import Report
from replay_tutorial.apex.evaluate import Evaluation
from replay_tutorial.apex.learner import Learner

COLUMNS = {  # of the CSV file → in TensorBoard
    "episodic_return": "charts/episodic_return",  # mean of the actors' last episodes, all ε together
    "episodic_length": "charts/episodic_length",
    "steps_per_second": "charts/SPS",
    "updates_per_second": "charts/UPS",
    "replay_ratio": "charts/replay_ratio",  # rows sampled for each row inserted
    "td_loss": "losses/td_loss",
    "q_values": "losses/q_values",
    "stale_updates": "replay/stale_updates",
    "evaluation": "evaluation/mean_return",  # empty where no evaluation was made
}
HEADER = ("step", "update", "seconds", *COLUMNS)
LAST_EPISODES = 50  # that the mean of the actors' returns is taken over


class Recorder:
    """Makes the records. A context manager, because files and progress bar have to be closed.

    Args:
        folder: Where the files go.
        learner: Whose progress is recorded.
        total_steps: The end of the bar.
        progress: Whether to show the bar.
    """

    def __init__(self, folder: Path, learner: Learner, total_steps: int, progress: bool) -> None:
        self.learner = learner
        self.returns: deque[float] = deque(maxlen=LAST_EPISODES)
        self.lengths: deque[int] = deque(maxlen=LAST_EPISODES)
        self.started = self.last_time = time.monotonic()
        self.last_step = self.last_update = 0
        self.file = (folder / "progress.csv").open("w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(HEADER)
        self.tensorboard = SummaryWriter(str(folder))
        self.bar = Progress(
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} steps"),
            BarColumn(bar_width=16),
            TimeElapsedColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=Console(),
            disable=not progress,
        )
        self.task = self.bar.add_task("train", total=total_steps, numbers="actors are starting")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
        self.tensorboard.close()
        self.file.close()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.started

    def hear(self, reports: Sequence[Report]) -> None:
        """Take in what the actors report."""
        for report in reports:
            self.returns.extend(report.returns)
            self.lengths.extend(report.lengths)

    def show(self, step: int) -> None:
        """Move the progress bar."""
        self.bar.update(self.task, completed=step)

    def record(self, step: int, evaluation: Evaluation | None) -> None:
        """Write one record."""
        learner, now = self.learner, time.monotonic()
        seconds = max(now - self.last_time, 1e-9)
        values = {
            "episodic_return": float(np.mean(self.returns)) if self.returns else None,
            "episodic_length": float(np.mean(self.lengths)) if self.lengths else None,
            "steps_per_second": (step - self.last_step) / seconds,
            "updates_per_second": (learner.updates - self.last_update) / seconds,
            "replay_ratio": learner.updates * learner.config.batch_size / max(1, step),
            "td_loss": learner.metrics.get("td_loss"),
            "q_values": learner.metrics.get("q_values"),
            "stale_updates": float(learner.replay.stale_updates),
            "evaluation": None if evaluation is None else evaluation.mean,
        }
        self.last_time, self.last_step, self.last_update = now, step, learner.updates
        cells = ["" if value is None else f"{value:.6g}" for value in values.values()]
        self.writer.writerow([step, learner.updates, f"{now - self.started:.2f}", *cells])
        self.file.flush()
        for name, value in values.items():
            if value is not None:
                self.tensorboard.add_scalar(COLUMNS[name], value, step)
        self.bar.update(self.task, completed=step, numbers=numbers_text(values))

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


def numbers_text(values: dict[str, float | None]) -> str:
    """Return the numbers beside the bar."""
    episodic_return = values["episodic_return"]
    shown = "-" if episodic_return is None else f"{episodic_return:.1f}"
    return (
        f"return {shown} · {values['steps_per_second']:,.0f} steps/s · "
        f"{values['updates_per_second']:,.0f} updates/s"
    )
