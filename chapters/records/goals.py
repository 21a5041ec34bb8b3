"""Record how often an agent reaches its goals while it learns to flip bits, for chapter 10.

    python chapters/records/goals.py

The agents differ only in the goals of the rows that they learn from: their own goals only, goals of the four
strategies, and goals of two faulty versions of "future". All together take about 20 minutes on one core.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measuring.provenance import Provenance
from replay_course.steps.goals.bit_flip import GoalStep, OneGoal
from replay_course.steps.goals.goal_q_learning import GoalQLearning, success_rate, train
from replay_course.steps.goals.relabel_when_sampled import RelabelWhenSampled

SCRIPT = "chapters/records/goals.py"
BIN = 50  # episodes per point of a curve


# Positions of a step, of its episode's first step, after its last step, and after the newest step → the
# positions of the steps whose achieved goals are possible new goals: the first, and the one after the last.
BOUNDS: dict[str, Callable[[Any, Any, Any, int], tuple[Any, Any]]] = {
    "final": lambda step, start, end, newest: (end - 1, end),
    "future": lambda step, start, end, newest: (step, end),
    "episode": lambda step, start, end, newest: (start, end),
    "random": lambda step, start, end, newest: (np.zeros_like(step), newest),
    "before the action": lambda step, start, end, newest: (step, end),
    "another episode": lambda step, start, end, newest: (step, np.minimum(step + 15, newest)),
}


class Relabelled(RelabelWhenSampled):
    """A memory that draws its goals in one of the ways of `BOUNDS`."""

    def __init__(self, seed: int, name: str) -> None:
        """Create an empty list."""
        super().__init__(seed)
        self.bounds = BOUNDS[name]
        self.field = "obs" if name == "before the action" else "next_obs"
        self.starts: list[int] = []  # of each step: the position of the first step of its episode

    def add_episode(self, episode: Sequence[GoalStep]) -> None:
        """Store the steps of an episode, and where it starts and ends."""
        self.starts += [len(self.steps)] * len(episode)
        super().add_episode(episode)

    def new_goals(self, drawn: Any) -> Any:
        """Return a new goal for each step."""
        starts, ends = (np.array([bounds[i] for i in drawn]) for bounds in (self.starts, self.ends))
        chosen = self.rng.integers(*self.bounds(drawn, starts, ends, len(self.steps)))
        return np.stack([getattr(self.steps[i], self.field) for i in chosen])


def record(name: str, seed: int, bits: int, episodes: int) -> dict[str, Any]:
    """Train one agent with one seed; return its curve and the share of greedy episodes that succeed."""
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    agent = GoalQLearning(bits, seed)
    memory = Relabelled(seed, name) if name in BOUNDS else OneGoal(seed)
    successes = np.array(train(agent, memory, episodes))
    curve = successes[: len(successes) // BIN * BIN].reshape(-1, BIN).mean(1)
    return {"curve": [round(float(share), 3) for share in curve], "success_rate": success_rate(agent)}


def main(argv: Sequence[str]) -> None:
    """Record the curves, and write the file."""
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description="Record the curves of chapter 10.")
    parser.add_argument("--seeds", type=int, default=10, help="seeds per agent")
    parser.add_argument("--bits", type=int, default=15, help="number of bits")
    parser.add_argument("--episodes", type=int, default=600, help="training episodes per run")
    parser.add_argument("--processes", type=int, default=2, help="number of parallel processes")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "goals.json")
    given = parser.parse_args(argv)
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        jobs = {
            name: [pool.submit(record, name, seed, given.bits, given.episodes) for seed in range(given.seeds)]
            for name in ("own goals only", *BOUNDS)
        }
        runs = {name: [job.result() for job in those] for name, those in jobs.items()}
    provenance = Provenance.of_command(["python", SCRIPT, *argv], ("torch",))
    about = {"bits": given.bits, "episodes": given.episodes, "bin": BIN}
    given.output.write_text(
        json.dumps({**provenance._asdict(), **about, "runs": runs}) + "\n", encoding="utf-8"
    )
    for name, those in runs.items():
        rates = [run["success_rate"] for run in those]
        print(f"{name}: {np.median(rates):.1%} ({min(rates):.1%} to {max(rates):.1%})")


if __name__ == "__main__":
    main(sys.argv[1:])
