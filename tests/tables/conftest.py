"""Fixtures of the tests of tables: a key, a short folder, and a server with a handle on it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name, which macOS' temporary folders don't."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The key, in the environment, which child processes inherit."""
    from served import KEY

    monkeypatch.setenv("REPLAY_TUTORIAL_KEY", KEY)
    return KEY.encode()


@pytest.fixture
def endpoint(key: bytes, tmp_path: Path) -> Iterator[Any]:
    """The endpoint of a small server."""
    from served import serving, small_server

    with serving(small_server(), tmp_path) as endpoint:
        yield endpoint


@pytest.fixture
def there(request: pytest.FixtureRequest, key: bytes, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A small server, its endpoint, and a handle on it; `cells` says how many cells the server has."""
    from served import RemoteServer, serving, small_server

    served = small_server(getattr(request, "param", 200))
    with serving(served, tmp_path) as endpoint, RemoteServer(endpoint.address) as server:
        yield SimpleNamespace(served=served, endpoint=endpoint, server=server)
