"""Shared memory: one set of arrays that several processes see.

The arrays lie in one block that begins with a text: which arrays there are, and what their owner says of
them. By default the block has no name in any file system, so nothing is left behind, however the processes
end, and nobody has to clean up. With a path it is a file on disk, which outlives them all. Such a file is
made whole beside its place and then given its name, so that nobody ever opens half of it; of several
processes that make it at the same time, all open the one of the fastest.

A process gets the block by inheriting it (fork), with the arguments it is started with (spawn, forkserver),
or, if it is not related, by its address; on Linux a pickle holds that.

Pages are handed out when they are first written. If there are none left then, the system kills a process, or
the write ends in a bus error; so a block that can't fit is refused while that is still an ordinary error.

Left out: other machines, and the memory that other processes will take later.
"""

import errno
import json
import mmap
import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Hashable, Mapping
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.shared.processes import join_namespace

# Bytes; arrays begin at its multiples, so that two never share one.
CACHE_LINE = 64
# Bytes at the block's beginning, for the text; at their end stands the number of the PID namespace.
TEXT = 1 << 16
NAMESPACE = TEXT - CACHE_LINE
FORMAT = "replay_tutorial shared arrays 2"
OPEN_FLAGS = os.O_RDWR | getattr(os, "O_BINARY", 0)

Specs = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]  # shape and dtype of each array, by name


class SharedArrays:
    """Arrays, zero at first, in one block of memory that other processes may see.

    Example:
        >>> arrays = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
        >>> arrays["counters"][0] = 7  # seen by every process that `arrays` was passed to

    Attributes:
        layout: What the owner says of the arrays; JSON.
        path: The block's file; None if it has no name.
    """

    def __init__(
        self,
        specs: Specs,
        layout: Mapping[str, Any] | None = None,
        path: str | PathLike[str] | None = None,
        first: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Reserve a block, or open the one that lies at the path already.

        Args:
            specs: Shape and dtype of each array, by name.
            layout: What the owner says of them; JSON. A block that exists must say the same, and has the
                arrays that it was made with.
            path: The file of the block; None for one without a name.
            first: What each element of an array is at first, by name; those not named are zero.

        Raises:
            MemoryError: If there is less room than it may come to need.
            OSError: If the file can't be opened or made.
            RuntimeError: If processes of another PID namespace have it open.
            ValueError: If the file is of another layout, or no such file, or the layout's text is too long.
        """
        self._specs = dict(specs)
        self.layout: dict[str, Any] = json.loads(json.dumps(layout or {}))
        self._size = size_of(self._specs)
        self._tag = f"replay_tutorial-{uuid.uuid4()}"  # Windows knows a block without a file by it
        self.path = None if path is None else Path(path).absolute()
        if self.path is not None:
            if not self.path.exists():
                self._make_file(self.path, first)
            ours = self.layout
            self._open(self.path)
            if self.layout != ours:
                raise ValueError(f"{path} holds another layout: {self.layout} there, {ours} here.")
            return
        text = self._new_text()
        check_room(self._size, None)
        self._handle = self._new_memory()
        self._map()
        self._block[: len(text)] = text
        for name, value in first.items():
            self._arrays[name][...] = value

    @classmethod
    def attach(cls, address: str | PathLike[str]) -> "SharedArrays":
        """Open the block of an unrelated process, by its `address` or the path of its file.

        Raises:
            OSError: If there is none, or it is not ours to open.
            ValueError: If there is something else.
        """
        self = cls.__new__(cls)
        self.path = Path(address)
        self._open(self.path)
        return self

    @property
    def address(self) -> str:
        """Where an unrelated process finds the block, while this process lives or the file exists."""
        if self.path is not None:
            return str(self.path)
        if sys.platform == "linux":
            return f"/proc/{os.getpid()}/fd/{self._handle}"
        raise ValueError("Only Linux lets an unrelated process find memory without a name: give it a path.")

    @property
    def identity(self) -> Hashable:
        """What all that see this block have in common, in one process."""
        if self._handle < 0:
            return self._tag
        status = os.fstat(self._handle)
        return status.st_dev, status.st_ino

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return the array of a name: a view of the shared block."""
        return self._arrays[name]

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_block", "_arrays")}
        if self._handle >= 0 and self.path is None:
            if sys.platform == "linux" and get_spawning_popen() is None:
                state["_handle"] = self.address, self.identity  # any process of the same user may open it
            else:
                state["_handle"] = reduction.DupFd(self._handle)  # pyright: ignore[reportAttributeAccessIssue]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.path is not None:
            self._handle = os.open(self.path, OPEN_FLAGS)
        elif isinstance(self._handle, tuple):
            address, identity = state["_handle"]
            self._handle = open_memory(address, identity)
        elif not isinstance(self._handle, int):
            self._handle = self._handle.detach()
        self._map()

    def __del__(self) -> None:
        if isinstance(handle := getattr(self, "_handle", None), int) and handle >= 0:
            os.close(handle)

    def _new_memory(self) -> int:
        """Make nameless memory of zeros; return its descriptor, -1 where the system needs none."""
        if sys.platform == "win32":
            return -1
        if sys.platform == "linux":
            # Unlike /dev/shm, which containers often limit to 64 MB, it is limited by the memory alone.
            handle = os.memfd_create("replay_tutorial", os.MFD_CLOEXEC)
            os.fchmod(handle, 0o600)
        else:
            handle, path = tempfile.mkstemp(prefix="replay_tutorial-")
            os.unlink(path)
        os.ftruncate(handle, self._size)
        return handle

    def _make_file(self, path: Path, first: Mapping[str, float]) -> None:
        """Make the block's file, unless another process is faster."""
        text = self._new_text()
        check_room(self._size, path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.truncate(self._size)
                file.write(text)
                offset = TEXT
                for array, (shape, dtype) in self._specs.items():
                    if array in first:
                        file.seek(offset)
                        file.write(np.full(shape, first[array], dtype).tobytes())
                    offset += padded_size(shape, dtype)
            give_name(Path(name), path)
        finally:
            Path(name).unlink(missing_ok=True)

    def _map(self) -> None:
        if self.path is not None and (size := os.fstat(self._handle).st_size) < self._size:
            raise ValueError(
                f"{self.path} was cut: it has {size:,} bytes of {self._size:,}. Restore it from a backup, or "
                "delete it to start again."
            )
        # The mapping itself is undone when the last array that looks into it is gone.
        tag = () if self._handle >= 0 or sys.platform != "win32" else (self._tag,)
        self._block = mmap.mmap(self._handle, self._size, *tag)
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        offset = TEXT
        for name, (shape, dtype) in self._specs.items():
            flat = np.frombuffer(self._block, dtype, int(np.prod(shape)), offset)
            self._arrays[name] = flat.reshape(shape)
            offset += padded_size(shape, dtype)
        if self.path is not None:
            number = np.frombuffer(self._block, np.int64, 1, NAMESPACE)
            join_namespace(self._handle, number, self.path)

    def _new_text(self) -> bytes:
        """Write down the text, and refuse one that is too long."""
        arrays = {name: [list(shape), dtype.str] for name, (shape, dtype) in self._specs.items()}
        text = json.dumps({"format": FORMAT, "layout": self.layout, "arrays": arrays}).encode()
        if len(text) > NAMESPACE:
            raise ValueError(
                f"The description of the fields takes {len(text):,} bytes; there is room for {NAMESPACE:,}: "
                "fewer fields, or shorter names."
            )
        return text

    def _open(self, path: Path) -> None:
        """Open the block of a file, with the arrays that its text describes."""
        self._handle = os.open(path, OPEN_FLAGS)
        os.lseek(self._handle, 0, os.SEEK_SET)  # refuses a pipe, from which a read would wait
        text = read_text(os.read(self._handle, NAMESPACE), path)
        self.layout = text["layout"]
        self._specs = {
            name: (tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in text["arrays"].items()
        }
        self._size = size_of(self._specs)
        self._map()


def give_name(finished: Path, path: Path) -> None:
    """Give a file its name, unless another process was faster."""
    try:  # neither puts one file in the place of another
        os.rename(finished, path) if sys.platform == "win32" else os.link(finished, path)
    except FileExistsError:
        pass
    except OSError as error:
        raise OSError(
            f"{path} can't be made ({error}). Without links, as on some removable disks, two processes could "
            "each make a file of their own: give a path on another disk."
        ) from error


def open_memory(address: str, identity: Hashable) -> int:
    """Open memory without a name by its address; return its descriptor.

    Raises:
        FileNotFoundError: If the process that passed it on is gone, or has closed it.
    """
    try:
        handle = os.open(address, os.O_RDWR)
    except FileNotFoundError:
        handle = -1
    status = None if handle < 0 else os.fstat(handle)
    if status is None or (status.st_dev, status.st_ino) != identity:
        if handle >= 0:
            os.close(handle)  # the descriptor has been given to another file since
        reason = "The process that passed this shared memory on has closed it, or is gone"
        raise FileNotFoundError(errno.ENOENT, reason, address)
    return handle


def read_text(text: bytes, path: str | PathLike[str]) -> dict[str, Any]:
    """Read the text at a block's beginning; refuses what is no such text."""
    try:
        read = json.loads(text.rstrip(b"\0"))
    except ValueError:
        read = None
    if type(read) is not dict or read.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(
            f"{path} does not hold shared arrays of this version, or its creation was interrupted. "
            "Delete it to start again."
        )
    return read  # pyright: ignore[reportUnknownVariableType]


def size_of(specs: Specs) -> int:
    """Count the bytes of a block."""
    return TEXT + sum(padded_size(shape, dtype) for shape, dtype in specs.values())


def padded_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Count the bytes of an array, rounded up to whole cache lines."""
    return -(-int(np.prod(shape)) * dtype.itemsize // CACHE_LINE) * CACHE_LINE


def check_room(size: int, path: Path | None) -> None:
    """Refuse a block of `size` bytes that is larger than the free memory, or the free disk at the path."""
    room = free_memory() if path is None else shutil.disk_usage(path.parent).free
    if room is not None and size > room:
        where = "memory" if path is None else f"disk below {path.parent}"
        raise MemoryError(
            f"{size / 1e9:.1f} GB of shared memory do not fit: {room / 1e9:.1f} GB of {where} are free. "
            "Lower the capacity, or give a path on a disk with more room."
        )


def free_memory(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how many bytes this process may still take, limited by its container; None if unknown.

    Cached pages of files count as free, because the system drops them when memory is needed.
    """
    if sys.platform != "linux":
        return None
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = sum(int(lines[name].split()[0]) * 1024 for name in ("MemAvailable", "SwapFree"))
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        return free
    if limit == "max":
        return free
    cached = sum(int(counts.get(name, 0)) for name in ("active_file", "inactive_file"))  # not shared memory
    return min(free, max(0, int(limit) - int(used) + cached))
