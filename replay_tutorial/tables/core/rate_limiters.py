"""Rate limiters: how many inserts and samples a table lets happen, by four numbers and two inequalities.

With I inserts, S samples and D deletions since the table was made or reset, and σ samples per insert,

    n inserts may happen    if  I + n - D ≤ min_size  or  (I + n) · σ - S ≤ max_diff
    n samples may happen    if  I - D ≥ min_size     and  I · σ - S - n ≥ min_diff

so I · σ - S, the *cursor*, is kept in a band. Below min_size items nothing is sampled, and inserts are free:
a table that has lost items gets so many again. A limiter only holds the numbers; the table counts, and the
server waits. So one limiter may serve many tables, and be replaced while they run.

Left out: the same band between processes, without deletions (`SamplesPerInsert`).

Source: Reverb (Cassirer et al. 2021, section 3.4), whose arithmetic this is to the letter.
"""

import math
import sys
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from replay_tutorial.buffers.rows import checked_integer, checked_number

MOST_ITEMS = 2**53  # integers up to here are floats


@dataclass(frozen=True)
class RateLimiter:
    """The four numbers.

    Attributes:
        samples_per_insert: σ, finite and above 0.
        min_size: Items that there must be before one is sampled; at least 1.
        min_diff: The smallest cursor that samples may lead to.
        max_diff: The largest cursor that inserts may lead to.
    """

    samples_per_insert: float
    min_size: int
    min_diff: float
    max_diff: float

    def __post_init__(self) -> None:
        ratio = checked_number("samples_per_insert", self.samples_per_insert)
        if not 0.0 < ratio < math.inf:
            raise ValueError(f"samples_per_insert must be finite and above 0, not {ratio}.")
        if not 1 <= checked_integer("min_size", self.min_size) <= MOST_ITEMS:
            size = checked_number("min_size", self.min_size)
            raise ValueError(f"min_size must be at least 1, and at most 2 ** 53, not {size:g}.")
        if not checked_number("min_diff", self.min_diff) <= checked_number("max_diff", self.max_diff):
            raise ValueError(f"min_diff must be at most max_diff, not {self.min_diff} and {self.max_diff}.")

    def may_insert(self, inserts: int, samples: int, deletes: int) -> bool:
        """Return whether one more item may be inserted."""
        return (
            inserts + 1 - deletes <= self.min_size
            or (inserts + 1) * self.samples_per_insert - samples <= self.max_diff
        )

    def may_sample(self, inserts: int, samples: int, deletes: int, count: int = 1) -> bool:
        """Return whether `count` more items may be sampled."""
        return (
            inserts - deletes >= self.min_size
            and inserts * self.samples_per_insert - samples - count >= self.min_diff
        )

    def sampleable(self, inserts: int, samples: int, deletes: int, most: int) -> int:
        """Count how many more items may be sampled: 0 to `most`."""
        if self.may_sample(inserts, samples, deletes, most):  # nearly always
            return most
        return bisect_left(
            range(1, most), True, key=lambda n: not self.may_sample(inserts, samples, deletes, n)
        )


class MinSize(RateLimiter):
    """Sampling waits for a number of items; inserting never waits."""

    def __init__(self, min_size: int) -> None:
        """Set the number of items that there must be, at least 1."""
        super().__init__(1.0, min_size, -sys.float_info.max, sys.float_info.max)


class SampleToInsertRatio(RateLimiter):
    """Each item is sampled so many times on average, within a band."""

    def __init__(
        self, samples_per_insert: float, min_size: int, error_buffer: float | Sequence[float]
    ) -> None:
        """Set the band.

        Args:
            samples_per_insert: Above 0.
            min_size: Items before the first sample; at least 1.
            error_buffer: Half the width of the band, around samples_per_insert · min_size; or the cursor's
                smallest and largest value.

        Raises:
            TypeError: If an argument is not a number.
            ValueError: If an argument is out of range, or the band is so narrow, or so high, that both sides
                would wait for good.
        """
        size = checked_integer("min_size", min_size)
        middle = checked_number("samples_per_insert", samples_per_insert) * min(size, MOST_ITEMS)
        match error_buffer:
            case [min_diff, max_diff]:
                pass
            case _:
                error = checked_number("error_buffer", error_buffer)
                min_diff, max_diff = middle - error, middle + error
        super().__init__(samples_per_insert, min_size, min_diff, max_diff)
        least = 2 * max(1.0, samples_per_insert)
        if not max_diff - min_diff >= least:
            raise ValueError(
                f"The band {min_diff} to {max_diff} is {max_diff - min_diff} wide; it must be at least "
                f"2 · max(1, samples_per_insert) = {least}, or both sides might wait for good. Widen it."
            )
        if min_diff > middle:
            raise ValueError(
                f"The band begins at {min_diff}, above samples_per_insert · min_size = {middle}: with "
                f"min_size items nothing could be sampled yet. Lower it, or raise min_size."
            )
        if max_diff < middle:
            warnings.warn(
                f"The band ends at {max_diff}, below samples_per_insert · min_size = {middle}: whoever "
                "inserts and samples in one thread may wait for itself.",
                stacklevel=2,
            )


class Queue(RateLimiter):
    """At most so many items more have been inserted than sampled; for tables that sample each once."""

    def __init__(self, size: int) -> None:
        """Set how many items may wait, at least 1."""
        if checked_integer("size", size) < 1:
            raise ValueError(f"size must be at least 1, not {size}.")
        super().__init__(1.0, 1, 0.0, float(size))


class Stack(Queue):
    """The same arithmetic; what differs is the table's selectors."""
