"""A limiter of samples per insert: neither the actors nor the learner may run ahead of the other.

How often each row is sampled decides what is learned; left alone, it would depend on how fast the machine's
processes happen to be. The limiter keeps

    error = inserts · samples_per_insert - samples

inside a band around its value at the moment when sampling may begin. Above it inserting waits, below it
sampling. No process holds anything while it waits, so a process that dies blocks no other. The price: k
processes that insert n rows each can all be admitted before any of them counts its rows, and the error then
exceeds the band by up to (k - 1) · n · samples_per_insert. Inserting waits until it is inside again.

Source: Reverb (Cassirer et al. 2021, section 3.4), `SampleToInsertRatio`.
"""

import math
import operator
import time
from collections.abc import Callable

import numpy as np

from replay_tutorial.buffers.rows import checked_number
from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.shared.protocol import reserve

# Where the counters stand in int64[16]: on a cache line each.
INSERTS, SAMPLES = 0, 8
MOST = 2**62  # rows that a counter counts
# Seconds between two looks at the counters.
POLL_SECONDS = 0.001
MOST_ROWS = 2**53  # integers up to here are floats


class SamplesPerInsert:
    """Keeps the number of samples per insert, between processes, near a given ratio.

    Pass it to processes as an argument. Whoever adds calls `await_can_insert` before and `inserted` after,
    whoever samples `await_can_sample` and `sampled`.

    Example:
        >>> limiter = SamplesPerInsert(8.0, min_size=100, error_buffer=800.0)
        >>> limiter.await_can_sample(64, timeout=0.0)  # nothing has been inserted yet
        False
        >>> limiter.inserted(100)
        >>> limiter.await_can_sample(64, timeout=0.0)
        True
    """

    def __init__(self, samples_per_insert: float, min_size: int, error_buffer: float) -> None:
        """Begin with no insert and no sample.

        Args:
            samples_per_insert: How often each row is to be sampled on average; above 0.
            min_size: Rows to be inserted before the first is sampled; at least 1.
            error_buffer: Half the width of the band, in samples; at least max(1, samples_per_insert). With
                one inserter the error stays within it; k of them that insert n rows at a time exceed it by up
                to (k - 1) · n · samples_per_insert. Insert fewer rows at a time for a narrower band.

        Raises:
            TypeError: If an argument is not a number.
            ValueError: If an argument is out of range; a narrower band could stop both sides forever.
        """
        self.samples_per_insert = checked_number("samples_per_insert", samples_per_insert)
        if not 0.0 < self.samples_per_insert < math.inf:
            raise ValueError(f"samples_per_insert must be finite and above 0, not {self.samples_per_insert}.")
        rows = checked_number("min_size", min_size)
        if not (1 <= rows <= MOST_ROWS and rows.is_integer()):
            raise ValueError(f"min_size must be a whole number of rows, 1 to 2 ** 53, not {rows:.10g}.")
        self.min_size = int(rows)
        self.error_buffer = checked_number("error_buffer", error_buffer)
        if not max(1.0, self.samples_per_insert) <= self.error_buffer < math.inf:
            raise ValueError(
                "error_buffer must be finite and at least max(1, samples_per_insert) = "
                f"{max(1.0, self.samples_per_insert)}, not {self.error_buffer}: in a narrower band both wait "
                "forever."
            )
        self._arrays = SharedArrays({"counters": ((16,), np.dtype(np.int64))})

    @property
    def inserts(self) -> int:
        """Rows inserted so far."""
        return int(self._arrays["counters"][INSERTS])

    @property
    def samples(self) -> int:
        """Rows sampled so far."""
        return int(self._arrays["counters"][SAMPLES])

    @property
    def error(self) -> float:
        """Samples that are owed: inserts · samples_per_insert - samples, from the middle of the band."""
        return (self.inserts - self.min_size) * self.samples_per_insert - self.samples

    def await_can_insert(self, count: int, timeout: float | None = None) -> bool:
        """Wait until `count` rows may be inserted.

        Args:
            count: Rows that are to be inserted; beyond the first `min_size`, count · samples_per_insert must
                be at most error_buffer.
            timeout: Seconds to wait at most; None waits forever.

        Returns:
            Whether they may.

        Raises:
            TypeError: If the count is not an integer.
            ValueError: If it is below 1, or too large for the band, or the timeout is NaN.
        """
        count = whole_number(count, least=1)
        if 1 <= count <= self.min_size - self.inserts:
            return True
        samples = count * self.samples_per_insert
        self._check(count, samples)
        return wait_until(lambda: self.error + samples <= self.error_buffer, timeout)

    def await_can_sample(self, count: int, timeout: float | None = None) -> bool:
        """Wait until `count` rows may be sampled.

        Args:
            count: Rows that are to be sampled, at most error_buffer.
            timeout: Seconds to wait at most; None waits forever.

        Returns:
            Whether they may.

        Raises:
            TypeError: If the count is not an integer.
            ValueError: If it is below 1, or too large for the band, or the timeout is NaN.
        """
        count = whole_number(count, least=1)
        self._check(count, count)
        return wait_until(
            lambda: self.inserts >= self.min_size and self.error - count >= -self.error_buffer, timeout
        )

    def inserted(self, count: int) -> None:
        """Count rows that have been inserted.

        Args:
            count: How many; at least 0.

        Raises:
            TypeError: If the count is not an integer.
            ValueError: If it is negative, or more than can be counted.
        """
        self._count(INSERTS, count)

    def sampled(self, count: int) -> None:
        """Count rows that have been sampled.

        Args:
            count: How many; at least 0.

        Raises:
            TypeError: If the count is not an integer.
            ValueError: If it is negative, or more than can be counted.
        """
        self._count(SAMPLES, count)

    def _count(self, counter: int, count: int) -> None:
        counters, rows = self._arrays["counters"], whole_number(count)
        if int(counters[counter]) + rows > MOST:
            raise ValueError(f"At most {MOST} rows can be counted, not {rows} after {counters[counter]}.")
        reserve(counters, counter, rows)

    def _check(self, count: int, samples: float) -> None:
        if samples > self.error_buffer:
            raise ValueError(
                f"{count} rows at once move the error by {samples}, more than error_buffer = "
                f"{self.error_buffer}, so that both sides might wait forever: take fewer, or widen the band."
            )


def whole_number(count: int, least: int = 0) -> int:
    """Return a number of rows; refuse what can't be one."""
    try:
        number = operator.index(count)
    except TypeError:
        raise TypeError(f"count must be an integer, not {count!r}.") from None
    if number < least:
        raise ValueError(f"count must be at least {least}, not {number}.")
    return number


def wait_until(condition: Callable[[], bool], timeout: float | None) -> bool:
    """Poll a condition until it holds or the time is up; return whether it holds."""
    if timeout is not None and math.isnan(timeout):
        raise ValueError(f"timeout must be a number of seconds, or None to wait forever, not {timeout}.")
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
