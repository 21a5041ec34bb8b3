"""Single steps of trajectories, for learners that want no axis of time.

Left out: trajectories whose parts are of different lengths. Which step would belong to which?
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch
from replay_tutorial.tables.dataset import Source, TrajectoryDataset, check_at_least, lengths_in
from replay_tutorial.tables.sampled import Sample, SampleInfo


class Timesteps(NamedTuple):
    """Steps of trajectories.

    Attributes:
        info: Of each step its item's.
        data: Of each part of the trajectories its values in these steps: shape (n, *shape).
        positions: int64[n]; each step's place in its trajectory. Where it is 0 a trajectory begins.
    """

    info: SampleInfo
    data: Batch
    positions: npt.NDArray[np.int64]


class TimestepDataset:
    """Batches of single steps, in the order in which they stand in their trajectories.

    Trajectories are drawn one by one, when their steps are needed. All parts of a trajectory must have an
    axis of time, and be of one length.
    """

    def __init__(self, source: Source, table: str, batch_size: int, **options: Any) -> None:
        """Draw nothing yet.

        Args:
            source: A server, or a handle with the same methods.
            table: The table's name.
            batch_size: Steps in a batch.
            **options: `timeout`, `max_samples`, `in_flight` and `drop_last` of `TrajectoryDataset`;
                `max_samples` and `in_flight` count trajectories.

        Raises:
            ValueError: If a number is out of range.
        """
        check_at_least(1, "batch_size", batch_size)
        self.batch_size = batch_size
        self.trajectories = TrajectoryDataset(source, table, 1, **options)

    def __iter__(self) -> Generator[Timesteps]:
        """Draw steps.

        Yields:
            `batch_size` steps; in the last batch perhaps fewer.

        Raises:
            ValueError: If a part has no axis of time, or is longer than another one.
        """
        waiting: list[Timesteps] = []
        count = 0
        with closing(iter(self.trajectories)) as trajectories:
            for sample in trajectories:
                waiting.append(steps_of(sample))
                count += len(waiting[-1].positions)
                while count >= self.batch_size:
                    steps = joined(waiting)
                    yield part_of(steps, slice(self.batch_size))
                    waiting, count = [part_of(steps, slice(self.batch_size, None))], count - self.batch_size
        if count and not self.trajectories.drop_last:
            yield joined(waiting)


def steps_of(sample: Sample) -> Timesteps:
    """Take a sample of one trajectory apart."""
    lengths = {name: int(lengths_in(sample, name)[0]) for name in sample.data}
    if sample.squeezed or len(set(lengths.values())) > 1:
        raise ValueError(
            f"Steps can be told apart only if all parts have an axis of time and one length; here "
            f"{sorted(sample.squeezed)} have none, and the lengths are {lengths}."
        )
    length = min(lengths.values())
    info = SampleInfo._make(np.repeat(column, length) for column in sample.info)
    return Timesteps(info, {name: values[0] for name, values in sample.data.items()}, np.arange(length))


def joined(pieces: Sequence[Timesteps]) -> Timesteps:
    """Lay steps one behind the other."""
    info = SampleInfo._make(map(np.concatenate, zip(*(piece.info for piece in pieces), strict=True)))
    data = {name: np.concatenate([piece.data[name] for piece in pieces]) for name in pieces[0].data}
    return Timesteps(info, data, np.concatenate([piece.positions for piece in pieces]))


def part_of(steps: Timesteps, places: slice) -> Timesteps:
    """Return some of the steps."""
    info = SampleInfo._make(column[places] for column in steps.info)
    data = {name: values[places] for name, values in steps.data.items()}
    return Timesteps(info, data, steps.positions[places])
