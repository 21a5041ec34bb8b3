"""Fields: the arrays that make up a transition, and the validation and conversion of their values.

A transition is stored as one record of a NumPy structured array, so that reading a random row takes one
memory access instead of one per field. Values are checked here before anything else changes. Variable shapes,
strings and Python objects are not supported.

Read in chapter 05b, *Reading the real buffer*.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.cast import as_array, as_dtype, cast, check_finite
from replay_tutorial.buffers.rows import checked_integer
from replay_tutorial.buffers.runtime.jit import Bytes, Floats, Words

Rows = npt.NDArray[np.void]  # records, one per transition
FieldSpecs = Mapping[str, Mapping[str, Any]]

FLOATS = (float, int, bool, np.float64, np.bool_)  # not float32, to which a comparison would cast the bound
SIGNED = (np.int64, np.int32, np.int16, np.int8)
UNSIGNED = (np.uint64, np.uint32, np.uint16, np.uint8)
INTEGERS = (int, bool, *SIGNED, *UNSIGNED, np.bool_)

LARGE = 4096  # bytes; smaller fields are copied faster as parts of one record


class Field(NamedTuple):
    """One named array of a transition.

    Attributes:
        name: Keyword argument of `add` and key of a sample.
        dtype: dtype of the stored elements.
        shape: Shape in one transition; a sample has the shape `(batch, *shape)`.
        scalars: Types whose values are only compared with `low` and `high`; empty unless the size is 1.
        low: Smallest value of the dtype.
        high: Largest value of the dtype.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    scalars: frozenset[type]
    low: float
    high: float

    @property
    def nbytes(self) -> int:
        """Size in one transition, in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)

    def same_values(self, other: "Field") -> bool:
        """Return whether another field has the same dtype and shape."""
        return (self.dtype, self.shape) == (other.dtype, other.shape)

    def to_array(self, value: Any) -> npt.NDArray[Any]:
        """Convert one value, or a batch along axis 0, to an array of shape (n, *shape)."""
        array = as_array(self.name, value)
        if array.dtype != self.dtype:
            array = cast(self.name, array, self.dtype)
        if array.shape == self.shape or (array.shape == () and self.shape == (1,)):
            return array.reshape(1, *self.shape)
        if array.shape[1:] == self.shape and array.ndim:
            return array
        if self.shape == (1,) and array.ndim == 1:
            return array.reshape(-1, 1)
        raise ValueError(
            f"{self.name!r} has shape {array.shape}; it must be {self.shape} for one transition, or "
            f"({', '.join(['n', *map(str, self.shape)])}) for a batch."
        )


def field(name: str, spec: Mapping[str, Any]) -> Field:
    """Create a field from its declaration, such as `{"shape": 4, "dtype": np.float32}`."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"A field name must be a non-empty string, not {name!r}.")
    if not isinstance(spec, Mapping):
        raise TypeError(
            f'fields[{name!r}] must be a dict such as {{"shape": 4, "dtype": np.float32}}, not {spec!r}.'
        )
    if unknown := set(spec) - {"shape", "dtype"}:
        nested = [
            f" Declare nested fields as '{name}/{key}'." for key in unknown if isinstance(spec[key], Mapping)
        ]
        fault = (
            f"fields[{name!r}] has unknown keys {sorted(map(str, unknown))}; it accepts 'shape' and 'dtype'."
        )
        raise ValueError(fault + min(nested, default=""))
    shape = spec.get("shape", ())
    lengths = shape if np.ndim(shape) else (shape,)
    shape = tuple(checked_integer(f"Each dimension of fields[{name!r}]['shape']", n) for n in lengths)
    if any(n < 1 for n in shape):
        raise ValueError(f"fields[{name!r}]: every dimension of the shape {shape} must be at least 1.")
    dtype = as_dtype(f"fields[{name!r}]", spec.get("dtype", np.float32))
    if dtype.kind not in "biufc":
        raise ValueError(f"fields[{name!r}]: the dtype must be numeric or bool, not {dtype}.")
    dtype = np.dtype(dtype.newbyteorder("=").str)  # NumPy's own instance; an unpickled dtype is another one
    low, high, scalars = -math.inf, math.inf, tuple[type, ...]()
    if dtype.kind == "b":
        low, high, scalars = 0, 1, (bool, np.bool_)
    elif dtype.kind in "iu":
        low, high, scalars = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), INTEGERS
    elif dtype.kind == "f" and dtype.itemsize <= 8:
        low, high, scalars = float(np.finfo(dtype).min), float(np.finfo(dtype).max), (*FLOATS, dtype.type)
    return Field(name, dtype, shape, frozenset(scalars if shape in ((), (1,)) else ()), low, high)


def field_names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Convert an argument that is one field name, several or None to a tuple."""
    one = isinstance(names, str) or not isinstance(names, Iterable)
    read: tuple[Any, ...] = () if names is None else (names,) if one else tuple(names)
    for name in read:
        if not isinstance(name, str):
            raise TypeError(f"A field name must be a string, not {name!r:.60}.")
    if len(set(read)) < len(read):
        raise ValueError(f"A field name is repeated in {list(read)}; pass each name once.")
    return read


def expand_groups(names: Iterable[str], fields: Iterable[str]) -> tuple[str, ...]:
    """Replace each name of a nested value, such as `obs`, with the names of its fields: `obs/image`, …

    Unknown names are kept, so that the caller can report them.

    Example:
        >>> expand_groups(["obs", "reward"], ["obs/image", "obs/goal/0", "reward"])
        ('obs/image', 'obs/goal/0', 'reward')
    """
    declared, expanded = list(fields), list[str]()
    for name in names:
        group = [] if name in declared else [field for field in declared if field.startswith(f"{name}/")]
        expanded += group or [name]
    return tuple(dict.fromkeys(expanded))


class Fields:
    """The fields of a transition and the dtype of its record.

    Example:
        >>> fields = Fields({"obs": {"shape": 2}, "done": {"dtype": bool}})
        >>> rows = fields.to_rows(*fields.to_columns({"obs": [[1, 2], [3, 4]], "done": [False, True]}))
        >>> fields.to_batch(rows)["obs"].tolist()
        [[1.0, 2.0], [3.0, 4.0]]

    Attributes:
        fields: Maps names to fields, in the order of their declaration.
        dtype: dtype of a record.
    """

    def __init__(self, specs: FieldSpecs) -> None:
        """Create the fields that a dict declares; the dict is not referenced afterwards.

        It maps each name to a dict with `shape` (an int or a tuple, default `()`) and `dtype` (default
        float32).
        """
        if not isinstance(specs, Mapping):
            raise TypeError(
                f'fields must be a dict such as {{"obs": {{"shape": 4}}, "reward": {{}}}}, not {specs!r}.'
            )
        if not specs:
            raise ValueError("fields is empty; declare at least one field.")
        self.fields = {name: field(name, spec) for name, spec in specs.items()}
        self.dtype = record_dtype(list(self.fields.values()))
        # Plain tuples unpack faster than NamedTuples: adding 5 fields takes 2.0 µs instead of 2.2 µs.
        self._in_order: list[tuple[Any, ...]] = [tuple(field) for field in self.fields.values()]
        # The fields of the last batch: name, dtype, shape as passed (None for a list), and converted shape.
        self._last_batch: list[tuple[Any, ...]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Fields, (self.specs,)

    def __str__(self) -> str:
        return ", ".join(f"{f.name} {f.dtype}{list(f.shape) or ''}" for f in self.fields.values())

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        """A new dict that declares the shape and dtype of every field."""
        return {f.name: {"shape": f.shape, "dtype": f.dtype} for f in self.fields.values()}

    @property
    def described(self) -> dict[str, list[Any]]:
        """The shape and dtype of every field, as JSON."""
        return {f.name: [list(f.shape), f.dtype.str] for f in self.fields.values()}

    def to_columns(self, values: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Check and convert the arguments of `add`.

        Three code paths are tried, the fastest first:
        1. one transition: this function;
        2. a batch of arrays with the same shapes as in the last batch: `_batch_to_columns`;
        3. everything else: `_any_to_columns`.

        Nested values are flattened first; then all paths are tried again.

        Returns:
            The number n of transitions, and one column per field: an array of shape (n, *shape), or a single
            value if n is 1. Columns may be the caller's own arrays, so copy them before keeping them.
        """
        columns: list[Any] = []
        try:
            for name, dtype, shape, scalars, low, high in self._in_order:
                value = values[name]
                if type(value) is ndarray:
                    if value.shape != shape:
                        return self._batch_to_columns(values)
                    if value.dtype is not dtype:
                        value = cast(name, value, dtype)
                elif type(value) not in scalars or not low <= value <= high:
                    value = as_array(name, value)  # usually from a list
                    if value.dtype is not dtype:
                        value = cast(name, value, dtype)
                    if value.shape != shape:
                        column = self.fields[name].to_array(value)
                        if len(column) != 1:
                            return self._batch_to_columns(values)
                        value = column[0]
                columns.append(value)
        except KeyError:
            if values.keys() == self.fields.keys():  # raised by a value's own conversion
                raise
            return self.to_columns(self._flattened(values))
        return (1, columns) if len(values) == len(columns) else self.to_columns(self._flattened(values))

    def _batch_to_columns(self, values: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Convert a batch of arrays that have the same shapes as in the last batch."""
        columns: list[Any] = []
        for name, dtype, given, shape in self._last_batch:
            value = values.get(name)
            if type(value) is not ndarray or value.shape != given:
                break
            if value.dtype is not dtype:
                value = cast(name, value, dtype)
            columns.append(value if given == shape else value.reshape(shape))
        if not len(columns) == len(values) == len(self._in_order):
            return self._any_to_columns(values)
        length = len(columns[0])
        return (length, columns) if length > 1 else (1, [column[0] for column in columns])

    def _any_to_columns(self, values: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Convert any valid values; the slowest path."""
        if len(values) != len(self.fields):
            values = self._flattened(values)
        columns: list[Any] = []
        length = None
        for name, dtype, shape, _, _, _ in self._in_order:
            value = values[name]
            fits = type(value) is ndarray and value.dtype is dtype and value.shape[1:] == shape and value.ndim
            column = value if fits else self.fields[name].to_array(value)
            columns.append(column)
            if length is None:
                length = len(column)
            elif len(column) != length:
                raise ValueError(
                    f"All fields must contain the same number of transitions; {name!r} contains "
                    f"{len(column)}, but the fields before it contain {length}. The declared shapes are "
                    "those of one transition of one environment."
                )
        if not length:
            raise ValueError("The batch is empty; add at least one transition.")
        self._last_batch = [
            (f.name, f.dtype, getattr(values[f.name], "shape", None), (length, *f.shape))
            for f in self.fields.values()
        ]
        return (length, columns) if length > 1 else (1, [column[0] for column in columns])

    def to_rows(self, count: int, columns: Sequence[Any]) -> Rows:
        """Convert the result of `to_columns` to records, one per transition."""
        rows = np.zeros(count, self.dtype)
        if count == 1:  # the same as below, but faster
            rows[0] = tuple(columns)
        else:
            for name, column in zip(self.fields, columns, strict=True):
                rows[name] = column
        return rows

    def _flattened(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        pairs = list(flatten(values))
        flat = dict(pairs)
        if len(flat) < len(pairs):
            raise KeyError(
                "a field is passed twice, nested and by its full name, in "
                f"{sorted(name for name, _ in pairs)}"
            )
        if flat.keys() != self.fields.keys():
            names = {"missing": self.fields.keys() - flat.keys(), "unknown": flat.keys() - self.fields.keys()}
            faults = " and ".join(f"{word} {sorted(wrong)}" for word, wrong in names.items() if wrong)
            # The same shape as in `NStepWindow`.
            shape = (1,) if "reward" in self.fields and self.fields["reward"].shape else ()
            remedy = (
                ". To store n-step rows, construct the buffer with NStepWindow(...).fields, or with "
                f'{{**fields_from_spaces(...), "discount": {{"shape": {shape}}}}}'
            ) * ("discount" in flat and "discount" not in self.fields)
            if {"priority", "priorities"} & names["unknown"]:
                remedy += ". Did you mean priorities=, an argument of the prioritized buffers?"
            raise KeyError(f"{faults}; the fields are {list(self.fields)}{remedy}") from None
        return flat

    def to_batch(self, rows: Rows) -> Batch:
        """Return views of the records, one per field, of shape (n, *shape)."""
        batch = Batch()
        for name in self.fields:
            batch[name] = rows[name]
        return batch


class FiniteFields(Fields):
    """Fields that don't accept NaN and infinity."""

    def __reduce__(self) -> tuple[Any, ...]:
        return FiniteFields, (self.specs,)

    def to_columns(self, values: Mapping[str, Any]) -> tuple[int, list[Any]]:
        """Like `Fields.to_columns`; also raise ValueError if a number is NaN or infinite."""
        count, columns = super().to_columns(values)
        for column, field in zip(columns, self.fields.values(), strict=True):
            if field.dtype.kind in "fc":
                check_finite(field.name, column)
        return count, columns


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested dicts and tuples; keys and tuple positions are joined by "/".

    Example:
        >>> dict(flatten({"obs": {"image": 1, "goal": (2, 3)}, "reward": 4}))
        {'obs/image': 1, 'obs/goal/0': 2, 'obs/goal/1': 3, 'reward': 4}
    """
    for name, value in values.items():
        parts: Any = value
        if isinstance(value, tuple):
            parts = {str(i): part for i, part in enumerate(parts)}
        nested: Any = parts
        if isinstance(parts, Mapping):
            yield from flatten(nested, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", parts


def record_dtype(fields: Sequence[Field]) -> np.dtype[np.void]:
    """Return the dtype of a record: first the small fields, which are copied together, then the large ones.

    PyTorch requires strides that are multiples of the element size, so every field's offset and the size of
    the record are multiples of it.
    """
    unit = math.lcm(8, *(field.dtype.itemsize for field in fields))  # rows are copied in 8-byte words
    offsets: dict[str, int] = {}
    end = 0
    for field in sorted(fields, key=lambda field: field.nbytes >= LARGE):
        step = unit if field.nbytes >= LARGE else field.dtype.itemsize
        offsets[field.name] = -(-end // step) * step
        end = offsets[field.name] + field.nbytes
    names = [field.name for field in fields]
    formats = [(field.dtype, field.shape) for field in fields]
    starts = [offsets[name] for name in names]
    return np.dtype(
        {"names": names, "formats": formats, "offsets": starts, "itemsize": -(-end // unit) * unit}
    )


def as_bytes(rows: Rows) -> npt.NDArray[np.uint8]:
    """Return a view of contiguous records as bytes, uint8[n, itemsize]."""
    return np.ndarray((len(rows), rows.dtype.itemsize), np.uint8, rows)  # a third of the time of `rows.view`


def as_records(memory: npt.NDArray[Any], dtype: np.dtype[np.void]) -> Rows:
    """Return a view of contiguous bytes or words, [n, …], as n records."""
    return np.ndarray(len(memory), dtype, memory)


class StagedRows:
    """Rows that are assembled outside the ring, to be copied to their slots as whole records.

    Attributes:
        records: The rows as structured records.
        columns: Views of the records, one per field.
        bytes: The same memory, uint8[count, bytes of a row].
        words: The same memory, uint64[count, words of a row], as a shared ring stores it.
        masses: The masses of the rows in a prioritized buffer, float64[count].
    """

    def __init__(self, count: int, dtype: np.dtype[np.void]) -> None:
        self.count = count
        self.records: Rows = np.zeros(count, dtype)
        self.columns: list[Any] = [self.records[name] for name in dtype.names or ()]
        self.bytes: Bytes = as_bytes(self.records)
        self.words: Words = self.bytes.view(np.uint64)
        self.masses: Floats = np.zeros(count)

    def write(self, columns: Sequence[Any]) -> None:
        """Write one array per field, or one value per field of a single row."""
        for place, column in zip(self.columns, columns, strict=True):
            place[...] = column
