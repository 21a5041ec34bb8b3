"""A handle: one process's hold on a buffer that several processes share.

The rows, counters and stamps lie in one block of shared memory (`memory`). A handle is a small object with views into
it: each process has its own, made when the buffer is made, passed to it, or attached by address. A copy of a handle,
also a deep one, is another handle on the same rows.

Left out: what lies in the block.
"""

import os
import threading
from os import PathLike
from typing import Any, Self

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.frame_layout import FrameLayout, with_numbers
from replay_tutorial.shared.memory import SharedArrays, Specs
from replay_tutorial.shared.shared_frames import SharedFrames, specs_of_frames
from replay_tutorial.shared.shared_ring import SharedRing, ring_specs


class Handle:
    """What every shared buffer can do with its block: pass it on, attach to it, close it.

    Attributes that begin with an underscore and are `PRIVATE` belong to this process and are not passed on.
    """

    PRIVATE: tuple[str, ...] = ("_ring", "_frames", "_thread_lock")

    _fields: Fields
    _frame_layouts: list[FrameLayout]  # none if no observation is kept as frames
    _frames_per_transition: float
    _rng: np.random.Generator
    _episode_len: int

    def _open(self, capacity: int, path: str | PathLike[str] | None) -> None:
        """Make the block, or open the file that lies at the path already."""
        self._block = SharedArrays(self._specs(capacity), self._description(capacity), path)
        self._look_into_block()

    @classmethod
    def attach(
        cls, address: str | PathLike[str], *, seed: int | np.random.SeedSequence | None = None
    ) -> Self:
        """Use the buffer of an unrelated process of the same user.

        Args:
            address: Its `address`, or the path of its file.
            seed: Seeds the drawing, if this process is to sample.

        Returns:
            A buffer that shares everything with the other.

        Raises:
            OSError: If there is none.
            ValueError: If there is something else.
        """
        buffer = cls.__new__(cls)
        buffer._block = SharedArrays.attach(address)
        layout = buffer._block.layout
        if layout.get("kind") != cls.__name__:
            raise ValueError(f"{address} holds a {layout.get('kind')}, not a {cls.__name__}.")
        buffer._fields = Fields(
            {name: {"shape": tuple(n), "dtype": t} for name, (n, t) in layout["fields"].items()}
        )
        buffer._frames_per_transition = layout.get("frames_per_transition", 0.0)
        buffer._frame_layouts = [
            FrameLayout(buffer._fields.fields[names[0]], tuple(names), axis)
            for *names, axis in layout.get("frames", [])
        ]
        buffer._rng = np.random.default_rng(seed)
        buffer._episode_len = 0
        buffer._look_into_block()
        return buffer

    @property
    def address(self) -> str:
        """Where an unrelated process of the same user can `attach`, while this process lives or the file lies there.

        Raises:
            ValueError: If there is no file, and the system is not Linux.
        """
        return self._block.address

    def close(self) -> None:
        """Give up this process's share of the memory, which is free when the last process has.

        Another process may become the sampler then. Not needed at a process's end. Whatever is asked of the rows
        later raises ValueError; closing again is harmless.
        """
        if "_ring" in self.__dict__:
            self._ring.release()
            for frames in self._frames.rings if self._frames else []:
                frames.ring.release()
        for name in ("_block", *self.PRIVATE):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Self:
        """Use the buffer in a `with` block, which closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "_block" or name in self.PRIVATE:
            raise ValueError(f"This {type(self).__name__} is closed.")
        return object.__getattribute__(self, name)  # again: the error says what really is missing

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self.PRIVATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look_into_block()

    def _specs(self, capacity: int) -> Specs:
        """Tell which arrays the block holds."""
        stored = with_numbers(self._fields, self._frame_layouts)
        frames = specs_of_frames(self._frame_layouts, capacity, self._frames_per_transition)
        return {**ring_specs(capacity, stored.dtype), **frames}

    def _description(self, capacity: int) -> dict[str, Any]:
        """Tell what another process, or a file, must agree with."""
        fields = {f.name: [list(f.shape), f.dtype.str] for f in self._fields.fields.values()}
        description = {"kind": type(self).__name__, "size": capacity, "fields": fields}
        if not self._frame_layouts:
            return description
        frames = [[*layout.names, layout.axis] for layout in self._frame_layouts]
        return description | {"frames": frames, "frames_per_transition": self._frames_per_transition}

    def _look_into_block(self) -> None:
        """Make what belongs to this process alone."""
        stored = with_numbers(self._fields, self._frame_layouts)
        self._ring = SharedRing(self._block, stored.dtype)
        self._frames = (
            SharedFrames(self._block, self._fields, self._frame_layouts, self._ring.capacity)
            if self._frame_layouts
            else None
        )
        self._thread_lock = (0, threading.Lock())

    def _between_threads(self) -> threading.Lock:
        """Give the lock between the sampler's own threads: it dies with them, and a forked child has one anew."""
        if self._thread_lock[0] != os.getpid():
            self._thread_lock = (os.getpid(), threading.Lock())
        return self._thread_lock[1]
