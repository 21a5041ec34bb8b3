"""The article's charts and tables come from one record."""

import dataclasses
import json
import re
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import article
from benchmarks.measuring import fresh
from replay_course.timing import Spread

FAST = ["cpprb", "deque", "Python sum tree", "Reverb client"]


def point(ours, theirs, rows=2):
    times = {
        name: Spread(value, value, value)
        for name, value in (("ours", ours), ("deque", theirs), ("ceiling", 0.5))
    }
    ratios = {name: Spread(*[each.median / ours] * 3) for name, each in times.items() if name != "ours"}
    return article.Point(8, "add, uniform", rows, times, ratios)


def test_reverb_writer_is_not_called_a_dataset_where_rows_are_added():
    slow = Spread(9.0, 9.0, 9.0)
    measured = point(1.0, 2.0)
    measured.microseconds["Reverb dataset"] = measured.ratios["Reverb dataset"] = slow
    tables = article.tables_of([measured, dataclasses.replace(measured, panel="sample, uniform")])
    added, sampled = tables.split("**sample, uniform**")
    assert "| Reverb writer |" in added and "Reverb dataset" not in added
    assert "| Reverb dataset |" in sampled and "Reverb writer" not in sampled


def test_comparison_names_the_faster_libraries_and_their_points():
    measured = [point(1.0, 2.0), point(2.0, 1.0, rows=11)]
    assert article.comparison(measured) == (
        "Our buffer is the fastest at 1 of 2 points. Faster than ours: deque (add, uniform) at 11 rows."
    )
    assert "| 11 | 2.00 | **1.00** | 0.500 | 25% |" in article.tables_of(measured)
    assert "| 2 | 1.00 | 2.00 | 0.500 | 50% |" in article.tables_of(measured)


def test_article_measures_every_point_and_writes_record_chart_and_tables(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the charts need the extra `train`")
    monkeypatch.setattr(fresh, "ENVIRONMENTS", tmp_path)
    page = tmp_path / "buffers.md"
    page.write_text("<!-- article:begin -->\nold\n<!-- article:end -->\n")
    arguments = ["--quick", "--peers", *FAST, "--output", str(tmp_path / "figures"), "--markdown", str(page)]
    assert command.main(["article", *arguments]) == 0
    record = json.loads((tmp_path / "figures" / "article.json").read_text())
    assert [(p["panel"], p["rows"]) for p in record["points"]] == [
        (panel, count)
        for panel in (*article.PANELS[2:], *article.PANELS[:2])  # adding leaves a few rows many times
        for count in ((1, 11) if "add" in panel else (2, 8))
    ]
    for measured in record["points"]:
        other = "deque" if measured["panel"].endswith("uniform") else "Python sum tree"
        assert {"ours", other, "ceiling"} <= set(measured["microseconds"])
    assert "Reverb client" in record["skipped"]["256"]
    chart = (tmp_path / "figures" / "article-256.svg").read_text()
    assert "<svg" in chart and all(f"<!-- {name} -->" in chart for name in ("ours", "deque", "ceiling"))
    text = page.read_text()
    assert "old\n" not in text
    assert re.search(r"Not measured: (cpprb \(.*\); )?Reverb client \(there is no", text)
    assert text.count("| rows | ours |") == 4


def test_missing_matplotlib_is_noticed_before_anything_is_measured(tmp_path, monkeypatch):
    def fail(*_, **__):
        pytest.fail("it measures")

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(article, "Lineup", fail)
    with pytest.raises(ImportError, match="matplotlib"):
        command.main(["article", "--output", str(tmp_path / "out")])
