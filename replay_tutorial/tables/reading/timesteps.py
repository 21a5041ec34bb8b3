"""Batches of single steps, for learners that do not use a time axis."""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch
from replay_tutorial.tables.core.sampled import Sample, SampleInfo
from replay_tutorial.tables.reading.dataset import Source, TrajectoryDataset, check_at_least


class Timesteps(NamedTuple):
    """A batch of single steps.

    Attributes:
        info: For each step, the `SampleInfo` of its item.
        data: For each part of the trajectories, the values in these steps; shape (n, *shape).
        positions: int64[n]; position of each step in its trajectory, 0 for the first step.
    """

    info: SampleInfo
    data: Batch
    positions: npt.NDArray[np.int64]


class TimestepDataset:
    """An iterable of batches of single steps, in the order of their trajectories.

    Trajectories are sampled one by one, when their steps are needed. All parts must have a time axis and the
    same length, because the steps could not be matched otherwise.
    """

    def __init__(self, source: Source, table: str, batch_size: int, **options: Any) -> None:
        """Create a dataset.

        The arguments are those of `TrajectoryDataset`. `batch_size` counts steps; `max_samples` and
        `in_flight` count trajectories; `pad` has no effect.
        """
        check_at_least(1, "batch_size", batch_size)
        self.batch_size = batch_size
        self.trajectories = TrajectoryDataset(source, table, 1, **options)

    def __iter__(self) -> Generator[Timesteps]:
        """Iterate over batches of steps.

        Yields:
            `batch_size` steps; the last batch may hold fewer.

        Raises:
            ValueError: If a part has no time axis, or the parts differ in length.
            Exception: Errors of `TrajectoryDataset`; steps that were already sampled are yielded first.
        """
        pieces: list[tuple[Sample, range]] = []  # samples of one item, each with a range of its steps
        remaining = self.batch_size
        try:
            with closing(iter(self.trajectories)) as trajectories:
                for sample in trajectories:
                    steps = range(trajectory_length(sample))
                    while steps:
                        pieces.append((sample, steps[:remaining]))
                        steps, remaining = steps[remaining:], remaining - len(steps[:remaining])
                        if not remaining:
                            yield concatenate_steps(pieces)
                            pieces, remaining = [], self.batch_size
        except Exception:
            if pieces and not self.trajectories.drop_last:
                yield concatenate_steps(pieces)
            raise
        if pieces and not self.trajectories.drop_last:
            yield concatenate_steps(pieces)


def trajectory_length(sample: Sample) -> int:
    """Return the number of steps in the trajectory of a sample of one item."""
    lengths = {name: values.shape[1] for name, values in sample.data.items() if name not in sample.squeezed}
    if sample.squeezed or len(set(lengths.values())) > 1:
        raise ValueError(
            "A TimestepDataset requires parts with a time axis and equal lengths; the parts "
            f"{sorted(sample.squeezed)} have no time axis, and the other parts have the lengths {lengths}."
        )
    return min(lengths.values())


def concatenate_steps(pieces: Sequence[tuple[Sample, range]]) -> Timesteps:
    """Concatenate ranges of steps, each from a sample of one trajectory."""
    counts = [len(steps) for _, steps in pieces]
    columns = map(np.concatenate, zip(*(sample.info for sample, _ in pieces), strict=True))
    return Timesteps(
        SampleInfo._make(np.repeat(column, counts) for column in columns),
        {
            name: np.concatenate([sample.data[name][0, steps.start : steps.stop] for sample, steps in pieces])
            for name in pieces[0][0].data
        },
        np.concatenate([np.arange(steps.start, steps.stop) for _, steps in pieces]),
    )
