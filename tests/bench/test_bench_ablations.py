"""The ablations: what is changed, what is said of two bands, and one small contrast that is really run."""

import json

import numpy as np
import pytest

from replay_tutorial.__main__ import main
from replay_tutorial.apex.config import preset
from replay_tutorial.bench.training import ablations
from replay_tutorial.bench.training.ablations import CONTRASTS, STEPS, compare, config_of, table_of


def curve_of(level, final=0.0, seed=0):
    return {"seed": seed, "steps": [0.0, 50.0, 100.0], "returns": [level, level, level], "final": final}


@pytest.mark.parametrize("contrast", CONTRASTS)
@pytest.mark.parametrize("environment", STEPS)
def test_first_variant_is_the_preset_and_each_other_changes_one_thing(contrast, environment):
    usual = preset(environment)
    first, *others = [config_of(environment, 1, 0, changes) for changes in CONTRASTS[contrast].values()]
    name = {"priorities": "alpha", "n-step": "n_step", "parameters": "publish_interval", "actors": "actors"}[
        contrast
    ]
    assert getattr(first, name) == getattr(usual, name)
    for other in others:
        changed = [field for field in vars(first) if getattr(first, field) != getattr(other, field)]
        assert changed == [name]


def test_bands_that_overlap_are_not_apart():
    steps = np.linspace(0.0, 100.0, 11)
    low, high = [curve_of(10.0), curve_of(12.0)], [curve_of(11.0), curve_of(20.0)]
    assert compare(high, low, steps) == (0.0, 0.0)
    assert compare([curve_of(13.0), curve_of(20.0)], low, steps) == (1.0, 0.0)
    assert compare(low, [curve_of(13.0), curve_of(20.0)], steps) == (0.0, 1.0)


def test_band_that_is_above_in_one_half_is_told_so():
    rising = {"seed": 0, "steps": [0.0, 49.0, 51.0, 100.0], "returns": [1.0, 1.0, 9.0, 9.0], "final": 9.0}
    above, below = compare([rising], [curve_of(5.0)], np.linspace(0.0, 100.0, 1_000))
    assert above == pytest.approx(0.5, abs=0.01)
    assert below == pytest.approx(0.5, abs=0.01)


def test_table_compares_each_variant_with_the_first():
    variants = {"with": [curve_of(5.0, final=7.0)], "without": [curve_of(1.0, final=2.0)]}
    provenance = {"command": "c", "date": "d", "machine": {"processor": "p", "cores": 1, "system": "s"}}
    record = {**provenance, "versions": {}, "total_steps": 100, "contrasts": {"priorities": variants}}
    table = table_of({"X-v0": record})
    assert "| X-v0 | priorities | with | 1 | 5.0 (5.0, 5.0) | 7.0 (7.0, 7.0) | - | - |" in table
    assert "| X-v0 | priorities | without | 1 | 1.0 (1.0, 1.0) | 2.0 (2.0, 2.0) | 0% | 100% |" in table


def test_small_contrasts_are_run_recorded_and_drawn(tmp_path, monkeypatch, capsys):
    runs = []
    run_once = ablations.run_once
    monkeypatch.setattr(ablations, "run_once", lambda config: runs.append(config) or run_once(config))
    file, chart, page = tmp_path / "ablations.json", tmp_path / "ablations.svg", tmp_path / "page.md"
    page.write_text("<!-- ablations:begin -->\n<!-- ablations:end -->\n")
    small = ["--contrasts", "priorities", "n-step", "--seeds", "1", "--steps", "5000"]
    where = ["--json", str(file), "--chart", str(chart), "--markdown", str(page)]
    assert main(["bench", "ablations", *small, *where]) == 0
    assert len(runs) == 3  # the preset stands in both contrasts, and is run once
    contrasts = json.loads(file.read_text())["CartPole-v1"]["contrasts"]
    assert contrasts["priorities"]["prioritized"] == contrasts["n-step"]["3 steps"]
    assert contrasts["priorities"]["prioritized"] != contrasts["priorities"]["uniform"]
    (curve,) = contrasts["n-step"]["1 step"]
    assert len(curve["steps"]) == len(curve["returns"]) >= 2
    assert curve["steps"] == sorted(curve["steps"])
    assert 5_000 <= curve["steps"][-1] < 6_000
    assert "</svg>" in chart.read_text()
    assert "| CartPole-v1 | n-step | 1 step | 1 |" in page.read_text()
    assert "seed 0, n-step, 1 step" in capsys.readouterr().out
