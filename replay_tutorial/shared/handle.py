"""A handle: one process's hold on a buffer that several processes share.

The rows, counters and stamps lie in one block of shared memory (`memory`). A handle is a small object with a
view into it (`view`): each process has its own, made when the buffer is made, passed to it, or attached by
address. A copy of a handle, also a deep one, is another handle on the same rows.

Left out: what lies in the block.
"""

from os import PathLike
from typing import Any, Self

import numpy as np

from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.shared.view import View


class Handle:
    """What every shared buffer can do with its block: pass it on, attach to it, close it, count its rows."""

    _block: SharedArrays
    # This process's own, not passed on.
    _view: View
    _rng: np.random.Generator

    def _open(self, block: SharedArrays, generator: np.random.Generator) -> None:
        """Begin to work on a block."""
        self._block, self._view = block, View(block)
        self._rng = generator

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
        block = SharedArrays.attach(address)
        if (kind := block.layout.get("kind")) != cls.__name__:
            raise ValueError(f"{address} holds a {kind}, not a {cls.__name__}.")
        buffer = cls.__new__(cls)
        buffer._open(block, np.random.default_rng(seed))
        return buffer

    @property
    def address(self) -> str:
        """Where an unrelated process can `attach`, while this process lives or the file exists.

        Raises:
            ValueError: If there is no file, and the system is not Linux.
        """
        return self._block.address

    def close(self) -> None:
        """Release this process's share of the memory, which is free when the last process has done so.

        Another process may become the sampler then. Not needed at a process's end. Whatever is asked of the
        rows later raises ValueError; closing again is harmless.
        """
        if "_block" in self.__dict__:
            if "_view" in self.__dict__:
                self._view.release()
                del self._view
            del self._block

    def __enter__(self) -> Self:
        """Use the buffer in a `with` block, which closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("_block", "_view"):
            raise ValueError(f"This {type(self).__name__} is closed.")
        return object.__getattribute__(self, name)  # again: the error says what really is missing

    def __repr__(self) -> str:
        if "_view" not in self.__dict__:
            return f"<{type(self).__name__}: closed>"
        ring, fields = self._view.ring, self._view.fields
        return f"<{type(self).__name__}: {ring.stored:,} of {ring.capacity:,} transitions of {fields}>"

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name != "_view"}
        return kept | {"_view": self.get_current_episode_len()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        view = View(state["_block"])
        view.ring.own[0] = state["_view"]
        self.__dict__.update(state | {"_view": view})

    def get_stored_size(self) -> int:
        """Count the transitions that are stored."""
        return self._view.ring.stored

    def __len__(self) -> int:
        """Count the transitions that are stored."""
        return self._view.ring.stored

    def get_buffer_size(self) -> int:
        """Return how many transitions can be stored."""
        return self._view.ring.capacity

    def get_next_index(self) -> int:
        """Return the index that the next row will get."""
        return self._view.ring.next_index

    def get_current_episode_len(self) -> int:
        """Count the transitions that this process added since its last `on_episode_end` or `clear`."""
        appended, before = self._view.ring.own.tolist()
        return appended - before

    def is_Nstep(self) -> bool:
        """Return whether n-step transitions are made here: never."""
        return False

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        return self._view.ring.nbytes + (self._view.frames.nbytes if self._view.frames else 0)

    @property
    def bytes_per_transition(self) -> float:
        """Bytes reserved for each transition that can be stored."""
        return self.nbytes / self._view.ring.capacity
