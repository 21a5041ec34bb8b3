"""`python -m replay_tutorial bench learning`: train the presets over several seeds and score the policies.

`TASKS` fixes the environments, seeds, target returns and time limits before any run. Each run calls `train`
with the environment's preset and a seed. Its score is the mean return of 100 greedy episodes that were not
used to select the policy. On CartPole, runs of Stable-Baselines3's DQN alternate with ours.
"""

import copy
import csv
import importlib
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train
from replay_tutorial.bench import sb3
from replay_tutorial.bench.scores import Score, Summary, summary_of
from replay_tutorial.measuring.markdown import table, write_table
from replay_tutorial.measuring.output import add_count, add_markdown, new_parser, write_record
from replay_tutorial.measuring.provenance import Provenance

OURS = "replay_tutorial"
LAST, BEST = "stable-baselines3, last policy", "stable-baselines3, best policy"
ZOO = {**sb3.CARTPOLE.settings, "exploration_fraction": 0.16}
PEER = replace(sb3.CARTPOLE, steps=50_000, interval=1_000, settings=ZOO)
PACKAGES = ("torch", "gymnasium", "stable-baselines3")
HEADS = (
    *("environment", "agent", "seeds", "IQM (95% interval)", "target", "seeds at the target"),
    *("learning time, s", "slowest seed, s", "time to the target, s"),
)


@dataclass(frozen=True)
class Task:
    """An environment, and the requirements on our scores there.

    Attributes:
        environment: Gymnasium ID.
        seeds: Number of seeds, which are 0, 1, 2, ...
        target: Minimum of the interquartile mean.
        seconds: Maximum learning time of a seed on 2 cores.
        every_seed: Whether every seed must reach the target.
        seconds_to_target: Maximum of the median time to the first evaluation at the target.
        times_faster: Minimum ratio of the median time to the target of Stable-Baselines3's DQN to ours. The
            DQN is measured only if this is set.
    """

    environment: str
    seeds: int
    target: float
    seconds: float
    every_seed: bool = False
    seconds_to_target: float | None = None
    times_faster: float | None = None


CARTPOLE = Task("CartPole-v1", 10, 475.0, 60.0, every_seed=True, seconds_to_target=30.0, times_faster=2.0)
TASKS = (
    CARTPOLE,
    Task("Acrobot-v1", seeds=10, target=-90.0, seconds=240.0),
    Task("Pendulum-v1", seeds=10, target=-170.0, seconds=240.0),
    Task("LunarLander-v3", seeds=5, target=220.0, seconds=900.0),
)


def train_once(task: Task, seed: int, changes: dict[str, Any]) -> dict[str, Score]:
    """Train with one seed, as `train` does on the command line, and return the score.

    Raises:
        KeyboardInterrupt: If Ctrl-C interrupted the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = replace(preset(task.environment), seed=seed, progress=False, runs=Path(folder))
        result = train(replace(config, **changes))
        if result.evaluation is None:
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
    return {OURS: score}


def missing_peer() -> str | None:
    """Return the reason why the peer can't be measured, or None."""
    try:
        importlib.import_module("stable_baselines3")
    except ImportError as error:
        return f'Stable-Baselines3 ({error}): pip install "replay_tutorial[peers]"'
    return None


def train_peer(seed: int, target: float, steps: int = PEER.steps) -> dict[str, Score]:
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

    last = sb3.train_once(replace(PEER, steps=steps), sb3.PLAIN, seed, keep_the_best).score
    reached = [seconds for mean, seconds in evaluations if mean >= target]
    score = Score(seed, last, evaluations[-1][1], reached[0] if reached else None, steps, "budget spent")
    return {LAST: score, BEST: replace(score, mean=sb3.final_score(best, PEER.environment, seed))}


def measure(task: Task, changes: dict[str, Any], with_peer: bool) -> dict[str, Summary]:
    """Train all agents on one environment, alternating for each seed; print each score."""
    agents: list[Callable[[int], dict[str, Score]]] = [lambda seed: train_once(task, seed, changes)]
    if with_peer and task.times_faster is not None:
        if (reason := missing_peer()) is None:
            agents.append(lambda seed: train_peer(seed, task.target))
        else:
            print(f"skipped {reason}")
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


def misses_of(task: Task, summaries: dict[str, Summary]) -> list[str]:
    """Return a description of each requirement that our scores don't meet."""
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
        misses.append(f"the median time to the target is {seconds:.0f} s")
    for name, other in summaries.items():
        if name != OURS and seconds_to_target(other) < (task.times_faster or 0.0) * seconds:
            factor = seconds_to_target(other) / seconds
            misses.append(f"only {factor:.1f} times as fast to the target as {name}")
    return misses


def seconds_to_target(summary: Summary) -> float:
    """Return the median time to the target; infinity if half of the seeds never reached it."""
    return np.inf if summary.median_seconds_to_target is None else summary.median_seconds_to_target


def table_of(records: dict[str, dict[str, Any]]) -> str:
    """Return the records as a Markdown table, followed by their provenance."""
    rows: list[list[str]] = []
    sources: dict[str, list[str]] = {}
    for environment, record in records.items():
        rows += [cells_of(record["task"], name, agent) for name, agent in record["agents"].items()]
        sources.setdefault(str(Provenance.read(record)), []).append(environment)
    about = (f"{', '.join(environments)}. {source}" for source, environments in sources.items())
    lines = "\n".join(table(HEADS, rows, words=2))
    return "\n\n".join([lines, "Times are medians over the seeds, except the slowest seed's.", *about]) + "\n"


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
    from replay_tutorial.measuring.charts import new_figure, save

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
    # Below the panels, where it hides no point.
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    return save(figure, output, "learning")


def main(argv: Sequence[str]) -> int:
    """Run the tasks; return 1 if our scores miss a requirement or the table could not be written, else 0."""
    parser = new_parser("learning", "Train on each environment with several seeds, and score the policies.")
    names = [task.environment for task in TASKS]
    environments_help = "environments to train on (default: all)"
    parser.add_argument("--environments", nargs="+", choices=names, default=names, help=environments_help)
    add_count(parser, "--seeds", None, "seeds per environment (default: 10, or 5 for LunarLander-v3)")
    add_count(parser, "--steps", None, "environment steps per run of ours (default: the preset's)")
    parser.add_argument("--no-peer", action="store_true", help="don't measure Stable-Baselines3")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("learning"),
        metavar="FOLDER",
        help="folder for learning.json and learning.svg; an existing learning.json is updated "
        "(default: %(default)s)",
    )
    add_markdown(parser, "learning")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / "learning.json"
    records: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
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
