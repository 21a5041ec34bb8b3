"""What hostile peers do to a server of tables: its memory, and the latency of another client.

`python tables_hostile.py [SECONDS]` serves tables at a port and samples from them, first undisturbed, then
beside each attack in turn. Prints medians and 99th percentiles in µs, and the growth of the server in MB.
"""

import asyncio
import json
import multiprocessing
import os
import resource
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from replay_tutorial.tables import Client, Endpoint, Fifo, MinSize, RemoteServer, Server, Table, Uniform
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE, read_key

SPAWN = multiprocessing.get_context("spawn")
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)  # of ZMTP 3.1


def serve(connection: Any) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    table = Table("t", sampler=Uniform(), remover=Fifo(), max_size=1000, rate_limiter=MinSize(1))
    server = Server([table], {"obs": {"shape": 40}}, capacity=5000)
    Client(server).insert_batch({"obs": np.ones((500, 40))}, {"t": np.ones(500)})
    with Endpoint(server, "127.0.0.1:0") as endpoint:
        connection.send(endpoint.address)
        time.sleep(3600.0)


def half_messages(address: str) -> None:
    """Hold 2,000 connections that send a byte a second."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))

    async def stranger() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(*address.split(":"))
                for byte in GREETING:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(1.0)
                    if reader.at_eof():
                        break
                writer.close()
            except OSError:
                await asyncio.sleep(1.0)

    async def run() -> None:
        strangers = []
        for _ in range(2000):
            strangers.append(asyncio.create_task(stranger()))
            await asyncio.sleep(0.0005)
        await asyncio.gather(*strangers)

    asyncio.run(run())


def announced(address: str) -> None:
    """Announce 3 GB, and send some of it, without a key."""

    async def run() -> None:
        while True:
            _, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(GREETING + b"\x06" + (3 << 30).to_bytes(8, "big") + bytes(1 << 16))
            await asyncio.sleep(0.02)
            writer.close()

    asyncio.run(run())


def with_keys(address: str, server_public: bytes, secret: bytes) -> zmq.Socket[bytes]:
    wire = zmq.Context.instance().socket(zmq.DEALER)
    wire.linger, wire.reconnect_ivl, wire.routing_id = 0, 20, secrets.token_bytes(24)
    wire.curve_serverkey, wire.curve_publickey, wire.curve_secretkey = (
        server_public,
        zmq.curve_public(secret),
        secret,
    )
    wire.connect(f"tcp://{address}")
    return wire


def wrong_keys(address: str) -> None:
    """Reconnect all the time with the server's public key, but without a client's key, and with none."""
    keys = read_key()
    _wires = [with_keys(address, keys.server_public, zmq.curve_keypair()[1]) for _ in range(4)]
    _others = [with_keys(address, zmq.curve_keypair()[0], keys.client_secret) for _ in range(4)]
    time.sleep(3600.0)


def million_parts(address: str) -> None:
    """Send messages of a million parts, with the key."""
    keys = read_key()
    wire = with_keys(address, keys.server_public, keys.client_secret)
    while True:
        for _ in range(1_000_000):
            wire.send(b"x", zmq.SNDMORE)
        wire.send(b"")
        wire.recv()  # the error


def large_frames(address: str) -> None:
    """Send frames of 300 MiB, with the key."""
    keys = read_key()
    wire = with_keys(address, keys.server_public, keys.client_secret)
    while True:
        wire.send(bytes(300 << 20))
        time.sleep(0.5)


def memory(process: int, which: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith(which))


def measured(
    address: str, server: int, attack: Callable[[str], None] | None, seconds: float
) -> dict[str, float]:
    """Sample beside an attack."""
    attacker = SPAWN.Process(target=attack, args=(address,), daemon=True)
    before, times = memory(server, "VmRSS"), list[float]()
    Path(f"/proc/{server}/clear_refs").write_text("5")  # forget the highest so far
    if attack is not None:
        attacker.start()
        time.sleep(3.0)  # it imports
    with RemoteServer(address) as handle:
        stop_at = time.monotonic() + seconds
        while (begin := time.monotonic()) < stop_at:
            handle.sample("t", 32)
            times.append(time.monotonic() - begin)
            time.sleep(0.001)
    if attack is not None:
        attacker.kill()
        attacker.join()
    median, late = np.percentile(times, [50, 99])
    grown = memory(server, "VmHWM") - before
    return {"median": round(1e6 * median), "p99": round(1e6 * late), "grown": grown}


def busy(_: str) -> None:
    """Only use a processor, as an attacker on the same machine does anyway."""
    while True:
        pass


if __name__ == "__main__":
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    os.environ[KEY_VARIABLE] = f"server-{secrets.token_hex(64)}"
    ours, theirs = SPAWN.Pipe()
    server = SPAWN.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    address = ours.recv()
    for attack in (None, busy, half_messages, announced, wrong_keys, large_frames, million_parts, None):
        name = attack.__name__ if attack else "undisturbed"
        print(name, json.dumps(measured(address, server.pid or 0, attack, seconds)), flush=True)
    server.kill()
