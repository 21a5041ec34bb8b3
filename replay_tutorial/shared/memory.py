"""Shared memory: one named set of arrays that several processes see.

The arrays lie in one block of memory that has no name in any file system: on Linux an anonymous file in memory
(`memfd_create`), on macOS a file that is unlinked as soon as it is open, on Windows a mapping that goes when its last
user does. So nothing is left behind, however the processes end, and nobody has to tidy up.

A process gets the block by inheriting it (fork) or with the arguments it is started with (spawn, forkserver).
Pages are handed out when they are first written.

Left out: processes that are not related, and files that outlive them all.
"""

import mmap
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping
from multiprocessing import reduction
from typing import Any

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64  # bytes; arrays begin at its multiples, so that two never share one

Specs = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]  # shape and dtype of each array, by name


class SharedArrays:
    """Arrays, zero at first, in one block of memory that may be passed to other processes.

    Example:
        >>> arrays = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
        >>> arrays["counters"][0] = 7  # seen by every process that `arrays` was passed to
    """

    def __init__(self, specs: Specs) -> None:
        """Reserve the block.

        Args:
            specs: Shape and dtype of each array, by name.

        Raises:
            OSError: If the system has no room for it.
        """
        self._specs = dict(specs)
        self._size = sum(padded_size(shape, dtype) for shape, dtype in self._specs.values())
        self._tag = f"replay_tutorial-{uuid.uuid4()}"  # Windows knows the block by it
        self._handle = -1 if sys.platform == "win32" else anonymous_file(self._size)
        self._map()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Give the array of a name: a view of the shared block."""
        return self._arrays[name]

    def __getstate__(self) -> dict[str, Any]:
        # Outside of starting a process this fails with an error of multiprocessing's own, which says so.
        handle = None if sys.platform == "win32" else reduction.DupFd(self._handle)
        return {"specs": self._specs, "size": self._size, "tag": self._tag, "handle": handle}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._specs, self._size, self._tag = state["specs"], state["size"], state["tag"]
        self._handle = -1 if state["handle"] is None else state["handle"].detach()
        self._map()

    def __del__(self) -> None:
        if getattr(self, "_handle", -1) >= 0:
            os.close(self._handle)

    def _map(self) -> None:
        # The mapping itself is undone when the last array that looks into it is gone.
        block = (
            mmap.mmap(-1, self._size, self._tag)
            if sys.platform == "win32"
            else mmap.mmap(self._handle, self._size)
        )
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        offset = 0
        for name, (shape, dtype) in self._specs.items():
            flat = np.frombuffer(block, dtype, int(np.prod(shape)), offset)
            self._arrays[name] = flat.reshape(shape)
            offset += padded_size(shape, dtype)


def padded_size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Count the bytes of an array, rounded up to whole cache lines."""
    return -(-int(np.prod(shape)) * dtype.itemsize // CACHE_LINE) * CACHE_LINE


def anonymous_file(size: int) -> int:
    """Open a file of zeros that no name leads to; gives its descriptor."""
    if sys.platform == "linux":
        # Unlike /dev/shm, which containers often limit to 64 MB, it is limited by the memory alone.
        handle = os.memfd_create("replay_tutorial", os.MFD_CLOEXEC)
    else:
        handle, path = tempfile.mkstemp(prefix="replay_tutorial-")
        os.unlink(path)
    os.ftruncate(handle, size)
    return handle
