"""Comparisons of agents over several seeds: the runs, the record, the statistics, the table and the chart.

In each environment, all agents are trained with the same seeds and the same settings. The first agent is the
baseline. The record is written after each run, and a later command performs only the missing runs. It lists
every day, machine and set of versions with which runs were made.

Returns vary widely between seeds and are not normally distributed. The interquartile mean drops the lowest
and the highest quarter, so it is robust to outliers and still uses more of the scores than the median does.
Its confidence interval is estimated by the bootstrap: resampling the seeds with replacement.

Paper: Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", section 4.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring.output import add_count, add_markdown, new_parser, write_record
from benchmarks.measuring.pages import write_table
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table

FINAL_EPISODES = 100
RESAMPLES = 10_000


@dataclass(frozen=True)
class Task:
    """An environment, with the algorithm and the settings of all agents there."""

    environment: str
    algorithm: str
    steps: int
    interval: int  # steps between two points of the curve
    settings: dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The result of one run."""

    agent: str
    seed: int
    score: float  # mean return of 100 greedy episodes after the last step
    curve: list[float]  # mean return at each point of the curve


@dataclass(frozen=True)
class Comparison:
    """The agents that a benchmark compares, and where."""

    name: str  # of the benchmark, its record, its chart and its markers
    library: str
    agents: tuple[str, ...]
    tasks: tuple[Task, ...]
    packages: tuple[str, ...]  # their versions are recorded
    point: str  # what a point of the curve is: the label of the vertical axis
    mean_of_curve: str

    @property
    def baseline(self) -> str:
        """The agent with which the others are compared."""
        return self.agents[0]

    def runs_of(self, record: Mapping[str, Any]) -> dict[str, dict[int, Run]]:
        """Return the runs, agent → seed → run, of the seeds that all agents have finished."""
        runs: dict[str, dict[int, Run]] = {agent: {} for agent in self.agents}
        for run in (Run(**run) for run in record["runs"]):
            runs[run.agent][run.seed] = run
        complete = set.intersection(*(set(each) for each in runs.values()))
        return {agent: {seed: each[seed] for seed in sorted(complete)} for agent, each in runs.items()}

    def table_of(self, records: Mapping[str, dict[str, Any]]) -> str:
        """Return the records as a Markdown table, followed by their provenance."""
        rows: list[list[str]] = []
        finished: dict[str, dict[str, Any]] = {}
        for environment, record in records.items():
            runs = self.runs_of(record)
            if not runs[self.baseline]:
                continue
            finished[environment] = record
            for agent, each in runs.items():
                cells = [environment, agent, f"{record['task']['steps']:,}", str(len(each))]
                for values, others in zip(figures_of(each), figures_of(runs[self.baseline]), strict=True):
                    difference = "" if agent == self.baseline else with_interval(values - others)
                    cells += [with_interval(values), difference]
                rows.append(cells)
        minus = f"minus {self.baseline}"
        heads = ("environment", "agent", "steps", "seeds", "score", minus, "mean of the curve", minus)
        caption = (
            "Interquartile means over the seeds, 95% intervals in brackets. Score: mean return of "
            f"{FINAL_EPISODES} greedy episodes after training. Mean of the curve: {self.mean_of_curve}. "
            f"Minus {self.baseline}: difference from {self.baseline} with the same seed."
        )
        sources = sources_of({environment: record["measured"] for environment, record in finished.items()})
        return "\n\n".join(["\n".join(table(heads, rows, words=2)), caption, *sources]) + "\n"

    def draw(self, records: Mapping[str, dict[str, Any]], output: Path) -> Path:
        """Draw a panel for each environment: the interquartile mean and its interval over the steps."""
        from benchmarks.measuring.charts import new_figure, save

        drawn = {name: (record, self.runs_of(record)) for name, record in records.items()}
        drawn = {name: each for name, each in drawn.items() if each[1][self.baseline]}
        figure = new_figure(max(5.6, 4.2 * len(drawn)), 3.4)
        labels: dict[str, Any] = {}  # agent → its line
        for number, (environment, (record, runs)) in enumerate(drawn.items()):
            axes = figure.add_subplot(1, len(drawn), number + 1)
            for place, (agent, each) in enumerate(runs.items()):
                points = np.array([run.curve for run in each.values()]).T  # [evaluations, seeds]
                steps = np.arange(1, len(points) + 1) * record["task"]["interval"]
                low, high = np.array([interval_of(point) for point in points]).T
                means = [interquartile_mean(point) for point in points]
                (labels[agent],) = axes.plot(steps, means, color=f"C{place}")
                axes.fill_between(steps, low, high, color=f"C{place}", alpha=0.2, linewidth=0)
            seeds = len(runs[self.baseline])
            axes.set_title(f"{environment}, {record['task']['algorithm']}, {seeds} seeds", fontsize=10)
            axes.set_xlabel("environment steps")
            axes.set_ylabel(self.point)
            axes.grid(alpha=0.3)
        legend_below(figure, labels)
        return save(figure, output, self.name)

    def main(
        self,
        argv: Sequence[str],
        train_once: Callable[[Task, str, int], Run],
        more_versions: Callable[[], Mapping[str, str]] = dict,
    ) -> int:
        """Perform the missing runs, and write the table and the chart.

        `train_once` performs the run of a task, an agent and a seed. `more_versions` returns the versions to
        record besides those of `packages`. It is called after the arguments have been checked, and may exit
        if a requirement is missing. The exit status is 1 if the table could not be written, otherwise 0.
        """
        about = f"Compare {self.library} with and without our buffers, over several seeds."
        names = [task.environment for task in self.tasks]
        existing = "if the record exists, only the missing runs are performed"
        parser = new_runs_parser(self.name, about, names, existing)
        add_count(parser, "--seeds", 10, "seeds per environment")
        arguments = parser.parse_args(argv)
        today = Provenance.of(self.name, argv, self.packages)
        today.versions.update(more_versions())
        file, records = open_record(arguments.output, self.name)
        chosen = [task for task in self.tasks if task.environment in arguments.environments]
        for task in chosen:
            record = records.setdefault(task.environment, {"task": asdict(task), "measured": [], "runs": []})
            if record["task"] != asdict(task):
                parser.error(
                    f"{file} contains runs of {task.environment} with other settings; remove it first"
                )
        for task in chosen:
            record = records[task.environment]
            made = {(run["agent"], run["seed"]) for run in record["runs"]}
            for seed, agent in itertools.product(range(arguments.seeds), self.agents):
                if (agent, seed) in made:
                    continue
                run = train_once(task, agent, seed)
                print(f"{task.environment}, seed {seed}, {agent}: {run.score:.1f}", flush=True)
                record["runs"].append(asdict(run))
                # Runs of the same day, machine and versions share one entry, with the last command.
                others = [each for each in record["measured"] if not Provenance.read(each).is_like(today)]
                record["measured"] = [*others, today._asdict()]
                write_record(file, records)
        text = self.table_of(records)
        print(f"\n{text}", end="")
        self.draw(records, arguments.output / f"{self.name}.svg")
        return 0 if write_table(arguments.markdown, self.name, text) else 1


def new_runs_parser(
    name: str, about: str, environments: Sequence[str], existing: str
) -> argparse.ArgumentParser:
    """Return a parser with the options of training runs; `existing` says what happens to a record."""
    parser, which = new_parser(name, about), "environments to train on (default: all)"
    parser.add_argument("--environments", nargs="+", choices=environments, default=environments, help=which)
    output_help = f"folder for {name}.json and {name}.svg; {existing} (default: %(default)s)"
    parser.add_argument("--output", type=Path, default=Path(name), metavar="FOLDER", help=output_help)
    add_markdown(parser, name)
    return parser


def open_record(folder: Path, name: str) -> tuple[Path, dict[str, dict[str, Any]]]:
    """Create the folder, and return the path of the record and its contents by environment."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    return file, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def sources_of(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return each provenance once, after its environments; `measured` are environment → provenances."""
    sources: dict[str, list[str]] = {}
    for environment, provenances in measured.items():
        for provenance in provenances:
            sources.setdefault(str(Provenance.read(provenance)), []).append(environment)
    return [f"{', '.join(environments)}. {source}" for source, environments in sources.items()]


def legend_below(figure: Any, labels: Mapping[str, Any]) -> None:
    """Draw a legend below the panels, where it hides no point; `labels` are agent → its line."""
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=len(labels), fontsize=8)


def interquartile_mean(values: Sequence[float]) -> float:
    """Return the mean without the lowest and the highest quarter of the values, each rounded down.

    Example:
        >>> interquartile_mean([0.0, 10.0, 12.0, 1000.0])
        11.0
    """
    ordered = sorted(values)
    left_out = len(ordered) // 4
    return float(np.mean(ordered[left_out : len(ordered) - left_out]))


def interval_of(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95% bootstrap interval of the interquartile mean, from 10,000 resamples."""
    generator = np.random.default_rng(seed)
    drawn = generator.choice(np.asarray(values), size=(RESAMPLES, len(values)))
    left_out = len(values) // 4
    means = np.sort(drawn, axis=1)[:, left_out : len(values) - left_out].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def figures_of(runs: Mapping[int, Run]) -> NDArray[np.float64]:
    """Return the scores and the means of the curves, float64[2, seeds]."""
    return np.array([(run.score, np.mean(run.curve)) for run in runs.values()]).T


def with_interval(values: NDArray[np.float64]) -> str:
    """Format the interquartile mean of values with its 95% interval."""
    low, high = interval_of(values.tolist())
    return f"{interquartile_mean(values.tolist()):.1f} ({low:.1f}, {high:.1f})"
