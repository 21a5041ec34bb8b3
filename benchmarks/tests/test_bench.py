"""The benchmark measures in turns, compares inside a round, and writes down what a reader needs."""

import json
from importlib.util import find_spec

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import buffers, cases
from benchmarks.measuring import output, pages
from benchmarks.peers import lineup
from replay_course.timing import Spread

CASES = {"rows": 17, "inputs": 8, "pictures": 13, "sequences": 2, "hindsight": 3, "schemes": 7, "kernels": 3}
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


def test_ratio_is_the_median_of_the_rounds_ratios_not_the_ratio_of_the_medians():
    ours, theirs = np.array([1.0, 10.0, 2.0]), np.array([3.0, 10.0, 8.0])
    row = lineup.row_of("add", {"ours": ours, "cpprb": theirs})
    assert row.ratios["cpprb"].median == 3.0
    assert np.median(theirs) / np.median(ours) == 4.0


def test_bare_kernels_find_leaves_all_over_the_tree_each_time():
    _, find_and_take, find_take_and_set = (
        prepare(lineup.Peer("ceiling")) for prepare in cases.kernels(2000).values()
    )
    for _ in range(30):  # more often than there are batches: the queries must not be used up
        find_take_and_set()  # nor must they miss the tree when its total changes
        found = find_and_take()
        assert len(np.unique(found)) > 300 and found[0] < 20 and found[-1] > 1980


@pytest.mark.parametrize("name", buffers.SETS)
def test_every_case_runs_on_ours_and_on_the_ceiling(name):
    small = {"pictures": 264}.get(name, cases.LEARNER_BATCH)  # the least capacity of the command
    peers = [lineup.Peer("ours"), lineup.Peer("ceiling")]
    prepared = buffers.SETS[name].cases(small)
    assert len(prepared) == CASES[name]  # an operation that has the name of another one replaces it
    for prepare in prepared.values():
        for peer in peers:
            prepare(peer)()


def test_table_is_empty_where_a_library_cannot_and_bold_where_ours_is_slower():
    def row(operation, **ratios):
        spreads = {name: Spread(ratio, ratio, ratio) for name, ratio in ratios.items()}
        return lineup.Row(operation, {}, {**spreads, "ceiling": Spread(0.5, 0.5, 0.5)})

    rows = [row("add", tianshou=2.0, TorchRL=0.5, cpprb=3.0), row("sample", TorchRL=4.0, cpprb=0.9)]
    assert buffers.lines_of(rows, ["ours", "cpprb", "tianshou", "TorchRL", "ceiling"]) == [
        "| operation | ours, µs | cpprb, µs | ceiling, µs | speed relative to cpprb | of the ceiling |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| add |  |  |  | 3.00 (3.00, 3.00) | 50% |",
        "| sample |  |  |  | **0.900 (0.900, 0.900)** | 50% |",
        "",
        "| operation | speed relative to tianshou | speed relative to TorchRL |",
        "| --- | ---: | ---: |",
        "| add | 2.00 (2.00, 2.00) | **0.500 (0.500, 0.500)** |",
        "| sample |  | 4.00 (4.00, 4.00) |",
    ]


def test_command_prints_and_records_every_operation(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cases, "BATCH_SIZES", (4, 512))
    record, page = tmp_path / "bench.json", tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold figures\n{END}\n\nThe end.\n")
    given = ["--capacity", "600", "--rounds", "2", "--json", str(record), "--markdown", str(page)]
    assert command.main(["buffers", *given]) == 0
    read, printed, text = json.loads(record.read_text()), capsys.readouterr().out, page.read_text("utf-8")
    assert text.startswith(f"# Title\n\n{BEGIN}\n| operation | ours, µs |") and "old figures" not in text
    assert text.endswith(f"{END}\n\nThe end.\n") and "capacity 600" in text.lower()
    assert read["command"].endswith(f"benchmarks buffers {' '.join(given)}")
    assert read["machine"]["cores"] >= 1 and read["machine"]["processor"]
    assert {"python", "numpy", "numba", "replay_tutorial"} <= set(read["versions"])
    assert [row["operation"] for row in read["rows"]] == list(cases.rows(600))
    for row in read["rows"]:
        assert row["operation"] in printed
        assert {"ours", "ceiling"} <= set(row["microseconds"])
        ours = row["microseconds"]["ours"]
        assert 0 < ours["lower"] <= ours["median"] <= ours["upper"]
    if find_spec("cpprb") is not None:  # it has no wheels for Python 3.13 and newer
        assert "cpprb" in read["versions"]
        assert all(row["ratios"]["cpprb"]["median"] > 0 for row in read["rows"])


@pytest.mark.parametrize(
    "text", ["no marks\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", f"{BEGIN}\n"]
)
def test_page_without_its_marks_is_refused_and_left_as_it_was(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="bench:begin"):
        pages.write_between_marks(page, "bench", "table\n")
    assert page.read_text("utf-8") == text


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--capacity", "100"], ["--capacity", "x"]])
def test_wrong_arguments_are_refused_by_name(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_no_record_may_hold_nan_which_is_no_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        output.write_record(tmp_path / "record.json", {"ratio": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", command.COMMANDS)
def test_every_benchmark_has_help_of_its_own(name, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([name, "--help"])
    assert not stopped.value.code
    assert f"benchmarks {name}" in capsys.readouterr().out
