"""What all tests with Ray share: one Ray serves them all."""

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replay_tutorial.cluster.connection import PRIVATE_ENVIRONMENT

# Ray reads them when it is imported: a secret of these tests' own, and nobody beyond this machine.
FOLDER = tempfile.TemporaryDirectory(prefix="token")
Path(FOLDER.name, "token").write_text(secrets.token_hex(32), encoding="utf-8")
os.environ.update(PRIVATE_ENVIRONMENT, RAY_AUTH_TOKEN_PATH=str(Path(FOLDER.name, "token")))
# Ray would start a process per CPU for every job before one is needed: 1.5 s of processor time each.
os.environ.update(RAY_enable_worker_prestart="0", RAY_prestart_worker_first_driver="0")


@pytest.fixture(scope="session")
def nodes() -> Iterator[Any]:
    """A head without room for actors, and two nodes with room for two each, on 127.0.0.1 behind a token."""
    if not sys.platform.startswith("linux"):
        pytest.skip("Ray runs on many machines on Linux only")
    pytest.importorskip("ray", reason="the cluster needs the extra `cluster`")
    from cluster_parts import NODE, add_node
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    try:
        add_node(cluster, **{**NODE, "num_cpus": 0, "include_dashboard": False})
        for _ in range(2):
            add_node(cluster, **NODE)
        yield cluster
    finally:
        cluster.shutdown()
