"""Every peer does what it is measured for, and the article's charts come from one record."""

import dataclasses
import importlib.util
import json
import os
import sys
import warnings

import numpy as np
import pytest

from replay_tutorial.bench import command
from replay_tutorial.bench.method.timing import RemoteWorkload, Spread, seconds_for
from replay_tutorial.bench.one_process import article_table
from replay_tutorial.bench.peers import frameworks, lineup, plain_python, reverb, reverb_helper
from replay_tutorial.bench.peers.peer import FIELDS, random_rows

ROWS = 64
IN_PYTHON = [name for name in lineup.PEERS if name not in reverb.WAYS]
FAST = ["cpprb", "deque", "Python sum tree", "Reverb client"]


def peer_named(name):
    package = lineup.PEERS[name].package
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    with warnings.catch_warnings():  # others may warn of what they like, while the tests make errors of it
        warnings.simplefilter("ignore")
        gathered = lineup.gather(ROWS, 0.4, [name])
    assert gathered.peers[0].name == name, gathered.skipped
    return gathered.peers[0]


@pytest.mark.parametrize("name", IN_PYTHON)
def test_peer_does_what_it_says_it_can(name):
    peer = peer_named(name)
    workloads = {
        prioritized: (
            peer.adding(random_rows(np.random.default_rng(0), 11), prioritized=prioritized),
            peer.sampling(8, prioritized=prioritized),
        )
        for prioritized in (False, True)
    }
    assert any(all(pair) for pair in workloads.values()), "uniform or prioritized"
    for pair in workloads.values():
        assert (pair[0] is None) == (pair[1] is None), "whoever adds samples"
        for work in filter(None, pair):
            work()
    one = peer.adding(random_rows(np.random.default_rng(0), None), prioritized=workloads[False][0] is None)
    assert one is not None
    one()
    if (update := peer.updating(8)) is not None:
        update()


def test_stable_baselines3_adds_each_row_of_a_call():
    peer = peer_named("Stable-Baselines3")
    rows = random_rows(np.random.default_rng(3), 11)
    peer.adding(rows, prioritized=False)()
    assert peer.buffer.pos == 11
    assert np.array_equal(peer.buffer.observations[:11, 0], rows["obs"])
    assert np.array_equal(peer.buffer.next_observations[:11, 0], rows["next_obs"])
    assert np.array_equal(peer.buffer.rewards[:11], rows["rew"])


@pytest.mark.parametrize(
    ("name", "kinds"), [("Stable-Baselines3", ["buffer"]), ("tianshou", ["uniform", "prioritized"])]
)
def test_every_column_of_a_buffer_that_is_filled_by_hand_is_filled(name, kinds, monkeypatch):
    monkeypatch.setattr(frameworks, "DONE", 0.5)  # of 64 rows
    peer = peer_named(name)
    for buffer in (getattr(peer, kind) for kind in kinds):
        rewards, done = (
            (buffer.rewards, buffer.dones) if name == "Stable-Baselines3" else (buffer.rew, buffer.done)
        )
        assert rewards.all()
        assert 0.1 < done.mean() < 0.9


def test_tianshou_adds_the_rows_of_a_call():
    peer = peer_named("tianshou")
    rows = random_rows(np.random.default_rng(3), 11)
    peer.adding(rows, prioritized=False)()
    assert np.array_equal(peer.uniform.obs_next[1:12], rows["next_obs"]), (
        "after the one that made the columns"
    )
    assert np.allclose(peer.uniform.rew[1:12], rows["rew"][:, 0])


def test_flashbax_draws_by_another_key_each_time():
    sample = peer_named("flashbax").sampling(8, prioritized=True)
    assert sample().indices.tolist() != sample().indices.tolist()


def test_deque_holds_the_rows_and_drops_the_oldest():
    deque = plain_python.Deque("deque", None, ROWS, 0.4)
    rows = random_rows(np.random.default_rng(3), 11)
    deque.adding(rows, prioritized=False)()
    assert len(deque.memory) == ROWS
    tuples = {id(transition) for transition in deque.memory}
    deque.adding(rows, prioritized=False)()
    assert tuples.isdisjoint(map(id, list(deque.memory)[-11:])), "a tuple is made for each row"
    assert np.array_equal(deque.memory[-1][0], rows["obs"][10])
    assert [field.shape for field in deque.sampling(5, prioritized=False)()] == [
        (5, shape) for shape in FIELDS.values()
    ]


@pytest.mark.parametrize("capacity", [2, 7, 64])
def test_python_sum_tree_keeps_its_sums_and_finds_each_leaf(capacity):
    memory = plain_python.TreeMemory("tree", None, capacity, 1.0)
    memory.adding(random_rows(np.random.default_rng(0), 3), prioritized=True)()
    tree = memory.tree
    leaves = tree.tree[capacity - 1 :]
    assert tree.tree[0] == pytest.approx(leaves.sum())
    assert tree.write == 3 % capacity
    found = {tree.get(query)[0] for query in np.linspace(1e-9, tree.tree[0] - 1e-9, 20_000)}
    assert found == set(range(capacity - 1, 2 * capacity - 1))


def test_reverb_is_skipped_by_name_where_it_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv(reverb.PYTHON_VARIABLE, str(tmp_path / "python"))
    gathered = lineup.gather(ROWS, 0.4, list(reverb.WAYS))
    assert set(gathered.skipped) == set(reverb.WAYS)
    assert all("make bench-peers" in reason for reason in gathered.skipped.values())
    reason = lineup.gather(2**20, 0.4, ["Reverb client"]).skipped["Reverb client"]
    assert "left out above 65,536 rows, as its server takes 6 KB of memory a row, here 6 GB" in reason


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell; Reverb is for Linux only")
@pytest.mark.parametrize("end", ["exec sleep 60 1>&- 0<&-", "printf '{\"seco'; exit 1"])
def test_peer_whose_process_is_lost_is_dropped_and_the_others_go_on(end, tmp_path, monkeypatch):
    python = tmp_path / "python"
    answers = """echo 'a line of some library'; echo '{"version": "0"}'; read order
        for answer in 1 2 3 4 5 6 7; do echo '{"seconds": 0.01}'; read order; done"""
    python.write_text(f"#!/bin/sh\n{answers}\necho 'no more memory' >&2; echo >&2; {end}\n")
    python.chmod(0o755)
    monkeypatch.setenv(reverb.PYTHON_VARIABLE, str(python))
    page = tmp_path / "buffers.md"
    page.write_text("<!-- article:begin -->\n<!-- article:end -->\n")
    assert (
        command.main(["article", "--quick", "--peers", "Reverb client", "deque", "--markdown", str(page)])
        == 0
    )
    text = page.read_text()
    assert "Not measured: Reverb client: from 'sample" in text
    assert "on, as its helper process has ended, last saying 'no more memory'." in text
    assert text.count("Reverb client |") == 1, "what was measured before stays"


@pytest.mark.parametrize("name", reverb.WAYS)
def test_reverb_adds_and_samples_in_its_own_python(name):
    try:
        reverb.reverb_python()
    except ImportError as error:
        pytest.skip(str(error))
    gathered = lineup.gather(ROWS, 0.4, [name])
    try:
        peer = gathered.peers[0]
        rows = random_rows(np.random.default_rng(0), 3)
        for prioritized in (False, True):
            assert seconds_for(peer.adding(rows, prioritized=prioritized), 2) > 0
            assert seconds_for(peer.sampling(4, prioritized=prioritized), 2) > 0
    finally:
        gathered.close()
    assert peer.helper.process.returncode is not None


def test_workload_of_another_process_brings_its_own_seconds():
    assert seconds_for(RemoteWorkload(lambda calls: 10.0 * calls), 3) == 30.0


@pytest.mark.parametrize(("calls", "queued", "done"), [(5, False, 5), (5, True, 30), (50, True, 60)])
def test_queue_of_a_dataset_is_emptied_before_the_clock_runs(calls, queued, done, monkeypatch):
    clock = []  # of seconds: a batch from the queue takes none, any other one
    monkeypatch.setattr(reverb_helper, "perf_counter", lambda: max(0, len(clock) - 10 * queued))
    assert reverb_helper.seconds_of(lambda: clock.append(1), calls, queued) == calls
    assert len(clock) == done


def test_reverb_is_given_the_same_rows():
    assert reverb_helper.FIELDS == FIELDS


def point(ours, theirs, rows=2):
    times = {
        name: Spread(value, value, value)
        for name, value in (("ours", ours), ("deque", theirs), ("ceiling", 0.5))
    }
    ratios = {name: Spread(*[each.median / ours] * 3) for name, each in times.items() if name != "ours"}
    return article_table.Point(8, "add, uniform", rows, times, ratios)


def test_reverb_writer_is_not_called_a_dataset_where_rows_are_added():
    slow = Spread(9.0, 9.0, 9.0)
    measured = point(1.0, 2.0)
    measured.microseconds["Reverb dataset"] = measured.ratios["Reverb dataset"] = slow
    tables = article_table.tables_of([measured, dataclasses.replace(measured, panel="sample, uniform")])
    added, sampled = tables.split("**sample, uniform**")
    assert "| Reverb writer |" in added and "Reverb dataset" not in added
    assert "| Reverb dataset |" in sampled and "Reverb writer" not in sampled


def test_verdict_names_who_was_faster_and_where():
    measured = [point(1.0, 2.0), point(2.0, 1.0, rows=11)]
    assert article_table.verdict(measured) == (
        "Ours is the fastest library at 1 of 2 points. Faster than ours: deque (add, uniform) at 11 rows."
    )
    assert "| 11 | 2.00 | **1.00** | 0.500 | 25% |" in article_table.tables_of(measured)
    assert "| 2 | 1.00 | 2.00 | 0.500 | 50% |" in article_table.tables_of(measured)


def test_article_measures_every_point_and_writes_record_chart_and_tables(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the charts need the extra `train`")
    monkeypatch.setenv(reverb.PYTHON_VARIABLE, str(tmp_path / "python"))
    page = tmp_path / "buffers.md"
    page.write_text("<!-- article:begin -->\nold\n<!-- article:end -->\n")
    arguments = ["--quick", "--peers", *FAST, "--output", str(tmp_path / "figures"), "--markdown", str(page)]
    assert command.main(["article", *arguments]) == 0
    record = json.loads((tmp_path / "figures" / "article.json").read_text())
    assert [(p["panel"], p["rows"]) for p in record["points"]] == [
        (panel, count)
        for panel in (
            *article_table.PANELS[2:],
            *article_table.PANELS[:2],
        )  # adding leaves a few rows many times
        for count in ((1, 11) if "add" in panel else (2, 8))
    ]
    for measured in record["points"]:
        other = "deque" if measured["panel"].endswith("uniform") else "Python sum tree"
        assert {"ours", other, "ceiling"} <= set(measured["microseconds"])
    assert "Reverb client" in record["skipped"]["256"]
    chart = (tmp_path / "figures" / "article-256.svg").read_text()
    assert "<svg" in chart and all(f"<!-- {name} -->" in chart for name in ("ours", "deque", "ceiling"))
    text = page.read_text()
    assert "old\n" not in text and "Not measured: Reverb client: there is no" in text
    assert text.count("| rows | ours |") == 4


def test_buffers_leaves_a_cell_empty_where_a_peer_cannot(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- bench:begin -->\n<!-- bench:end -->\n")
    asked = ["--capacity", "600", "--rounds", "1", "--peers", "deque", "--markdown", str(page)]
    assert command.main(["buffers", *asked]) == 0
    lines = [line for line in page.read_text().splitlines() if line.startswith("| add 1")]
    uniform, prioritized = lines[0].split("|"), lines[1].split("|")
    assert uniform[3].strip() and not prioritized[3].strip()
    assert len(uniform) == len(prioritized)


def test_missing_matplotlib_is_noticed_before_anything_is_measured(tmp_path, monkeypatch):
    def fail(*_, **__):
        pytest.fail("it measures")

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(lineup, "gather", fail)
    with pytest.raises(ImportError, match="matplotlib"):
        command.main(["article", "--output", str(tmp_path / "out")])


def test_record_and_tables_are_there_when_drawing_fails(tmp_path, monkeypatch):
    charts = pytest.importorskip(
        "replay_tutorial.bench.one_process.article_chart", reason="the charts need the extra `train`"
    )
    page = tmp_path / "buffers.md"
    page.write_text("<!-- article:begin -->\n<!-- article:end -->\n")

    def draw(measured, output):
        raise ValueError("no ink")

    monkeypatch.setattr(charts, "draw", draw)
    asked = ["--quick", "--peers", "deque", "--output", str(tmp_path), "--markdown", str(page)]
    with pytest.raises(ValueError, match="no ink"):
        command.main(["article", *asked])
    assert json.loads((tmp_path / "article.json").read_text())["points"]
    assert "| rows | ours |" in page.read_text()
