"""Storms: writers are killed and stopped at random moments, and nothing is torn, hangs or stays held."""

import json
import os
import statistics
import sys
import time
from importlib.util import find_spec
from multiprocessing.shared_memory import SharedMemory

import crash
import pytest
import shared_names
import storm
from checked_rows import CheckedRows, Faults
from shared_names import memory_left, memory_names
from shared_rows import POLL_SECONDS
from storm import WatchedBuffer, survive

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs fork, SIGKILL and SIGSTOP: Linux or macOS"
)


@pytest.mark.parametrize("row_bytes", [40, 16 * 1024])
@pytest.mark.parametrize("capacity", [7, 1000])
def test_buffer_outlives_a_storm(capacity, row_bytes, monkeypatch):
    monkeypatch.setattr(storm, "SPEED_SECONDS", 0.1)
    monkeypatch.setattr(storm, "SPEED_ROUNDS", 5)
    before = memory_names()
    outcome = survive(WatchedBuffer, capacity, row_bytes, 40, patience=30.0, seed=capacity + row_bytes)
    assert outcome.good, outcome
    assert outcome.kills == 40 and outcome.stops > 0 and outcome.samples > 40
    assert (outcome.torn, outcome.never_written, outcome.held_after_lap) == (0, 0, 0)
    # the best round: machines are noisy; a leak is not
    assert max(outcome.speed_after) > 0.2 * statistics.median(outcome.speed_before)
    assert memory_left(before) == []


def test_storm_would_see_a_torn_and_a_never_written_row():
    rows = CheckedRows(row_bytes=40)
    batch = rows.make(writer=2, first=1000, count=8)
    assert rows.check(batch) == Faults(torn=0, never_written=0)
    batch["obs"][3, -1] += 1
    assert rows.check(batch) == Faults(torn=1, never_written=0)
    batch["number"][5] = 0
    assert rows.check(batch) == Faults(torn=1, never_written=1)


class Hanging:
    def __init__(self, *_):
        pass

    def add(self, **_):
        pass

    def sample(self, _):
        time.sleep(POLL_SECONDS)


def test_buffer_that_hangs_is_found_out():
    outcome = survive(Hanging, 7, 40, 1, patience=0.5, seed=0)
    assert outcome.hung and not outcome.good


@pytest.mark.skipif(find_spec("cpprb") is None, reason="cpprb is not installed")
def test_crash_is_recorded_for_both_and_ours_decides_the_status(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(storm, "SPEED_ROUNDS", 1)
    monkeypatch.setattr(storm, "SPEED_SECONDS", 0.05)
    monkeypatch.setattr(crash, "PEER_HANG_SECONDS", 1.0)
    monkeypatch.setattr(crash, "ROW_BYTES", (40,))
    record = tmp_path / "crash.json"
    assert crash.main(["--kills", "8", "--capacity", "50", "--peer", "cpprb", "--json", str(record)]) == 0
    read = json.loads(record.read_text())
    (ours,) = read["storms"]["ours"]
    assert (ours["kills"], ours["torn"], ours["never_written"], ours["hung"]) == (8, 0, 0, False)
    assert len(read["storms"]["cpprb"]) == 1
    assert "All invariants held for our buffer. Leftover shared memory: ours none" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="names in shared memory, and who uses them")
def test_memory_in_use_is_no_leak_and_memory_that_nobody_uses_is_one(monkeypatch):
    monkeypatch.setattr(shared_names, "SETTLE_SECONDS", 0.1)
    before = shared_names.memory_names()
    memory = SharedMemory(create=True, size=64)
    try:
        assert memory.name not in shared_names.memory_left(before)
        memory.close()
        assert memory.name in shared_names.memory_left(before)
    finally:
        memory.unlink()
