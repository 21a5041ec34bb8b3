"""Datasets: batches of trajectories, or of their steps, for a learner's loop.

A dataset takes what a table gives out at the moment until its batch is full. It ends when no item has come
for `timeout` seconds while a batch was waited for, or when `max_samples` items have been drawn. A thread may
draw a few batches ahead: they were drawn before the newest items and priorities came in, and the table's
limiter has counted them.

Left out: shuffling. A table draws as it was told to.
"""

import operator
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from replay_tutorial.tables.core.sampled import Sample, join
from replay_tutorial.tables.core.waiting import deadline_of
from replay_tutorial.tables.reading.ahead import Ahead
from replay_tutorial.tables.server import Server

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset


class Source(Protocol):
    """What a dataset needs of a server, here or far away: see `Server`."""

    def sample(
        self,
        table: str,
        batch_size: int,
        timeout: float | None = None,
        partial: bool = False,
        *,
        should_cancel: Callable[[], bool] | None = None,
    ) -> Sample:
        """Draw `batch_size` items, or if `partial` is set 1 to `batch_size`."""
        ...


def check_at_least(least: int, name: str, number: int) -> None:
    """Refuse a number that is too small, or no integer."""
    if operator.index(number) < least:
        raise ValueError(f"{name} must be at least {least}, not {number}.")


@dataclass
class TrajectoryDataset:
    """Batches of a table's trajectories; each `iter` of it begins anew.

    Example:
        >>> from replay_tutorial.tables import Client, Server, Table
        >>> client = Client(Server([Table.queue("queue", max_size=5)], {"obs": {"shape": ()}}, capacity=9))
        >>> _ = client.insert_batch({"obs": [10, 11, 12, 13, 14]}, {"queue": None})
        >>> [sample.data["obs"].tolist() for sample in TrajectoryDataset(client, "queue", 2, timeout=0.0)]
        [[10.0, 11.0], [12.0, 13.0], [14.0]]

    Attributes:
        source: A server, or a handle with the same methods.
        table: The table's name.
        batch_size: Items in a batch.
        timeout: Seconds to wait for an item before the batches end; None never ends, 0 ends at once when
            nothing may be drawn.
        max_samples: Items to draw before they end.
        in_flight: Batches that a thread draws ahead; 0 draws when a batch is asked for.
        drop_last: Whether to drop a last batch that is not full. Its items have been drawn all the same,
            if it is the time that was up.
        pad: Whether trajectories may be of different lengths: the sample says how long each is.
    """

    source: Source
    table: str
    batch_size: int
    _: KW_ONLY
    timeout: float | None = None
    max_samples: int | None = None
    in_flight: int = 0
    drop_last: bool = False
    pad: bool = False

    def __post_init__(self) -> None:
        check_at_least(1, "batch_size", self.batch_size)
        check_at_least(0, "in_flight", self.in_flight)
        if self.max_samples is not None:
            check_at_least(1, "max_samples", self.max_samples)
        deadline_of(self.timeout)  # refuses what is none
        self._process = os.getpid()

    def __iter__(self) -> Generator[Sample]:
        """Draw batches; who stops before the end lets go of the generator, or closes it, to end the thread.

        Yields:
            `batch_size` items; in the last batch perhaps fewer.

        Raises:
            RuntimeError: If this process has but a copy of the server.
            ValueError: If trajectories have different lengths, and `pad` is not set.
            Exception: What the server raises, after a last batch of what was drawn before.
        """
        server = getattr(self.source, "server", self.source)
        if isinstance(server, Server) and os.getpid() != self._process:
            raise RuntimeError(
                "The server is in the process that made it: use DataLoader(..., num_workers=0), and the "
                "dataset's in_flight to draw ahead; or a RemoteServer."
            )
        draw = partial(self.source.sample, self.table, partial=True)
        if self.in_flight:
            return Ahead(draw, self._batches, self.in_flight, self.timeout).batches()
        return self._batches(lambda count: draw(count, self.timeout))

    def _batches(self, draw: Callable[[int], Sample]) -> Generator[Sample]:
        """Make batches of what is drawn, until there is no more."""
        left, least = self.max_samples or sys.maxsize, self.batch_size if self.drop_last else 1
        with suppress(TimeoutError):
            while left >= least:
                missing = min(self.batch_size, left)
                left -= missing
                pieces: list[Sample] = []
                try:
                    while missing:
                        pieces.append(draw(missing))
                        missing -= len(pieces[-1].info.keys)
                except Exception:
                    if pieces and not self.drop_last:  # the table has counted them
                        yield self._joined(pieces)
                    raise
                yield self._joined(pieces)

    def _joined(self, pieces: list[Sample]) -> Sample:
        sample = pieces[0] if len(pieces) == 1 else join(pieces)
        if sample.lengths is not None and not self.pad:
            raise ValueError(
                f"{self.table!r} has trajectories of different lengths. Build the dataset with pad=True, and "
                "look at the lengths of each sample."
            )
        return sample


def as_torch(dataset: Iterable[Any]) -> "IterableDataset[Any]":
    """Return a dataset of tensors for PyTorch: `DataLoader(as_torch(dataset), batch_size=None)`.

    Processes of the loader (`num_workers`) need a `RemoteServer`, and each counts `max_samples` by itself.
    With a server of this process `in_flight` draws ahead.
    """
    from torch.utils import data as torch_data
    from torch.utils.data import IterableDataset

    convert = cast(Callable[[Any], Any], torch_data.default_convert)  # pyright: ignore[reportUnknownMemberType]

    def converted(batch: Any) -> Any:
        if not isinstance(batch, Sample):
            return convert(batch)
        return Sample(convert(batch.info), convert(batch.data), convert(batch.lengths), batch.squeezed)

    class Batches(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return map(converted, dataset)

        def __reduce__(self) -> tuple[Any, ...]:
            return as_torch, (dataset,)

    return Batches()
