"""The record of the recipe for large buffers: its table and its figures."""

import json
from statistics import median

import grid_world
from places import ROOT


def test_record_holds_the_episodes_of_each_run_and_its_table_the_median(tmp_path, monkeypatch):
    monkeypatch.setattr(grid_world, "CASES", grid_world.CASES[-1:])
    page, file = tmp_path / "page.md", tmp_path / "record.json"
    page.write_text("<!-- grid-world:begin -->\n<!-- grid-world:end -->\n", encoding="utf-8")
    arguments = ["--steps", "3000", "--runs", "3", "--json", str(file), "--markdown", str(page)]
    assert grid_world.main(arguments) == 0
    text, outcomes = page.read_text("utf-8"), json.loads(file.read_text("utf-8"))["outcomes"]
    assert len(outcomes) == 1
    for each in outcomes:
        low, middle, high = sorted(each["episodes"])
        assert high > 0
        assert f"| `{each['scheme']}` | {each['size']:,} | {middle} ({low} to {high}) |" in text
    assert "Episodes finished in 3,000 steps; 3 runs per row." in text


def test_schemes_are_in_the_order_that_the_page_states():
    record = json.loads((ROOT / "docs" / "measurements" / "grid-world.json").read_text("utf-8"))
    medians = {(each["scheme"], each["size"]): median(each["episodes"]) for each in record["outcomes"]}
    uniform = [medians["Uniform()", size] for size in (1_000_000, 1_000, 10)]
    assert uniform == sorted(uniform) and medians["Uniform()", 1] < uniform[-1]
    for half_life, expected in ((1_000, uniform[1]), (10, uniform[2])):
        assert 0.8 < medians[f"Geometric(half_life={half_life:_})", 1_000_000] / expected < 1.25
    assert max(medians, key=medians.get) == ("Combined()", 1_000_000)
    assert min(medians, key=medians.get) == ("Uniform()", 1_000_000)
