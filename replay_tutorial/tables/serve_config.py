"""The configuration file of `tables serve`, which declares the tables of a server in its own process.

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

Each `kind` is a class, and the other keys are its arguments. Hooks other than `InsertOnSample`, and custom
subclasses, require a program.
"""

import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.core.hooks import InsertOnSample
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.core.table import Table
from replay_tutorial.tables.remote.local_socket import parse_address
from replay_tutorial.tables.server import Server

TABLES = {"table": Table, "queue": Table.queue, "stack": Table.stack}
SELECTORS = {kind.__name__: kind for kind in (Uniform, Fifo, Lifo, MinHeap, MaxHeap, Prioritized)}
LIMITERS = {kind.__name__: kind for kind in (MinSize, SampleToInsertRatio, Queue, Stack)}
KINDS = {"sampler": SELECTORS, "remover": SELECTORS, "rate_limiter": LIMITERS}


class Served(NamedTuple):
    """The contents of a configuration file.

    Attributes:
        server: The empty server.
        address: Address to listen on.
        save: Path of the server's file, loaded at the start and saved at the end; None for no file.
        save_every: Seconds between further saves; 0 for none.
    """

    server: Server
    address: str
    save: Path | None
    save_every: float


class ConfigError(ValueError):
    """The file is not valid TOML, or a key is missing, unknown or has an invalid value."""


@contextmanager
def config_errors(key: str) -> Generator[None]:
    """Convert an error to a ConfigError that names the key."""
    try:
        yield
    except ConfigError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError, MemoryError) as error:
        raise ConfigError(f"{key}: {error.args[0] if isinstance(error, KeyError) else error}") from None


def create_server(path: str | PathLike[str], address: str | None = None) -> Served:
    """Read a configuration file and create the server.

    Args:
        path: Path of the file. Other paths in it are relative to its folder.
        address: Address to listen on; overrides the address in the file.

    Raises:
        ConfigError: If the file is not valid TOML, a key is missing or unknown, or a value is invalid.
        OSError: If the file can't be read.
    """
    with open(path, "rb") as file, config_errors(f"{path} is not valid TOML"):
        settings = tomllib.load(file)
    with config_errors("The file"):
        known = {"columns", "address", "save", "save_every", *signature(Server).parameters} - {"env_dict"}
        if unknown := settings.keys() - known:
            raise ValueError(f"unknown keys {sorted(unknown)}; it may contain {sorted(known)}.")
        if missing := {"columns", "tables"} - settings.keys():
            raise ValueError(f"it must also contain {' and '.join(sorted(missing))}.")
        return build_server(Path(path).parent, address, **settings)


def build_server(
    folder: Path,
    address_override: str | None,
    *,
    columns: dict[str, Any],
    tables: dict[str, Any],
    address: str = "",
    save: str = "",
    save_every: float = 0.0,
    default_dtype: str = "float32",
    **options: Any,
) -> Served:
    """Build the result of `create_server` from the keys of the file; `options` are passed to `Server`."""
    with config_errors("address"):
        if address and isinstance(parse_address(address), str):
            address = str(folder / address)
        if not (address := address_override or address):
            raise ValueError(
                "is missing. Set it to the path of a socket or 127.0.0.1:PORT, or pass --address."
            )
        parse_address(address)
    with config_errors("save_every"):
        if not 0.0 <= save_every <= 1e6 or (save_every and not save):
            raise ValueError(
                f"must be from 0 to 1,000,000 seconds, not {save_every}; if positive, set `save` too."
            )
    with config_errors("default_dtype"):
        dtype = np.dtype(default_dtype)
    with config_errors("columns"):
        Fields(columns, dtype)
    with config_errors("tables"):
        table_configs = [build_table(name, settings) for name, settings in tables.items()]
    server = Server(table_configs, columns, default_dtype=dtype, **options)
    return Served(server, address, folder / save if save else None, save_every)


def build_table(name: str, settings: Any) -> Table:
    """Create the configuration of a table."""
    with config_errors(f"tables.{name}"):
        settings = {"kind": "table", "insert_on_sample": [], **settings}
        for option in KINDS.keys() & settings.keys():
            settings[option] = build(f"tables.{name}.{option}", settings[option], KINDS[option])
        targets = settings.pop("insert_on_sample")
        if not isinstance(targets, list):
            raise TypeError(f"insert_on_sample must be a list of tables, not {targets!r}.")
        hooks = [InsertOnSample(target) for target in cast(list[str], targets)]
        return build(f"tables.{name}", settings, TABLES, name=name, hooks=hooks)


def build(key: str, settings: Any, kinds: dict[str, Callable[..., Any]], **arguments: Any) -> Any:
    """Create an object from `"Uniform"` or `{ kind = "MinSize", min_size = 1 }`."""
    with config_errors(key):
        settings = {"kind": settings} if isinstance(settings, str | int) else dict(settings)
        if (kind := settings.pop("kind", None)) not in kinds:
            raise ValueError(f"kind must be one of {', '.join(kinds)}, not {kind!r:.60}.")
        return kinds[kind](**settings, **arguments)
