"""The record of the recipe for offline data: its table, its chart and its figures."""

import json

import pytest
from places import ROOT

pytest.importorskip("torch")
pytest.importorskip("gymnasium")
pytest.importorskip("matplotlib")

import half_offline


def test_record_holds_the_curve_of_each_run_and_its_table_the_median(tmp_path):
    page, file, chart = tmp_path / "page.md", tmp_path / "record.json", tmp_path / "chart.svg"
    page.write_text("<!-- half-offline:begin -->\n<!-- half-offline:end -->\n", encoding="utf-8")
    arguments = ["--steps", "202", "--every", "101", "--runs", "1"]
    outputs = ["--json", str(file), "--chart", str(chart), "--markdown", str(page)]
    assert half_offline.main([*arguments, *outputs]) == 0
    text, record = page.read_text("utf-8"), json.loads(file.read_text("utf-8"))
    curves = [runs[0] for runs in record["returns"].values()]
    assert record["steps"] == [101, 202]
    assert curves[0][0] == curves[1][0], "no update before step 200"
    assert curves[0][1] != curves[1][1]
    for step, *means in zip(record["steps"], *curves, strict=True):
        cells = " | ".join(f"{mean:,.0f} ({mean:,.0f} to {mean:,.0f})" for mean in means)
        assert f"| {step} | {cells} |" in text
    assert "offline data" in chart.read_text("utf-8")


def test_offline_data_lead_to_the_earlier_success_that_the_page_states():
    record = json.loads((ROOT / "docs" / "measurements" / "half-offline.json").read_text("utf-8"))
    place = record["steps"].index(1_000)
    half, alone = ([curve[place] for curve in curves] for curves in record["returns"].values())
    assert len(half) == len(alone) == 10
    balances = -200
    assert min(half) > balances
    assert sum(mean > balances for mean in alone) == 5, "half of the runs"
    assert min(curve[-1] for curve in record["returns"]["half offline"]) < balances, "a run falls back"
