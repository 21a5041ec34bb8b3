"""What is said between a client and the tables' server: each call, and each answer, as a form and arrays.

    form      ("insert", ("obs", "act"), (("replay", (("obs", "obs", 2, False), ...), True), ...))
    arrays    writer, sequence, keep_from, first steps │ values of obs │ of act │ steps │ priorities

A call that comes in is taken apart with suspicion: each word must have its type, and each array its place.
What it means is checked by the server itself, as if the call had been made in its process.

Left out: bytes (`framing`), and who calls (`endpoint`, `remote_server`).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.cells import CapacityError
from replay_tutorial.tables.framing import Array, BadFrame, Form, parts_of
from replay_tutorial.tables.message import Layout, Message, NewItems, Part, Run, UnknownWriter
from replay_tutorial.tables.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.sampled import Sample, SampleInfo, TableInfo
from replay_tutorial.tables.waiting import Closed

Said = tuple[Form, Sequence[Array]]

LIMITERS = {kind.__name__: kind for kind in (RateLimiter, MinSize, SampleToInsertRatio, Queue, Stack)}
# Which errors of the server are told to its client; the first that fits.
ERRORS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        CapacityError,
        UnknownWriter,
        Closed,
        BadFrame,
        TimeoutError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        MemoryError,
        OverflowError,
        OSError,
        RuntimeError,
    )
}


def expect(holds: bool, what: str) -> None:
    """Refuse a call that is not as it must be.

    Raises:
        BadFrame: If it does not hold.
    """
    if not holds:
        raise BadFrame(f"This is no call of a client: {what}.")


def integers(*numbers: int) -> Array:
    """Return numbers as they travel."""
    return np.array(numbers, np.int64)


def read_integers(arrays: Sequence[Array], at: int, least: int) -> list[int]:
    """Return numbers that have travelled, at least so many."""
    expect(len(arrays) > at, "numbers are missing")
    array = arrays[at]
    expect(array.dtype == np.int64 and array.ndim == 1 and len(array) >= least, "numbers are missing")
    return array.tolist()


# Messages


def say_message(message: Message) -> Said:
    """Say what a writer sends."""
    runs, items = message.runs, message.items
    form = (
        "insert",
        tuple([run.column for run in runs]),
        tuple([(new.table, new.layout, new.priorities is not None) for new in items]),
    )
    firsts = [run.first_step for run in runs]
    arrays = [integers(message.writer, message.sequence, message.keep_from, *firsts)]
    arrays += [run.values for run in runs]
    for new in items:
        arrays.append(new.steps)
        if new.priorities is not None:
            arrays.append(new.priorities)
    return form, arrays


def hear_message(form: Form, arrays: Sequence[Array]) -> Message:
    """Return what a writer has sent.

    Raises:
        BadFrame: If it is no message.
    """
    columns, groups = message_words(form)
    numbers = read_integers(arrays, 0, 3 + len(columns))
    expect(len(numbers) == 3 + len(columns), "there are more numbers than columns")
    rest = iter(arrays[1:])
    expect(len(arrays) == 1 + len(columns) + sum([1 + given for _, _, given in groups]), "arrays are missing")
    runs = [Run(column, first, next(rest)) for column, first in zip(columns, numbers[3:], strict=True)]
    expect(all(run.values.ndim for run in runs), "values have no axis of steps")
    items: list[NewItems] = []
    for table, layout, given in groups:
        steps = next(rest)
        items.append(NewItems(table, next(rest) if given else None, layout, steps))
    return Message(numbers[0], numbers[1], runs, items, numbers[2])


@lru_cache(256)
def message_words(form: Form) -> tuple[tuple[str, ...], tuple[tuple[str, Layout, bool], ...]]:
    """Return the columns of a message's runs; of its items table, layout, and if there are priorities."""
    _, columns, groups = parts_of(form, 3)
    expect(all(type(column) is str for column in parts_of(columns)), "columns are words")
    return columns, tuple([group_words(group) for group in parts_of(groups)])


def group_words(group: Any) -> tuple[str, Layout, bool]:
    """Return what is said of items of one layout."""
    table, layout, given = parts_of(group, 3)
    expect(type(table) is str and type(given) is bool, "items have a table, a layout, and perhaps priorities")
    return table, tuple([part_words(part) for part in parts_of(layout)]), given


def part_words(part: Any) -> Part:
    """Return what is said of a part of a trajectory."""
    kinds: list[type] = [type(word) for word in parts_of(part, 4)]
    expect(kinds == [str, str, int, bool], "a part is a name, a column, a length, and whether it is squeezed")
    return Part(*part)


# Samples


def say_sample(sample: Sample) -> Said:
    """Say what was sampled."""
    info, data, lengths, squeezed = sample
    form = ("sample", tuple(data), None if lengths is None else tuple(lengths), tuple(sorted(squeezed)))
    return form, [*info, *data.values(), *([] if lengths is None else lengths.values())]


def hear_sample(form: Form, arrays: Sequence[Array]) -> Sample:
    """Return what was sampled."""
    _, parts, lengths, squeezed = form
    rest = iter(arrays)
    info = SampleInfo(*[next(rest) for _ in SampleInfo._fields])
    data = {part: next(rest) for part in parts}
    known = None if lengths is None else {part: next(rest) for part in lengths}
    return Sample(info, data, known, frozenset(squeezed))


# Limiters and tables


def say_limiter(limiter: RateLimiter) -> Form:
    """Say what a limiter is.

    Raises:
        TypeError: If it is of a kind that only this process knows.
    """
    kind = type(limiter).__name__
    if LIMITERS.get(kind) is not type(limiter):
        raise TypeError(f"Of limiters {list(LIMITERS)} can be sent, not {limiter!r}.")
    return kind, limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff


def hear_limiter(form: Any) -> RateLimiter:
    """Return a limiter.

    Raises:
        BadFrame: If it is none.
        ValueError: If it can't be.
    """
    kind, *numbers = parts_of(form, 5)
    expect(type(kind) is str and kind in LIMITERS, f"there is no limiter {kind!r:.80}")
    expect(all(type(number) in (int, float) for number in numbers), "a limiter has four numbers")
    limiter = RateLimiter.__new__(LIMITERS[kind])
    RateLimiter.__init__(limiter, *numbers)  # its four numbers, however they were found
    return limiter


def say_infos(infos: dict[str, TableInfo]) -> Said:
    """Say what tables are like at one moment."""
    rows = [
        (name, info._replace(rate_limiter=say_limiter(info.rate_limiter))) for name, info in infos.items()
    ]  # pyright: ignore
    return ("infos", tuple(rows)), ()


def hear_infos(form: Form) -> dict[str, TableInfo]:
    """Return what tables are like at one moment."""
    infos = {name: TableInfo(*row) for name, row in form[1]}
    return {name: info._replace(rate_limiter=hear_limiter(info.rate_limiter)) for name, info in infos.items()}


# Columns and errors


def say_fields(fields: Fields) -> Form:
    """Say which columns there are."""
    return tuple([(field.name, field.dtype.str, field.shape) for field in fields.fields.values()])


def hear_fields(form: Form) -> Fields:
    """Return the columns."""
    return Fields({name: {"dtype": dtype, "shape": shape} for name, dtype, shape in form})


def say_error(error: Exception) -> Said:
    """Say what went wrong."""
    kind = next(name for name, kind in ERRORS.items() if isinstance(error, kind))
    text = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return ("error", kind, text), ()


def hear_error(form: Form) -> Exception:
    """Return what went wrong, to be raised."""
    return ERRORS[form[1]](form[2])
