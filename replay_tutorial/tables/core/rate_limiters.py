"""Rate limiters: four numbers that decide when inserts and samples have to wait.

With I inserts, S samples and D deletes since the table was created or reset, and σ samples per insert,

    n inserts are admitted    if  I + n - D ≤ min_size  or  (I + n) · σ - S ≤ max_diff
    n samples are admitted    if  I - D ≥ min_size     and  I · σ - S - n ≥ min_diff

so the *cursor* I · σ - S stays between min_diff and max_diff. A table with fewer than min_size items admits
every insert and no sample. A limiter holds no counts, so several tables can share one, and it can be replaced
at any time.

Source: Reverb (Cassirer et al. 2021, section 3.4), with identical arithmetic. `SamplesPerInsert` in
`shared` keeps the same band between processes, without deletes.
"""

import math
import sys
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from replay_tutorial.buffers.rows import checked_at_least, checked_integer, checked_number

MAX_ITEMS = 2**53  # float64 represents all integers up to this limit


@dataclass(frozen=True)
class RateLimiter:
    """A rate limiter defined by its four numbers.

    Attributes:
        samples_per_insert: σ, finite and positive.
        min_size: Number of items required for sampling; at least 1.
        min_diff: Lower limit of the cursor after a sample.
        max_diff: Upper limit of the cursor after an insert.
    """

    samples_per_insert: float
    min_size: int
    min_diff: float
    max_diff: float

    def __post_init__(self) -> None:
        ratio = checked_number("samples_per_insert", self.samples_per_insert)
        if not 0.0 < ratio < math.inf:
            raise ValueError(f"samples_per_insert must be finite and positive, not {ratio}.")
        if not 1 <= checked_integer("min_size", self.min_size) <= MAX_ITEMS:
            size = checked_number("min_size", self.min_size)
            raise ValueError(f"min_size must be at least 1 and at most 2 ** 53, not {size:g}.")
        if not checked_number("min_diff", self.min_diff) <= checked_number("max_diff", self.max_diff):
            raise ValueError(f"min_diff must be at most max_diff, not {self.min_diff} and {self.max_diff}.")
        for name in ("samples_per_insert", "min_diff", "max_diff"):  # float32 would round the products
            object.__setattr__(self, name, checked_number(name, getattr(self, name)))

    def may_insert(self, inserts: int, samples: int, deletes: int) -> bool:
        """Return whether one more insert is admitted."""
        return (
            inserts + 1 - deletes <= self.min_size
            or (inserts + 1) * self.samples_per_insert - samples <= self.max_diff
        )

    def may_sample(self, inserts: int, samples: int, deletes: int, count: int = 1) -> bool:
        """Return whether `count` more samples are admitted."""
        return (
            inserts - deletes >= self.min_size
            and inserts * self.samples_per_insert - samples - count >= self.min_diff
        )

    def sampleable(self, inserts: int, samples: int, deletes: int, limit: int) -> int:
        """Return the number of samples that are admitted, at most `limit`."""
        if self.may_sample(inserts, samples, deletes, limit):  # the common case
            return limit
        return bisect_left(
            range(1, limit), True, key=lambda n: not self.may_sample(inserts, samples, deletes, n)
        )


class MinSize(RateLimiter):
    """Admits samples once the table holds `min_size` items; inserts never wait."""

    def __init__(self, min_size: int) -> None:
        """Set the number of items required for sampling, at least 1."""
        super().__init__(1.0, min_size, -sys.float_info.max, sys.float_info.max)


class SampleToInsertRatio(RateLimiter):
    """Keeps the average number of samples per inserted item within a band."""

    def __init__(
        self, samples_per_insert: float, min_size: int, error_buffer: float | Sequence[float]
    ) -> None:
        """Set the ratio and the band.

        Args:
            samples_per_insert: Average number of samples per insert; positive.
            min_size: Number of items required for sampling; at least 1.
            error_buffer: Half the width of the band around samples_per_insert · min_size, or the pair
                (min_diff, max_diff) of its limits.

        Raises:
            TypeError: If an argument is not a number.
            ValueError: If an argument is out of range, or if the band is too narrow or too high, so that
                inserts and samples could block each other.
        """
        size = checked_integer("min_size", min_size)
        center = checked_number("samples_per_insert", samples_per_insert) * min(size, MAX_ITEMS)
        match error_buffer:
            case [min_diff, max_diff]:
                pass
            case _:
                error = checked_number("error_buffer", error_buffer)
                min_diff, max_diff = center - error, center + error
        super().__init__(samples_per_insert, min_size, min_diff, max_diff)
        min_width = 2 * max(1.0, samples_per_insert)
        if not max_diff - min_diff >= min_width:
            raise ValueError(
                f"The band from {min_diff} to {max_diff} is {max_diff - min_diff} wide; its width must be "
                f"at least 2 · max(1, samples_per_insert) = {min_width}, otherwise inserts and samples "
                "could block each other. Increase error_buffer."
            )
        if min_diff > center:
            raise ValueError(
                f"The band starts at {min_diff}, above samples_per_insert · min_size = {center}, so a table "
                "with min_size items could not be sampled. Lower the band or increase min_size."
            )
        if max_diff < center:
            warnings.warn(
                f"The band ends at {max_diff}, below samples_per_insert · min_size = {center}, so a thread "
                "that both inserts and samples can deadlock.",
                stacklevel=2,
            )


class Queue(RateLimiter):
    """Limits the number of unsampled items, for tables that sample each item once."""

    def __init__(self, size: int) -> None:
        """Set the maximum number of items in the queue, at least 1."""
        super().__init__(1.0, 1, 0.0, float(checked_at_least("size", size, 1)))


class Stack(Queue):
    """The limiter of a stack. It behaves like `Queue`; only the selectors of the table differ."""
