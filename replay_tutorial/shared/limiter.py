"""A rate limiter that keeps the number of samples per insert near a target ratio.

How often each row is sampled affects learning; without a limiter, this frequency depends on the relative
speed of the processes. The limiter keeps

    error = inserts · samples_per_insert - samples

inside a band around its value at `min_size` inserts. Inserts block while the error is above the band; samples
block while it is below. A waiting process holds no lock, so a process that dies blocks no other. However, k
processes that insert n rows each can all be admitted before any of them counts its rows. The error can then
exceed the band by up to (k - 1) · n · samples_per_insert. Further inserts then block until the error is back
inside the band.

Source: Reverb (Cassirer et al. 2021, section 3.4), `SampleToInsertRatio`.

Built in chapter 07, *Ape-X*.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from replay_tutorial.buffers.rows import checked_at_least, checked_number
from replay_tutorial.buffers.runtime.jit import Integers, kernel
from replay_tutorial.shared.atomics import compare_and_swap, fetch_add
from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.shared.protocol import add_to_counter

# Positions in the counters, int64[16], one cache line each.
INSERTS, SAMPLES = 0, 8
MAX_COUNT = 2**62  # limit of a counter
# Seconds between two reads of the counters.
POLL_SECONDS = 0.001
MAX_MIN_SIZE = 2**53  # a float64 represents all integers up to here


@kernel
def set_counts(counters: Integers, inserts: int, samples: int) -> bool:
    """Set both counts if both are 0, or none of them; return whether they were.

    The samples come first, so that a waiting sampler isn't admitted too early. If another process inserts
    rows between the two swaps, the second one fails.
    """
    if not compare_and_swap(counters, SAMPLES, 0, samples):
        return False
    if not compare_and_swap(counters, INSERTS, 0, inserts):
        fetch_add(counters, SAMPLES, -samples)
        return False
    return True


class SamplesPerInsert:
    """A limiter that keeps the number of samples per insert, counted over all processes, near a target ratio.

    Pass the limiter to other processes as an argument. Writers call `await_can_insert` before they add rows
    and `inserted` afterwards; the sampler calls `await_can_sample` and `sampled`.

    Built in chapter 07, *Ape-X*.

    Example:
        >>> limiter = SamplesPerInsert(8.0, min_size=100, error_buffer=800.0)
        >>> limiter.await_can_sample(64, timeout=0.0)  # nothing has been inserted yet
        False
        >>> limiter.inserted(100)
        >>> limiter.await_can_sample(64, timeout=0.0)
        True
    """

    def __init__(self, samples_per_insert: float, min_size: int, error_buffer: float) -> None:
        """Create a limiter with both counters at 0.

        Args:
            samples_per_insert: Target ratio: how often each row is sampled on average; above 0.
            min_size: Number of inserts before the first sample is admitted; at least 1.
            error_buffer: Half the width of the band, in samples; at least max(1, samples_per_insert). One
                writer stays within the band; k writers that insert n rows at a time exceed it by up to
                (k - 1) · n · samples_per_insert. Insert fewer rows at a time for a narrower band.

        Raises:
            TypeError: If an argument is not a number.
            ValueError: If an argument is out of range; a narrower band could block both sides forever.
        """
        self.samples_per_insert = checked_number("samples_per_insert", samples_per_insert)
        if not 0.0 < self.samples_per_insert < math.inf:
            raise ValueError(f"samples_per_insert must be finite and above 0, not {self.samples_per_insert}.")
        rows = checked_number("min_size", min_size)
        if not (1 <= rows <= MAX_MIN_SIZE and rows.is_integer()):
            raise ValueError(f"min_size must be an integer from 1 to 2 ** 53, not {rows:.10g}.")
        self.min_size = int(rows)
        self.error_buffer = checked_number("error_buffer", error_buffer)
        if not max(1.0, self.samples_per_insert) <= self.error_buffer < math.inf:
            raise ValueError(
                "error_buffer must be finite and at least max(1, samples_per_insert) = "
                f"{max(1.0, self.samples_per_insert)}, not {self.error_buffer}: a narrower band could block "
                "both sides forever."
            )
        self._arrays = SharedArrays({"counters": ((16,), np.dtype(np.int64))})

    @property
    def inserts(self) -> int:
        """Number of rows inserted."""
        return int(self._arrays["counters"][INSERTS])

    @property
    def samples(self) -> int:
        """Number of rows sampled."""
        return int(self._arrays["counters"][SAMPLES])

    @property
    def error(self) -> float:
        """Distance from the middle of the band: (inserts - min_size) · samples_per_insert - samples."""
        return (self.inserts - self.min_size) * self.samples_per_insert - self.samples

    def await_can_insert(self, count: int, timeout: float | None = None) -> bool:
        """Block until `count` rows may be inserted, or until `timeout` seconds have passed.

        Args:
            count: Number of rows to insert. Beyond the first `min_size` rows, count · samples_per_insert must
                not exceed `error_buffer`.
            timeout: Maximum time to wait in seconds; None waits indefinitely.

        Returns:
            True if the rows may be inserted, False if the timeout expired.

        Raises:
            TypeError: If `count` is not an integer.
            ValueError: If `count` is below 1 or too large for the band, or the timeout is NaN.
        """
        count = checked_at_least("count", count, 1, limit=math.inf)
        if count <= self.min_size - self.inserts:
            return True
        samples = count * self.samples_per_insert
        self._check(count, samples)
        return wait_until(lambda: self.error + samples <= self.error_buffer, timeout)

    def await_can_sample(self, count: int, timeout: float | None = None) -> bool:
        """Block until `count` rows may be sampled, or until `timeout` seconds have passed.

        Args:
            count: Number of rows to sample; at most `error_buffer`.
            timeout: Maximum time to wait in seconds; None waits indefinitely.

        Returns:
            True if the rows may be sampled, False if the timeout expired.

        Raises:
            TypeError: If `count` is not an integer.
            ValueError: If `count` is below 1 or too large for the band, or the timeout is NaN.
        """
        count = checked_at_least("count", count, 1, limit=math.inf)
        self._check(count, count)
        return wait_until(
            lambda: self.inserts >= self.min_size and self.error - count >= -self.error_buffer, timeout
        )

    def inserted(self, count: int) -> None:
        """Count inserted rows.

        Args:
            count: Number of rows; at least 0.

        Raises:
            TypeError: If `count` is not an integer.
            ValueError: If `count` is negative, or the counter would exceed 2 ** 62.
        """
        self._count(INSERTS, count)

    def sampled(self, count: int) -> None:
        """Count sampled rows.

        Args:
            count: Number of rows; at least 0.

        Raises:
            TypeError: If `count` is not an integer.
            ValueError: If `count` is negative, or the counter would exceed 2 ** 62.
        """
        self._count(SAMPLES, count)

    def state(self) -> dict[str, float]:
        """Return the counts and the ratio, as numbers that JSON can store, for `restore`.

        Call it before `buffer.save`: rows that are inserted between the two calls are then in the buffer, but
        not counted.
        """
        counts = {"inserts": self.inserts, "samples": self.samples}
        return {**counts, "samples_per_insert": self.samples_per_insert, "min_size": self.min_size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the counts of a new limiter to those that `state` returned.

        Without it, a resumed limiter counts from 0, so the sampler blocks until `min_size` rows have been
        inserted again, however many rows the buffer holds. Waiting processes see the new counts. After an
        exception, the limiter is unchanged.

        Args:
            state: A state of a limiter with the same `samples_per_insert` and `min_size`; `error_buffer` may
                differ.

        Raises:
            KeyError: If the state lacks an entry, or has an unknown one.
            RuntimeError: If this limiter has already counted rows, or has been restored.
            TypeError: If the state is not a dict, or a count is not an integer.
            ValueError: If a count is negative or above 2 ** 62, rows were sampled before `min_size` inserts,
                or the settings differ.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"state must be the dict that `state` returned, not {state!r:.60}.")
        if wrong := state.keys() ^ self.state().keys():
            raise KeyError(f"state must have the entries {sorted(self.state())}; {sorted(wrong)} differ.")
        for name in ("samples_per_insert", "min_size"):
            if state[name] != (own := getattr(self, name)):
                raise ValueError(
                    f"The state is of a limiter with {name} = {state[name]!r}, this one has {own!r}. Create "
                    "it with the same value, or start a new limiter, whose counts begin at 0."
                )
        inserts, samples = (
            checked_at_least(f"state[{name!r}]", state[name], 0, limit=MAX_COUNT + 1)
            for name in ("inserts", "samples")
        )
        if samples and inserts < self.min_size:
            raise ValueError(
                f"The state counts {samples} samples, but only {inserts} inserts; no row is sampled before "
                f"min_size = {self.min_size} inserts."
            )
        if not set_counts(self._arrays["counters"], inserts, samples):
            raise RuntimeError(
                f"This limiter has already counted {self.inserts} inserts and {self.samples} samples. "
                "Restore a new limiter, once, before any process uses it."
            )

    def _count(self, counter: int, count: int) -> None:
        counters, rows = self._arrays["counters"], checked_at_least("count", count, 0, limit=math.inf)
        if int(counters[counter]) + rows > MAX_COUNT:
            raise ValueError(
                f"At most {MAX_COUNT} rows can be counted: {counters[counter]} + {rows} is too many."
            )
        add_to_counter(counters, counter, rows)

    def _check(self, count: int, samples: float) -> None:
        if samples > self.error_buffer:
            raise ValueError(
                f"A call with count={count} changes the error by {samples}. This exceeds error_buffer = "
                f"{self.error_buffer}, so both sides could block forever. Pass a lower count, or increase "
                "error_buffer."
            )


def wait_until(condition: Callable[[], bool], timeout: float | None) -> bool:
    """Poll `condition` until it is true or the timeout expires; return whether it is true."""
    if timeout is not None and math.isnan(timeout):
        raise ValueError(f"timeout must be a number of seconds, or None to wait indefinitely, not {timeout}.")
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
