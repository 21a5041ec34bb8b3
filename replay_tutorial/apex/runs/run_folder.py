"""The run's folder: all files that a run writes.

    runs/CartPole-v1__apex_dqn__0__20250131-235959/
        config.json         all settings, with the command, the date and the versions
        progress.csv        one line per record, see `recorder`
        evaluations.csv     one line per evaluation
        events.out...       both of them for TensorBoard
        policy.pt           parameters of the selected policy
        checkpoints/        the newest two checkpoints, see `checkpoint`
        evaluation.json     the final evaluation of the selected policy
        learning_curve.png
        run.lock            locked by the process that trains

Files are replaced atomically: after a crash, a file has its old or its new contents. Tensors are read without
pickle, so that a file from an untrusted source can't execute code, and their checksums are verified, which
torch itself doesn't do.

The operating system releases the lock when the process ends, even after `kill -9`. The run's other processes
don't inherit it, because they may outlive a killed parent for a moment.
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
from replay_tutorial.buffers.runtime.atomic_file import replace_file

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

POLICY_REMEDY = "Restore it from a backup, or from the newest folder in checkpoints/."
CONFIG_REMEDY = "Correct it, or restore it from a backup."


class RunInUse(ValueError):
    """Another process is training this run; the message states the remedy."""


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes the files of one run."""

    path: Path  # the folder; it exists

    @classmethod
    def create(cls, config: Config) -> Self:
        """Create a new folder in `config.runs`, and write the settings and versions into it."""
        # In `module:Name-v0` and `ALE/Pong-v5`, the separators would be invalid or create subfolders.
        environment = config.environment.replace("/", "-").replace(":", "-")
        name = f"{environment}__apex_{config.agent}__{config.seed}__{time.strftime('%Y%m%d-%H%M%S')}"
        if config.runs.exists() and not config.runs.is_dir():
            reason = "Not a folder; pass another path to --runs"
            raise NotADirectoryError(errno.ENOTDIR, reason, str(config.runs))
        config.runs.mkdir(parents=True, exist_ok=True)
        path, attempts = config.runs / name, count(2)
        while True:
            try:
                path.mkdir()
                break
            except FileExistsError:  # another process has just created it
                path = config.runs / f"{name}-{next(attempts)}"
        folder = cls(path)
        try:
            folder.write_json("config.json", {"config": settings_as_json(config), **provenance_of_run()})
        except OSError:
            path.rmdir()
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the folder of an existing run; raise FileNotFoundError if there is no run in it."""
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"{path} is not the folder of a run: it has no config.json.")
        return cls(path)

    def config(self) -> Config:
        """Read the settings; raise DamagedFile if they can't be read or are invalid."""
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
            reason = f"{path} contains invalid settings: {error}"
            raise DamagedFile(f"{reason.rstrip('.')}. {CONFIG_REMEDY}") from None

    def remove_unfinished(self) -> None:
        """Remove temporary files that a killed process left behind."""
        for path in self.path.glob(".*.unfinished"):  # the names that `replace_file` uses
            path.unlink()

    def note_resumption(self, config: Config, step: int) -> None:
        """Write the settings of the resumed run to `config.json`, and append the step and the versions."""
        contents = read_json(self.path / "config.json")
        contents["config"] = settings_as_json(config)
        contents.setdefault("resumed", []).append({"step": step, **provenance_of_run()})
        self.write_json("config.json", contents)

    def save_policy(self, candidate: Candidate) -> Path:
        """Write a policy: its parameters, the environment step, and the returns for which it was selected."""
        # A final evaluation in this folder belongs to an earlier policy.
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
        """Read the selected policy, or return None if there is none yet; may raise DamagedFile."""
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
            reason = f"{path} doesn't contain a policy ({type(error).__name__}: {error})."
            raise DamagedFile(f"{reason} {POLICY_REMEDY}") from None

    def load_policy(self) -> tuple[Policy, int]:
        """Return the selected policy, ready to act, and the environment step at which it was selected.

        Raise FileNotFoundError if the run ended before it selected a policy.
        """
        best = self.load_best()
        if best is None:
            evaluated = any((self.path / "checkpoints").glob("*/policy.pt"))
            evaluated |= (self.path / "evaluation.json").exists()
            reason = POLICY_REMEDY if evaluated else "The run ended before its first evaluation; resume it."
            raise FileNotFoundError(f"{self.path / 'policy.pt'} doesn't exist. {reason}")
        config = self.config()
        policy = make_policy(config, spaces_of(config.environment))
        policy.set_parameters(best.parameters)
        return policy, best.step

    def save_evaluation(self, evaluation: Evaluation, step: int, seconds: float) -> Path:
        """Write the final evaluation of the selected policy and the duration of the run in seconds."""
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
        replace_file(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))
        return path


@contextmanager
def lock_run(run: Path) -> Generator[None]:
    """Lock a run's folder for this process while the context lasts, if the file system supports locks.

    Raises:
        RunInUse: If another process has locked it.
    """
    # The file is never removed: otherwise, two processes could lock different files.
    with (run / "run.lock").open("ab") as file:
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # on POSIX and on Windows
            raise RunInUse(
                f"{run} is being trained by another process. Wait until that process ends, or stop it with "
                "Ctrl-C; then resume the run."
            ) from None
        except OSError:  # some network file systems have no locks
            pass
        yield


def write_tensors(path: Path, contents: dict[str, Any]) -> None:
    """Write tensors and plain values to a file for `read_tensors`."""
    # If the disk is full, torch.save to a file would raise RuntimeError, without mentioning it.
    memory = io.BytesIO()
    torch.save(contents, memory)
    # getvalue() doesn't copy either. A view from getbuffer() that an exception keeps alive would raise
    # BufferError when the buffer is collected.
    path.write_bytes(memory.getvalue())


def read_tensors(path: Path) -> dict[str, Any]:
    """Read a file that `write_tensors` wrote; raise DamagedFile if it has changed or isn't one."""
    raw = path.read_bytes()
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as container:
            archive.check_directory(container)
            # torch stores all parts uncompressed.
            wrong = [part.filename for part in container.infolist() if part.file_size != part.compress_size]
            if wrong := wrong or [name for name in [container.testzip()] if name is not None]:
                raise ValueError(f"the length or the checksum of {wrong[0]} is wrong")
        contents: Any = torch.load(io.BytesIO(raw), weights_only=True, map_location="cpu")
    except (*archive.DAMAGE, ValueError, TypeError, IndexError) as error:
        raise DamagedFile(f"{path} is damaged or was not written by a run ({first_line(error)}).") from None
    if not isinstance(contents, dict):
        raise DamagedFile(f"{path} contains a {type(contents).__name__}, not a policy or an agent.")
    return cast(dict[str, Any], contents)
