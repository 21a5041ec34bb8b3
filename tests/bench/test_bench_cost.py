"""The benchmarks of what things cost: ceiling, memory, startup, and the report that runs them all."""

import contextlib
import itertools
import json
import os
from importlib.util import find_spec

import numpy as np
import pytest
from places import ROOT

from replay_tutorial.bench import command, run_all
from replay_tutorial.bench.method import fresh, markdown, system_memory
from replay_tutorial.bench.method.timing import Spread
from replay_tutorial.bench.one_process import ceiling, memory_layouts, memory_use, startup


def marks(*names):
    return "".join(f"<!-- {name}:begin -->\nold\n<!-- {name}:end -->\n" for name in names)


def run(name, folder, *arguments):
    """Run a benchmark; return its exit status, its record and its page."""
    page, whole = folder / "page.md", folder / "record.json"
    page.write_text(marks(name))
    status = command.main([name, *arguments, "--json", str(whole), "--markdown", str(page)])
    return status, json.loads(whole.read_text()), page.read_text()


def test_table_needs_its_marks(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    assert command.main(["ceiling", "--capacity", "600", "--rounds", "1", "--markdown", str(page)]) == 1
    assert "ceiling:begin" in capsys.readouterr().err


def test_ceiling_tells_each_share(tmp_path):
    status, whole, page = run("ceiling", tmp_path, "--capacity", "2000", "--rounds", "2")
    assert status == 0
    assert len(whole["shares"]) == len(ceiling.TARGETS)
    assert all(share["times"]["median"] > 0 for share in whole["shares"])
    assert {share["met"] for share in whole["shares"]} <= {"yes", "no", ""}
    assert page.count("| add 1, uniform |") == 2 and "\nold\n" not in page


def test_share_is_taken_against_the_sum_of_the_bare_workloads_of_the_same_round():
    workloads = {name for target in ceiling.TARGETS for name in (target.operation, *target.bare)}
    seconds = {name: np.array([1.0, 10.0, 100.0]) for name in workloads}
    seconds[ceiling.PAIR] = 3 * seconds[ceiling.PAIR]
    seconds[ceiling.FIND_TAKE_SET] = 1.5 * seconds[ceiling.FIND_TAKE_SET]
    shares = {share.target: share for share in ceiling.shares_of(seconds)}
    pair, whole, apart = (target for target in ceiling.TARGETS if target.operation == ceiling.PAIR)
    assert shares[pair].times == Spread(3.0, 3.0, 3.0) and shares[pair].met == "no"
    assert shares[whole].times.median == 2.0 and shares[whole].met == ""
    assert shares[apart].times.median == 1.5 and len(apart.bare) == 2
    uniform = next(target for target in ceiling.TARGETS if target.operation == ceiling.UNIFORM)
    assert shares[uniform].times.median == 1.0 and shares[uniform].met == "yes"


def test_bare_walk_finds_leaves_all_over_the_tree_each_time():
    workloads = ceiling.kernel_workloads(2000, np.random.default_rng(0))
    for _ in range(30):  # more often than there are batches: the queries must not be used up
        workloads[ceiling.SETTING]()  # nor must they miss the tree when its total changes
        found = workloads[ceiling.DESCENT]()
        assert len(np.unique(found)) > 300 and found[0] < 20 and found[-1] > 1980


@pytest.mark.skipif(not system_memory.peak_memory(), reason="needs a system that tells a process's memory")
def test_memory_finds_the_bytes_of_a_transition(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_use, "LAYOUTS", memory_layouts.LAYOUTS[:4])
    status, whole, _ = run("memory", tmp_path, "--rows", "1000", "--libraries", "ours")
    assert status == 0
    least = {"plain": 8, "next_of and stack_compress": 1}  # pictures
    taken = {each["layout"]: each for each in whole["taken"]}
    for layout, count in least.items():
        pictures = taken[layout]["bytes_per_row"] / memory_layouts.PICTURE
        assert count < pictures < 1.1 * count + 0.2
    assert taken["plain"]["peak"] - taken["next_of and stack_compress"]["peak"] > 6 * 7_056_000


@pytest.mark.parametrize(
    "layout", memory_layouts.LAYOUTS, ids=lambda layout: f"{layout.library}, {layout.name}"
)
def test_every_layout_keeps_the_pictures(layout):
    if find_spec(layout.package) is None:
        pytest.skip(f"{layout.package} is not installed")
    memory_layouts.add_rows(layout.make(16), memory_layouts.make_pool(), 20, layout.last_axis)


def test_stacks_slide_by_one_picture_and_begin_anew_with_an_episode(monkeypatch):
    monkeypatch.setattr(memory_layouts, "EPISODE", 3)
    monkeypatch.setattr(memory_layouts, "POOL", 2)
    pool = memory_layouts.make_pool()
    shown = list(memory_layouts.stacks(pool, 5, last_axis=True))
    assert [begins for _, begins in shown] == [True, False, False, False, True, False, False]
    for (before, _), (after, begins) in itertools.pairwise(shown):
        assert begins or np.array_equal(before[..., 1:], after[..., :-1])
    pictures = {stack[..., i].tobytes() for stack, _ in shown for i in range(memory_layouts.STACK)}
    assert len(pictures) == 7, "no picture is shown a second time, but for the first of an episode"


def test_layout_that_does_not_fit_gets_a_tenth_of_the_rows():
    plain = memory_layouts.LAYOUTS[0]
    assert memory_use.rows_that_fit(plain, 1_000_000, 10 * 2**30) == 100_000
    assert memory_use.rows_that_fit(plain, 1_000_000, None) == 1_000_000


def test_startup_takes_every_figure(tmp_path, monkeypatch):
    # The real cache, which is full by now: compiling everything takes too long, and test_project does it.
    cache = contextlib.nullcontext(os.environ.get("NUMBA_CACHE_DIR", ""))
    monkeypatch.setattr(startup, "TemporaryDirectory", lambda: cache)
    status, whole, page = run("startup", tmp_path, "--rounds", "2")
    seconds = whole["seconds"]
    assert status == 0
    assert len(seconds) == 5 and all(0 < each["lower"] < 60 for each in seconds.values())
    # the one against the other's least: the machine may stop either
    assert seconds[startup.WARM]["median"] > 0.5 * seconds["import numpy and numba"]["lower"]
    assert "| spawned worker to its first row |" in page


def test_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="ValueError: no"):
        fresh.run_fresh("raise ValueError('no')")
    with pytest.raises(RuntimeError, match=r"more than 0\.5 s"):
        fresh.run_fresh("import time; time.sleep(60)", timeout=0.5)


def test_figures_of_a_table_end_on_the_right():
    assert markdown.table(["a", "b", "c"], [["x", "y", "1"]], words=2)[1] == "| --- | --- | ---: |"


SMALL = run_all.Step("ceiling", ("ceiling", "--capacity", "600", "--rounds", "1"))
BROKEN = run_all.Step("memory", ("memory", "--rows", "0"))


def test_report_writes_every_place_of_a_table_and_tells_what_failed(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(run_all, "steps_of", lambda full: [BROKEN, SMALL])
    page, other, readme = tmp_path / "a.md", tmp_path / "b.md", tmp_path / "README.md"
    page.write_text(marks("ceiling", "memory"))
    other.write_text("nothing here\n")
    readme.write_text("# Title\n" + marks("ceiling"))
    assert run_all.main(["--output", str(tmp_path), "--readme", str(readme)]) == 1
    assert "| add 1, uniform |" in page.read_text()
    assert run_all.table_of("ceiling", readme) == run_all.table_of("ceiling", page)
    assert run_all.table_of("memory", page) == "old\n", "a benchmark that fails leaves its table"
    assert (tmp_path / "ceiling.json").is_file()
    assert "memory: exit status 2, its old table stays" in capfd.readouterr().err


def test_every_table_of_the_suite_has_its_place_in_the_pages():
    root = ROOT
    pages = [root / "README.md", *(root / "docs" / "measurements").glob("*.md")]
    for step in run_all.steps_of(full=True):
        assert run_all.pages_with(step.mark, pages), step.mark
