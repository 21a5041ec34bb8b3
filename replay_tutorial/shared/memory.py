"""Shared memory: a set of arrays that several processes map.

The arrays lie in one block. Its header, a JSON text, describes the arrays and carries the owner's layout. By
default the block has no name in any file system, so it needs no cleanup however the processes end. With a
path, the block is a file on disk that outlives the processes (`block_file`).

A process inherits the block (fork) or receives it with its start arguments (spawn, forkserver). An unrelated
process opens it by address; on Linux a pickle contains the address.

The system allocates pages when they are first written. If none are left at that moment, it kills a process or
raises a bus error. A block larger than the free memory is therefore rejected at construction, with an
ordinary error. The check cannot foresee the memory that other processes allocate later.

Read in chapter 06b, *Reading the shared buffer*.
"""

import errno
import json
import mmap
import os
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

from replay_tutorial.buffers.rows import CHECKED_FROM

# Bytes. Each array starts at a multiple of this size, so that no two arrays share a cache line.
CACHE_LINE = 64
# Bytes reserved for the header at the start of the block. Its last cache line holds the PID namespace.
HEADER_BYTES = 1 << 16
NAMESPACE_OFFSET = HEADER_BYTES - CACHE_LINE
FORMAT = "replay_tutorial shared arrays 3"
GONE = "The process that shared this memory has closed it or exited"

Specs = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]  # name → shape and dtype of an array


class SharedArrays:
    """Named arrays in a block of shared memory, initially zero.

    Example:
        >>> arrays = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
        >>> arrays["counters"][0] = 7  # visible in every process that `arrays` was passed to

    Attributes:
        layout: Description that the owner stored with the arrays; JSON.
        path: File that backs the block, or None if there is none.
    """

    def __init__(
        self,
        specs: Specs,
        layout: Mapping[str, Any] | None = None,
        path: str | PathLike[str] | None = None,
        initial: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Reserve a block, or open the file if the path exists.

        Args:
            specs: Maps the name of each array to its shape and dtype.
            layout: Description to store with the arrays; JSON. An existing file must have the same layout;
                its arrays are those that it was created with.
            path: File of the block; None for anonymous memory.
            initial: Maps names of arrays to the initial value of all elements; other arrays start at zero.

        Raises:
            MemoryError: If the block is larger than the free memory, or than the free space on the disk.
            OSError: If the file cannot be opened or created.
            RuntimeError: If processes of another PID namespace have the file open.
            ValueError: If the file has another layout or is not a block, or the description does not fit into
                the header.
        """
        self._specs = dict(specs)
        self.layout: dict[str, Any] = json.loads(json.dumps(layout or {}))
        self._size = size_of(self._specs)
        self._tag = f"replay_tutorial-{uuid.uuid4()}"  # name of an anonymous block on Windows
        self.path = None if path is None else Path(path).absolute()
        text = self._header()
        if self.path is not None:
            from replay_tutorial.shared import block_file

            contents, offset = {0: text}, HEADER_BYTES
            for name, (shape, dtype) in self._specs.items():
                if name in initial:
                    contents[offset] = np.full(shape, initial[name], dtype).tobytes()
                offset += padded_size(shape, dtype)
            block_file.create(self.path, self._size, contents)
            self._open(self.path, self.layout)
            return
        if self._size >= CHECKED_FROM:
            from replay_tutorial.buffers.runtime.machine_memory import check_fits, free_memory

            check_fits(self._size, free_memory(), "memory")
        self._handle = self._create_memory()
        self._map()
        self._block[: len(text)] = text
        for name, value in initial.items():
            self._arrays[name][...] = value

    @classmethod
    def attach(cls, address: str | PathLike[str]) -> "SharedArrays":
        """Open the block of an unrelated process, by its `address` or the path of its file.

        Raises:
            OSError: If the address does not exist or access is denied.
            ValueError: If the address is not a block.
        """
        self = cls.__new__(cls)
        self.path = Path(address)
        self._open(self.path)
        return self

    @property
    def address(self) -> str:
        """Address for `attach`, valid while this process is alive or the file exists."""
        if self.path is not None:
            return str(self.path)
        if sys.platform == "linux":
            return f"/proc/{os.getpid()}/fd/{self._handle}"
        raise ValueError("Shared memory without a file has an address only on Linux; pass path=.")

    @property
    def identity(self) -> Hashable:
        """Key that is equal for all mappings of this block within one process."""
        if self._handle < 0:
            return self._tag
        status = os.fstat(self._handle)
        return status.st_dev, status.st_ino

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return an array by name: a view of the shared block."""
        return self._arrays[name]

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_block", "_arrays")}
        if self.path is not None:
            state["_handle"] = None  # another process opens the file; this number may be another file there
        elif self._handle >= 0:
            if sys.platform == "linux" and get_spawning_popen() is None:
                state["_handle"] = self.address, self.identity  # any process of the same user can open it
            else:
                state["_handle"] = reduction.DupFd(self._handle)  # pyright: ignore[reportAttributeAccessIssue]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.path is not None:
            self._open(self.path, self.layout)
            return
        if isinstance(self._handle, tuple):
            address, identity = state["_handle"]
            self._handle = open_memory(address, identity)
        elif not isinstance(self._handle, int):
            self._handle = self._handle.detach()
        self._map()
        if self._handle < 0 and self._block[:1] == b"\0":
            # On Windows, the name of a freed block belongs to a new one, without a header.
            raise FileNotFoundError(errno.ENOENT, GONE, self._tag)

    def __del__(self) -> None:
        if isinstance(handle := getattr(self, "_handle", None), int) and handle >= 0:
            os.close(handle)

    def _create_memory(self) -> int:
        """Create anonymous, zeroed memory; return its descriptor, or -1 where the system needs none."""
        if sys.platform == "win32":
            return -1
        if sys.platform == "linux":
            # Limited only by the free memory; in containers /dev/shm is often limited to 64 MB.
            handle = os.memfd_create("replay_tutorial", os.MFD_CLOEXEC)
            os.fchmod(handle, 0o600)
        else:
            handle, path = tempfile.mkstemp(prefix="replay_tutorial-")
            os.unlink(path)
        os.ftruncate(handle, self._size)
        return handle

    def _map(self) -> None:
        # The block is unmapped when the last array that views it is deleted.
        tag = () if self._handle >= 0 or sys.platform != "win32" else (self._tag,)
        self._block = mmap.mmap(self._handle, self._size, *tag)
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        offset = HEADER_BYTES
        for name, (shape, dtype) in self._specs.items():
            flat = np.frombuffer(self._block, dtype, int(np.prod(shape)), offset)
            self._arrays[name] = flat.reshape(shape)
            offset += padded_size(shape, dtype)

    def _header(self) -> bytes:
        """Return the header as bytes; raise ValueError if it is too long."""
        arrays = {name: [list(shape), dtype.str] for name, (shape, dtype) in self._specs.items()}
        text = json.dumps({"format": FORMAT, "layout": self.layout, "arrays": arrays}).encode()
        if len(text) > NAMESPACE_OFFSET:
            raise ValueError(
                f"The description of the fields takes {len(text):,} bytes; the header has room for "
                f"{NAMESPACE_OFFSET:,}. Use fewer fields, or shorter names."
            )
        return text

    def _open(self, path: Path, layout: Any = None) -> None:
        """Open a block's file, which must have this layout if given, and map the arrays in its header."""
        from replay_tutorial.shared import block_file

        self._handle = block_file.open_file(path)
        os.lseek(self._handle, 0, os.SEEK_SET)  # raises OSError for a pipe; reading it could block
        text = parse_header(os.read(self._handle, NAMESPACE_OFFSET), path)
        self.layout = text["layout"]
        if layout not in (None, self.layout):
            raise ValueError(
                f"{path} has a different layout: {self.layout} in the file and {layout} here. Open it with "
                "the arguments that it was created with, or pass another path."
            )
        self._specs = {
            name: (tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in text["arrays"].items()
        }
        self._size = size_of(self._specs)
        if (size := os.fstat(self._handle).st_size) < self._size:
            raise ValueError(
                f"{path} is truncated: it has {size:,} of {self._size:,} bytes. Restore it from a backup, or "
                "delete it to start with an empty buffer."
            )
        self._map()
        number = np.frombuffer(self._block, np.int64, 1, NAMESPACE_OFFSET)
        block_file.join_namespace(self._handle, number, path)


def open_memory(address: str, identity: Hashable) -> int:
    """Return a descriptor of anonymous memory; raise FileNotFoundError if no process shares it any more."""
    try:
        handle = os.open(address, os.O_RDWR)
    except FileNotFoundError:
        handle = -1
    status = None if handle < 0 else os.fstat(handle)
    if status is None or (status.st_dev, status.st_ino) != identity:
        if handle >= 0:
            os.close(handle)  # the descriptor number now belongs to another file
        raise FileNotFoundError(errno.ENOENT, GONE, address)
    return handle


def parse_header(text: bytes, path: str | PathLike[str]) -> dict[str, Any]:
    """Parse a block's header; raise ValueError if it is not a header of this version."""
    try:
        read = json.loads(text.rstrip(b"\0"))
    except ValueError:
        read = None
    if type(read) is not dict or read.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise ValueError(
            f"{path} does not hold shared arrays of this version, or its creation was interrupted. "
            "Delete it to start with an empty buffer."
        )
    return read  # pyright: ignore[reportUnknownVariableType]


def size_of(specs: Specs) -> int:
    """Return the size of a block in bytes."""
    return HEADER_BYTES + sum(padded_size(shape, dtype) for shape, dtype in specs.values())


def padded_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the size of an array in bytes, rounded up to whole cache lines."""
    return -(-int(np.prod(shape)) * dtype.itemsize // CACHE_LINE) * CACHE_LINE
