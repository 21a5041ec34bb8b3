"""The interface of a measured buffer, with implementations for ours, cpprb's and the ceiling.

A peer creates a buffer from an example transition and returns each operation as a workload, a function
without arguments that only calls the library. All peers store the same rows. The ceiling is the simplest
NumPy call that moves the same bytes, without random numbers, a tree or checks.
"""

import importlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.timing import Workload

Float32Array = npt.NDArray[np.float32]
Values = Mapping[str, Any]  # field → array, list, number, or a dict of them

# field → shape; float32, 140 bytes per row
CPPRB_NAMES = {"dedupe_next": "next_of", "dedupe_frames": "stack_compress"}
FIELDS = {"obs": 15, "act": 3, "next_obs": 15, "rew": 1, "done": 1}
ALPHA, BETA = 0.6, 0.4
OURS, CEILING = "ours", "ceiling"
CHUNK = 2**14  # rows per call while a buffer is filled
SMALL = 4096  # bytes; larger rows are copied into reused memory


class NotMeasurable(Exception):
    """A library can't be measured here, or not with these options; the message says why."""


def has_default_fields(values: Values) -> bool:
    """Return whether these rows have exactly the fields `FIELDS`, the only ones that some peers support."""
    lengths = {name: np.shape(value)[-1:] for name, value in values.items()}
    return lengths == {name: (length,) for name, length in FIELDS.items()}


@dataclass(frozen=True)
class Kind:
    """The options of a buffer."""

    capacity: int
    prioritized: bool = False
    alpha: float = ALPHA
    environments: int = 1  # number of environments stepped together
    once: Collection[str] = ()  # deduplication: "dedupe_next", "dedupe_frames"
    shared: bool = False  # between processes
    variant: str = ""  # another way to sample, see `episodes`


class Buffer(ABC):
    """The base class of a buffer whose operations are workloads; None: the library lacks the operation."""

    buffer: Any
    kind: Kind
    takes_priorities = False  # whether the values of `adding` and `extending` may contain "priorities"

    @abstractmethod
    def adding(self, values: Values) -> Workload | None:
        """Return a workload that adds one transition, or one of each environment."""

    def extending(self, values: Values) -> Workload | None:
        """Return a workload that adds a batch of consecutive transitions of one environment."""
        return self.adding(values)

    def sampling(self, batch_size: int) -> Workload | None:
        """Return a workload that samples a batch."""
        return lambda: self.buffer.sample(batch_size)

    def updating(self, batch_size: int) -> Workload | None:
        """Return a workload that samples a batch and updates its priorities; the buffer is prioritized."""
        return None

    def fill(self, values: Values) -> None:
        """Add rows in one call.

        Add them step by step with deduplication, which some libraries apply only to single steps, and with
        several environments.
        """
        count, together = len(values["rew"]), self.kind.environments
        whole = None if self.kind.once or together > 1 else self.extending(values)
        if whole is not None:
            whole()
            return
        for start in range(0, count, together):
            rows = slice(start, start + together) if together > 1 else start
            step = {name: each(value, itemgetter(rows)) for name, value in values.items()}
            work = self.adding(step)
            assert work is not None
            work()

    def close(self) -> None:  # noqa: B027  (most peers have no process)
        """Stop the buffer's processes, if any."""


def random_rows(rng: np.random.Generator, count: int | None) -> dict[str, Float32Array]:
    """Return random rows, float32[count, shape] per field; float32[shape] if `count` is None."""
    batch = () if count is None else (count,)
    return {name: rng.random((*batch, shape), dtype=np.float32) for name, shape in FIELDS.items()}


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply `change` to a value, or to every value of a dict."""
    return {name: change(part) for name, part in value.items()} if isinstance(value, dict) else change(value)


def flat(values: Values) -> dict[str, Any]:
    """Return the values without nesting, with names joined by "/"."""
    joined: dict[str, Any] = {}
    for name, value in values.items():
        inside = {f"{name}/{inner}": part for inner, part in value.items()} if isinstance(value, dict) else {}
        joined |= inside or {name: value}
    return joined


def endless_priorities(batch_size: int) -> Iterator[Float32Array]:
    """Repeat 256 prepared batches of priorities, float32[batch_size] like the |TD errors| of a network."""
    drawn = np.random.default_rng(1).exponential(size=(256, batch_size))
    return itertools.cycle(list(drawn.astype(np.float32)))


class CpprbLike(Buffer):
    """Our buffer or cpprb's, which have almost the same API."""

    takes_priorities = True

    def __init__(
        self, example: Values, kind: Kind, package: str = "replay_tutorial", class_name: str = "", **more: Any
    ) -> None:
        """Create the buffer; cpprb has no nested fields, so nested values get joined names."""
        self.kind, self.flatten = kind, package == "cpprb"
        columns = {name: np.asarray(value) for name, value in flat(example).items()}
        fields = {
            name: {"shape": column.shape or 1, "dtype": column.dtype}
            for name, column in columns.items()
            if name != "next_obs" or "dedupe_next" not in kind.once
        }
        name = "MP" * kind.shared + "Prioritized" * kind.prioritized + "ReplayBuffer"
        once = dict.fromkeys(kind.once, "obs" if "dedupe_next" in kind.once else ("obs", "next_obs"))
        if self.flatten:
            once = {CPPRB_NAMES[name]: once[name] for name in once}
        options: dict[str, Any] = dict(once)
        options |= {"alpha": kind.alpha} if kind.prioritized else {}
        make = getattr(importlib.import_module(package), class_name or name)
        self.buffer = make(kind.capacity, fields, **options, **more)

    def adding(self, values: Values) -> Workload:
        add, given = self.buffer.add, flat(values) if self.flatten else dict(values)
        if set(FIELDS) <= set(given) and not any(isinstance(value, dict) for value in given.values()):
            obs, act, next_obs, rew, done = (given[field] for field in FIELDS)
            # Written out, because **given would cost both libraries the same and reduce the ratio.
            if "priorities" not in given:
                return lambda: add(obs=obs, act=act, next_obs=next_obs, rew=rew, done=done)
            priorities = given["priorities"]
            return lambda: add(obs=obs, act=act, next_obs=next_obs, rew=rew, done=done, priorities=priorities)
        return lambda: add(**given)

    def sampling(self, batch_size: int, **options: Any) -> Workload:
        options |= {"beta": BETA} if self.kind.prioritized else {}
        return partial(self.buffer.sample, batch_size, **options)

    def updating(self, batch_size: int, **options: Any) -> Workload:
        sample: Any = self.sampling(batch_size, **options)
        update, priorities = self.buffer.update_priorities, endless_priorities(batch_size)

        def sample_and_update() -> None:
            update(sample()["indexes"], next(priorities))

        return sample_and_update

    def fill(self, values: Values) -> None:
        """Add a batch with random priorities; with deduplication, cpprb would store more bytes of a batch."""
        if self.kind.once:
            super().fill(values)
        else:
            masses = np.random.default_rng(0).exponential(size=len(values["rew"])).astype(np.float32)
            self.adding({**values, "priorities": masses} if self.kind.prioritized else values)()


class Ceiling(Buffer):
    """The ceiling: the simplest NumPy calls that move the same bytes, on one array of records."""

    takes_priorities = True

    def __init__(self, example: Values, kind: Kind) -> None:
        """Create the array, records[capacity], with a field for each value."""
        columns = {name: np.asarray(value) for name, value in flat(example).items()}
        row_type = np.dtype([(name, column.dtype, column.shape) for name, column in columns.items()])
        self.buffer: npt.NDArray[np.void] = np.zeros(kind.capacity, row_type)
        self.kind, self.filled = kind, 0
        self.starts: dict[int, Iterator[int]] = {}  # rows of a call → slots
        self.written = [name for name in columns if name != "next_obs" or "dedupe_next" not in kind.once]

    def starts_of(self, count: int) -> Iterator[int]:
        """Return the slots of all calls with `count` rows; a slot written repeatedly would stay cached."""
        slots = range(0, self.kind.capacity - count + 1, count)
        return self.starts.setdefault(count, itertools.cycle(slots))

    def adding(self, values: Values) -> Workload:
        """Return a workload that assigns one record; a large record or a batch is assigned field by field."""
        records, given = self.buffer, flat(values)
        if self.kind.environments > 1:
            return self.extending(values)
        if records.itemsize > SMALL:
            return self.extending({name: np.asarray(value)[np.newaxis] for name, value in given.items()})
        slots, row = self.starts_of(1), tuple(given[name] for name in self.written)

        def write_one() -> None:
            records[next(slots)] = row

        return write_one

    def extending(self, values: Values) -> Workload:
        count, given = len(values["rew"]), flat(values)
        starts, columns = self.starts_of(count), [(self.buffer[name], given[name]) for name in self.written]
        parts = [(column, np.reshape(part, (count, *column.shape[1:]))) for column, part in columns]

        def write_batch() -> None:
            start = next(starts)
            for column, part in parts:
                column[start : start + count] = part

        return write_batch

    def sampling(self, batch_size: int) -> Workload:
        # Twice as many slots as rows: the rows of a shorter list would stay in the cache.
        batches = max(1, 2 * self.kind.capacity // batch_size)
        return self.taking(np.random.default_rng(0).integers(0, self.kind.capacity, (batches, batch_size)))

    def taking(self, drawn: npt.NDArray[np.int64]) -> Workload:
        """Return a workload that copies the records of `drawn`, int64[batches, slots]."""
        slots, records = itertools.cycle(list(drawn)), self.buffer
        take: Any = records.take
        if records.itemsize <= SMALL:
            return lambda: take(next(slots))
        out = np.zeros(drawn.shape[1], records.dtype)
        return lambda: take(next(slots), out=out, mode="clip")

    def updating(self, batch_size: int) -> Workload:
        return self.sampling(batch_size)

    def fill(self, values: Values) -> None:
        """Write every record, because untouched pages all map to one zero page, which stays in the cache."""
        rows = self.buffer[self.filled : self.filled + len(values["rew"])]
        for name, part in flat(values).items():
            rows[name] = np.reshape(part[: len(rows)], rows[name].shape)
        self.filled += len(rows)
