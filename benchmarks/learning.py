"""`python -m benchmarks learning`: train the presets over several seeds and score the policies.

`TASKS` fixes the environments, seeds, target returns and time limits before any run. Each run calls `train`
with the environment's preset and a seed. Its score is the mean return of 100 greedy episodes that were not
used to select the policy. On CartPole, runs of Stable-Baselines3's DQN alternate with ours.
"""

import copy
import csv
import importlib
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import comparison, sb3
from benchmarks.measuring.output import add_count, write_record
from benchmarks.measuring.pages import write_table
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train

OUR_AGENT = "replay_tutorial"
LAST, BEST = "stable-baselines3, last policy", "stable-baselines3, best policy"
ZOO = {**sb3.CARTPOLE.settings, "exploration_fraction": 0.16}
SB3_TASK = replace(sb3.CARTPOLE, steps=50_000, interval=1_000, settings=ZOO)
PACKAGES = ("torch", "gymnasium", "stable-baselines3")
HEADS = (
    *("environment", "agent", "seeds", "IQM (95% interval)", "target", "seeds at the target"),
    *("learning time, s", "slowest seed, s", "time to the target, s"),
)


@dataclass(frozen=True)
class Task:
    """An environment, and the requirements on our scores there."""

    environment: str
    seeds: int  # number of seeds, which are 0, 1, 2, ...
    target: float  # minimum of the interquartile mean
    seconds: float  # maximum learning time of a seed on 2 cores
    every_seed: bool = False  # whether every seed must reach the target
    seconds_to_target: float | None = None  # maximum of the median time to the first evaluation at the target
    # Minimum ratio of the median time to the target of Stable-Baselines3's DQN to ours; measured only if set.
    times_faster: float | None = None


@dataclass(frozen=True)
class Score:
    """The result of one run of one agent."""

    seed: int
    mean: float  # return of 100 greedy episodes
    seconds: float  # learning time; ours includes evaluations, Stable-Baselines3's doesn't
    seconds_to_target: float | None  # until the first evaluation at the target; None if none reached it
    steps: int
    end: str


@dataclass(frozen=True)
class Summary:
    """Statistics over the scores of one agent."""

    interquartile_mean: float
    interval: tuple[float, float]  # 95%
    median_seconds: float
    median_seconds_to_target: float | None  # None if half of the seeds never reached the target
    reached: int  # number of seeds with a score at or above the target
    scores: list[Score]


CARTPOLE = Task("CartPole-v1", 10, 475.0, 60.0, every_seed=True, seconds_to_target=30.0, times_faster=2.0)
TASKS = (
    CARTPOLE,
    Task("Acrobot-v1", seeds=10, target=-90.0, seconds=240.0),
    Task("Pendulum-v1", seeds=10, target=-170.0, seconds=240.0),
    Task("LunarLander-v3", seeds=5, target=220.0, seconds=900.0),
)


def train_once(task: Task, seed: int, changes: dict[str, Any]) -> dict[str, Score]:
    """Train with one seed, as `train` does on the command line, and return the score."""
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset(task.environment), seed=seed, progress=False, runs=Path(folder))
        result = train(replace(config, **changes))
        if result.evaluation is None:  # Ctrl-C has interrupted the run
            raise KeyboardInterrupt
        with (result.folder / "evaluations.csv").open(newline="", encoding="utf-8") as file:
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
    return {OUR_AGENT: score}


def train_peer(seed: int, target: float, steps: int = SB3_TASK.steps) -> dict[str, Score]:
    """Train Stable-Baselines3's DQN on CartPole, and score two policies, its last one and its best one.

    The last policy is the one that `learn` returns. The best one of all evaluations corresponds to ours. The
    clock is stopped during evaluations. Records made before 2026-11-24 have one more evaluation, after the
    last update.
    """
    evaluations: list[tuple[float, float]] = []  # mean return, seconds
    best: Any = None

    def keep_the_best(policy: Any, mean: float, seconds: float) -> None:
        nonlocal best
        if mean >= max((each for each, _ in evaluations), default=-np.inf):
            best = copy.deepcopy(policy)
        evaluations.append((mean, seconds))

    last = sb3.train_once(replace(SB3_TASK, steps=steps), sb3.PLAIN, seed, keep_the_best).score
    reached = [seconds for mean, seconds in evaluations if mean >= target]
    score = Score(seed, last, evaluations[-1][1], reached[0] if reached else None, steps, "budget spent")
    return {LAST: score, BEST: replace(score, mean=sb3.final_score(best, SB3_TASK.environment, seed))}


def measure(task: Task, changes: dict[str, Any], with_peer: bool) -> dict[str, Summary]:
    """Train all agents on one environment, alternating for each seed; print each score."""
    agents: list[Callable[[int], dict[str, Score]]] = [lambda seed: train_once(task, seed, changes)]
    if with_peer and task.times_faster is not None:
        if find_spec("stable_baselines3") is None:
            print("skipped Stable-Baselines3: not installed; pip install stable-baselines3")
        else:
            importlib.import_module("stable_baselines3")  # a broken installation fails before the first run
            agents.append(lambda seed: train_peer(seed, task.target))
    scores: dict[str, list[Score]] = {}
    for seed in range(task.seeds):
        for learn in agents:
            for name, score in learn(seed).items():
                scores.setdefault(name, []).append(score)
                when = "never" if score.seconds_to_target is None else f"in {score.seconds_to_target:.1f} s"
                text = f"mean {score.mean:.1f}, {score.steps:,} steps in {score.seconds:.1f} s ({score.end})"
                text += f"; reached {task.target:g} {when}"
                print(f"{task.environment}, seed {seed}, {name}: {text}", flush=True)
    return {name: summary_of(each, task.target) for name, each in scores.items()}


def summary_of(scores: list[Score], target: float) -> Summary:
    """Return the statistics over the scores of one agent."""
    means = [score.mean for score in scores]
    to_target = [np.inf if score.seconds_to_target is None else score.seconds_to_target for score in scores]
    median_to_target = float(np.median(to_target))
    return Summary(
        interquartile_mean=comparison.interquartile_mean(means),
        interval=comparison.interval_of(means),
        median_seconds=float(np.median([score.seconds for score in scores])),
        median_seconds_to_target=median_to_target if np.isfinite(median_to_target) else None,
        reached=sum(mean >= target for mean in means),
        scores=scores,
    )


def misses_of(task: Task, summaries: dict[str, Summary]) -> list[str]:
    """Return a description of each requirement that our scores don't meet."""
    misses: list[str] = []
    summary = summaries[OUR_AGENT]
    if summary.interquartile_mean < task.target:
        misses.append("the interquartile mean is below the target")
    if task.every_seed and summary.reached < len(summary.scores):
        misses.append(f"{len(summary.scores) - summary.reached} seeds are below the target")
    if (slowest := max(score.seconds for score in summary.scores)) > task.seconds:
        misses.append(f"a seed took {slowest:.0f} s")
    seconds = seconds_to_target(summary)
    if seconds > (task.seconds_to_target or np.inf):
        misses.append(f"the median time to the target is {seconds:.0f} s")
    for name, other in summaries.items():
        if name != OUR_AGENT and seconds_to_target(other) < (task.times_faster or 0.0) * seconds:
            factor = seconds_to_target(other) / seconds
            misses.append(f"only {factor:.1f} times as fast to the target as {name}")
    return misses


def seconds_to_target(summary: Summary) -> float:
    """Return the median time to the target; infinity if half of the seeds never reached it."""
    return np.inf if summary.median_seconds_to_target is None else summary.median_seconds_to_target


def table_of(records: dict[str, dict[str, Any]]) -> str:
    """Return the records as a Markdown table, followed by their provenance."""
    rows = [
        cells_of(record["task"], name, agent)
        for record in records.values()
        for name, agent in record["agents"].items()
    ]
    caption = "Times are medians over the seeds, except the slowest seed's."
    sources = comparison.sources_of({name: [record] for name, record in records.items()})
    return "\n\n".join(["\n".join(table(HEADS, rows, words=2)), caption, *sources]) + "\n"


def cells_of(task: dict[str, Any], name: str, summary: dict[str, Any]) -> list[str]:
    """Return one agent's row of the table."""
    low, high = summary["interval"]
    seconds = summary["median_seconds_to_target"]
    slowest = max(score["seconds"] for score in summary["scores"])
    return [
        *(task["environment"], name, str(len(summary["scores"]))),
        f"{summary['interquartile_mean']:.1f} ({low:.1f}, {high:.1f})",
        *(f"{task['target']:g}", str(summary["reached"])),
        *(f"{summary['median_seconds']:.1f}", f"{slowest:.1f}"),
        "never" if seconds is None else f"{seconds:.1f}",
    ]


def draw(records: dict[str, dict[str, Any]], output: Path) -> Path:
    """Draw a panel for each environment: every seed, the interquartile mean and its interval, the target."""
    from benchmarks.measuring.charts import new_figure, save

    columns = min(2, len(records))
    rows = math.ceil(len(records) / columns)
    figure = new_figure(4.2 * columns, 3.0 * rows + 0.4)
    labels: dict[str, Any] = {}  # agent → its points
    for number, (environment, record) in enumerate(records.items()):
        axes = figure.add_subplot(rows, columns, number + 1)
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
    comparison.legend_below(figure, labels)
    return save(figure, output, "learning")


def main(argv: Sequence[str]) -> int:
    """Run the tasks; return 1 if our scores miss a requirement or the table could not be written, else 0."""
    about = "Train on each environment with several seeds, and score the policies."
    names = [task.environment for task in TASKS]
    parser = comparison.new_runs_parser("learning", about, names, "an existing learning.json is updated")
    add_count(parser, "--seeds", None, "seeds per environment (default: 10, or 5 for LunarLander-v3)")
    add_count(parser, "--steps", None, "environment steps per run of ours (default: the preset's)")
    parser.add_argument("--no-peer", action="store_true", help="don't measure Stable-Baselines3")
    arguments = parser.parse_args(argv)
    file, records = comparison.open_record(arguments.output, "learning")
    changes = {} if arguments.steps is None else {"total_steps": arguments.steps}
    written, missed = True, False
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
        for miss in misses_of(task, summaries):
            missed = True
            print(f"{task.environment}: {miss}", flush=True)
        records = {
            each.environment: records[each.environment] for each in TASKS if each.environment in records
        }
        # Written after each environment finishes, because each may take hours.
        write_record(file, records)
        written = write_table(arguments.markdown, "learning", table_of(records))
        draw(records, arguments.output / "learning.svg")
    print(f"\n{table_of(records)}", end="")
    return 0 if written and not missed else 1
