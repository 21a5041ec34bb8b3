"""The `tables` command: `serve CONFIG` runs a server in its own process, `info ADDRESS` prints its state.

CONFIG is a file that declares the tables of the server:

    address = "/tmp/replay.sock"
    capacity = 1_000_000

    [columns]
    obs = { shape = 15 }
    action = { dtype = "int64" }

    [tables.replay]
    sampler = { kind = "Prioritized", exponent = 0.6 }
    remover = "Fifo"
    max_size = 100_000
    rate_limiter = { kind = "SampleToInsertRatio", samples_per_insert = 8, min_size = 99, error_buffer = 99 }

    [tables.rollouts]
    kind = "queue"
    max_size = 64

Each `kind` of a selector or limiter is a class, that of a table "table", "queue" or "stack"; the other keys
are its arguments. `insert_on_sample` lists the tables that receive copies of sampled items. `save` is a file
that is loaded at the start and saved at the end, and also every `save_every` seconds. Other hooks, and custom
subclasses, require a program.
"""

import argparse
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from inspect import signature
from multiprocessing import AuthenticationError
from os import PathLike
from pathlib import Path
from typing import Any, cast

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.core.hooks import InsertOnSample
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.core.table import Table
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE, parse_address
from replay_tutorial.tables.remote.endpoint import Endpoint
from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.server import Server

TABLES = {"table": Table, "queue": Table.queue, "stack": Table.stack}
SELECTORS = {kind.__name__: kind for kind in (Uniform, Fifo, Lifo, MinHeap, MaxHeap, Prioritized)}
LIMITERS = {kind.__name__: kind for kind in (MinSize, SampleToInsertRatio, Queue, Stack)}
KINDS = {"sampler": SELECTORS, "remover": SELECTORS, "rate_limiter": LIMITERS}


def tables(arguments: Sequence[str]) -> int:
    """Run the `tables` command.

    Args:
        arguments: Command-line arguments after `tables`.

    Returns:
        Exit status: 0, or 2 if the server could not be started or reached.
    """
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial tables",
        description="Serve tables to other processes, or print the state of a server.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("serve", help="run a server until Ctrl-C or SIGTERM")
    start.add_argument("config", type=Path, metavar="CONFIG", help="TOML file with the tables and columns")
    start.add_argument("--listen", metavar="ADDRESS", help="address to listen on (default: that of CONFIG)")
    inspect = commands.add_parser("info", help="print sizes, rates and waiting calls")
    inspect.add_argument("address", metavar="ADDRESS", help="path of a socket, or HOST:PORT")
    options = parser.parse_args(arguments)
    try:
        if options.command == "serve":
            serve(options.config, options.listen)
        else:
            info(options.address)
    except (OSError, AuthenticationError, ValueError) as error:
        print(f"tables {options.command}: {error}", file=sys.stderr)
        return 2
    return 0


def serve(path: Path, address: str | None = None) -> None:
    """Run a server until SIGINT or SIGTERM arrives."""
    server, address, save, save_every = create_server(path, address)
    if save is not None:
        check_writable(save)
        if save.exists():
            server.load(save)
            print(f"loaded {save}")

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt saving
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    # The server is closed before the endpoint, so that waiting clients receive an error.
    with suppress(KeyboardInterrupt), Endpoint(server, address) as endpoint, server:
        if endpoint.is_local:
            print("only this machine can connect; use an address such as tcp://0.0.0.0:5000 for others")
        else:
            print(f"clients on other hosts need: export {KEY_VARIABLE}={endpoint.client_key}")
        print(f"serving {', '.join(server.info())} at {endpoint.address}", flush=True)
        while True:
            time.sleep(save_every or 3600.0)
            if save_every and save:
                try:
                    server.save(save)
                except OSError as error:
                    print(f"tables serve: saving failed, will retry: {error}", file=sys.stderr, flush=True)
    if save is not None:
        server.save(save)
        print(f"saved {save}")
    print("stopped")


def check_writable(path: Path) -> None:
    """Raise OSError if the file to save can't be written, before there is any data to lose."""
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise OSError(
            f"save: can't write {path}: {error.strerror}. Create the folder, or choose another file."
        ) from None


def info(address: str) -> None:
    """Print size, counts and rates of each table, and what waiting calls are waiting for."""
    with RemoteServer(address, timeout=0.5) as server:
        before, started_at = server.info(), time.monotonic()
        time.sleep(1.0)
        after, seconds = server.info(), time.monotonic() - started_at
    width = max(5, *map(len, after))
    row = f"{{:{width}}}  {{:>23}}  {{:>11}}  {{:>11}}  {{:>11}}  {{:>9}}  {{:>9}}  {{}}"
    counts = ("inserts", "samples", "deletes", "inserts/s", "samples/s")
    print(row.format("table", "size / max", *counts, "waiting to insert, to sample"))
    for name, now in after.items():
        rates = [
            (now.inserts - before[name].inserts) / seconds,
            (now.samples - before[name].samples) / seconds,
        ]
        numbers = [f"{number:,.0f}" for number in (now.inserts, now.samples, now.deletes, *rates)]
        waiting = f"{now.waiting_inserts}, {now.waiting_samples}"
        print(row.format(name, f"{now.size:,} / {now.max_size:,}", *numbers, waiting))
    for name, now in after.items():
        for side, count in (("insert", now.waiting_inserts), ("sample", now.waiting_samples)):
            if count:
                print(f"{name}: {count} waiting to {side}, for {now.wait_reason(side)}")


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


def create_server(
    path: str | PathLike[str], address: str | None = None
) -> tuple[Server, str, Path | None, float]:
    """Read a configuration file and create the server.

    Args:
        path: Path of the file. Other paths in it are relative to its folder.
        address: Address to listen on; overrides the address in the file.

    Returns:
        The empty server; the address to listen on; the path of the server's file, loaded at the start and
        saved at the end, or None; the seconds between further saves, or 0 for none.

    Raises:
        ConfigError: If the file is not valid TOML, a key is missing or unknown, or a value is invalid.
        OSError: If the file can't be read.
    """
    with open(path, "rb") as file, config_errors(f"{path} is not valid TOML"):
        settings = tomllib.load(file)
    with config_errors("The file"):
        known = {"address", "save", "save_every", *signature(Server).parameters}
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
    **options: Any,
) -> tuple[Server, str, Path | None, float]:
    """Build the result of `create_server` from the keys of the file; `options` are passed to `Server`."""
    with config_errors("address"):
        if address and parse_address(address)[0].startswith("ipc:"):
            address = str(folder / address)
        if not (address := address_override or address):
            raise ValueError("is missing. Set it to the path of a socket or HOST:PORT, or pass --listen.")
        parse_address(address)
    with config_errors("save_every"):
        if not 0.0 <= save_every <= 1e6 or (save_every and not save):
            raise ValueError(
                f"must be from 0 to 1,000,000 seconds, not {save_every}; if positive, set `save` too."
            )
    with config_errors("columns"):
        Fields(columns)
    with config_errors("tables"):
        table_configs = [build_table(name, settings) for name, settings in tables.items()]
    server = Server(table_configs, columns, **options)
    return server, address, folder / save if save else None, save_every


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
