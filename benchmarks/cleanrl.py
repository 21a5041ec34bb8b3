"""`python -m benchmarks cleanrl`: learning curves of CleanRL's DQN, also with our buffers.

CleanRL's script `cleanrl/dqn.py` is run unchanged, with the import of our uniform buffer, and with the patch
for priorities and 3-step returns. Both changes are read from the page "Coming from CleanRL". All options
except the number of steps have the script's defaults. Agents, steps and seeds were fixed before the runs.

CleanRL isn't on PyPI, and the script requires gymnasium 0.29, so both must be in PYTHONPATH, as in `make
bench-cleanrl`.
"""

import contextlib
import io
import re
import runpy
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch

from benchmarks.comparison import FINAL_EPISODES, Comparison, Run, Task
from benchmarks.measuring.provenance import git

PLAIN, UNIFORM = "CleanRL", "CleanRL, our buffer"
PRIORITIZED = "CleanRL, our priorities, 3-step returns"
PAGE = Path(__file__).parents[1] / "docs" / "recipes" / "from_cleanrl.md"
CHANGE = {UNIFORM: 0, PRIORITIZED: 1}  # the number of the diff in the page
COMPARISON = Comparison(
    name="cleanrl",
    library="CleanRL",
    agents=(PLAIN, UNIFORM, PRIORITIZED),
    tasks=(Task("CartPole-v1", "DQN", steps=100_000, interval=5_000, settings={}),),
    packages=("torch", "gymnasium"),
    point="mean return of the training episodes",
    mean_of_curve="mean over the intervals of 5,000 steps; an interval's value is the mean return of the "
    "training episodes that ended in it",
)
EPISODE = re.compile(r"^global_step=(\d+), episodic_return=\[?([\d.]+)", re.MULTILINE)


def train_once(task: Task, agent: str, seed: int) -> Run:
    """Run the script of an agent, and score its last network."""
    source = (folder() / "cleanrl" / "dqn.py").read_text(encoding="utf-8")
    if agent in CHANGE:
        source = apply(changes()[CHANGE[agent]], source)
    names, printed = run_script(source, task, seed)
    ends, returns = np.array(EPISODE.findall(printed), np.float64).T
    intervals = ends // task.interval
    curve = [float(returns[intervals == number].mean()) for number in range(task.steps // task.interval)]
    return Run(agent, seed, greedy_mean(names["q_network"], task.environment), curve)


def run_script(source: str, task: Task, seed: int) -> tuple[dict[str, Any], str]:
    """Run a script with CleanRL's options; return its variables, and the text that it printed."""
    options = ["--env-id", task.environment, "--total-timesteps", str(task.steps), "--seed", str(seed)]
    printed, threads = io.StringIO(), torch.get_num_threads()
    with (
        contextlib.ExitStack() as afterwards,
        TemporaryDirectory() as place,  # the script writes its logs there
        contextlib.chdir(place),
        contextlib.redirect_stdout(printed),
        patch.object(sys, "argv", ["dqn.py", *options, "--no-cuda"]),
    ):
        afterwards.callback(torch.set_num_threads, threads)
        torch.set_num_threads(1)  # a network this small is faster with one
        Path("dqn.py").write_text(source, encoding="utf-8")
        return runpy.run_path("dqn.py", run_name="__main__"), printed.getvalue()


def greedy_mean(network: torch.nn.Module, environment: str) -> float:
    """Return the mean return of a network's greedy policy; all agents have the same episodes' seeds."""
    env: Any = gym.make(environment)
    total = 0.0
    for seed in range(FINAL_EPISODES):
        observation, ended = env.reset(seed=seed)[0], False
        while not ended:
            with torch.no_grad():
                action = int(network(torch.as_tensor(observation)).argmax())
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
    return total / FINAL_EPISODES


def changes() -> list[str]:
    """Return the diffs of the page."""
    return re.findall(r"^```diff\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def apply(diff: str, source: str) -> str:
    """Apply a diff of the page; its hunks have no line numbers, so their lines must be in the source once."""
    hunks = re.split(
        r"^@@.*\n", re.sub(r"^(---|\+\+\+) .*\n", "", diff, flags=re.MULTILINE), flags=re.MULTILINE
    )
    for hunk in filter(None, hunks):
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        if source.count(before) != 1:
            raise ValueError(f"CleanRL's script must contain these lines of the page once:\n{before}")
        source = source.replace(before, after)
    return source


def folder() -> Path:
    """Return the folder of CleanRL's repository."""
    found = find_spec("cleanrl_utils")
    if found is None or not found.origin:
        raise SystemExit("CleanRL is not in PYTHONPATH: run `make lab TARGET=cleanrl`")
    return Path(found.origin).parents[1]


def version_of_cleanrl() -> dict[str, str]:
    """Return the commit of CleanRL; exit if CleanRL or its gymnasium is missing."""
    place = folder()
    if not gym.__version__.startswith("0.29."):
        raise SystemExit(
            f"CleanRL requires gymnasium 0.29, not {gym.__version__}: run `make lab TARGET=cleanrl`"
        )
    return {"cleanrl": git(place, "log", "-1", "--format=%h")}


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return its exit status."""
    return COMPARISON.main(argv, train_once, version_of_cleanrl)
