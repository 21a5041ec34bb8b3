"""What every buffer has, of one process or of many: counts of its rows, and its way to a file and back.

Left out: everything in which buffers differ.
"""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self, TypedDict

from replay_tutorial.buffers import archive
from replay_tutorial.buffers.fields import Fields


class CpprbKwargs(TypedDict, total=False):
    """Keywords of cpprb's constructors that have nothing to do here."""

    backend: Any  # shared memory is of one kind
    check_for_update: Any  # a priority that comes too late never counts
    ctx: Any  # every start method works
    mmap_prefix: str | None  # refused, unless it is None


def check_keywords(kind: str, keywords: Mapping[str, Any]) -> None:
    """Pass over the keywords of cpprb, and refuse all others."""
    if unknown := keywords.keys() - CpprbKwargs.__optional_keys__:
        wrong = min(unknown)
        hint = ""
        if wrong.lower().replace("_", "") in ("nstep", "nsteps"):
            hint = ' Did you mean Nstep={"size": 3, "rew": "rew", "next": "next_obs"}?'
            if kind.startswith("MP"):
                hint = " Did you mean NStep, the class with which an actor folds its steps?"
        raise TypeError(f"{kind} got an unexpected keyword argument {wrong!r}; see help({kind}).{hint}")
    if keywords.get("mmap_prefix") is not None:
        raise ValueError(
            f"{kind} has no mmap_prefix. For rows in a file build MPReplayBuffer or "
            "MPPrioritizedReplayBuffer with path=..."
        )


class BaseBuffer:
    """A buffer on a ring."""

    _ring: Any  # with capacity, stored and next_index
    _fields: Fields  # of what `add` takes
    _layout: dict[str, Any]  # what must agree for a file to be loaded

    def __repr__(self) -> str:
        stored, size = self._ring.stored, self._ring.capacity
        return f"<{type(self).__name__}: {stored:,} of {size:,} transitions of {self._fields}>"

    def get_stored_size(self) -> int:
        """Count the transitions that are stored."""
        return self._ring.stored

    def __len__(self) -> int:
        """Count the transitions that are stored."""
        return self._ring.stored

    def get_buffer_size(self) -> int:
        """Return how many transitions can be stored."""
        return self._ring.capacity

    def get_next_index(self) -> int:
        """Return the index that the next row will get."""
        return self._ring.next_index

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        raise NotImplementedError

    @property
    def bytes_per_transition(self) -> float:
        """Bytes reserved for each transition that can be stored."""
        return self.nbytes / self._ring.capacity

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file: rows, counters, open n-step windows and the random state.

        Other processes may go on adding to a shared buffer; rows that are replaced meanwhile are left out.
        The file holds arrays and text, no pickle; `numpy.load` opens it. It replaces an old file only when it
        is complete. What a killed `save` to this path left, `.name.….part`, is removed (not on Windows).

        Args:
            path: The file; no suffix is added.

        Raises:
            OSError: If it can't be written. An old file is left as it was.
        """
        archive.save(path, self._layout, *self._state())

    def load(self, path: str | PathLike[str]) -> None:
        """Replace everything by what `save` wrote, bit for bit.

        What was stored before is given up only when the file has been read, so that a buffer in use needs its
        memory twice for that long.

        Args:
            path: A file written by a buffer that was built with the same arguments (except the seed).

        Raises:
            OSError: If it can't be read.
            ValueError: If it is damaged, or of another layout or version. Nothing has changed then.
        """
        with archive.open_archive(path, self._layout) as (counters, reader):
            loaded = self._from_state(counters, reader)
        self.__dict__.update(loaded.__dict__)

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        """Return the counters, as JSON, and the arrays, in the order in which they are to be written."""
        raise NotImplementedError

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        """Make a buffer alike from what `_state` returned; this one stays as it is."""
        raise NotImplementedError
