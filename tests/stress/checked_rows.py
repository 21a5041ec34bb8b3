"""Rows that show a fault: what is in them follows from their writer and their number.

A writer's row n holds its number n, counted from 1, so a row that nobody wrote has number 0. Its obs is a
stretch of one long table, found from writer and number, so that a row of any length is quickly made and
quickly checked; a row that was torn, half old and half new, is not that stretch.

Left out: faults that swap two whole rows of one writer; the buffers' own tests look for those.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

HEAD_BYTES = 24  # writer, number and checksum
TABLE_LENGTH = 997  # a prime, so that rows that replace each other never hold the same stretch


class Faults(NamedTuple):
    """How many of the rows looked at should never have been seen."""

    torn: int
    never_written: int


class CheckedRows:
    """Makes and checks rows of a given length.

    Example:
        >>> rows = CheckedRows(row_bytes=40)
        >>> rows.check(rows.make(writer=1, first=0, count=5))
        Faults(torn=0, never_written=0)
    """

    def __init__(self, row_bytes: int) -> None:
        """Lay the table out; a row has at least 28 bytes, a multiple of 4."""
        self.width = (row_bytes - HEAD_BYTES) // 4
        table = (np.arange(TABLE_LENGTH + self.width) % TABLE_LENGTH + 1).astype(np.float32)
        # float32[TABLE_LENGTH + 1, width]: row k is the stretch that begins at k; the stretches share memory
        self._stretches = np.lib.stride_tricks.sliding_window_view(table, self.width)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a row, new on every call, because cpprb writes into its argument."""
        return {
            "obs": {"shape": self.width},
            "writer": {"shape": 1, "dtype": np.int64},
            "number": {"shape": 1, "dtype": np.int64},
            "checksum": {"shape": 1, "dtype": np.float64},
        }

    def make(self, writer: int, first: int, count: int) -> dict[str, npt.NDArray[Any]]:
        number = np.arange(first, first + count, dtype=np.int64)[:, np.newaxis] + 1
        writers = np.full((count, 1), writer, np.int64)
        obs = self._stretch(writers, number)
        return {"obs": obs, "writer": writers, "number": number, "checksum": checksum(obs, writers, number)}

    def check(self, batch: dict[str, npt.NDArray[Any]]) -> Faults:
        """Count the rows of a batch that nobody wrote, and those that are not as they were written."""
        obs, writer, number = batch["obs"], batch["writer"], batch["number"]
        written = number[:, 0] >= 1
        right = (obs == self._stretch(writer, number)).all(axis=1)
        right &= (batch["checksum"] == checksum(obs, writer, number))[:, 0]
        return Faults(int((written & ~right).sum()), int((~written).sum()))

    def _stretch(self, writer: npt.NDArray[np.int64], number: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        return self._stretches[(number[:, 0] * 7 + writer[:, 0] * 131) % TABLE_LENGTH]


def checksum(
    obs: npt.NDArray[Any], writer: npt.NDArray[np.int64], number: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Sum a row up: exact, as all its parts are whole numbers."""
    return obs.sum(axis=1, keepdims=True, dtype=np.float64) + 1e3 * writer + 1e7 * number
