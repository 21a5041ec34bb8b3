"""The base class of all buffers: size and memory queries, saving and loading."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self, TypedDict

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.gather import ArraySpec, array_specs


class CpprbKwargs(TypedDict, total=False):
    """Keyword arguments of cpprb's constructors that are accepted for compatibility."""

    backend: Any  # ignored: there is only one kind of shared memory
    check_for_update: Any  # ignored: updates of replaced rows are always dropped
    ctx: Any  # ignored: every start method works
    mmap_prefix: str | None  # must be None


def check_keywords(kind: str, keywords: Mapping[str, Any]) -> None:
    """Raise TypeError if a keyword argument is unknown, and ValueError if `mmap_prefix` is set."""
    if unknown := keywords.keys() - CpprbKwargs.__optional_keys__:
        wrong = min(unknown)
        hint = ""
        if wrong.lower().replace("_", "") in ("nstep", "nsteps"):
            hint = ' Did you mean Nstep={"size": 3, "rew": "rew", "next": "next_obs"}?'
            if kind.startswith("MP"):
                hint = " Did you mean the class NStep, which computes n-step returns in an actor?"
        raise TypeError(f"{kind} got an unexpected keyword argument {wrong!r}; see help({kind}).{hint}")
    if keywords.get("mmap_prefix") is not None:
        raise ValueError(
            f"{kind} does not support mmap_prefix. To store rows in a file, use MPReplayBuffer or "
            "MPPrioritizedReplayBuffer with path=..."
        )


class BaseBuffer:
    """Base class of the buffers; rows are stored in a ring."""

    _ring: Any  # has capacity, stored and next_index
    _fields: Fields  # the arguments of `add`
    _layout: dict[str, Any]  # must equal the layout in a loaded file

    def __repr__(self) -> str:
        stored, size = self._ring.stored, self._ring.capacity
        return f"<{type(self).__name__}: {stored:,} of {size:,} transitions of {self._fields}>"

    def get_stored_size(self) -> int:
        """Return the number of stored transitions."""
        return self._ring.stored

    def __len__(self) -> int:
        """Return the number of stored transitions."""
        return self._ring.stored

    def get_buffer_size(self) -> int:
        """Return the capacity: the maximum number of stored transitions."""
        return self._ring.capacity

    def get_next_index(self) -> int:
        """Return the index of the next row to be added."""
        return self._ring.next_index

    @property
    def field_specs(self) -> dict[str, ArraySpec]:
        """The dtype and shape of each field of a sampled transition."""
        return array_specs(self._fields)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        raise NotImplementedError

    @property
    def bytes_per_transition(self) -> float:
        """Bytes reserved per transition: `nbytes` divided by the capacity."""
        return self.nbytes / self._ring.capacity

    def save(self, path: str | PathLike[str]) -> None:
        """Save the buffer to a file: rows, counters, unfinished n-step windows and the random state.

        Other processes may keep adding to a shared buffer; rows that they replace during the call are not
        saved. The file is a zip archive of `.npy` arrays and JSON. It contains no pickles, and `numpy.load`
        can open it. An existing file is replaced atomically. Temporary files `.name.….part`, left by a `save`
        that was killed, are removed (except on Windows).

        Args:
            path: Path of the file; no suffix is added.

        Raises:
            OSError: If the file can't be written. An existing file is then unchanged.
        """
        archive.save(path, self._layout, *self._state())

    def load(self, path: str | PathLike[str]) -> None:
        """Replace the contents of the buffer with the exact state that `save` wrote.

        The old contents are freed only after the whole file has been read, so loading into a buffer in use
        temporarily needs twice its memory.

        Args:
            path: A file saved by a buffer that was constructed with the same arguments (except the seed), and
                with its fields in the same order.

        Raises:
            OSError: If the file can't be read.
            ValueError: If the file is damaged, or its layout or version differs. The buffer is then
                unchanged.
        """
        with archive.open_archive(path, self._layout) as (counters, reader):
            loaded = self._from_state(counters, reader)
        self.__dict__.update(loaded.__dict__)

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        """Return the counters, which must be JSON, and the arrays in the order in which they are written."""
        raise NotImplementedError

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        """Return a new buffer with the saved state, without changing this one."""
        raise NotImplementedError
