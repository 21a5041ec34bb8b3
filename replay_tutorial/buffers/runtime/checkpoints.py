"""Checkpoints of several files, such as a buffer, networks and counters, each of which is complete or absent.

    folder/0007_step_60000/     numbered in the order of writing; the newest are kept
    folder/unfinished/          being written; a killed process may leave it behind

The files are written to the folder `unfinished`, which is renamed when all of them are on the disk. A crash
therefore never leaves a checkpoint with the rows of one step and the network of another.
"""

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from operator import index
from pathlib import Path

NAME = re.compile(r"(\d+)_step_\d+")


class Checkpoints:
    """The checkpoints in a folder. One process at a time may write.

    Example:
        >>> import tempfile
        >>> from replay_tutorial import Checkpoints, ReplayBuffer
        >>> buffer = ReplayBuffer(10, {"obs": {}})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(folder)
        ...     with checkpoints.write(step=500) as new:
        ...         buffer.save(new / "buffer.npz")  # and torch.save(…, new / "network.pt")
        ...     if newest := checkpoints.newest:  # when the program is started again
        ...         buffer.load(newest / "buffer.npz")
        >>> newest.name
        '0001_step_500'
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int = 2) -> None:
        """Use a folder, which `write` creates.

        Args:
            folder: Path of the folder.
            keep: Number of checkpoints to keep, at least 1. The default keeps the previous one in case a file
                of the newest is damaged.

        Raises:
            TypeError: If keep is not an integer.
            ValueError: If keep is below 1.
        """
        self.folder, self.keep = Path(folder), checked("keep", keep, 1)

    def complete(self) -> list[Path]:
        """Return the folders of the complete checkpoints, oldest first.

        Raises:
            OSError: If the folder can't be read, or is a file.
        """
        return [path for path in self._named() if path.is_dir()]

    @property
    def newest(self) -> Path | None:
        """The folder of the newest complete checkpoint; None if there is none."""
        complete = self.complete()
        return complete[-1] if complete else None

    def _named(self) -> list[Path]:
        """Return all paths named like a checkpoint, including files and broken links, oldest first."""
        try:
            return sorted(
                (path for path in self.folder.iterdir() if NAME.fullmatch(path.name)), key=number_of
            )
        except FileNotFoundError:
            return []

    @contextmanager
    def write(self, step: int) -> Generator[Path]:
        """Write a checkpoint in a `with` statement; after it, remove the oldest ones.

        Args:
            step: A number for the name of the checkpoint, such as the number of steps, at least 0.

        Returns:
            A context manager with an empty folder, to which the files are to be written. If its block raises
            an error, the folder is removed, and the checkpoints are unchanged.

        Raises:
            OSError: If a file can't be written.
            TypeError: If step is not an integer.
            ValueError: If step is negative.
        """
        step = checked("step", step, 0)  # True, too, becomes a number
        unfinished = self.folder / "unfinished"
        remove(unfinished)  # of a process that was killed
        unfinished.mkdir(parents=True)
        try:
            yield unfinished
            for path in [*unfinished.rglob("*"), unfinished]:
                sync(path)
            named = self._named()
            number = number_of(named[-1]) + 1 if named else 1
            os.replace(unfinished, self.folder / f"{number:04d}_step_{step}")
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)  # it may have filled the disk
            raise
        sync(self.folder)
        for path in self.complete()[: -self.keep]:
            os.replace(path, unfinished)  # first: a half removed folder must not look like a checkpoint
            remove(unfinished)


def checked(name: str, value: int, least: int) -> int:
    """Convert an integer of at least `least` to an int."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r:.60}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, not {value}.")
    return number


def remove(path: Path) -> None:
    """Remove a folder with its contents, a file, or a link without its target, if the path exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def number_of(path: Path) -> int:
    """Return the number of a checkpoint."""
    return int(path.name.partition("_")[0])


def sync(path: Path) -> None:
    """Block until a file or folder has been written to disk; skip links and special files."""
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        return
    if os.name != "posix" and path.is_dir():
        return  # Windows can't open folders
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
