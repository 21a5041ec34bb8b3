"""The file that says which tables a server of its own process has: `tables serve config.toml`.

    address = "/tmp/replay.sock"
    capacity = 1_000_000

    [columns]
    obs = { shape = 15 }
    act = { shape = [], dtype = "int64" }

    [tables.replay]
    sampler = { kind = "Prioritized", exponent = 0.6 }
    remover = "Fifo"
    max_size = 100_000
    rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 8, min_size = 99, error_buffer = 99 }

    [tables.rollouts]
    kind = "queue"
    max_size = 64

The words are those of Python. An error names the key that it is about.

Left out: hooks that are no `InsertOnSample`, and subclasses; whoever has some builds a `Server` and an
`Endpoint` in a program.
"""

import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.hooks import Hook, InsertOnSample
from replay_tutorial.tables.local_socket import place_of
from replay_tutorial.tables.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from replay_tutorial.tables.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.table import Table

Kinds = Mapping[str, tuple[Callable[..., Any], Mapping[str, type]]]

# What may stand there: kind → what makes it, and its keys.
SELECTORS: Kinds = {
    **{kind.__name__: (kind, {}) for kind in (Uniform, Fifo, Lifo, MinHeap, MaxHeap)},
    "Prioritized": (Prioritized, {"exponent": float}),
}
BAND = {"samples_per_insert": float, "min_size": int, "error_buffer": object}
LIMITERS: Kinds = {
    "MinSize": (MinSize, {"min_size": int}),
    "SampleToInsertRatio": (SampleToInsertRatio, BAND),
    "Queue": (Queue, {"size": int}),
    "Stack": (Stack, {"size": int}),
}


class ConfigError(ValueError):
    """The file says what can't be."""


class Config(NamedTuple):
    """What such a file says.

    Attributes:
        server: The server, still empty.
        address: Where it is to listen.
        lease: Seconds for which a client that has gone can come back.
        save: Where the server is saved at its end, and loaded from at its start; None for nowhere.
    """

    server: Server
    address: str
    lease: float
    save: Path | None


class Section:
    """A part of the file, whose keys are taken out one by one, so that none is overlooked."""

    def __init__(self, where: str, value: Any) -> None:
        """Begin with all keys.

        Raises:
            ConfigError: If it has no keys.
        """
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must have keys of its own, not be {value!r:.60}.")
        self._where = where
        self._rest: dict[str, Any] = dict(cast("dict[str, Any]", value))

    def name(self, key: str) -> str:
        """Say where a key stands."""
        return f"{self._where}.{key}" if self._where else key

    def take(self, key: str, kind: type, *default: Any) -> Any:
        """Take a key's value out.

        Raises:
            ConfigError: If it is not there, and there is no default, or it is of another kind.
        """
        if key not in self._rest:
            if not default:
                raise ConfigError(f"{self.name(key)} is missing.")
            return default[0]
        value = self._rest.pop(key)
        kinds = (int, float) if kind is float else kind
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not object):
            raise ConfigError(f"{self.name(key)} must be of kind {kind.__name__}, not {value!r:.60}.")
        return value

    def sections(self, key: str) -> dict[str, Any]:
        """Take out a key with keys of its own."""
        value = self.take(key, dict)
        if not value:
            raise ConfigError(f"{self.name(key)} is empty; it must have at least one key.")
        return value

    def end(self) -> None:
        """Refuse what was not taken.

        Raises:
            ConfigError: If there is something.
        """
        if self._rest:
            raise ConfigError(f"{self.name(min(self._rest))} is not known here.")


def built(where: str, make: Callable[[], Any]) -> Any:
    """Build something; say where it stands in the file if it can't be.

    Raises:
        ConfigError: If it is so.
    """
    try:
        return make()
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{where}: {error}") from None


def read_config(path: str | PathLike[str], address: str | None = None) -> Config:
    """Read a file, and build what it describes.

    Args:
        path: The file. Other paths in it are relative to its folder.
        address: Where to listen, instead of where the file says.

    Raises:
        ConfigError: If it is no TOML, a key is missing or unknown, or a value can't be.
        OSError: If it can't be read.
    """
    folder = Path(path).parent
    try:
        with open(path, "rb") as file:
            whole = Section("", tomllib.load(file))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}.") from None
    listed = whole.take("address", str, *([address] if address else []))
    place = address or listed
    built("address", lambda: place_of(place))
    lease = whole.take("lease", float, 10.0)
    save = whole.take("save", str, None)
    dtype = whole.take("default_dtype", str, "float32")
    default_dtype = built("default_dtype", lambda: np.dtype(dtype))
    columns = whole.sections("columns")
    for name, column in columns.items():
        built(f"columns.{name}", lambda: Fields({name: column}, default_dtype))  # noqa: B023
    tables = [read_table(name, table) for name, table in whole.sections("tables").items()]
    capacity, seed = whole.take("capacity", int), whole.take("seed", int, None)
    patience = whole.take("patience", float, 60.0)
    whole.end()
    if not 0 <= lease < 1e6:
        raise ConfigError(f"lease must be a number of seconds, not {lease}.")
    options = {"default_dtype": default_dtype, "seed": seed, "patience": patience}
    server = built("capacity, seed, or hooks", lambda: Server(tables, columns, capacity, **options))
    return Config(server, place, float(lease), None if save is None else folder / save)


def read_table(name: str, value: Any) -> Table:
    """Read the description of a table."""
    where = f"tables.{name}"
    section = Section(where, value)
    targets = section.take("insert_on_sample", list, [])
    if not all(isinstance(target, str) for target in targets):
        raise ConfigError(f"{where}.insert_on_sample is a list of names of tables, not {targets!r:.60}.")
    hooks: list[Hook] = [InsertOnSample(target) for target in targets]
    kind = section.take("kind", str, "table")
    max_size = section.take("max_size", int)
    if kind in ("queue", "stack"):
        section.end()
        make = Table.queue if kind == "queue" else Table.stack
        return built(where, lambda: make(name, max_size, hooks))
    if kind != "table":
        raise ConfigError(f"{where}.kind is table, queue or stack, not {kind!r:.60}.")
    sampler = read_kind(section, "sampler", SELECTORS)
    remover = read_kind(section, "remover", SELECTORS)
    limiter = read_kind(section, "rate_limiter", LIMITERS)
    times = section.take("max_times_sampled", int, 0)
    section.end()
    options = {"sampler": sampler, "remover": remover, "rate_limiter": limiter}
    return built(
        where, lambda: Table(name, max_size=max_size, max_times_sampled=times, hooks=hooks, **options)
    )


def read_kind(section: Section, key: str, kinds: Kinds) -> Any:
    """Read what is of one of some kinds: "Uniform", or { kind = "MinSize", min_size = 1 }."""
    where, value = section.name(key), section.take(key, object)
    inner = Section(where, {"kind": value} if isinstance(value, str) else value)
    kind = inner.take("kind", str)
    if kind not in kinds:
        raise ConfigError(f"{where} is one of {', '.join(kinds)}, not {kind!r:.60}.")
    make, keys = kinds[kind]
    options = {key: inner.take(key, expected) for key, expected in keys.items()}
    inner.end()
    if isinstance(options.get("error_buffer"), list):
        options["error_buffer"] = tuple(options["error_buffer"])
    return built(where, lambda: make(**options))
