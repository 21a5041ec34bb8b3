"""The benchmark of transports: each carries the request and the answer."""

import json
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import transports


@pytest.mark.skipif(sys.platform != "linux", reason="reads processor times from /proc")
def test_every_transport_is_measured_and_recorded(tmp_path):
    path = tmp_path / "transports.json"
    assert command.main(["transports", "--rounds", "1", "--json", str(path)]) == 0
    measured = json.loads(path.read_text())["transports"]
    assert {name for name in transports.TRANSPORTS if "gRPC" not in name} <= measured.keys()
    assert all(figures["latency"]["median"] > 0 for figures in measured.values())
