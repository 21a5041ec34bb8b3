"""One Ray for all tests of the cluster: two nodes on this machine, on 127.0.0.1 only, behind a token."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replay_tutorial.cluster.connection import ENVIRONMENT, LOOPBACK

os.environ.update(ENVIRONMENT | LOOPBACK)  # Ray reads them when it is imported, which the test files do


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A running `ray.cluster_utils.Cluster` with 1 and 2 CPUs; join `cluster.address`, and leave it again."""
    if not sys.platform.startswith("linux"):
        pytest.skip("Ray runs on many machines on Linux only")
    pytest.importorskip("ray", reason="the cluster needs the extra `cluster`")
    from ray.cluster_utils import Cluster

    # not pytest's own: the path of a socket has at most 107 characters
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    token = folder / "auth_token"
    token.write_text("0123456789abcdef" * 4, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": str(folder / "ray")}
        running = Cluster(initialize_head=True, head_node_args=head)
        try:
            running.add_node(num_cpus=2)
            yield running
        finally:
            running.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
