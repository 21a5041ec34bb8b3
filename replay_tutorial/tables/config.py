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

A kind is a class, and its keys are the arguments, which the class checks. Left out: hooks other than
`InsertOnSample`, and subclasses; they need a program.
"""

import math
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.core.hooks import InsertOnSample
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.core.table import Table
from replay_tutorial.tables.remote.local_socket import place_of
from replay_tutorial.tables.server import Server

Config = tuple[Server, str, Path | None, float]
TABLES = {"table": Table, "queue": Table.queue, "stack": Table.stack}
SELECTORS = {kind.__name__: kind for kind in (Uniform, Fifo, Lifo, MinHeap, MaxHeap, Prioritized)}
LIMITERS = {kind.__name__: kind for kind in (MinSize, SampleToInsertRatio, Queue, Stack)}
KINDS = {"sampler": SELECTORS, "remover": SELECTORS, "rate_limiter": LIMITERS}


class ConfigError(ValueError):
    """The file is not TOML, or a key of it is missing, unknown, or has a wrong value."""


@contextmanager
def named(where: str) -> Generator[None]:
    """Turn an error into a ConfigError that names the key."""
    try:
        yield
    except ConfigError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError, MemoryError) as error:
        raise ConfigError(f"{where}: {error.args[0] if isinstance(error, KeyError) else error}") from None


def read_config(path: str | PathLike[str], address: str | None = None) -> Config:
    """Read a file, and build what it describes.

    Args:
        path: The file. Other paths in it are relative to its folder.
        address: Where to listen, instead of the file's address.

    Returns:
        The server, still empty; the address; the file that is loaded at the start and saved at the end, or
        None; and the seconds between two saves meanwhile, 0 for none.

    Raises:
        ConfigError: If it is not TOML, a key is missing or unknown, or a value is wrong.
        OSError: If it can't be read.
    """
    with open(path, "rb") as file, named(f"{path} is not TOML"):
        words = tomllib.load(file)
    with named("The file"):
        return config(Path(path).parent, address, **words)


def config(
    folder: Path,
    instead: str | None,
    *,
    columns: dict[str, Any],
    tables: dict[str, Any],
    address: str = "",
    save: str = "",
    save_every: float = 0.0,
    default_dtype: str = "float32",
    **options: Any,
) -> Config:
    """Build what `read_config` returns of the keys of the file; other options are those of `Server`."""
    with named("address"):
        if address and isinstance(place_of(address), str):
            address = str(folder / address)
        if not (address := instead or address):
            raise ValueError("is missing: the path of a socket, or 127.0.0.1:PORT; --address gives it, too.")
        place_of(address)
    with named("save_every"):
        if not (0.0 <= save_every < math.inf) or (save_every and not save):
            raise ValueError(
                f"must be at least 0 seconds, and 0 without a file to save to, not {save_every}."
            )
    with named("default_dtype"):
        dtype = np.dtype(default_dtype)
    with named("columns"):
        Fields(columns, dtype)
    with named("tables"):
        made = [table(name, words) for name, words in tables.items()]
    server = Server(made, columns, default_dtype=dtype, **options)
    return server, address, folder / save if save else None, save_every


def table(name: str, words: Any) -> Table:
    """Build the description of a table."""
    with named(f"tables.{name}"):
        words = {"kind": "table", "insert_on_sample": [], **words}
        for key in KINDS.keys() & words.keys():
            words[key] = of_kind(f"tables.{name}.{key}", words[key], KINDS[key])
        hooks = [InsertOnSample(target) for target in words.pop("insert_on_sample")]
        return of_kind(f"tables.{name}", words, TABLES, name=name, hooks=hooks)


def of_kind(where: str, words: Any, kinds: dict[str, Callable[..., Any]], **given: Any) -> Any:
    """Build `"Uniform"`, or `{ kind = "MinSize", min_size = 1 }`."""
    with named(where):
        words = {"kind": words} if isinstance(words, str | int) else dict(words)
        if (kind := words.pop("kind", None)) not in kinds:
            raise ValueError(f"the kind is one of {', '.join(kinds)}, not {kind!r:.60}.")
        return kinds[kind](**words, **given)
