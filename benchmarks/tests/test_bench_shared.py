"""The benchmarks of the shared buffers: small runs of each, and how they deal with what hangs."""

import json
import math
import multiprocessing
import os
import time

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import shared

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="these benchmarks need fork: Linux or macOS")

CAPACITY = 40_000


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(shared, "WARM_UP", 0.05)
    monkeypatch.setattr(shared, "EXPLORERS", (1,))


class Stuck(shared.Route):
    def step(self, priorities):
        time.sleep(60)


def test_route_that_hangs_is_ended_and_counted(quick, monkeypatch):
    monkeypatch.setattr(shared, "HANG_SECONDS", 0.5)
    figures = shared.slot(lambda capacity: Stuck(shared.shared_buffer(capacity)), CAPACITY, 1, 0.1)
    assert all(math.isnan(figure) for figure in figures)


class Late(shared.Route):
    """Whose explorers take half a second until they add."""

    begun = False

    def add(self, chunk):
        if multiprocessing.current_process().daemon and not self.begun:
            time.sleep(0.5)
            self.begun = True
        super().add(chunk)


def test_nothing_is_measured_before_each_explorer_is_at_work(quick):
    for seconds in (0.25, 1.0, 4.0, 16.0):  # until the machine lets the explorer work
        _, rows = shared.slot(lambda capacity: Late(shared.shared_buffer(capacity)), CAPACITY, 1, seconds)
        if rows > 0:
            return
    pytest.fail("no rows came")


class Clock:
    """A clock that goes on while somebody sleeps, and not otherwise; a route that notes when chunks come."""

    def __init__(self, pause=0.0):
        self.now, self.pause, self.times = 100.0, pause, []

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def add(self, chunk):
        self.now += 0.0 if self.times else self.pause
        self.times.append(self.now)
        if len(self.times) == 200:
            raise EOFError


@pytest.mark.parametrize("pause", [0.0, 0.25])
def test_explorer_adds_at_its_rate_and_makes_up_for_no_pause(pause, monkeypatch):
    clock = Clock(pause)
    monkeypatch.setattr(shared, "time", clock)
    shared.explore(clock, [0], 0, rate=20_000.0)
    times = 100.0 + pause + np.arange(200) * shared.CHUNK / 20_000
    times[1:] -= min(pause, shared.CHUNK / 20_000)  # the pause is the wait for the second chunk
    assert clock.times == pytest.approx(times)


def beget(begun):
    shared.start_process_group()
    shared.context.Process(target=time.sleep, args=(600,)).start()
    begun.send(os.getpid())
    time.sleep(600)


def start_group_and_die(begun):
    shared.context.Process(target=beget, args=(begun,)).start()
    time.sleep(600)


def test_a_group_ends_with_the_process_that_started_it():
    ours, theirs = shared.context.Pipe(duplex=False)
    parent = shared.context.Process(target=start_group_and_die, args=(theirs,))
    parent.start()
    leader = ours.recv()
    os.killpg(leader, 0)
    parent.kill()
    parent.join()
    deadline = time.monotonic() + 300  # by itself it would end after ten minutes
    while True:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            break
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_route_that_hangs_in_every_round_has_no_figures(tmp_path, monkeypatch, capsys):
    def slot(make, capacity, count, seconds, rate):
        return (math.nan, math.nan) if make is shared.ROUTES["full lock"] else (100.0, 5_000.0)

    monkeypatch.setattr(shared, "slot", slot)
    monkeypatch.setattr(shared, "EXPLORERS", (1,))
    record = tmp_path / "shared.json"
    arguments = ["--capacity", str(CAPACITY), "--rounds", "2", "--json", str(record)]
    assert command.main(["shared", *arguments]) == 0
    assert "| 1 | full lock | - | - | - | - | 2 |" in capsys.readouterr().out
    (row,) = json.loads(record.read_text(), parse_constant=pytest.fail)["rows"]
    assert row["steps"]["full lock"] is None and row["row_ratios"]["full lock"] is None
    assert row["steps"]["Queue"]["median"] == 100.0


def test_every_route_steps_while_rows_come_and_is_recorded(tmp_path, capsys, quick):
    record = tmp_path / "shared.json"
    arguments = ["--capacity", str(CAPACITY), "--rounds", "1", "--json", str(record)]
    for seconds in ("0.5", "2", "8", "32"):  # until the machine lets everybody work
        assert command.main(["shared", *arguments, "--seconds", seconds]) == 0
        read = json.loads(record.read_text())
        (row,) = read["rows"]
        medians = [spread["median"] for key in ("steps", "rows") for spread in row[key].values() if spread]
        if len(medians) == 2 * len(row["hung"]) and min(medians) > 0:
            break
    assert min(medians) > 0 and not any(row["hung"].values())
    assert row["explorers"] == 1
    assert {"ours", "full lock", "Queue", "Manager"} <= set(row["steps"])
    assert "| 1 | full lock |" in capsys.readouterr().out
    assert read["add"]["MPReplayBuffer / ReplayBuffer"]["median"] > 0
    assert read["machine"]["cores"] >= 1 and "numba" in read["versions"]
