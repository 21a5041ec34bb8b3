"""The benchmark of the tables: both libraries are called correctly, and ratios have the right direction."""

import json
import sys
from contextlib import closing

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import tables
from benchmarks.measuring import fresh
from benchmarks.peers import helper_program
from benchmarks.peers.buffer import NotMeasurable
from benchmarks.tables import LimiterResult, Row
from replay_course.timing import Spread

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes can't be waited for")


@pytest.mark.parametrize("name", [tables.OURS, tables.REVERB])
def test_a_side_writes_samples_updates_and_keeps_its_ratio(name):
    try:
        helper = tables.helper_of(name, "prioritized")
    except NotMeasurable as error:
        pytest.skip(str(error))
    with closing(helper):
        for do, size in (("write", 1), ("sample", 8), ("update", 8)):
            assert helper.workload(do, size)() > 0
        answer = helper.request("limited", writers=2, seconds=0.5)
        assert answer["ratio"] == pytest.approx(1.0, abs=0.5)
        assert answer.keys() == tables.LIMITER_HEADS.keys()
    assert helper.process.returncode is not None


@pytest.mark.parametrize(("calls", "queued", "done"), [(5, False, 5), (5, True, 30), (50, True, 60)])
def test_a_queue_of_batches_is_emptied_before_the_clock_runs(calls, queued, done, monkeypatch):
    clock = []  # of seconds: a batch from the queue takes none, any other one
    monkeypatch.setattr(helper_program.time, "perf_counter", lambda: max(0, len(clock) - 10 * queued))
    assert helper_program.Calls(lambda: clock.append(1), queued=queued).seconds(calls) == calls
    assert len(clock) == done


def test_items_on_their_way_are_waited_for_while_the_clock_runs(monkeypatch):
    clock = []
    monkeypatch.setattr(helper_program.time, "perf_counter", lambda: len(clock))
    assert helper_program.Calls(lambda: clock.append(1), lambda: clock.extend([1] * 7)).seconds(3) == 10


@pytest.mark.parametrize(
    ("unit", "ours", "theirs", "ratio"), [("µs", 20.0, 200.0, 10.0), ("items/s", 20.0, 2.0, 10.0)]
)
def test_ratio_is_above_1_where_ours_is_better(unit, ours, theirs, ratio):
    figures = {"ours": np.array([ours] * 3), "Reverb": np.array([theirs] * 3)}
    assert Row.of("an operation", unit, figures).ratio == Spread(ratio, ratio, ratio)
    assert Row.of("an operation", unit, {"ours": figures["ours"]}).ratio is None


def test_the_sentence_names_the_writers_whose_ratio_is_off():
    def sentence(*ratios):
        spreads = [Spread(ratio, ratio, ratio) for _, _, ratio in ratios]
        limited = [
            LimiterResult(writers, side, dict.fromkeys(tables.LIMITER_HEADS, spread))
            for (writers, side, _), spread in zip(ratios, spreads, strict=True)
        ]
        return tables.lines_of([], limited)[3]

    assert "within 1% with 1 writers" in sentence((1, "ours", 0.991), (2, "Reverb", 0.5))
    assert "off by more than 1% with 4 writers" in sentence((1, "ours", 0.991), (4, "ours", 0.98))


def test_tables_are_measured_without_a_broken_reverb_and_written(tmp_path, monkeypatch):
    python = tmp_path / "reverb" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 'ModuleNotFoundError: reverb' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(fresh, "ENVIRONMENTS", tmp_path)
    page, record = tmp_path / "page.md", tmp_path / "tables.json"
    page.write_text("<!-- tables:begin -->\n<!-- tables:end -->\n")
    arguments = ["--rounds", "1", "--slots", "1", "--seconds", "0.2"]
    assert command.main(["tables", *arguments, "--json", str(record), "--markdown", str(page)]) == 0
    written = json.loads(record.read_text())
    assert "its last message was 'ModuleNotFoundError: reverb'" in written["skipped"]["Reverb"]
    assert "Reverb is skipped: " in page.read_text()
    operations = [row["operation"] for row in written["rows"]]
    for kind, asked in tables.OPERATIONS.items():
        assert {f"{operation}, {kind}" for operation, *_ in asked} <= set(operations)
    assert {"write from 4 processes, uniform", "sample 32 from 4 processes, uniform"} <= set(operations)
    assert [each["writers"] for each in written["limited"]] == list(tables.WRITERS)
    assert all(f"| {operation} |" in page.read_text() for operation in operations)
