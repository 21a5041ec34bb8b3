"""Learning: does `train` reach its bars, for every seed, in time?

Environments, seeds, bars and time limits are fixed in `TABLE` before any run. Each run is what the command line's `train`
does, with the environment's preset and a seed, and its score is the mean of 100 greedy episodes that played no part in
choosing the policy. On CartPole Stable-Baselines3's DQN takes turns with ours, so that both meet the same machine.

Left out: tuning; it must be over before this begins.
"""

import argparse
import csv
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import page, table
from replay_tutorial.bench.method.report import put_table
from replay_tutorial.bench.training import learning_peer
from replay_tutorial.bench.training.learning_chart import draw
from replay_tutorial.bench.training.scores import Score, Summary, summary_of

PROGRAM = "python -m replay_tutorial bench learning"
OURS = "replay_tutorial"
PACKAGES = ("torch", "gymnasium", "stable-baselines3")
HEADS = (
    *("environment", "contestant", "seeds", "IQM (95% interval)", "bar", "seeds at the bar"),
    *("s of learning", "longest", "s to the bar", "promise"),
)


@dataclass(frozen=True)
class Task:
    """What is promised for one environment."""

    environment: str
    seeds: int  # 0, 1, 2, ...
    bar: float  # that the interquartile mean has to reach
    seconds: float  # that one seed may take to learn, on 2 cores
    every_seed: bool = False  # whether each seed has to reach the bar, too
    seconds_to_bar: float | None = None  # that half of the seeds may take to an evaluation at the bar
    times_faster: float | None = None  # than Stable-Baselines3's DQN to the bar, which takes turns with ours


TABLE = (
    Task(
        "CartPole-v1",
        seeds=10,
        bar=475.0,
        seconds=60.0,
        every_seed=True,
        seconds_to_bar=30.0,
        times_faster=2.0,
    ),
    Task("Acrobot-v1", seeds=10, bar=-90.0, seconds=240.0),
    Task("Pendulum-v1", seeds=10, bar=-170.0, seconds=240.0),
    Task("LunarLander-v3", seeds=5, bar=220.0, seconds=900.0),
)


def train_once(task: Task, seed: int, changes: dict[str, Any]) -> dict[str, Score]:
    """Do what `train` does on the command line, and see when it came to the bar.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset(task.environment), seed=seed, progress=False, runs=Path(folder))
        result = train(replace(config, **changes))
        if result.evaluation is None:
            raise KeyboardInterrupt
        with (result.folder / "evaluations.csv").open(newline="") as file:
            looks = list(csv.DictReader(file))
    reached = [float(row["seconds"]) for row in looks if float(row["mean"]) >= task.bar]
    score = Score(
        seed=seed,
        mean=result.evaluation.mean,
        seconds=result.seconds,
        seconds_to_bar=reached[0] if reached else None,
        steps=result.steps,
        end=result.end,
    )
    return {OURS: score}


def measure(task: Task, changes: dict[str, Any], with_peer: bool) -> dict[str, Summary]:
    """Let all contestants learn one environment, in turns, and print each score as it comes."""
    contestants: list[Callable[[int], dict[str, Score]]] = [lambda seed: train_once(task, seed, changes)]
    if with_peer and task.times_faster is not None:
        if (reason := learning_peer.missing()) is None:
            contestants.append(lambda seed: learning_peer.train_once(task.environment, seed, task.bar))
        else:
            print(f"skipped {reason}")
    scores: dict[str, list[Score]] = {}
    for seed in range(task.seeds):
        for learn in contestants:
            for name, score in learn(seed).items():
                scores.setdefault(name, []).append(score)
                print(text_line(task, name, score), flush=True)
    return {name: summary_of(each, task.bar) for name, each in scores.items()}


def text_line(task: Task, name: str, score: Score) -> str:
    """One score as a line of text."""
    to_bar = "never" if score.seconds_to_bar is None else f"after {score.seconds_to_bar:.1f} s"
    return (
        f"{task.environment} seed {score.seed}, {name}: mean {score.mean:.1f}, {score.steps:,} steps in "
        f"{score.seconds:.1f} s ({score.end}); at {task.bar:g} {to_bar}"
    )


def verdict(task: Task, summaries: dict[str, Summary]) -> str:
    """Say whether our scores keep what the table promises."""
    faults: list[str] = []
    summary = summaries[OURS]
    if summary.interquartile_mean < task.bar:
        faults.append("the interquartile mean is below the bar")
    if task.every_seed and summary.reached < len(summary.scores):
        faults.append(f"{len(summary.scores) - summary.reached} seeds are below the bar")
    if (longest := max(score.seconds for score in summary.scores)) > task.seconds:
        faults.append(f"a seed took {longest:.0f} s")
    to_bar = seconds_to_bar(summary)
    if to_bar > (task.seconds_to_bar or np.inf):
        faults.append(f"half of the seeds took {to_bar:.0f} s to the bar")
    for name, other in summaries.items():
        if name != OURS and seconds_to_bar(other) < (task.times_faster or 0.0) * to_bar:
            faults.append(f"{seconds_to_bar(other) / to_bar:.1f} times as fast to the bar as {name}")
    return "; ".join(faults) or "kept"


def seconds_to_bar(summary: Summary) -> float:
    """Give the median time to the bar; infinite where half of the seeds never came to it."""
    return np.inf if summary.median_seconds_to_bar is None else summary.median_seconds_to_bar


def record_of(task: Task, argv: Sequence[str], summaries: dict[str, Summary]) -> dict[str, Any]:
    """All about one environment that a reader needs to believe it, or to take it again."""
    return {
        "task": asdict(task),
        **Provenance.of(PROGRAM, argv, PACKAGES)._asdict(),
        "contestants": {name: asdict(summary) for name, summary in summaries.items()},
    }


def summaries_in(record: dict[str, Any], bar: float) -> dict[str, Summary]:
    """Sum up what a record holds of each contestant."""
    return {
        name: summary_of([Score(**score) for score in contestant["scores"]], bar)
        for name, contestant in record["contestants"].items()
    }


def table_of(records: dict[str, dict[str, Any]]) -> str:
    """The records as a Markdown table, with where each comes from."""
    rows: list[list[str]] = []
    sources: dict[str, list[str]] = {}
    for task in (task for task in TABLE if task.environment in records):
        record = records[task.environment]
        summaries = summaries_in(record, task.bar)
        promise = verdict(task, summaries)
        rows += [
            cells_of(task, name, each, promise if name == OURS else "") for name, each in summaries.items()
        ]
        sources.setdefault(str(Provenance.read(record)), []).append(task.environment)
    about = [
        "Seconds are medians but for the longest.",
        *(f"{', '.join(of)}: {source}" for source, of in sources.items()),
    ]
    return "\n\n".join(["\n".join(table(HEADS, rows, words=2)), *about]) + "\n"


def cells_of(task: Task, name: str, summary: Summary, promise: str) -> list[str]:
    """One contestant's row of the table."""
    low, high = summary.interval
    to_bar = summary.median_seconds_to_bar
    longest = max(score.seconds for score in summary.scores)
    return [
        *(task.environment, name, str(len(summary.scores))),
        f"{summary.interquartile_mean:.1f} ({low:.1f}, {high:.1f})",
        *(f"{task.bar:g}", str(summary.reached), f"{summary.median_seconds:.1f}", f"{longest:.1f}"),
        *("never" if to_bar is None else f"{to_bar:.1f}", promise),
    ]


def parser() -> argparse.ArgumentParser:
    """Describes the arguments."""
    arguments = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Train on each environment with several seeds, and see whether the bars are reached.",
    )
    names = [task.environment for task in TABLE]
    arguments.add_argument(
        "--environments", nargs="+", choices=names, default=names, help="which (default: all of the table)"
    )
    arguments.add_argument("--seeds", type=int, help="how many, instead of the table's number")
    arguments.add_argument("--steps", type=int, help="environment steps of a run, instead of the preset's")
    arguments.add_argument("--no-peer", action="store_true", help="leave Stable-Baselines3 out")
    arguments.add_argument(
        "--output",
        type=Path,
        default=Path("learning"),
        metavar="FOLDER",
        help="where learning.json and learning.svg go; other environments in an old learning.json stay "
        "(default: %(default)s)",
    )
    arguments.add_argument(
        "--markdown",
        type=page,
        metavar="FILE",
        help="write the table into this file, between its marks <!-- learning:begin --> and <!-- learning:end -->",
    )
    return arguments


def main(argv: Sequence[str]) -> int:
    """Runs the table.

    Args:
        argv: What follows `bench learning` on the command line.

    Returns:
        The exit status: 0, or 1 if our scores don't keep what the table promises, or the table was not written.
    """
    given = parser()
    arguments = given.parse_args(argv)
    if (arguments.seeds is not None and arguments.seeds < 1) or (arguments.steps or 1) < 1:
        given.error("--seeds and --steps must be at least 1")
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "learning.json"
    records: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    changes = {} if arguments.steps is None else {"total_steps": arguments.steps}
    kept = written = True
    for task in TABLE:
        if task.environment not in arguments.environments:
            continue
        task = replace(task, seeds=arguments.seeds or task.seeds)
        summaries = measure(task, changes, not arguments.no_peer)
        records[task.environment] = record_of(task, argv, summaries)
        kept &= verdict(task, summaries) == "kept"
        records = {
            each.environment: records[each.environment] for each in TABLE if each.environment in records
        }
        # After each environment: hours may have gone into it.
        file.write_text(json.dumps(records, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        written = put_table(arguments.markdown, "learning", table_of(records))
        draw(records, arguments.output / "learning.svg")
    print(f"\n{table_of(records)}", end="")
    return 0 if written and kept else 1
