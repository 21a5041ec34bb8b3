"""`python -m replay_tutorial bench learning`: does `train` reach its targets, for every seed, in time?

Environments, seeds, targets and time limits are fixed in `TASKS` before any run. Each run is what the
command line's `train` does, with the environment's preset and a seed, and its score is the mean of 100
greedy episodes that played no part in choosing the policy. On CartPole Stable-Baselines3's DQN takes turns
with ours, so that both meet the same machine.

Left out: tuning; it must be over before this begins.
"""

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
from replay_tutorial.bench.peers import dqn
from replay_tutorial.bench.scores import Score, Summary, summary_of
from replay_tutorial.measuring.markdown import put_table, table
from replay_tutorial.measuring.output import add_count, add_markdown, new_parser, write_record
from replay_tutorial.measuring.provenance import Provenance

OURS, MET = "replay_tutorial", "met"
PACKAGES = ("torch", "gymnasium", "stable-baselines3")
HEADS = (
    *("environment", "agent", "seeds", "IQM (95% interval)", "target", "seeds at the target"),
    *("s of learning", "slowest", "s to the target", "verdict"),
)


@dataclass(frozen=True)
class Task:
    """The targets for one environment."""

    environment: str
    seeds: int  # 0, 1, 2, ...
    target: float  # that the interquartile mean has to reach
    seconds: float  # that one seed may take to learn, on 2 cores
    every_seed: bool = False  # whether each seed has to reach the target, too
    seconds_to_target: float | None = None  # that half of the seeds may take to an evaluation at the target
    times_faster: float | None = (
        None  # to the target than Stable-Baselines3's DQN, which takes turns with ours
    )


CARTPOLE = Task("CartPole-v1", 10, 475.0, 60.0, every_seed=True, seconds_to_target=30.0, times_faster=2.0)
TASKS = (
    CARTPOLE,
    Task("Acrobot-v1", seeds=10, target=-90.0, seconds=240.0),
    Task("Pendulum-v1", seeds=10, target=-170.0, seconds=240.0),
    Task("LunarLander-v3", seeds=5, target=220.0, seconds=900.0),
)


def train_once(task: Task, seed: int, changes: dict[str, Any]) -> dict[str, Score]:
    """Do what `train` does on the command line, and see when it reached the target.

    Raises:
        KeyboardInterrupt: If Ctrl-C ended the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset(task.environment), seed=seed, progress=False, runs=Path(folder))
        result = train(replace(config, **changes))
        if result.evaluation is None:
            raise KeyboardInterrupt
        with (result.folder / "evaluations.csv").open(newline="") as file:
            evaluations = list(csv.DictReader(file))
    reached = [float(row["seconds"]) for row in evaluations if float(row["mean"]) >= task.target]
    score = Score(
        seed=seed,
        mean=result.evaluation.mean,
        seconds=result.seconds,
        seconds_to_target=reached[0] if reached else None,
        steps=result.steps,
        end=result.end,
    )
    return {OURS: score}


def measure(task: Task, changes: dict[str, Any], with_peer: bool) -> dict[str, Summary]:
    """Let all agents learn one environment, in turns, and print each score as it comes."""
    agents: list[Callable[[int], dict[str, Score]]] = [lambda seed: train_once(task, seed, changes)]
    if with_peer and task.times_faster is not None:
        if (reason := dqn.missing()) is None:
            agents.append(lambda seed: dqn.train_once(task.environment, seed, task.target))
        else:
            print(f"skipped {reason}")
    scores: dict[str, list[Score]] = {}
    for seed in range(task.seeds):
        for learn in agents:
            for name, score in learn(seed).items():
                scores.setdefault(name, []).append(score)
                at = "never" if score.seconds_to_target is None else f"after {score.seconds_to_target:.1f} s"
                told = f"mean {score.mean:.1f}, {score.steps:,} steps in {score.seconds:.1f} s ({score.end})"
                print(f"{task.environment} seed {seed}, {name}: {told}; at {task.target:g} {at}", flush=True)
    return {name: summary_of(each, task.target) for name, each in scores.items()}


def verdict(task: Task, summaries: dict[str, Summary]) -> str:
    """Return whether our scores meet the task's targets, or which they miss."""
    misses: list[str] = []
    summary = summaries[OURS]
    if summary.interquartile_mean < task.target:
        misses.append("the interquartile mean is below the target")
    if task.every_seed and summary.reached < len(summary.scores):
        misses.append(f"{len(summary.scores) - summary.reached} seeds are below the target")
    if (slowest := max(score.seconds for score in summary.scores)) > task.seconds:
        misses.append(f"a seed took {slowest:.0f} s")
    seconds = seconds_to_target(summary)
    if seconds > (task.seconds_to_target or np.inf):
        misses.append(f"half of the seeds took {seconds:.0f} s to the target")
    for name, other in summaries.items():
        if name != OURS and seconds_to_target(other) < (task.times_faster or 0.0) * seconds:
            misses.append(f"{seconds_to_target(other) / seconds:.1f} times as fast to the target as {name}")
    return "; ".join(misses) or MET


def seconds_to_target(summary: Summary) -> float:
    """Return the median time to the target; infinite where half of the seeds never reached it."""
    return np.inf if summary.median_seconds_to_target is None else summary.median_seconds_to_target


def table_of(records: dict[str, dict[str, Any]]) -> str:
    """Return the records as a Markdown table, with where each comes from."""
    rows: list[list[str]] = []
    sources: dict[str, list[str]] = {}
    for task in (task for task in TASKS if task.environment in records):
        record = records[task.environment]
        summaries = {
            name: summary_of([Score(**score) for score in agent["scores"]], task.target)
            for name, agent in record["agents"].items()
        }
        ours = verdict(task, summaries)
        rows += [cells_of(task, name, each, ours if name == OURS else "") for name, each in summaries.items()]
        sources.setdefault(str(Provenance.read(record)), []).append(task.environment)
    about = (f"{', '.join(environments)}: {source}" for source, environments in sources.items())
    lines = "\n".join(table(HEADS, rows, words=2))
    return "\n\n".join([lines, "Seconds are medians, except those of the slowest seed.", *about]) + "\n"


def cells_of(task: Task, name: str, summary: Summary, ours: str) -> list[str]:
    """Return one agent's row of the table."""
    low, high = summary.interval
    seconds = summary.median_seconds_to_target
    slowest = max(score.seconds for score in summary.scores)
    return [
        *(task.environment, name, str(len(summary.scores))),
        f"{summary.interquartile_mean:.1f} ({low:.1f}, {high:.1f})",
        *(f"{task.target:g}", str(summary.reached), f"{summary.median_seconds:.1f}", f"{slowest:.1f}"),
        *("never" if seconds is None else f"{seconds:.1f}", ours),
    ]


def draw(records: dict[str, dict[str, Any]], output: Path) -> Path:
    """Draw a panel for each environment: each seed, the interquartile mean, the target."""
    from replay_tutorial.measuring.charts import new_figure, save

    figure = new_figure(3.4 * len(records), 3.9)
    labels: dict[str, Any] = {}  # agent → its points
    for number, (environment, record) in enumerate(records.items()):
        axes = figure.add_subplot(1, len(records), number + 1)
        for place, (name, summary) in enumerate(record["agents"].items()):
            means = [score["mean"] for score in summary["scores"]]
            # Side by side, so that equal scores don't hide each other.
            spread = [place + 0.3 * (i / max(1, len(means) - 1) - 0.5) for i in range(len(means))]
            (labels[name],) = axes.plot(spread, means, "o", markersize=4, alpha=0.5, color=f"C{place}")
            axes.plot([place + 0.3] * 2, summary["interval"], color=f"C{place}", linewidth=2)
            axes.plot(place + 0.3, summary["interquartile_mean"], "D", markersize=6, color=f"C{place}")
        axes.axhline(record["task"]["target"], color="0.4", linestyle="--", linewidth=1)
        axes.set_title(f"{environment}, target {record['task']['target']:g}", fontsize=10)
        axes.set_xlim(-0.5, len(record["agents"]) - 0.2)
        axes.set_xticks([])
        axes.set_ylabel("mean return of 100 greedy episodes")
        axes.grid(alpha=0.3, axis="y")
    # Below the panels, where it hides no point.
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return save(figure, output, "learning")


def main(argv: Sequence[str]) -> int:
    """Run the tasks; return 1 if our scores miss a target or the table was not written, else 0."""
    parser = new_parser(
        "learning", "Train on each environment with several seeds, and see whether the targets are met."
    )
    names = [task.environment for task in TASKS]
    parser.add_argument(
        "--environments", nargs="+", choices=names, default=names, help="which (default: all)"
    )
    add_count(parser, "--seeds", None, "how many, instead of the task's number")
    add_count(parser, "--steps", None, "environment steps of a run, instead of the preset's")
    parser.add_argument("--no-peer", action="store_true", help="leave Stable-Baselines3 out")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("learning"),
        metavar="FOLDER",
        help="where learning.json and learning.svg go; other environments in an old learning.json stay "
        "(default: %(default)s)",
    )
    add_markdown(parser, "learning")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "learning.json"
    records: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    changes = {} if arguments.steps is None else {"total_steps": arguments.steps}
    met = written = True
    for task in TASKS:
        if task.environment not in arguments.environments:
            continue
        task = replace(task, seeds=arguments.seeds or task.seeds)
        summaries = measure(task, changes, not arguments.no_peer)
        records[task.environment] = {
            "task": asdict(task),
            **Provenance.of("learning", argv, PACKAGES)._asdict(),
            "agents": {name: asdict(summary) for name, summary in summaries.items()},
        }
        met &= verdict(task, summaries) == MET
        records = {
            each.environment: records[each.environment] for each in TASKS if each.environment in records
        }
        # after each environment, because hours may have gone into it
        write_record(file, records)
        written = put_table(arguments.markdown, "learning", table_of(records))
        draw(records, arguments.output / "learning.svg")
    print(f"\n{table_of(records)}", end="")
    return 0 if written and met else 1
