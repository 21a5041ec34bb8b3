"""Record the learning curves of chapter 00: the same agent with three memories, and the one-file DQN.

    python chapters/records/why_replay.py
    python chapters/records/why_replay.py --chart docs/assets/why_replay.svg    # draws the record

Training takes minutes, so the chapter loads the record that this script writes. The three agents differ only
in the transitions of an update: the newest one, the newest 64, or 64 sampled at random. The second agent is a
control: it learns from as many transitions as the third, but in order. The README shows the chart of the
other two.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measuring.charts import new_figure, save
from benchmarks.measuring.provenance import Provenance
from replay_course.steps.learning import one_file_dqn
from replay_course.steps.learning.online_q_learning import OnlineQLearning, train
from replay_course.steps.learning.q_learning_with_replay import ReplayQLearning
from replay_course.steps.uniform.list_of_tuples import ListOfTuples

SCRIPT = "chapters/records/why_replay.py"
BIN = 1_000  # steps per point of a curve
# agent → its label in the chart, the place of the label, and colour
CHARTED = {
    "online": ("each transition once", (4_300, 82), "tab:red"),
    "replay": ("64 stored transitions", (1_000, 225), "tab:blue"),
}
Episodes = list[tuple[int, float]]  # an episode's last step, and its return


class NewestTuples(ListOfTuples):
    """A list of tuples whose batches are the newest transitions, in order."""

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Return the newest transitions."""
        columns = zip(*self.memory[-batch_size:], strict=True)
        return {name: np.stack(column) for name, column in zip(self.dtypes, columns, strict=True)}


# agent → its class, called with a seed
AGENTS: dict[str, Callable[[int], OnlineQLearning]] = {
    "online": OnlineQLearning,
    "newest": lambda seed: ReplayQLearning(seed, NewestTuples),
    "replay": ReplayQLearning,
}


def curve_of(episodes: Episodes, steps: int) -> list[float | None]:
    """Return the mean return of the episodes that end in each bin of `BIN` steps; None for an empty bin."""
    bins: list[list[float]] = [[] for _ in range(steps // BIN)]
    for step, score in episodes:
        bins[min((step - 1) // BIN, len(bins) - 1)].append(score)
    return [round(float(np.mean(scores)), 1) if scores else None for scores in bins]


def record_curve(name: str, seed: int, steps: int) -> list[float | None]:
    """Train one agent with one seed, and return its curve."""
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    return curve_of(train(AGENTS[name](seed), steps, seed), steps)


def record_one_file(seed: int) -> dict[str, Any]:
    """Train the one-file DQN with one seed, and evaluate it on 100 new episodes."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    network, curve = one_file_dqn.train(seed)
    seconds = time.perf_counter() - start
    score = one_file_dqn.evaluate(network, 100, seed=900_000_000)
    return {"seed": seed, "steps": curve[-1][0], "seconds": round(seconds, 1), "score": score, "curve": curve}


def draw(record: Mapping[str, Any], output: Path) -> Path:
    """Draw a line per seed and their mean, without and with replay; return `output`."""
    figure = new_figure(5.4, 2.9)
    axes = figure.subplots()
    for name, (label, place, colour) in CHARTED.items():
        returns = np.array(record["curves"][name], float)  # [seeds, points]
        steps = record["bin"] * (1 + np.arange(returns.shape[1]))
        axes.plot(steps, returns.T, color=colour, alpha=0.35, linewidth=1)
        axes.plot(steps, np.nanmean(returns, axis=0), color=colour, linewidth=3)
        axes.annotate(label, place, color=colour)
        axes.set(xlabel="steps in the environment", xticks=steps[1::2])
    axes.set(ylabel="return in CartPole", ylim=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, output, "why_replay")


def main(argv: Sequence[str]) -> None:
    """Record the curves and write the file, or draw the chart."""
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description="Record the curves of chapter 00.")
    parser.add_argument("--seeds", type=int, default=5, help="seeds per agent")
    parser.add_argument("--steps", type=int, default=20_000, help="steps of the three simple agents")
    parser.add_argument("--processes", type=int, default=2, help="number of parallel processes")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "why_replay.json")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the record instead of training")
    given = parser.parse_args(argv)
    if given.chart:
        print(draw(json.loads(given.output.read_text(encoding="utf-8")), given.chart))
        return
    seeds = range(given.seeds)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        jobs = {
            name: [pool.submit(record_curve, name, seed, given.steps) for seed in seeds] for name in AGENTS
        }
        one_file = [pool.submit(record_one_file, seed) for seed in seeds]
        curves = {name: [job.result() for job in those] for name, those in jobs.items()}
        learned = [job.result() for job in one_file]
    provenance = Provenance.of_command(["python", SCRIPT, *argv], ("torch", "gymnasium"))
    record = {**provenance._asdict(), "bin": BIN, "curves": curves, "one_file": learned}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"{given.output}: {given.seeds} seeds of {', '.join(AGENTS)} and the one-file DQN")


if __name__ == "__main__":
    main(sys.argv[1:])
