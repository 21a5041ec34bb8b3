"""Compare the learning curves of four agents on MinAtar, which differ in their replay, for the recipe.

    python chapters/records/minatar_curves.py --json docs/measurements/minatar.json \\
        --chart docs/measurements/minatar.svg --markdown docs/recipes/images.md

The record is written after each run. A run that the record already contains with at least as many frames is
skipped, and a shorter one is continued if its folder still exists. So you can interrupt the command, and
repeat it with more games, seeds or frames. Agents, settings and seeds were fixed before the runs.

Source of the published curves: Young and Tian 2019, "MinAtar", in the figure learning_curves.gif of their
repository github.com/kenjyoung/MinAtar, commit 4241f24.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring.charts import new_figure, save
from benchmarks.measuring.output import add_count, add_markdown, new_file, write_record
from benchmarks.measuring.pages import write_table
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import table
from replay_tutorial.apex import preset, resume, train
from replay_tutorial.apex.presets import overrides_for
from replay_tutorial.apex.runs.checkpoint import complete_checkpoints
from replay_tutorial.apex.runs.files import read_columns

SCRIPT = "chapters/records/minatar_curves.py"
DQN = {"alpha": 0.0, "n_step": 1, "environments_per_actor": 1, "epsilon_base": 0.1}
AGENTS: dict[str, dict[str, Any]] = {  # agent → changes of the preset
    "Ape-X": {},
    "double DQN": DQN,
    "without replay": {**DQN, "capacity": 32, "replay_start": 32, "slack": 32},
    "Ape-X, uniform": {"alpha": 0.0},
}
EPISODES = 20
RUN: dict[str, Any] = {
    "actors": 0,  # one process, so that the curves don't depend on the machine's load
    "evaluation_interval": 5_000,  # 20,000 frames
    "record_interval": 5_000,
    "evaluation_episodes": EPISODES,
    "evaluation_step_limit": 5_000,
    "confirmation_episodes": 0,
    "final_episodes": 2,
    "checkpoint_steps": 50_000,
    "solved_at": 1e9,  # never
    "progress": False,
}
WINDOW = 50_000  # frames at the end of a run, whose evaluations are averaged
PUBLISHED_AT = (50_000, *range(100_000, 1_000_001, 100_000))  # frames
# Game → agent → mean return of training episodes, read from the figure; each is the mean of 30 runs.
PUBLISHED = {
    "Breakout": {
        "double DQN": (1.2, 4.4, 6.1, 7.2, 8.2, 8.3, 8.6, 8.7, 8.8, 8.8, 9.2),
        "without replay": (1.7, 2.7, 3.5, 3.9, 4.0, 4.0, 4.0, 3.9, 3.8, 3.8, 3.8),
    },
    "SpaceInvaders": {
        "double DQN": (9.2, 16.9, 21.1, 22.7, 26.2, 27.9, 27.7, 28.0, 29.0, 30.9, 32.8),
        "without replay": (2.1, 3.1, 6.1, 7.8, 9.1, 9.6, 10.4, 10.8, 11.1, 11.5, 11.7),
    },
}
HEADS = (
    *("game", "agent", "greedy, all evaluations", "greedy, at the end", "training episodes, at the end"),
    "published",
)


@dataclass(frozen=True)
class Run:
    """The result of one run."""

    game: str
    agent: str
    seed: int
    frames: int
    seconds: float  # of training; depends on the load of the machine
    steps: list[int]  # of each evaluation
    greedy: list[float]  # mean return of each evaluation
    training: list[float]  # at each evaluation, mean return of the last 50 training episodes

    def mean(self, returns: Sequence[float], first: int, last: int) -> float:
        """Return the mean of the returns after the step `first` up to the step `last`."""
        return float(
            np.mean([value for step, value in zip(self.steps, returns, strict=True) if first < step <= last])
        )


def record_run(folder: Path, game: str, agent: str, seed: int, frames: int) -> Run:
    """Train an agent with one seed, or continue its run in the folder.

    Raises:
        KeyboardInterrupt: If Ctrl-C interrupted the run.
    """
    folder = folder / f"{game}, {agent}, seed {seed}"
    started = [path for path in sorted(folder.glob("*")) if complete_checkpoints(path)]
    if started:
        result = resume(started[-1], frames, progress=False)
    else:
        config = replace(preset(f"MinAtar/{game}-v1"), **RUN, seed=seed, total_steps=frames, runs=folder)
        result = train(replace(config, **AGENTS[agent]))
    if result.interrupted:
        raise KeyboardInterrupt
    columns = {"step": int, "update": int, "mean": float}
    steps, updates, greedy = read_columns(result.folder / "evaluations.csv", columns)
    columns = {"update": int, "episodic_return": float}
    training = dict(zip(*read_columns(result.folder / "progress.csv", columns), strict=True))
    kept = [place for place, update in enumerate(updates) if update in training]
    return Run(
        *(game, agent, seed, frames, round(result.seconds, 1), [steps[place] for place in kept]),
        [round(greedy[place], 3) for place in kept],
        [round(training[updates[place]], 3) for place in kept],
    )


def settings_of(game: str) -> dict[str, dict[str, Any]]:
    """Return the settings of each agent that differ from the defaults, as JSON values."""
    common = {**overrides_for(f"MinAtar/{game}-v1"), **RUN}
    return {agent: json.loads(json.dumps({**common, **changes})) for agent, changes in AGENTS.items()}


def read(file: Path) -> dict[str, Any]:
    """Return the record, or an empty one if the file doesn't exist."""
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    return {"benchmark": "minatar", "measured": [], "settings": {}, "runs": []}


def runs_of(record: Mapping[str, Any], game: str, frames: int) -> dict[str, dict[int, Run]]:
    """Return the runs of a game with at least this many frames: agent → seed → run."""
    runs = [Run(**run) for run in record["runs"] if run["game"] == game and run["frames"] >= frames]
    runs.sort(key=lambda run: run.seed)
    return {agent: {run.seed: run for run in runs if run.agent == agent} for agent in AGENTS}


def perform(given: argparse.Namespace, game: str, now: Provenance) -> None:
    """Perform the runs that are missing from the record: all agents with one seed, then with the next."""
    file, frames = given.json, given.frames
    for seed, agent in ((seed, agent) for seed in given.seeds for agent in given.agents):
        # Read again before and after each run, because another process may add others.
        if seed in runs_of(read(file), game, frames)[agent]:
            continue
        run = record_run(given.runs, game, agent, seed, frames)
        record = read(file)
        key = {"game": game, "agent": agent, "seed": seed}
        others = [each for each in record["runs"] if not key.items() <= each.items()]
        record["settings"][game] = settings_of(game)
        if not any(Provenance.read(each).is_like(now) for each in record["measured"]):
            record["measured"].append(now._asdict())
        write_record(file, {**record, "runs": [*others, asdict(run)]})
        print(f"{game}, seed {seed}, {agent}: {run.greedy[-1]:.1f} in {run.seconds:.0f} s", flush=True)


def selected(record: Mapping[str, Any], seeds: Sequence[int], frames: int) -> dict[str, dict[str, list[Run]]]:
    """Return the runs with these seeds, game → agent → runs, without games and agents that have none."""
    games: dict[str, dict[str, list[Run]]] = {}
    for game in PUBLISHED:
        for agent, runs in runs_of(record, game, frames).items():
            if chosen := [run for seed, run in runs.items() if seed in seeds]:
                games.setdefault(game, {})[agent] = chosen
    return games


def cells_of(game: str, agent: str, runs: Sequence[Run], frames: int) -> list[str]:
    """Return one row of the table."""
    end = frames - WINDOW
    published = PUBLISHED[game].get(agent)
    return [
        *(game, agent),
        with_seeds([run.mean(run.greedy, 0, frames) for run in runs]),
        with_seeds([run.mean(run.greedy, end, frames) for run in runs]),
        with_seeds([run.mean(run.training, end, frames) for run in runs]),
        "" if published is None else f"{published_mean(published, frames):.1f}",
    ]


def with_seeds(values: Sequence[float]) -> str:
    """Format the mean over the seeds, and the value of each seed."""
    return f"{np.mean(values):.1f} ({', '.join(f'{value:.1f}' for value in values)})"


def published_mean(values: Sequence[float], frames: int) -> float:
    """Return the mean of a published curve over the last `WINDOW` frames."""
    return float(np.interp(np.linspace(frames - WINDOW, frames, 11), PUBLISHED_AT, values).mean())


def in_pairs(game: str, agents: Mapping[str, list[Run]], frames: int) -> str:
    """Return a sentence with the effect of priorities for each seed."""
    prioritized, uniform = (
        {run.seed: run.mean(run.greedy, 0, frames) for run in agents.get(agent, [])}
        for agent in ("Ape-X", "Ape-X, uniform")
    )
    gains = [f"{prioritized[seed] - uniform[seed]:+.1f}" for seed in prioritized if seed in uniform]
    if not gains:
        return ""
    return f" {game}, Ape-X minus Ape-X, uniform, all evaluations of each seed: {', '.join(gains)}."


def draw(games: Mapping[str, dict[str, list[Run]]], frames: int, output: Path) -> Path:
    """Draw, for each game, the returns of greedy and of training episodes, with the published curves."""
    figure = new_figure(8.4, 3.2 * len(games) + 0.4)
    labels: dict[str, Any] = {}  # label → its line
    for row, (game, agents) in enumerate(games.items()):
        for column, name in enumerate(("greedy", "training")):
            axes: Any = figure.add_subplot(len(games), 2, 2 * row + column + 1)
            for place, (agent, runs) in enumerate(agents.items()):
                steps, values = common_points(runs, name, frames)
                (labels[agent],) = axes.plot(steps, values.mean(axis=0), color=f"C{place}")
                low, high = values.min(axis=0), values.max(axis=0)
                axes.fill_between(steps, low, high, color=f"C{place}", alpha=0.15, linewidth=0)
                if name == "training" and agent in PUBLISHED[game]:
                    line = axes.plot(PUBLISHED_AT, PUBLISHED[game][agent], "--", color=f"C{place}")[0]
                    labels[f"{agent}, published"] = line
            axes.set_xlim(0, frames)
            axes.set_title(f"{game}, {name} episodes", fontsize=10)
            axes.set_xlabel("frames")
            axes.set_ylabel("mean return")
            axes.grid(alpha=0.3)
    figure.legend(labels.values(), labels, loc="outside lower center", ncols=3, fontsize=8)
    return save(figure, output, "minatar")


def common_points(runs: Sequence[Run], name: str, frames: int) -> tuple[list[int], NDArray[np.float64]]:
    """Return the steps of the evaluations, and the values of each run, float64[runs, steps]."""
    steps = [step for step in runs[0].steps if step <= frames]
    return steps, np.array([np.interp(steps, run.steps, getattr(run, name)) for run in runs])


def main(argv: Sequence[str]) -> int:
    """Perform the missing runs, and write the table; return 1 if the table could not be written, else 0."""
    description = "Compare agents on MinAtar that differ in their replay."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    parser.add_argument("--games", nargs="+", choices=PUBLISHED, default=list(PUBLISHED))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    add_count(parser, "--frames", 1_000_000, "frames per run")
    add_count(parser, "--seeds", None, "seeds of each agent (default: 0 to 4)", 0, nargs="+")
    record_help = "the record; if it exists, only the missing runs are performed"
    runs_help = "folder of the runs, from which they are continued (default: %(default)s)"
    parser.add_argument("--runs", type=Path, default=Path("runs/minatar"), metavar="FOLDER", help=runs_help)
    parser.add_argument("--json", type=new_file, required=True, metavar="FILE", help=record_help)
    parser.add_argument("--chart", type=new_file, metavar="FILE", help="draw the learning curves")
    add_markdown(parser, "minatar")
    given = parser.parse_args(argv)
    given.seeds = given.seeds or list(range(5))
    stored = read(given.json)["settings"]
    if changed := [game for game in given.games if stored.get(game, settings_of(game)) != settings_of(game)]:
        parser.error(f"{given.json} contains runs of {changed[0]} with other settings; remove it first")
    packages = ("torch", "gymnasium", "minatar")
    now = Provenance.of_command(["python", SCRIPT, *argv], packages)
    for game in given.games:
        perform(given, game, now)
    record = read(given.json)
    # One command for all runs of the same day, machine and versions, instead of those of the parts.
    record["measured"] = [
        now._asdict() if Provenance.read(each).is_like(now) else each for each in record["measured"]
    ]
    write_record(given.json, record)
    runs = selected(record, given.seeds, given.frames)
    if given.chart is not None:
        draw(runs, given.frames, given.chart)
    rows = [
        cells_of(game, agent, each, given.frames)
        for game, agents in runs.items()
        for agent, each in agents.items()
    ]
    about = (
        f"{given.frames:,} frames per run. Mean return over the seeds, and of each seed in brackets. At the "
        f"end: the last {WINDOW:,} frames. Greedy: evaluations of {EPISODES} episodes after every 5,000 "
        "updates. Published: training episodes in Young and Tian 2019 (30 runs), read from the figure."
    )
    about += "".join(in_pairs(game, agents, given.frames) for game, agents in runs.items())
    sources = [str(Provenance.read(each)) for each in record["measured"]]
    text = "\n\n".join(["\n".join(table(HEADS, rows, words=2)), about, *sources]) + "\n"
    print(f"\n{text}", end="")
    return 0 if write_table(given.markdown, "minatar", text) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
