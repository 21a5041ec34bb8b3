"""Tables between two network namespaces: a cable is cut, writers and the server are killed.

`python tables_network.py ITEMS SECONDS` needs Linux. If the kernel has netem, the link delays each packet by
20 ms and loses 5%; otherwise a relay delays each piece by 20 ms, and one of twenty by 200 ms more, as a lost
packet would. Prints what was found, as JSON.

    namespace `far`: writers (killed)  ── link (cut) ──  relay ── server (killed) :namespace `near`
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring.namespaces import NEAR, TwoHosts, relay_command
from replay_tutorial.tables import Client, RemoteServer, ServerLost

PORT, RELAYED = 5000, 5001
DELAY, LOSS = 0.02, 0.05  # seconds, share
BATCH = 50
CONFIG = """\
save = "saved.npz"
save_every = 2
capacity = 300_000
[columns]
number = { dtype = "int64" }
[tables.all]
sampler = "Uniform"
remover = "Fifo"
max_size = 300_000
rate_limiter = { kind = "MinSize", min_size = 1 }
"""


def write(address: str, log: Path, first: int) -> None:
    """Insert batches of consecutive numbers, and write each acknowledged one to a file, until killed."""
    client, number = Client(RemoteServer(address, timeout=60.0)), first
    with log.open("a") as acknowledged:
        while True:
            numbers = np.arange(number, number + BATCH)
            number += BATCH
            try:
                client.insert_batch({"number": numbers}, {"all": np.ones(BATCH)})
            except ServerLost:  # nobody knows whether these are there
                client = Client(RemoteServer(address, timeout=60.0))
                continue
            acknowledged.write(f"{time.time()} {numbers[0]}\n")
            acknowledged.flush()


def started(hosts: TwoHosts, host: str, command: list[str], **environment: str) -> subprocess.Popen[str]:
    """Start a command on a host."""
    return subprocess.Popen(
        [*hosts.on(host), *command], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )


def serve(hosts: TwoHosts, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the server, and return it and the client key that it prints."""
    command = [sys.executable, "-m", "replay_tutorial", "tables", "serve", str(folder / "c.toml")]
    server = started(hosts, "near", [*command, "--listen", f"tcp://{NEAR}:{PORT}"], HOME=str(folder))
    assert server.stdout is not None
    key = next(line for line in server.stdout if line.startswith("clients")).strip().rpartition("=")[2]
    next(line for line in server.stdout if line.startswith("serving"))
    return server, key


def run(hosts: TwoHosts, count: int, cut_seconds: float) -> dict[str, Any]:
    """Write `count` acknowledged items while everything fails once, and return what was found."""
    has_netem = hosts.has_netem(DELAY, LOSS)
    folder = Path(tempfile.mkdtemp())
    (folder / "c.toml").write_text(CONFIG)
    server, key = serve(hosts, folder)
    slow = (0.0, 0.0) if has_netem else (DELAY, LOSS)
    passing = started(hosts, "near", relay_command(*slow, f"{NEAR}:{RELAYED}", f"{NEAR}:{PORT}"))
    address, logs, writers, kills = f"tcp://{NEAR}:{RELAYED}", [], [], 0
    time.sleep(1.0)

    def start_writer() -> None:
        logs.append(folder / f"log{len(logs)}")
        command = [sys.executable, __file__, "write", address, str(logs[-1]), str(len(logs) * 10_000_000)]
        writers.append(started(hosts, "far", command, REPLAY_TUTORIAL_KEY=key))

    def acknowledged() -> list[tuple[float, int]]:
        lines = [line.split() for log in logs if log.exists() for line in log.read_text().splitlines()]
        return [(float(at), int(first)) for at, first in lines]

    def kill(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()

    def reach(number: int) -> None:
        nonlocal kills
        while BATCH * len(acknowledged()) < number:
            time.sleep(5.0)
            kill(writers.pop(0))
            start_writer()
            kills += 1

    for _ in range(8):
        start_writer()
    reach(count // 3)
    hosts.cut()
    time.sleep(cut_seconds)
    before_repair = len(acknowledged())
    hosts.mend()
    while len(acknowledged()) < before_repair + 20:
        time.sleep(0.5)
    waited = [writer for writer in writers if writer.poll() is None]
    reach(2 * count // 3)
    kill(server)
    killed_at, saved_at = time.time(), (folder / "saved.npz").stat().st_mtime
    server, _ = serve(hosts, folder)
    reach(count)
    while writers:
        kill(writers.pop())
    server.send_signal(signal.SIGTERM)
    server.wait()
    kill(passing)
    return check(folder, acknowledged(), saved_at, killed_at) | {
        "netem": has_netem,
        "writers killed": kills,
        "writers that survived the cut": len(waited),
        "cut seconds": cut_seconds,
    }


def check(
    folder: Path, acknowledged: list[tuple[float, int]], saved_at: float, killed_at: float
) -> dict[str, Any]:
    """Compare what was acknowledged with what the restarted server has saved."""
    from replay_tutorial.tables.command import create_server

    server, *_ = create_server(folder / "c.toml", f"{NEAR}:{PORT}")
    server.load(folder / "saved.npz")
    numbers = server.items("all").data["number"]
    found = set(numbers.tolist())
    # The save takes its snapshot before it replaces the file, so an insert just before may not be in it.
    must = [first for at, first in acknowledged if not saved_at - 1.0 < at < killed_at + 0.5]
    lost = [first + i for first in must for i in range(BATCH) if first + i not in found]
    return {
        "acknowledged": BATCH * len(acknowledged),
        "of these after the last save before the kill": BATCH * (len(acknowledged) - len(must)),
        "lost": len(lost),
        "twice": len(numbers) - len(found),
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", address, log, first]:
            write(address, Path(log), int(first))
        case [count, seconds]:
            with TwoHosts() as hosts:
                print(json.dumps(run(hosts, int(count), float(seconds))))
        case _:
            sys.exit("usage: tables_network.py ITEMS SECONDS")
