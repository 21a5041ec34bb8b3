"""Result types, namely samples and table information, and importance-sampling weights.

    w_i = (min_k P(k) / P(i))^β        the largest weight of the table, or of the batch, is 1

The weights equal those of the buffers, where P(i) = mass / total and the total cancels out.

Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.4.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.priorities import Weights, check_weight_options, check_weights, write_weights
from replay_tutorial.buffers.runtime.jit import Floats, Integers
from replay_tutorial.tables.core.rate_limiters import RateLimiter

Parts = dict[str, npt.NDArray[Any]]  # part of a trajectory → its values


class SampleInfo(NamedTuple):
    """Information on each item of a sample, at the time of sampling.

    Attributes:
        keys: int64[n]; keys of the items, for `mutate_priorities`.
        probabilities: float64[n]; sampling probabilities.
        least_probabilities: float64[n]; smallest non-zero sampling probability in the table.
        table_size: int64[n]; number of items in the table, including this item even if it was sampled for the
            last time.
        priorities: float64[n]; priorities of the items.
        times_sampled: int64[n]; number of times the item has been sampled, including this time.
    """

    keys: Integers
    probabilities: Floats
    least_probabilities: Floats
    table_size: Integers
    priorities: Floats
    times_sampled: Integers


class ItemInfo(NamedTuple):
    """One row of a `SampleInfo`, with Reverb's field names."""

    key: int
    probability: float
    least_probability: float
    table_size: int
    priority: float
    times_sampled: int


class SampledItem(NamedTuple):
    """One item of a sample: its information, and the values of each part as views of the sample's arrays."""

    info: ItemInfo
    data: Parts


@dataclass(frozen=True, eq=False)
class Sample:
    """A batch of trajectories; iterating over it yields `SampledItem` objects.

    Attributes:
        info: Information on each item.
        data: For each part, the values of all items; shape (n, length, *shape of the column), or (n, *shape)
            for squeezed parts.
        lengths: For each part, the lengths of its trajectories before padding with zeros, int64[n]; None if
            all trajectories have equal lengths.
        squeezed: Names of the parts without a time axis.
    """

    info: SampleInfo
    data: Parts
    lengths: dict[str, npt.NDArray[np.int64]] | None
    squeezed: frozenset[str]

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.info.keys)

    def __iter__(self) -> Iterator[SampledItem]:
        """Yield the items one by one, without the padding of shorter trajectories."""
        for i, numbers in enumerate(zip(*(column.tolist() for column in self.info), strict=True)):
            data: Parts = {name: values[i] for name, values in self.data.items()}
            if self.lengths is not None:
                kept = data.keys() - self.squeezed
                data |= {name: data[name][: self.lengths[name][i]] for name in kept}
            yield SampledItem(ItemInfo(*numbers), data)

    def pin_memory(self) -> Self:
        """Return a sample of tensors, made by `as_torch`, with the tensors of `data` in pinned memory.

        PyTorch calls this method for `DataLoader(as_torch(...), pin_memory=True)`.
        """
        data: dict[str, Any] = self.data
        return replace(self, data={name: tensor.pin_memory() for name, tensor in data.items()})


def concatenate_samples(samples: Sequence[Sample]) -> Sample:
    """Concatenate samples of one table; shorter trajectories are padded with zeros."""
    info = SampleInfo._make(map(np.concatenate, zip(*(sample.info for sample in samples), strict=True)))
    data: Parts = {}
    lengths: dict[str, npt.NDArray[np.int64]] = {}
    for name in samples[0].data:
        arrays = [sample.data[name] for sample in samples]
        lengths[name] = np.concatenate([part_lengths(sample, name) for sample in samples])
        if name not in samples[0].squeezed:
            max_length, rest = lengths[name].max(), [(0, 0)] * (arrays[0].ndim - 2)
            arrays = [np.pad(array, [(0, 0), (0, max_length - array.shape[1]), *rest]) for array in arrays]
        data[name] = np.concatenate(arrays)
    are_equal = all((counts == counts[0]).all() for counts in lengths.values())
    return Sample(info, data, None if are_equal else lengths, samples[0].squeezed)


def part_lengths(sample: Sample, name: str) -> npt.NDArray[np.int64]:
    """Return the length of a part in each item of a sample, int64[n]."""
    if sample.lengths is not None:
        return sample.lengths[name]
    values = sample.data[name]
    return np.full(len(values), 1 if name in sample.squeezed else values.shape[1])


class TableInfo(NamedTuple):
    """State of a table at one moment. Counts start when the table is created or reset.

    Attributes:
        size: Number of items.
        max_size: Maximum number of items.
        inserts: Number of inserts.
        samples: Number of samples, including repeated samples of the same item.
        deletes: Number of items that were evicted, deleted by key, or sampled for the last time.
        unique_samples: Number of items that have been sampled at least once.
        stale: Number of keys passed to `mutate_priorities` whose items no longer existed.
        highest_priority: Highest priority of any item so far; 1 before the first item.
        rate_limiter: The current rate limiter.
        waiting_inserts: Number of calls waiting to insert.
        waiting_samples: Number of calls waiting to sample.
    """

    size: int
    max_size: int
    inserts: int
    samples: int
    deletes: int
    unique_samples: int
    stale: int
    highest_priority: float
    rate_limiter: RateLimiter
    waiting_inserts: int = 0
    waiting_samples: int = 0

    def wait_reason(self, side: str) -> str:
        """Return what waiting calls are waiting for, as text.

        Args:
            side: "insert" or "sample".
        """
        limiter = self.rate_limiter
        cursor = self.inserts * limiter.samples_per_insert - self.samples
        low, high = limiter.min_diff, limiter.max_diff
        bounds = [f"at least {low:,.10g}"] * (low > -sys.float_info.max)
        bounds += [f"at most {high:,.10g}"] * (high < sys.float_info.max)
        band = (
            f"{self.inserts:,} inserts · {limiter.samples_per_insert:g} - {self.samples:,} samples = "
            f"{cursor:,.10g} (limits: {' and '.join(bounds)}); "
        )
        return (
            f"more {'samples' if side == 'insert' else 'inserts'}: size {self.size:,}, "
            f"min_size {limiter.min_size:,}; {band if bounds else ''}"
            f"{self.deletes:,} deletes."
        )


def importance_weights(info: SampleInfo, beta: float, normalize: str = "buffer") -> Weights:
    """Return importance-sampling weights, which correct the bias of prioritized sampling.

    Args:
        info: The `info` of a non-empty sample.
        beta: Strength of the correction, in [0, 1].
        normalize: "buffer" scales the largest weight in the table to 1, "batch" the largest weight in this
            sample.

    Returns:
        float32[n].

    Raises:
        ValueError: If beta or normalize is out of range, or every weight is below 2^-24, which only
            normalize="buffer" can cause.
    """
    beta = check_weight_options(beta, normalize)
    smallest = info.least_probabilities if normalize == "buffer" else info.probabilities.min()
    weights = np.empty(len(info.keys), np.float32)
    write_weights(info.probabilities / smallest, beta, 1.0, True, weights)
    check_weights(weights)
    return weights
