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
        run.lock         held by the process that trains

A crash leaves a file's old version or its new one (`atomic_file`). Tensors are read without pickle, so that a
stranger's file can't run code, and with their checksums compared: torch writes them and doesn't look at them.

The lock is the system's, on an open file: it ends with its process, even after `kill -9`. Processes of the
run don't inherit it, because they outlive a killed parent for a moment.
"""

import errno
import io
import json
import sys
import time
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Self, cast

import torch

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.evaluator import Candidate
from replay_tutorial.apex.flags import parse_settings, settings_as_json
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.runs.files import DamagedFile, first_line, read_json
from replay_tutorial.apex.runs.run_provenance import provenance_of_run
from replay_tutorial.buffers import archive
from replay_tutorial.buffers.atomic_file import replace_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

POLICY_REMEDY = "Restore it from a backup, or from the newest folder in checkpoints/."
CONFIG_REMEDY = "Correct it, or restore it from a backup."


class RunInUse(ValueError):
    """Another process trains this run; the message says what to do."""


@dataclass(frozen=True)
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
            folder.write_json("config.json", {"config": settings_as_json(config), **provenance_of_run()})
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
            return Config(**parse_settings(cast(dict[str, Any], settings)))
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
        contents["config"] = settings_as_json(config)
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


@contextmanager
def lock_run(run: Path) -> Generator[None]:
    """Keep a run's folder to this process while the context lasts, where the file system has locks.

    Raises:
        RunInUse: If another process has it.
    """
    # An empty file, which stays: removing it could let two processes in at once.
    with (run / "run.lock").open("a") as file:
        if not try_lock(file.fileno()):
            raise RunInUse(
                f"{run} is being trained by another process. Wait for its end, or end it by Ctrl-C there; "
                "then resume it."
            )
        yield


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; return False if another process has the lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # of POSIX, of Windows
        return False
    except OSError:  # no locks here, as on some network file systems
        return True
    return True


def write_tensors(path: Path, contents: dict[str, Any]) -> None:
    """Write what `read_tensors` reads.

    Raises:
        OSError: If it can't be written; torch itself raises RuntimeError and doesn't mention the full disk.
    """
    memory = io.BytesIO()
    torch.save(contents, memory)
    # not getbuffer(): a view that an error keeps alive raises again when both are collected; neither copies
    path.write_bytes(memory.getvalue())


def read_tensors(path: Path) -> dict[str, Any]:
    """Read what `write_tensors` wrote.

    Raises:
        DamagedFile: If a bit of it has changed, or it is no such file.
        OSError: If it can't be read.
    """
    raw = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as container:
            archive.check_directory(container)
            # torch compresses nothing
            wrong = [part.filename for part in container.infolist() if part.file_size != part.compress_size]
            if wrong := wrong or [name for name in [container.testzip()] if name is not None]:
                raise ValueError(f"the length or the checksum of {wrong[0]} is wrong")
        contents: Any = torch.load(io.BytesIO(raw), weights_only=True, map_location="cpu")
    except (*archive.DAMAGE, ValueError, TypeError, IndexError) as error:
        raise DamagedFile(
            f"{path} is damaged, or not a file that a run wrote ({first_line(error)})."
        ) from None
    if not isinstance(contents, dict):
        raise DamagedFile(f"{path} holds no policy and no agent, but a {type(contents).__name__}.")
    return cast(dict[str, Any], contents)
