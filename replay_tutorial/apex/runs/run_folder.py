"""The run's folder: what a run leaves behind, so that it can be looked at, compared and used later.

    runs/CartPole-v1__apex_dqn__0__20250131-235959/
        config.json      every setting, with the versions of what ran
        progress.csv     one line for each record, see `recorder`
        evaluations.csv  one line for each evaluation
        events.out...    both of them for TensorBoard
        policy.pt        the chosen policy's parameters
        checkpoints/     all that it takes to go on, see `checkpoint`
        evaluation.json  its final evaluation
        learning_curve.png
        run.lock         held by the process that trains, see `lock`

A crash leaves a file's old version or its new one (`whole_file`). A policy is loaded without pickle, so that
a stranger's file can't run code.
"""

import dataclasses
import errno
import json
import math
import time
from itertools import count
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Self, Union, cast, get_args, get_origin, get_type_hints

import torch

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.policy_selection import Candidate
from replay_tutorial.apex.runs.files import DamagedFile, read_json
from replay_tutorial.apex.runs.run_provenance import provenance_of_run
from replay_tutorial.apex.runs.tensor_files import read_tensors, write_tensors
from replay_tutorial.buffers.whole_file import replace_file

POLICY_REMEDY = "Restore it from a backup, or from the newest folder in checkpoints/."
CONFIG_REMEDY = "Correct it, or restore it from a backup."


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and how its files are written and read."""

    path: Path  # the folder, which exists

    @classmethod
    def create(cls, config: Config) -> Self:
        """Make a new folder in `config.runs` and write the settings and versions into it."""
        # `module:Name-v0` and names with slashes would make folders of their own.
        environment = config.environment.replace("/", "-").replace(":", "-")
        name = f"{environment}__apex_{config.agent}__{config.seed}__{time.strftime('%Y%m%d-%H%M%S')}"
        path = make_folder(config.runs, name)
        folder = cls(path)
        try:
            folder.write_json("config.json", {"config": as_json(config), **provenance_of_run()})
        except OSError:
            path.rmdir()
            raise
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
        """Read the settings.

        Raises:
            DamagedFile: If they can't be read, or are none.
        """
        path = self.path / "config.json"
        try:
            contents = read_json(path)
            settings = contents.get("config")
            if not isinstance(settings, dict):
                raise DamagedFile(f'{path} has no settings: its "config" is {settings!r:.40}.')
            if not isinstance(resumed := contents.get("resumed", []), list):
                raise DamagedFile(f'{path} is damaged: its "resumed" is {resumed!r:.40}, not a list.')
            return config_of(cast(dict[str, Any], settings))
        except DamagedFile as error:
            raise DamagedFile(f"{error} {CONFIG_REMEDY}") from None
        except (TypeError, ValueError) as error:
            reason = f"{path} has settings that don't work here: {error}"
            raise DamagedFile(f"{reason.rstrip('.')}. {CONFIG_REMEDY}") from None

    def remove_unfinished(self) -> None:
        """Remove what a killed process has left half written."""
        for path in self.path.glob(".*.unfinished"):  # the names that `replace_file` gives
            path.unlink()

    def note_resumption(self, config: Config, step: int) -> None:
        """Write the settings that the run goes on with into `config.json`, with the step and versions."""
        contents = read_json(self.path / "config.json")
        contents["config"] = as_json(config)
        contents.setdefault("resumed", []).append({"step": step, **provenance_of_run()})
        self.write_json("config.json", contents)

    def save_policy(self, candidate: Candidate) -> Path:
        """Write a policy: parameters, the environment step of the choice, the returns it was chosen for."""
        # What an earlier policy returned in a final evaluation is not said of this one.
        (self.path / "evaluation.json").unlink(missing_ok=True)
        path = self.path / "policy.pt"
        contents = {
            "parameters": torch.from_numpy(candidate.parameters),
            "step": candidate.step,
            "returns": torch.from_numpy(candidate.confirmation.returns),
        }
        replace_file(path, lambda unfinished: write_tensors(unfinished, contents))
        return path

    def load_best(self) -> Candidate | None:
        """Read the policy as the evaluator left it; None if it has chosen none.

        Raises:
            DamagedFile: If it can't be read.
        """
        path = self.path / "policy.pt"
        if not path.is_file():
            return None
        try:
            contents = read_tensors(path)
            parameters, returns = contents["parameters"].numpy(), contents["returns"].numpy()
            return Candidate(parameters, int(contents["step"]), Evaluation(returns))
        except DamagedFile as error:
            raise DamagedFile(f"{error} {POLICY_REMEDY}") from None
        except (AttributeError, KeyError, TypeError) as error:
            reason = f"{path} holds no policy ({type(error).__name__}: {error})."
            raise DamagedFile(f"{reason} {POLICY_REMEDY}") from None

    def load_policy(self) -> tuple[Policy, int]:
        """Read the policy, ready to play, and its step.

        Raises:
            FileNotFoundError: If the run ended before it chose a policy.
        """
        best = self.load_best()
        if best is None:
            evaluated = any((self.path / "checkpoints").glob("*/policy.pt"))
            evaluated |= (self.path / "evaluation.json").exists()
            reason = POLICY_REMEDY if evaluated else "The run ended before its first evaluation: resume it."
            raise FileNotFoundError(f"{self.path / 'policy.pt'} doesn't exist. {reason}")
        config = self.config()
        policy = make_policy(config, spaces_of(config.environment))
        policy.set_parameters(best.parameters)
        return policy, best.step

    def save_evaluation(self, evaluation: Evaluation, step: int, seconds: float) -> Path:
        """Write the final evaluation of the chosen policy, and how long the run took."""
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


def make_folder(place: Path, name: str) -> Path:
    """Make a folder of a name, or of the same name with a number, if another process has just made it."""
    if place.exists() and not place.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "It is no folder; --runs names one", str(place))
    place.mkdir(parents=True, exist_ok=True)
    path, attempts = place / name, count(2)
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            path = place / f"{name}-{next(attempts)}"
        else:
            return path


def config_of(settings: dict[str, Any]) -> Config:
    """Return settings that were written by `as_json`.

    Raises:
        TypeError: If one is of another type than the setting.
        ValueError: If one is unknown or out of range.
    """
    hints = get_type_hints(Config)
    if unknown := sorted(settings.keys() - hints.keys()):
        raise ValueError(f"unknown settings: {', '.join(unknown)}; perhaps of a newer version")
    read: dict[str, Any] = {
        name: tuple(cast(list[Any], value)) if isinstance(value, list) else value
        for name, value in settings.items()
    }
    if "runs" in read:
        read["runs"] = Path(read["runs"])
    for name, value in read.items():
        if value in ("inf", "-inf") and is_of_type(0.0, hints[name]):
            read[name] = value = float(value)
        if not is_of_type(value, hints[name]):
            raise TypeError(f"{name} is {value!r}")
    return Config(**read)


def is_of_type(value: Any, hint: Any) -> bool:
    """Return whether a value is of the type of a setting: 1 is also a float, True is no number."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(is_of_type(value, part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(
            is_of_type(part, get_args(hint)[0]) for part in cast(tuple[Any, ...], value)
        )
    kinds = (int, float) if hint is float else (hint,)
    return isinstance(value, kinds) and (hint is bool or not isinstance(value, bool))


def as_json(config: Config) -> dict[str, Any]:
    """Return settings as JSON knows them, which has no infinity: that is text."""
    settings = {**dataclasses.asdict(config), "runs": str(config.runs)}
    return {name: str(value) if value in (math.inf, -math.inf) else value for name, value in settings.items()}
