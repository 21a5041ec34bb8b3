"""What sampling returns, and the weights of what was sampled.

    w_i = (min_k P(k) / P(i))^β        the largest weight in the table, or in the batch, is 1

It is the weight of the buffers: there P(i) = mass / total, and the total cancels out.

Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.4.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch
from replay_tutorial.buffers.jit import Floats, Integers
from replay_tutorial.buffers.priorities import Weights, check_weight_options, write_weights
from replay_tutorial.tables.core.rate_limiters import RateLimiter


class SampleInfo(NamedTuple):
    """What is known of each item of a sample, at the moment when it was drawn.

    Attributes:
        keys: int64[n]; for `mutate_priorities`.
        probabilities: float64[n]; with which it was drawn.
        least_probabilities: float64[n]; the smallest that any item had which could be drawn.
        table_size: int64[n]; items in the table, before this one was deleted if it was drawn the last time.
        priorities: float64[n].
        times_sampled: int64[n]; with this time.
    """

    keys: Integers
    probabilities: Floats
    least_probabilities: Floats
    table_size: Integers
    priorities: Floats
    times_sampled: Integers


class ItemInfo(NamedTuple):
    """One row of a `SampleInfo`, under the names that Reverb gives the fields."""

    key: int
    probability: float
    least_probability: float
    table_size: int
    priority: float
    times_sampled: int


class SampledItem(NamedTuple):
    """One item of a sample: `info`, and of each part of its trajectory the values, a view of the sample's."""

    info: ItemInfo
    data: Batch


@dataclass(frozen=True, eq=False)
class Sample:
    """Trajectories, with an axis over items in front; `for item in sample` yields each as a `SampledItem`.

    Attributes:
        info: Of each item.
        data: Of each part of the trajectories its values: shape (n, length, *shape of the column), or
            (n, *shape) if it is squeezed.
        lengths: None if all are of one length; else of each part, int64[n]. The values behind are 0.
        squeezed: The names of the parts that have no axis of time.
    """

    info: SampleInfo
    data: Batch
    lengths: dict[str, npt.NDArray[np.int64]] | None
    squeezed: frozenset[str]

    def __len__(self) -> int:
        """Count the items."""
        return len(self.info.keys)

    def __iter__(self) -> Iterator[SampledItem]:
        """Yield one item after the other, a shorter trajectory without the zeros behind it."""
        for i, numbers in enumerate(zip(*(column.tolist() for column in self.info), strict=True)):
            data: Batch = {name: values[i] for name, values in self.data.items()}
            if self.lengths is not None:
                kept = data.keys() - self.squeezed
                data |= {name: data[name][: self.lengths[name][i]] for name in kept}
            yield SampledItem(ItemInfo(*numbers), data)

    def pin_memory(self) -> Self:
        """Pin the memory of tensors: `DataLoader(as_torch(...), pin_memory=True)` calls this."""
        data: dict[str, Any] = self.data
        return replace(self, data={name: tensor.pin_memory() for name, tensor in data.items()})


def join(samples: Sequence[Sample]) -> Sample:
    """Lay samples of one table one behind the other; shorter trajectories are filled up with zeros."""
    info = SampleInfo._make(map(np.concatenate, zip(*(sample.info for sample in samples), strict=True)))
    data: Batch = {}
    lengths: dict[str, npt.NDArray[np.int64]] = {}
    for name in samples[0].data:
        arrays = [sample.data[name] for sample in samples]
        lengths[name] = np.concatenate([lengths_in(sample, name) for sample in samples])
        if name not in samples[0].squeezed:
            most, rest = lengths[name].max(), [(0, 0)] * (arrays[0].ndim - 2)
            arrays = [np.pad(array, [(0, 0), (0, most - array.shape[1]), *rest]) for array in arrays]
        data[name] = np.concatenate(arrays)
    are_equal = all((counts == counts[0]).all() for counts in lengths.values())
    return Sample(info, data, None if are_equal else lengths, samples[0].squeezed)


def lengths_in(sample: Sample, name: str) -> npt.NDArray[np.int64]:
    """Return how many values a part has in each item of a sample, int64[n]."""
    if sample.lengths is not None:
        return sample.lengths[name]
    values = sample.data[name]
    return np.full(len(values), 1 if name in sample.squeezed else values.shape[1])


class TableInfo(NamedTuple):
    """A table at one moment. Counts begin when it was made or reset.

    Attributes:
        size: Items in it.
        max_size: Items that it can hold.
        inserts: Items inserted.
        samples: Items sampled, each time counted.
        deletes: Items deleted: evicted, by hand, or sampled for the last time.
        unique_samples: Items sampled at least once.
        stale: Keys given to `mutate_priorities` whose items were gone.
        highest_priority: That any item has had; 1 before the first.
        rate_limiter: The limiter in force.
        waiting_inserts: Calls that wait to insert.
        waiting_samples: Calls that wait to sample.
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

    def missing(self, side: str) -> str:
        """Say what calls that "insert", or "sample", wait for."""
        limiter = self.rate_limiter
        cursor = self.inserts * limiter.samples_per_insert - self.samples
        least, most = limiter.min_diff, limiter.max_diff
        bounds = [f"at least {least:,.10g}"] * (least > -sys.float_info.max)
        bounds += [f"at most {most:,.10g}"] * (most < sys.float_info.max)
        band = (
            f"{self.inserts:,} inserts · {limiter.samples_per_insert:g} - {self.samples:,} samples = "
            f"{cursor:,.10g}, which the limiter keeps {' and '.join(bounds)}; "
        )
        return (
            f"more {'samples' if side == 'insert' else 'inserts'}: size {self.size:,}, "
            f"min_size {limiter.min_size:,}; {band if bounds else ''}"
            f"{self.deletes:,} deletes."
        )


def importance_weights(info: SampleInfo, beta: float, normalize: str = "buffer") -> Weights:
    """Weigh a sample, so that drawing by priority changes no expected update.

    Args:
        info: Of the sample; not empty.
        beta: How much to correct, in [0, 1].
        normalize: "buffer" for a largest weight of 1 in the table, "batch" in this sample.

    Returns:
        float32[n].

    Raises:
        ValueError: If beta or normalize is out of range.
    """
    beta = check_weight_options(beta, normalize)
    least = info.least_probabilities if normalize == "buffer" else info.probabilities.min()
    weights = np.empty(len(info.keys), np.float32)
    write_weights(info.probabilities / least, beta, 1.0, True, weights)
    return weights
