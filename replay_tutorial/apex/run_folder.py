"""The run's folder: what a run leaves behind, so that it can be looked at, compared and used later.

    runs/CartPole-v1__apex_dqn__0__20250131-235959/
        config.json      every setting, with the versions of what ran
        progress.csv     one line for each record, see `Recorder`
        events.out...    the same for TensorBoard
        policy.pt        the chosen policy's weights
        evaluation.json  what it brought in the final evaluation
        learning_curve.png

A file is written beside its place and then moved there, so that a crash leaves the old one or the new one, never half of
one. A policy is loaded without pickle, so that a stranger's file can't run code.

Left out: checkpoints to go on from.
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from replay_tutorial.apex.agent import Policy, make_policy
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.environments import spaces_of
from replay_tutorial.apex.evaluate import Evaluation


class RunFolder:
    """Paths of one run, and how its files are written and read.

    Args:
        path: The folder, which exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: Config) -> Self:
        """Make a new folder in `config.runs` and write the settings and versions into it."""
        # `module:Name-v0` and names with slashes would make folders of their own.
        environment = config.environment.replace("/", "-").replace(":", "-")
        name = f"{environment}__apex_{config.agent}__{config.seed}__{time.strftime('%Y%m%d-%H%M%S')}"
        path = config.runs / name
        attempt = 1
        while path.exists():  # an earlier run of the same second
            attempt += 1
            path = config.runs / f"{name}-{attempt}"
        path.mkdir(parents=True)
        settings = {**dataclasses.asdict(config), "runs": str(config.runs)}
        folder = cls(path)
        folder.write_json("config.json", {"config": settings, "versions": versions()})
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the folder of an earlier run.

        Raises:
            FileNotFoundError: If there is no such run.
        """
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} isn't the folder of a run: it has no config.json.")
        return cls(path)

    def config(self) -> Config:
        """Read the settings."""
        settings = json.loads((self.path / "config.json").read_text())["config"]
        settings = {
            name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
        }
        settings["runs"] = Path(settings["runs"])
        return Config(**settings)

    def save_policy(self, weights: NDArray[np.float32], step: int) -> Path:
        """Write a policy's weights and the environment step at which it was chosen."""
        path = self.path / "policy.pt"
        contents = {"weights": torch.from_numpy(weights), "step": step}
        replace_file(path, lambda unfinished: torch.save(contents, unfinished))
        return path

    def load_policy(self) -> tuple[Policy, int]:
        """Read the policy and its step.

        Raises:
            FileNotFoundError: If the run ended before it chose a policy.
        """
        path = self.path / "policy.pt"
        if not path.is_file():
            raise FileNotFoundError(f"{path} doesn't exist: the run ended before its first evaluation.")
        contents = torch.load(path, weights_only=True, map_location="cpu")
        config = self.config()
        policy = make_policy(config, spaces_of(config.environment))
        policy.set_weights(contents["weights"].numpy())
        return policy, int(contents["step"])

    def save_evaluation(self, evaluation: Evaluation, step: int, seconds: float) -> Path:
        """Write what the chosen policy brought in the end, and how long the run took."""
        contents = {
            "mean": evaluation.mean,
            "standard_error": evaluation.standard_error,
            "returns": evaluation.returns.tolist(),
            "policy_step": step,
            "seconds": seconds,
        }
        return self.write_json("evaluation.json", contents)

    def write_json(self, name: str, contents: dict[str, Any]) -> Path:
        """Write a JSON file into the folder."""
        path = self.path / name
        text = json.dumps(contents, indent=2) + "\n"
        replace_file(path, lambda unfinished: unfinished.write_text(text))
        return path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then put it in its place in one step."""
    unfinished = path.with_name(path.name + ".unfinished")
    write(unfinished)
    os.replace(unfinished, path)


def versions() -> dict[str, str]:
    """Return the versions of everything that decides what a run learns."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("replay_tutorial", "numpy", "numba", "torch", "gymnasium"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # run from a folder of sources, without being installed
            found[package] = "not installed"
    return found
