"""Datasets: iterators that sample batches of trajectories, or of single steps, for a learner's training loop.

A dataset samples the items that the rate limiter admits until a batch is full. It ends when it has waited
`timeout` seconds for an item, or when it has sampled `max_samples` items. With `in_flight` a thread samples
batches in advance; these do not reflect later items and priorities, and the rate limiter has already counted
them.

Left out: shuffling, because the table's sampler determines the order.
"""

# pyright: reportPrivateUsage=false

import math
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass
from itertools import chain, repeat
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.rows import checked_at_least
from replay_tutorial.tables.client import Client
from replay_tutorial.tables.core.arguments import explain_reverb_arguments
from replay_tutorial.tables.core.results import Parts, Sample, SampleInfo, concatenate_samples
from replay_tutorial.tables.core.waiting import POLL_INTERVAL, Cancelled, deadline_of
from replay_tutorial.tables.server import Server

if TYPE_CHECKING:
    from torch.utils.data import IterableDataset

    from replay_tutorial.tables.remote.handle import RemoteServer

Source: TypeAlias = "Client | RemoteServer | Server"


@dataclass
class TrajectoryDataset:
    """An iterable of batches of trajectories from one table; each iterator starts afresh.

    Example:
        >>> from replay_tutorial.tables import Client, Server, Table
        >>> client = Client(Server([Table.queue("queue", max_size=5)], {"obs": {}}, capacity=9))
        >>> _ = client.insert_batch({"obs": [10, 11, 12, 13, 14]}, {"queue": None})
        >>> [sample.data["obs"].tolist() for sample in TrajectoryDataset(client, "queue", 2, timeout=0.0)]
        [[10.0, 11.0], [12.0, 13.0], [14.0]]

    Attributes:
        source: A server, a client or a `RemoteServer`.
        table: Name of the table.
        batch_size: Number of items in a batch.
        timeout: Seconds to wait for an item before the iteration ends. None waits indefinitely; 0 ends the
            iteration as soon as no item can be sampled.
        max_samples: Number of items after which the iteration ends; None for no limit.
        in_flight: Number of batches that threads sample in advance; 0 samples on demand.
        workers: Number of these threads, each with a request in flight. With more than one, the batches of a
            table with a fixed order may be yielded in another order.
        pad: Whether trajectories of different lengths are allowed. Shorter ones are padded with zeros, and
            `Sample.lengths` holds their lengths.
    """

    source: Source
    table: str
    batch_size: int
    _: KW_ONLY
    timeout: float | None = None
    max_samples: int | None = None
    in_flight: int = 0
    workers: int = 1
    pad: bool = False

    def __post_init__(self) -> None:
        checked_at_least("batch_size", self.batch_size, 1)
        checked_at_least("in_flight", self.in_flight, 0)
        checked_at_least("workers", self.workers, 1)
        if self.max_samples is not None:
            checked_at_least("max_samples", self.max_samples, 1, math.inf)
        deadline_of(self.timeout)  # raises an error if it is invalid

    def __iter__(self) -> Generator[Sample]:
        """Iterate over batches. If you stop early, close or delete the generator to stop its thread.

        Yields:
            `batch_size` items; the last batch may hold fewer.

        Raises:
            RuntimeError: If the server belongs to another process, such as the parent of a DataLoader worker.
            ValueError: If trajectories have different lengths and `pad` is not set.
            Exception: Errors of the server; items that were already sampled are yielded first.
        """
        if self.in_flight:
            return Prefetcher(self).batches()
        return self._batches(lambda count: self._draw(count, self.timeout), self._sizes())

    def _draw(self, count: int, timeout: float | None, **options: Any) -> Sample:
        return self.source.sample(self.table, count, timeout, partial=True, **options)

    def _sizes(self) -> Iterator[int]:
        """Return the numbers of items of the batches; several threads may share the iterator."""
        full, rest = divmod(self.max_samples or sys.maxsize, self.batch_size)
        return chain(repeat(self.batch_size, full), [rest] * (rest > 0))

    def _batches(self, draw: Callable[[int], Sample], sizes: Iterator[int]) -> Generator[Sample]:
        """Yield batches of the items that `draw` returns, until it raises TimeoutError."""
        with suppress(TimeoutError):
            for remaining in sizes:
                samples: list[Sample] = []
                try:
                    while remaining:
                        samples.append(draw(remaining))
                        remaining -= len(samples[-1].info.keys)
                except Exception:
                    if samples:  # the table has counted these items
                        yield self._joined(samples)
                    raise
                yield self._joined(samples)

    def _joined(self, samples: list[Sample]) -> Sample:
        sample = samples[0] if len(samples) == 1 else concatenate_samples(samples)
        if sample.lengths is not None and not self.pad:
            raise ValueError(
                f"Trajectories of the table {self.table!r} have different lengths. Create the dataset with "
                "pad=True, and mask the padding by `lengths` of each sample."
            )
        return sample


# here, because @dataclass generates the function
TrajectoryDataset.__init__ = explain_reverb_arguments(
    server_address="pass a client or a server as source.",
    max_in_flight_samples_per_worker="use in_flight, the number of batches to sample in advance.",
    rate_limiter_timeout_ms="use timeout, in seconds.",
)(TrajectoryDataset.__init__)


class Prefetcher:
    """Threads that sample batches before the learner requests them, and the queue of finished batches.

    A thread waits in the table's queue. When the learner stops waiting (timeout, or the iterator is closed),
    the thread cancels the call and tries once more without waiting, because the call may just have been
    admitted. Sampled items are delivered, because the table has counted them. A remote server may still
    sample items while the call is being cancelled; these are lost.

    The garbage collector may close the iterator in any thread, so the queues are the reentrant `SimpleQueue`.
    """

    def __init__(self, dataset: TrajectoryDataset) -> None:
        """Create the queues; `dataset.in_flight` is the number of batches to keep ready."""
        self._dataset = dataset
        self._timeout = math.inf if dataset.timeout is None else dataset.timeout
        self._sizes = dataset._sizes()
        self._ready: SimpleQueue[Sample | BaseException | None] = SimpleQueue()  # None when a thread ends
        self._requests: SimpleQueue[None] = SimpleQueue()  # one per requested batch, and `in_flight` more
        for _ in range(dataset.in_flight):
            self._requests.put(None)
        self._requested_at = math.inf  # when the learner began to wait; inf while it doesn't
        self._closed = False

    def batches(self) -> Generator[Sample]:
        """Start the threads and yield their batches, until none has been available for `timeout` seconds."""
        threads = [
            Thread(target=self._run, name="dataset", daemon=True) for _ in range(self._dataset.workers)
        ]
        for thread in threads:
            thread.start()
        running = len(threads)
        try:
            while running:
                self._requested_at = time.monotonic()
                self._requests.put(None)
                batch = self._ready.get()
                self._requested_at = math.inf
                if isinstance(batch, BaseException):
                    raise batch
                if batch is None:
                    running -= 1
                else:
                    yield batch
        finally:
            self._closed = True
            for _ in threads:
                self._requests.put(None)
            # The garbage collector may run this in any thread: in a sampling thread itself, or in one that
            # holds a lock which a sampling thread needs. So the join has a timeout.
            for thread in threads:
                if thread is not current_thread():
                    thread.join(2 * POLL_INTERVAL)

    def _run(self) -> None:
        try:
            batches = self._dataset._batches(self._draw_or_wait, self._sizes)
            while True:
                self._requests.get()
                batch = next(batches, None)
                self._ready.put(batch)
                if batch is None:
                    return
        except BaseException as error:  # noqa: BLE001 - raised again in the learner
            self._ready.put(error)

    def _draw_or_wait(self, count: int) -> Sample:
        """Sample items as soon as some are available; raise TimeoutError when the learner stops waiting."""
        with suppress(TimeoutError):
            return self._draw_now(count)
        empty_since = time.monotonic()

        def should_cancel() -> bool:
            """Return whether the learner needs no more items. The timeout runs only while it waits."""
            ends_at = max(self._requested_at, empty_since) + self._timeout
            return self._closed or time.monotonic() >= ends_at

        with suppress(Cancelled):
            if not should_cancel():
                return self._dataset._draw(count, None, should_cancel=should_cancel)
        return self._draw_now(count)  # the limiter may have admitted the call before it was cancelled

    def _draw_now(self, count: int) -> Sample:
        if self._closed:
            raise TimeoutError
        return self._dataset._draw(count, 0.0)


class Timesteps(NamedTuple):
    """A batch of single steps.

    Attributes:
        info: For each step, the `SampleInfo` of its item.
        data: For each part of the trajectories, the values in these steps; shape (n, *shape).
        positions: int64[n]; position of each step in its trajectory, 0 for the first step.
    """

    info: SampleInfo
    data: Parts
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
        self.batch_size = checked_at_least("batch_size", batch_size, 1)
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
            if pieces:
                yield concatenate_steps(pieces)
            raise
        if pieces:
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


def as_torch(dataset: Iterable[Any]) -> "IterableDataset[Any]":
    """Return a PyTorch dataset that yields tensors, for `DataLoader(as_torch(dataset), batch_size=None)`.

    Worker processes of the loader (`num_workers`) require a `RemoteServer`, and each worker counts
    `max_samples` separately. With a server in this process, use `in_flight` instead of workers.
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
