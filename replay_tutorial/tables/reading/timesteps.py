"""Single steps of trajectories, for learners that want no axis of time.

Left out: trajectories whose parts are of different lengths. Which step would belong to which?
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.fields import Batch
from replay_tutorial.tables.core.sampled import Sample, SampleInfo
from replay_tutorial.tables.reading.dataset import Source, TrajectoryDataset, check_at_least


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

        All is as in a `TrajectoryDataset`: `batch_size` counts steps, `max_samples` and `in_flight` count
        trajectories, and `pad` changes nothing.
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
            Exception: What a `TrajectoryDataset` raises. A batch of the steps before comes first.
        """
        pieces: list[tuple[Sample, range]] = []  # trajectories of one item, and which of its steps
        missing = self.batch_size
        try:
            with closing(iter(self.trajectories)) as trajectories:
                for sample in trajectories:
                    steps = range(length_of(sample))
                    while steps:
                        pieces.append((sample, steps[:missing]))
                        steps, missing = steps[missing:], missing - len(steps[:missing])
                        if not missing:
                            yield steps_of(pieces)
                            pieces, missing = [], self.batch_size
        except Exception:
            if pieces and not self.trajectories.drop_last:
                yield steps_of(pieces)
            raise
        if pieces and not self.trajectories.drop_last:
            yield steps_of(pieces)


def length_of(sample: Sample) -> int:
    """Return how many steps the trajectory of a sample of one item has."""
    lengths = {name: values.shape[1] for name, values in sample.data.items() if name not in sample.squeezed}
    if sample.squeezed or len(set(lengths.values())) > 1:
        raise ValueError(
            f"Steps can be told apart only if all parts have an axis of time and one length; here "
            f"{sorted(sample.squeezed)} have none, and the lengths are {lengths}."
        )
    return min(lengths.values())


def steps_of(pieces: Sequence[tuple[Sample, range]]) -> Timesteps:
    """Lay steps one behind the other: of each piece those of its one trajectory that the range names."""
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
