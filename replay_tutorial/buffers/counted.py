"""Counts: what every buffer, of one process or of many, tells of its ring.

Left out: what a buffer tells of anything else.
"""

from typing import Any


class Counted:
    """Gives a buffer on a ring the methods that count."""

    _ring: Any  # with capacity, stored and next_index
    _episode_len: int

    def get_stored_size(self) -> int:
        """Count the transitions that are stored."""
        return self._ring.stored

    def __len__(self) -> int:
        """Count the transitions that are stored."""
        return self._ring.stored

    def get_buffer_size(self) -> int:
        """Tell how many transitions can be stored."""
        return self._ring.capacity

    def get_next_index(self) -> int:
        """Tell the index that the next row will get."""
        return self._ring.next_index

    def get_current_episode_len(self) -> int:
        """Count the transitions that this process added since its last `on_episode_end` or `clear`."""
        return self._episode_len

    @property
    def nbytes(self) -> int:
        """Bytes reserved for transitions."""
        raise NotImplementedError

    @property
    def bytes_per_transition(self) -> float:
        """Bytes reserved for each transition that can be stored."""
        return self.nbytes / self._ring.capacity
