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
import math
import tomllib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, cast, get_args

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.core.hooks import InsertOnSample
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.selection import Selector
from replay_tutorial.tables.core.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.core.table import Table
from replay_tutorial.tables.remote.local_socket import place_of
from replay_tutorial.tables.server import Server

Kinds = Mapping[str, Callable[..., Any]]
TABLES: Kinds = {"table": Table, "queue": Table.queue, "stack": Table.stack}
KINDS: dict[Any, Kinds] = {
    Selector: {kind.__name__: kind for kind in (Uniform, Fifo, Lifo, MinHeap, MaxHeap, Prioritized)},
    RateLimiter: {kind.__name__: kind for kind in (MinSize, SampleToInsertRatio, Queue, Stack)},
}


class ConfigError(ValueError):
    """The file says what can't be."""


def read_config(
    path: str | PathLike[str], address: str | None = None
) -> tuple[Server, str, Path | None, float]:
    """Read a file, and build what it describes.

    Args:
        path: The file. Other paths in it are relative to its folder.
        address: Where to listen, instead of where the file says.

    Returns:
        The server, still empty; where it is to listen; where it is saved at its end, and loaded from at its
        start, or None for nowhere; and after how many seconds it is saved each time, 0 for only at its end.

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
    listed: str = take(words, "", "address", str, address)
    if not address and isinstance(built("address", place_of, listed), str):
        listed = str(folder / listed)
    address = address or listed
    built("address", place_of, address)
    save, save_every = take(words, "", "save", str, ""), take(words, "", "save_every", float, 0.0)
    if not (0.0 <= save_every < math.inf) or (save_every and not save):
        raise ConfigError(
            f"save_every must be at least 0 seconds, and 0 without a file to save to, not {save_every}."
        )
    dtype = built("default_dtype", np.dtype, words.pop("default_dtype", "float32"))
    columns, tables = [take(words, "", key, dict) for key in ("columns", "tables")]
    for name, column in columns.items():
        built(f"columns.{name}", Fields, {name: column}, dtype)
    given = [read_table(name, table) for name, table in tables.items()]
    server = call("", Server, words, tables=given, env_dict=columns, default_dtype=dtype)
    return server, address, folder / save if save else None, save_every


def read_table(name: str, value: Any) -> Table:
    """Read the description of a table."""
    where = f"tables.{name}"
    words = read(where, value, dict)
    targets = take(words, where, "insert_on_sample", list, [])
    hooks = [InsertOnSample(read(f"{where}.insert_on_sample", target, str)) for target in targets]
    make = chosen(f"{where}.kind", take(words, where, "kind", str, "table"), TABLES)
    return call(where, make, words, name=name, hooks=hooks)


def call(where: str, make: Callable[..., Any], words: dict[str, Any], **given: Any) -> Any:
    """Build something of what the file says of it, and of what it is given beside.

    Which keys there must or may be, and of which kinds, say the annotations of what builds it.
    """
    for key, p in inspect.signature(make).parameters.items():
        is_named = p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if is_named and key not in given and (key in words or p.default is p.empty):
            given[key] = take(words, where, key, p.annotation)
    if words:
        raise ConfigError(f"{where}.{min(words)} is not known here.".removeprefix("."))
    return built(where or "capacity, seed, or hooks", make, **given)


def take(words: dict[str, Any], where: str, key: str, kind: Any, default: Any = None) -> Any:
    """Take a key's value out, and read it; None as the default says that it must be there."""
    name, value = f"{where}.{key}".removeprefix("."), words.pop(key, default)
    if value is None:
        raise ConfigError(f"{name} is missing.")
    return read(name, value, kind)


def read(where: str, value: Any, kind: Any) -> Any:
    """Make of a value what an annotation asks for; one that asks for several things is left to the callee."""
    some = [one for one in get_args(kind) if one is not NoneType]
    kind = some[0] if len(some) == 1 else kind  # int of "int | None"
    if kind in KINDS:  # "Uniform", or { kind = "MinSize", min_size = 1 }
        words = read(where, {"kind": value} if isinstance(value, str) else value, dict)
        return call(where, chosen(where, take(words, where, "kind", str), KINDS[kind]), words)
    if kind is dict:
        if not isinstance(value, dict) or not value:
            raise ConfigError(f"{where} must have keys of its own, not be {value!r:.60}.")
        return dict(cast("dict[str, Any]", value))
    if kind in (str, int, float, list) and type(value) not in ((float, int) if kind is float else (kind,)):
        raise ConfigError(f"{where} must be of kind {kind.__name__}, not {value!r:.60}.")
    return value


def chosen(where: str, kind: str, kinds: Kinds) -> Callable[..., Any]:
    """Return what a kind stands for."""
    if kind not in kinds:
        raise ConfigError(f"{where} is one of {', '.join(kinds)}, not {kind!r:.60}.")
    return kinds[kind]


def built(where: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Build something; if it can't be, a ConfigError says where it stands in the file."""
    try:
        return make(*arguments, **options)
    except (TypeError, ValueError, LookupError, OverflowError, MemoryError) as error:
        raise ConfigError(f"{where}: {error}") from None
