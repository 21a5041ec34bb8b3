"""Storms: writers are killed and stopped at random moments, and nothing is torn, hangs or stays held."""

import json
import os
import statistics
import sys
import time
from importlib.util import find_spec
from multiprocessing.shared_memory import SharedMemory
from unittest.mock import Mock

import crash
import pytest
import shared_names
import storm
from checked_rows import CheckedRows, Faults
from shared_names import memory_left, memory_names
from shared_rows import POLL_SECONDS
from storm import survive

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs fork, SIGKILL and SIGSTOP: Linux or macOS"
)


def run_crash(monkeypatch, tmp_path, *arguments):
    """Run the program with short measurements of the speed; return the outcomes that it records."""
    monkeypatch.setattr(storm, "SPEED_SECONDS", 0.1)
    monkeypatch.setattr(storm, "SPEED_ROUNDS", 5)
    monkeypatch.setattr(crash, "PEER_HANG_SECONDS", 1.0)
    assert crash.main([*arguments, "--json", str(tmp_path / "crash.json")]) == 0
    return json.loads((tmp_path / "crash.json").read_text())["storms"]


def test_buffers_of_all_sizes_outlive_a_storm(tmp_path, capsys, monkeypatch):
    outcomes = run_crash(monkeypatch, tmp_path, "--kills", "160")["ours"]
    assert len(outcomes) == 4
    for each in outcomes:
        assert each["kills"] == 40 and each["stops"] > 0 and each["samples"] > 40 and each["samples_beside"]
        faults = [each[name] for name in ("torn", "never_written", "held_after_lap", "miscounted", "hung")]
        assert faults == [0, 0, 0, 0, False]
        # the best round: machines are noisy; a leak is not
        assert max(each["speed_after"]) > 0.2 * statistics.median(each["speed_before"])
    assert "All invariants held for our buffer. Leftover shared memory: ours none" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("cpprb") is None, reason="cpprb is not installed")
def test_what_a_peer_suffers_is_recorded_and_does_not_decide_the_status(tmp_path, monkeypatch):
    monkeypatch.setattr(crash, "ROW_BYTES", (40,))
    outcomes = run_crash(monkeypatch, tmp_path, "--kills", "8", "--capacity", "50", "--peer", "cpprb")
    assert [len(outcomes[name]) for name in ("ours", "cpprb")] == [1, 1]


def test_storm_would_see_a_torn_and_a_never_written_row():
    rows = CheckedRows(row_bytes=40)
    batch = rows.make(writer=2, first=1000, count=8)
    assert rows.check(batch) == Faults(torn=0, never_written=0)
    batch["obs"][3, -1] += 1
    assert rows.check(batch) == Faults(torn=1, never_written=0)
    batch["number"][5] = 0
    assert rows.check(batch) == Faults(torn=1, never_written=1)


def test_buffer_that_hangs_is_found_out():
    hanging = Mock(**{"sample.side_effect": lambda _: time.sleep(POLL_SECONDS)})
    outcome = survive(lambda *_: hanging, 7, 40, 1, patience=0.5, seed=0)
    assert outcome.hung and not outcome.good


@pytest.mark.skipif(sys.platform != "linux", reason="names in shared memory, and who uses them")
def test_memory_in_use_is_no_leak_and_memory_that_nobody_uses_is_one(monkeypatch):
    monkeypatch.setattr(shared_names, "SETTLE_SECONDS", 0.1)
    before = memory_names()
    memory = SharedMemory(create=True, size=64)
    try:
        assert memory.name not in memory_left(before)
        memory.close()
        assert memory.name in memory_left(before)
    finally:
        memory.unlink()
