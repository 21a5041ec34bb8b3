"""What all tests with Ray share: its processes start in a third of the time, and one Ray serves many."""

import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from replay_tutorial.cluster.connection import PRIVATE

QUICK = str(Path(__file__).parent / "quick")
sys.path.insert(0, QUICK)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [QUICK, os.environ.get("PYTHONPATH")]))

# Ray reads them when it is imported: a secret of these tests' own, and nobody beyond this machine.
FOLDER = tempfile.TemporaryDirectory(prefix="token")
Path(FOLDER.name, "token").write_text(secrets.token_hex(32), encoding="utf-8")
os.environ.update(PRIVATE, RAY_AUTH_TOKEN_PATH=str(Path(FOLDER.name, "token")))

TWO_NODES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(True, head_node_args=dict(num_cpus=1, include_dashboard=False, temp_dir=sys.argv[1]))
cluster.add_node(num_cpus=2)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


class RunningRay(NamedTuple):
    """A Ray with two nodes, of 1 and 2 CPUs, behind a token; it stays on 127.0.0.1."""

    address: str
    environment: dict[str, str]
    """What a process needs to join it; this one isn't changed, because Ray reads it once."""


@pytest.fixture(scope="session")
def running_ray() -> Iterator[RunningRay]:
    if not sys.platform.startswith("linux"):
        pytest.skip("Ray runs on many machines on Linux only")
    pytest.importorskip("ray", reason="the cluster needs the extra `cluster`")
    # not pytest's own folder: the path of a socket has at most 107 characters
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:
        token = Path(folder, "auth_token")
        token.write_text("0123456789abcdef" * 4, encoding="utf-8")
        environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        environment.pop("RAY_AUTH_TOKEN", None)
        program = [sys.executable, "-c", TWO_NODES, str(Path(folder, "ray"))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(program, env=environment, text=True, **pipes) as nodes:
            try:
                yield RunningRay(nodes.stdout.readline().strip(), environment)
            finally:
                nodes.communicate(timeout=300)
