"""The benchmarks of what things cost: memory, startup, and the report that runs them all."""

import contextlib
import itertools
import json
import os

import numpy as np
import pytest
from places import ROOT

from benchmarks import __main__ as command
from benchmarks import memory, report, startup
from benchmarks.measuring import fresh, pages, process_memory
from benchmarks.peers.lineup import PEERS


def marks(*names):
    return "".join(f"<!-- {name}:begin -->\nold\n<!-- {name}:end -->\n" for name in names)


def run(name, folder, *arguments):
    """Run a benchmark; return its exit status, its record and its page."""
    page, whole = folder / "page.md", folder / "record.json"
    page.write_text(marks(name))
    status = command.main([name, *arguments, "--json", str(whole), "--markdown", str(page)])
    return status, json.loads(whole.read_text()), page.read_text()


@pytest.mark.skipif(not process_memory.peak_memory(), reason="needs a system that tells a process's memory")
def test_memory_finds_the_bytes_of_a_transition(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "LAYOUTS", memory.LAYOUTS[:4])
    status, whole, _ = run("memory", tmp_path, "--rows", "1000")
    assert status == 0
    least = {"plain": 8, "dedupe_next and dedupe_frames": 1}  # pictures
    taken = {each["layout"]: each for each in whole["taken"]}
    for layout, count in least.items():
        pictures = taken[layout]["bytes_per_row"] / memory.PICTURE
        assert count < pictures < 1.1 * count + 0.2
        assert taken[layout]["peak"] > 1000 * taken[layout]["bytes_per_row"], "of the whole process"


def test_memory_refuses_fewer_rows_than_the_memory_that_a_first_buffer_has_freed(capsys):
    with pytest.raises(SystemExit):
        command.main(["memory", "--rows", "999"])
    assert "--rows: must be at least 1000, not 999" in capsys.readouterr().err


@pytest.mark.parametrize("layout", memory.LAYOUTS, ids=lambda layout: f"{layout.library}, {layout.name}")
def test_every_layout_keeps_the_pictures(layout):
    for distribution in PEERS[layout.library].distributions[:1]:
        pytest.importorskip(distribution.replace("-", "_"))
    layout.make(16, 20)


def test_stacks_slide_by_one_picture_and_begin_anew_with_an_episode(monkeypatch):
    monkeypatch.setattr(memory, "EPISODE", 3)
    steps = list(memory.transitions(5, -1))
    assert [bool(step["done"]) for step in steps] == [False, False, True, False, False]
    for step in steps:
        assert np.array_equal(step["obs"][..., 1:], step["next_obs"][..., :-1])
    for before, after in itertools.pairwise(steps):
        assert (before["next_obs"] is after["obs"]) != before["done"]
    stacks = [step[field] for step in steps for field in ("obs", "next_obs")]
    pictures = {stack[..., i].tobytes() for stack in stacks for i in range(memory.STACK)}
    assert len(pictures) == 7, "no picture is shown a second time, but for the first of an episode"


def test_startup_takes_every_figure(tmp_path, monkeypatch):
    # The real cache, which is full by now: compiling everything takes too long, and test_project does it.
    cache = contextlib.nullcontext(os.environ.get("NUMBA_CACHE_DIR", ""))
    monkeypatch.setattr(startup, "TemporaryDirectory", lambda: cache)
    for _ in range(5):  # the machine may stop one process, and not the other
        status, whole, page = run("startup", tmp_path, "--rounds", "1")
        seconds = whole["seconds"]
        assert status == 0
        assert len(seconds) == 6 and all(0 < each["lower"] < 600 for each in seconds.values())
        if seconds[startup.WARM]["median"] > 0.5 * seconds["import numpy and numba"]["lower"]:
            break
    else:
        pytest.fail(f"the first sample takes half of an import: {seconds}")
    assert "| spawned worker to its first row |" in page


def test_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="ValueError: no"):
        fresh.run_fresh("-c", "raise ValueError('no')")
    with pytest.raises(RuntimeError, match=r"more than 0\.5 s"):
        fresh.run_fresh("-c", "import time; time.sleep(60)", timeout=0.5)


SMALL = ["buffers", "--cases", "kernels", "--capacity", "600", "--rounds", "1"]


def test_report_writes_every_place_of_a_table_and_tells_what_failed(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(report, "STEPS", {"startup": ["startup", "--rounds", "0"], "kernels": SMALL})
    monkeypatch.chdir(tmp_path)
    report.OUTPUT.mkdir(parents=True)
    page, other, home = report.OUTPUT / "a.md", report.OUTPUT / "b.md", report.HOME
    page.write_text(marks("kernels", "startup"))
    other.write_text("nothing here\n")
    home.write_text("# Title\n" + marks("kernels"))
    assert report.main([]) == 1
    assert "| sample 512, uniform / take_rows |" in page.read_text()
    assert pages.text_between_marks("kernels", home) == pages.text_between_marks("kernels", page)
    assert pages.text_between_marks("startup", page) == "old\n", "a benchmark that fails leaves its table"
    assert (report.OUTPUT / "kernels.json").is_file()
    assert "startup: exit status 2" in capfd.readouterr().err


def test_every_table_of_the_suite_has_its_place_in_the_pages():
    places = [ROOT / report.HOME, *(ROOT / report.OUTPUT).glob("[!.]*.md")]
    for mark in report.STEPS:
        assert pages.pages_with(mark, places), mark


def test_the_home_page_shows_what_the_records_say():
    records = [
        json.loads((ROOT / report.OUTPUT / f"{name}.json").read_text(encoding="utf-8"))
        for name in report.RECORDS
    ]
    text = report.short_table(records)
    assert pages.text_between_marks(report.SHORT, ROOT / report.HOME) == text
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:] == list(report.SHORT_ROWS), "below the head and its rule"
    for row in records[0]["rows"]:  # without cpprb its cells are empty
        del row["microseconds"]["cpprb"], row["ratios"]["cpprb"]
    row = next(line for line in report.short_table(records[:1]).splitlines() if "add 1, prioritized" in line)
    assert row.split("|")[3:5] == ["  ", "  "]
