"""The semantics of tables between two hosts: through TCP with CURVE, between two network namespaces.

`python tests/stress/tables_semantics.py [OPTIONS OF PYTEST]` needs Linux. It runs the tests below, and those
of `tests/tables` that have a server and a handle, on the host `far`. Each `Endpoint` that these tests create
lives on the host `near`: a thread enters that namespace while it creates the endpoint, whose sockets and
threads remain there. Left out: tests of what holds on one machine only, such as that a lost client is
detected at once.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.measuring.namespaces import NEAR, TwoHosts
from replay_tutorial.tables import Endpoint, RemoteServer, Server
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE

ROOT = Path(__file__).parents[2]
TABLES = ROOT / "tests" / "tables"
HERE = "/proc/thread-self/ns/net"
CLONE_NEWNET = 0x40000000  # sched.h
LOCAL = (  # parts of the names of tests of paths, of addresses, and of peers that are lost
    *("path", "socket[2]", "program_that_closes_nothing", "forked_child_of_a_server"),
    *("killed_client", "killed_server", "threads_begin_to_call", "[here"),
)


@contextmanager
def on_near() -> Iterator[None]:
    """Let this thread, and the threads that it starts, use the network of `near`."""
    libc, here = ctypes.CDLL(None, use_errno=True), os.open(HERE, os.O_RDONLY)
    there = os.open("/run/netns/near", os.O_RDONLY)
    try:
        assert not libc.setns(there, CLONE_NEWNET), os.strerror(ctypes.get_errno())
        yield
    finally:
        assert not libc.setns(here, CLONE_NEWNET), os.strerror(ctypes.get_errno())
        os.close(here)
        os.close(there)


def pytest_configure() -> None:
    """Move endpoints to `near`; this file is a plugin on `far`."""
    import served

    served.free_address = lambda folder, name="": f"tcp://{NEAR}:0"
    create = Endpoint.__init__

    def create_there(self: Endpoint, server: Server, address: str) -> None:
        with on_near():
            create(self, server, address.replace("127.0.0.1:", f"{NEAR}:"))

    Endpoint.__init__ = create_there


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Keep the tests that have a server and a handle: each has the key."""
    items[:] = [
        item
        for item in items
        if item.path == Path(__file__)
        or ("key" in item.fixturenames and not any(name in item.name for name in LOCAL))
    ]


class FarServer:
    """A server of `near`, called by a handle, for the random programs, which also look inside."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.served = Server(*arguments, **options)
        self.endpoint = Endpoint(self.served, f"tcp://{NEAR}:0")
        assert not self.endpoint.is_local
        self.handle = RemoteServer(self.endpoint.address)
        (self.session,) = self.endpoint._sessions.values()
        self._cells, self._rng = self.served._cells, self.served._rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self.handle, name)

    def close(self) -> None:
        self.handle.close()
        self.endpoint.close()


@pytest.mark.parametrize("seed", range(4))
def test_long_programs_do_what_tables_of_dicts_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on one host; a writer is closed without a reply, so its cells are waited for."""
    import served
    import test_random_programs as here

    monkeypatch.setenv(KEY_VARIABLE, served.KEY)

    def send(server: FarServer, *arguments: Any, **options: Any) -> list[int]:
        return served.send(server.handle, *arguments, **options)

    def forget(server: FarServer, writer: int) -> None:
        served.forget(server.handle, writer)
        served.until(lambda: writer not in server.session.writers)

    class Writers:
        def __getitem__(self, server: FarServer) -> Any:
            return server.session.writers

    for name, value in {"Server": FarServer, "send": send, "forget": forget, "WRITERS": Writers()}.items():
        monkeypatch.setattr(here, name, value)
    rng = np.random.default_rng(seed)
    for _ in range(25):
        life = here.Program(rng.integers(0, 100, 15).tolist())
        life.run([tuple(each) for each in rng.integers(0, 100, (rng.integers(20, 80), 4)).tolist()])
        life.finish()
        life.server.close()


def test_an_endpoint_listens_on_the_other_host_and_has_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    import served

    monkeypatch.setenv(KEY_VARIABLE, served.KEY)
    with Endpoint(served.small_server(), "127.0.0.1:0") as endpoint, RemoteServer(endpoint.address) as server:
        assert server.info()["replay"].size == 0
        port = int(endpoint.address.removeprefix(f"{NEAR}:"))
        assert endpoint.client_key is not None
        assert f":{port:04X} 00000000:0000 0A" not in Path("/proc/thread-self/net/tcp").read_text()
        with on_near():
            assert f":{port:04X} 00000000:0000 0A" in Path("/proc/thread-self/net/tcp").read_text()


def main(options: list[str]) -> int:
    files = ["test_remote_server.py", "test_waiting.py", "test_dataset.py"]
    selected = [__file__, *(str(TABLES / file) for file in files)]
    command = [sys.executable, "-m", "pytest", "-p", "tables_semantics", "-q", *selected, *options]
    paths = [ROOT, ROOT / "tests", ROOT / "tests" / "stress", TABLES]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with TwoHosts() as hosts:
        return subprocess.run([*hosts.on("far"), *command], env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
