"""The tables of the ladders on the site: they say what the record says, and they find their pages."""

import json
import re
from pathlib import Path
from typing import Any

import ladders
import pytest
from places import ROOT

from benchmarks.measuring.pages import text_between_marks
from replay_course.ladder import Ladder
from replay_course.ladder_shared import RUNGS, Race, ladder_of
from replay_course.ladder_sum_tree import RUNGS as TREES
from replay_course.ladder_sum_tree import sum_tree_ladder
from replay_course.ladder_uniform import uniform_ladder
from replay_course.timing import Spread

PAGE = ROOT / "docs" / "measurements" / "ladders.md"
RECORD = json.loads(PAGE.with_suffix(".json").read_text(encoding="utf-8"))
MARKS = ["ladder-uniform", "ladder-prioritized", "ladder-shared", "ladder-short"]


def rows_of(mark: str, page: Path) -> list[list[str]]:
    """The cells of a table below its head and its rule."""
    lines = [line for line in text_between_marks(mark, page).splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def number(cell: str) -> float:
    """The first number of a cell."""
    return float(re.match(r"[\d.,]+", cell)[0].replace(",", ""))


def spreads_of(figures: Any) -> list[Any]:
    return [*(figures.values() if isinstance(figures, dict) else figures)]


@pytest.mark.parametrize("name", ["uniform", "prioritized", "shared"])
def test_the_page_of_the_ladders_shows_what_the_record_says(name: str) -> None:
    ladder, in_a_second = RECORD["ladders"][name], name == "shared"  # the others: microseconds of a call
    figures = ladder["rows and batches in a second" if in_a_second else "microseconds"]
    rows = rows_of(f"ladder-{name}", PAGE)
    assert len(rows) == len(ladder["rungs"]) + 1, "and the ceiling"
    for rung, row in zip(ladder["rungs"], rows, strict=False):
        link = f"[`{rung['rung']}`](../source/{rung['file'].replace('.py', '.md')})"
        assert row[:3] == [link, rung["fixes"], str(rung["lines"])]
        pairs = zip(spreads_of(figures[rung["rung"]]), spreads_of(ladder["ceiling"]), strict=True)
        for place, (spread, top) in enumerate(pairs):
            cell, share = row[3 + 2 * place : 5 + 2 * place]
            assert number(cell) == pytest.approx(spread["median"], rel=0.01)
            whole = (spread["median"] / top["median"]) ** (1 if in_a_second else -1)
            assert (share == "<0.1%") == (whole < 0.001)
            if share != "<0.1%":
                margin = 0.0051 if whole > 0.1 else 0.00051
                assert number(share) / 100 == pytest.approx(whole, abs=margin)


def test_the_first_page_has_the_same_ladder_in_short() -> None:
    index = ROOT / "docs" / "index.md"
    whole, short = rows_of("ladder-prioritized", PAGE), rows_of("ladder-short", index)
    medians = [[figure.split(" (")[0] for figure in row] for row in whole[:-1]]
    assert short == [[row[0].replace("../", ""), row[1], row[3], row[5], row[4]] for row in medians]
    tables = [
        text_between_marks(mark, page)
        for mark, page in (("ladder-prioritized", PAGE), ("ladder-short", index))
    ]
    provenance = {table.partition("`python")[2] for table in tables}
    assert len(provenance) == 1 and "" not in provenance


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ladders of a few rows, and a shared one that nobody has measured."""
    races = {
        rung.kind.__name__: [Race(10.0 + place, 1.0), Race(20.0, 3.0)] for place, rung in enumerate(RUNGS)
    }
    shared = ladder_of({"": [Race(100.0, 8.0)], **races})
    calls = ("find 512", "set 512")
    figures = {rung.kind.__name__: dict.fromkeys(calls, Spread(1.0, 2.0, 3.0)) for rung in TREES}
    tree = Ladder(TREES, figures, dict.fromkeys(calls, Spread(0.5, 0.5, 0.5)))
    monkeypatch.setattr(ladders, "uniform_ladder", lambda rounds: uniform_ladder(256, rounds))
    monkeypatch.setattr(ladders, "sum_tree_ladder", lambda rounds: tree)
    monkeypatch.setattr(ladders, "shared_ladder", lambda writers, races: shared)


def test_the_command_writes_its_record_and_each_table_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch)
    pages = [tmp_path / "ladders.md", tmp_path / "index.md"]
    for page, marks in zip(pages, [MARKS[:3], MARKS[3:]], strict=True):
        page.write_text("".join(f"text\n<!-- {mark}:begin -->\n<!-- {mark}:end -->\n" for mark in marks))
    record = tmp_path / "ladders.json"
    argv = ["--rounds", "2", "--races", "2", "--json", str(record), "--markdown", *map(str, pages)]
    assert ladders.main(argv) == 0
    assert [len(rows_of(mark, pages[mark == "ladder-short"])) for mark in MARKS] == [6, 7, 8, 6]
    assert rows_of("ladder-prioritized", pages[0])[0][3:5] == ["2.00 (1.00, 3.00)", "25%"]
    shared = ["15.0 (12.5, 17.5)", "15%", "2.00 (1.50, 2.50)", "25%"]
    assert rows_of("ladder-shared", pages[0])[0][3:] == shared
    assert pages[0].read_text().count("text\n") == 3, "what stood between the tables"
    assert len(json.loads(record.read_text())["ladders"]["uniform"]["rungs"]) == 5


def test_a_table_without_a_page_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch)
    page = tmp_path / "page.md"
    page.write_text("".join(f"<!-- {mark}:begin -->\n<!-- {mark}:end -->\n" for mark in MARKS[1:]))
    assert ladders.main(["--rounds", "1", "--markdown", str(page)]) == 1
    assert "no page contains the marker <!-- ladder-uniform:begin -->" in capsys.readouterr().err
    assert rows_of("ladder-short", page), "the others are written"


def test_all_trees_and_their_ceiling_are_measured() -> None:
    ladder = sum_tree_ladder(1_000, 32, rounds=1)
    assert list(ladder.ceiling) == ["find 32", "set 32"]
    assert list(ladder.figures) == [rung.kind.__name__ for rung in TREES]
    assert all(spread.median > 0 for spreads in ladder.figures.values() for spread in spreads.values())
