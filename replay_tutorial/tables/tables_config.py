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

A kind is a class, and its keys are the arguments. An error names the key that it is about.

Left out: hooks that are no `InsertOnSample`, and subclasses; whoever has some builds a `Server` and an
`Endpoint` in a program.
"""

import inspect
import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, cast, get_args

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.hooks import InsertOnSample
from replay_tutorial.tables.local_socket import place_of
from replay_tutorial.tables.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from replay_tutorial.tables.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.table import Table

Kinds = Mapping[str, Callable[..., Any]]
SELECTORS: Kinds = {kind.__name__: kind for kind in (Uniform, Fifo, Lifo, MinHeap, MaxHeap, Prioritized)}
LIMITERS: Kinds = {kind.__name__: kind for kind in (MinSize, SampleToInsertRatio, Queue, Stack)}
TABLES: Kinds = {"table": Table, "queue": Table.queue, "stack": Table.stack}


class ConfigError(ValueError):
    """The file says what can't be."""


class Config(NamedTuple):
    """What such a file says.

    Attributes:
        server: The server, still empty.
        address: Where it is to listen.
        save: Where the server is saved at its end, and loaded from at its start; None for nowhere.
    """

    server: Server
    address: str
    save: Path | None


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
            words = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}.") from None
    listed: str = take(words, "", "address", str, "" if address else None)
    if not address:
        place = built("address", place_of, listed)
        address = str(folder / place) if isinstance(place, str) else listed
    built("address", place_of, address)
    save = take(words, "", "save", str, "")
    words["default_dtype"] = built("default_dtype", np.dtype, words.get("default_dtype", "float32"))
    columns, tables = [not_empty(key, take(words, "", key, dict)) for key in ("columns", "tables")]
    for name, column in columns.items():
        built(f"columns.{name}", Fields, {name: column}, words["default_dtype"])
    words["tables"] = [read_table(f"tables.{name}", name, table) for name, table in tables.items()]
    server = call("", Server, words, env_dict=columns)
    return Config(server, str(address), folder / save if save else None)


def read_table(where: str, name: str, value: Any) -> Table:
    """Read the description of a table."""
    options = section(where, value)
    targets: list[Any] = take(options, where, "insert_on_sample", list, [])
    if not all(isinstance(target, str) for target in targets):
        raise ConfigError(f"{where}.insert_on_sample is a list of names of tables, not {targets!r:.60}.")
    for key, kinds in (("sampler", SELECTORS), ("remover", SELECTORS), ("rate_limiter", LIMITERS)):
        if key in options:
            options[key] = read_kind(f"{where}.{key}", options[key], kinds)
    make = chosen(f"{where}.kind", take(options, where, "kind", str, "table"), TABLES)
    return call(where, make, options, name=name, hooks=[InsertOnSample(target) for target in targets])


def read_kind(where: str, value: Any, kinds: Kinds) -> Any:
    """Read what is of one of some kinds: "Uniform", or { kind = "MinSize", min_size = 1 }."""
    options = section(where, {"kind": value} if isinstance(value, str) else value)
    make = chosen(where, take(options, where, "kind", str), kinds)
    return call(
        where, make, {k: tuple(cast(Any, v)) if isinstance(v, list) else v for k, v in options.items()}
    )


def section(where: str, value: Any) -> dict[str, Any]:
    """Return a part of the file that has keys of its own."""
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must have keys of its own, not be {value!r:.60}.")
    return dict(cast("dict[str, Any]", value))


def not_empty(where: str, value: dict[str, Any]) -> dict[str, Any]:
    """Refuse a part of the file that says nothing."""
    if not value:
        raise ConfigError(f"{where} is empty; it must have at least one key.")
    return value


def take(words: dict[str, Any], where: str, key: str, kind: type, default: Any = None) -> Any:
    """Take a key's value out; None as the default says that it must be there."""
    value = words.pop(key, default)
    check_kind(name_of(where, key), value, kind)
    return value


def name_of(where: str, key: str) -> str:
    """Return how a key is called."""
    return f"{where}.{key}" if where else key


def check_kind(name: str, value: Any, kind: Any) -> None:
    """Refuse what is not there, or neither text nor a number where it must be."""
    if value is None:
        raise ConfigError(f"{name} is missing.")
    kinds = (float, int) if kind is float else (kind,)
    if kind in (str, int, float, list, dict) and type(value) not in kinds:
        raise ConfigError(f"{name} must be of kind {kind.__name__}, not {value!r:.60}.")


def chosen(where: str, kind: str, kinds: Kinds) -> Callable[..., Any]:
    """Return what a kind stands for."""
    if kind not in kinds:
        raise ConfigError(f"{where} is one of {', '.join(kinds)}, not {kind!r:.60}.")
    return kinds[kind]


def call(where: str, make: Callable[..., Any], options: dict[str, Any], **given: Any) -> Any:
    """Build something; what it takes, and of which kind, say its own annotations.

    Args:
        where: Where it stands in the file.
        make: What builds it.
        options: What the file says of it.
        given: What it is given beside.

    Raises:
        ConfigError: If a key is missing or unknown, or a value can't be.
    """
    every = inspect.signature(make).parameters.values()
    parameters = {p.name: p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    for key, parameter in parameters.items():
        if key not in given and (key in options or parameter.default is parameter.empty):
            kinds = [kind for kind in get_args(parameter.annotation) if kind is not NoneType]
            kind = kinds[0] if len(kinds) == 1 else parameter.annotation  # int of "int | None"
            check_kind(name_of(where, key), options.get(key), kind)
    for key in sorted(options):
        if key not in parameters or key in given:
            raise ConfigError(f"{name_of(where, key)} is not known here.")
    return built(where or "capacity, seed, or hooks", make, **options, **given)


def built(where: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Build something; say where it stands in the file if it can't be.

    Raises:
        ConfigError: If it is so.
    """
    try:
        return make(*arguments, **options)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{where}: {error}") from None
