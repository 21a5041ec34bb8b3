"""The record of the Blind Cliffwalk with linear features: the same counts as with a table, and an oracle."""

import json

import numpy as np
import pytest
from cliffwalk_linear import SAMPLERS, main, update, updates_needed
from places import ROOT

from replay_tutorial.steps.learning import cliffwalk


@pytest.mark.parametrize(("sampler", "alpha"), [("uniform", 0.0), ("alpha 0.6", 0.6), ("alpha 1", 1.0)])
def test_table_takes_the_same_updates_as_in_chapter_03(sampler, alpha):
    assert updates_needed(7, sampler, False, seed=3) == cliffwalk.updates_needed(7, alpha, seed=3)


def test_linear_update_follows_the_gradient_of_its_features():
    weights, bias = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]), np.array([0.7, 0.8])
    values = weights + bias
    td_error = 1.0 + 0.9 * max(values[2]) - values[1, 0]
    weights[1, 0] += td_error / 4
    bias[0] += td_error / 4
    assert update(values, (1, 0, 1.0, 2, 0.9), linear=True) == pytest.approx(td_error)
    assert values == pytest.approx(weights + bias)


def test_no_sampler_takes_fewer_updates_than_the_oracle_and_none_more_than_uniform():
    counts = {sampler: updates_needed(6, sampler, False, seed=0) for sampler in SAMPLERS}
    assert min(counts, key=lambda sampler: counts[sampler]) == "oracle"
    assert max(counts, key=lambda sampler: counts[sampler]) == "uniform"


def test_oracle_makes_no_further_progress_with_linear_features():
    assert updates_needed(4, "oracle", True, seed=0, limit=1_000) < 1_000
    with pytest.raises(RuntimeError, match="8 states, oracle: 2000 updates"):
        updates_needed(8, "oracle", True, seed=0, limit=2_000)


def test_table_of_the_record_holds_medians(tmp_path):
    file, page = tmp_path / "record.json", tmp_path / "page.md"
    page.write_text("<!-- cliffwalk-linear:begin -->\n<!-- cliffwalk-linear:end -->\n", encoding="utf-8")
    assert main(["--states", "3", "--runs", "3", "--json", str(file), "--markdown", str(page)]) == 0
    outcomes = json.loads(file.read_text("utf-8"))["outcomes"]
    assert [(each["values"], each["states"]) for each in outcomes] == [("table", 3), ("linear", 3)]
    assert "oracle" in outcomes[0]["updates"], "but not with linear features"
    assert "oracle" not in outcomes[1]["updates"]
    low, middle, high = sorted(outcomes[1]["updates"]["alpha 1"])
    assert f"| {middle} ({low} to {high}) |" in page.read_text("utf-8")


def test_factors_that_the_page_states():
    record = json.loads((ROOT / "docs" / "measurements" / "cliffwalk-linear.json").read_text("utf-8"))
    medians = {
        (each["values"], each["states"]): {
            name: np.median(counts) for name, counts in each["updates"].items()
        }
        for each in record["outcomes"]
    }
    for values, factors in {"linear": [5, 6, 8], "table": [7, 8, 10]}.items():
        counts = medians[values, 12]
        prioritized = ("alpha 0.6", "rank-based, alpha 0.7", "alpha 1")
        assert [round(counts["uniform"] / counts[name]) for name in prioritized] == factors
    assert round(medians["table", 12]["alpha 1"] / medians["table", 12]["oracle"]) == 16
