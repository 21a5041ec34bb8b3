"""The `tables` command: `serve CONFIG` runs a server in its own process, `info ADDRESS` prints its state."""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from pathlib import Path

from replay_tutorial.tables.remote.endpoint import Endpoint
from replay_tutorial.tables.remote.handle import RemoteServer
from replay_tutorial.tables.serve_config import create_server


def tables(arguments: Sequence[str]) -> int:
    """Run the `tables` command.

    Args:
        arguments: Command-line arguments after `tables`.

    Returns:
        Exit status: 0, or 2 if the server could not be started or reached.
    """
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial tables",
        description="Serve tables to other processes on this machine, or print the state of a server.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("serve", help="run a server until Ctrl-C or SIGTERM")
    start.add_argument("config", type=Path, metavar="CONFIG", help="TOML file with the tables and columns")
    start.add_argument("--address", help="address to listen on (default: that of CONFIG)")
    inspect = commands.add_parser("info", help="print sizes, rates and waiting calls")
    inspect.add_argument("address", metavar="ADDRESS", help="path of a socket, or 127.0.0.1:PORT")
    options = parser.parse_args(arguments)
    try:
        if options.command == "serve":
            serve(options.config, options.address)
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
