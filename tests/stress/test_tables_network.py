"""Tables between two network namespaces: nothing that was acknowledged is lost or stored twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("tables_network.py")
CAN_UNSHARE = (
    sys.platform == "linux"
    and not subprocess.run(["unshare", "-rnm", "ip", "link"], check=False, capture_output=True).returncode
)


needs_namespaces = pytest.mark.skipif(not CAN_UNSHARE, reason="needs namespaces and iproute2")


@needs_namespaces
def test_tables_of_another_host_do_what_those_of_this_host_do() -> None:
    script = SCRIPT.with_name("tables_semantics.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout


@needs_namespaces
def test_a_cut_cable_and_killed_writers_and_servers_lose_nothing() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "10000", "15"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["lost"], found["twice"], found["writers that survived the cut"]) == (0, 0, 8), found
    assert found["acknowledged"] >= 10_000 > found["of these after the last save before the kill"]
