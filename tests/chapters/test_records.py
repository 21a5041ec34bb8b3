"""The records of recipes and of the Blind Cliffwalk: their figures, tables, and what the pages state."""

import json
from dataclasses import replace
from importlib import import_module
from statistics import median

import numpy as np
import pytest
from cliffwalk_linear import SAMPLERS, update, updates_needed
from places import ROOT

from replay_course.steps.learning import cliffwalk


@pytest.fixture
def record(tmp_path):
    """Run a script, and return its record, the page with its table, and its chart if it draws one."""

    def run(script, *arguments, needs=(), chart=False):
        for package in needs:
            pytest.importorskip(package)
        mark = script.replace("_", "-")
        file, page, drawing = (tmp_path / f"{mark}.{suffix}" for suffix in ("json", "md", "svg"))
        page.write_text(f"above\n<!-- {mark}:begin -->\n<!-- {mark}:end -->\n", encoding="utf-8")
        outputs = ["--json", file, "--markdown", page, *(["--chart", drawing] if chart else [])]
        assert import_module(script).main([*map(str, [*arguments, *outputs])]) == 0
        texts = [path.read_text("utf-8") for path in (page, drawing) if path.exists()]
        return json.loads(file.read_text("utf-8")), *texts

    return run


def stored(name):
    """The record in the repository."""
    return json.loads((ROOT / "docs" / "measurements" / f"{name}.json").read_text("utf-8"))


def spread(values, form=""):
    """The median, the lowest and the highest of three values."""
    low, middle, high = (format(value, form) for value in sorted(values))
    return f"{middle} ({low} to {high})"


def test_hindsight_has_a_success_rate_of_each_run(record):
    options = {"--bits": 3, "--episodes": 4, "--runs": 3}
    body, page = record("bit_flip", *sum(options.items(), ()), needs=["torch", "gymnasium"])
    assert len(body["success_rates"]) == 2
    for agent, rates in body["success_rates"].items():
        assert f"| {agent} | {spread(rates, '.1%')} |" in page
    assert "3 bits, 4 training episodes, 3 runs per agent" in page


def test_recurrent_dqn_has_a_mean_return_of_each_run(record):
    body, page = record("recurrent_dqn", "--steps", 30, "--runs", 3, needs=["torch"])
    assert len(body["mean_returns"]) == 2
    for agent, means in body["mean_returns"].items():
        assert f"| {agent} | {spread(means, '.2f')} |" in page
    assert "30 training steps in each of 8 corridors, 3 runs per network" in page


def test_sampling_schemes_have_the_episodes_of_each_run(record, monkeypatch):
    script = import_module("grid_world")
    monkeypatch.setattr(script, "CASES", script.CASES[-1:])
    body, page = record("grid_world", "--steps", 3000, "--runs", 3)
    (each,) = body["outcomes"]
    assert max(each["episodes"]) > 0
    assert f"| `{each['scheme']}` | {each['size']:,} | {spread(each['episodes'])} |" in page
    assert "Episodes finished in 3,000 steps; 3 runs per row." in page


def test_sampling_schemes_are_in_the_order_that_the_page_states():
    medians = {
        (each["scheme"], each["size"]): median(each["episodes"]) for each in stored("grid-world")["outcomes"]
    }
    uniform = [medians["Uniform()", size] for size in (1_000_000, 1_000, 10)]
    assert uniform == sorted(uniform) and medians["Uniform()", 1] < uniform[-1]
    for half_life, expected in ((1_000, uniform[1]), (10, uniform[2])):
        assert 0.8 < medians[f"Geometric(half_life={half_life:_})", 1_000_000] / expected < 1.25
    assert max(medians, key=medians.get) == ("Combined()", 1_000_000)
    assert min(medians, key=medians.get) == ("Uniform()", 1_000_000)


def test_offline_data_have_the_curve_of_each_run(record):
    needs, options = ["torch", "gymnasium", "matplotlib"], ("--steps", 202, "--every", 101, "--runs", 1)
    body, page, chart = record("half_offline", *options, needs=needs, chart=True)
    curves = [runs[0] for runs in body["returns"].values()]
    assert body["steps"] == [101, 202]
    assert curves[0][0] == curves[1][0], "no update before step 200"
    assert curves[0][1] != curves[1][1]
    for step, *means in zip(body["steps"], *curves, strict=True):
        assert f"| {step} | {' | '.join(spread([mean] * 3, ',.0f') for mean in means)} |" in page
    assert "offline data" in chart


def test_offline_data_lead_to_the_earlier_success_that_the_page_states():
    body, balances = stored("half-offline"), -200
    place = body["steps"].index(1_000)
    half, alone = ([curve[place] for curve in curves] for curves in body["returns"].values())
    assert len(half) == len(alone) == 10
    assert min(half) > balances
    assert sum(mean > balances for mean in alone) == 5, "half of the runs"
    assert min(curve[-1] for curve in body["returns"]["half offline"]) < balances, "a run falls back"


def test_pong_has_the_figures_of_a_run_in_one_or_two_parts(record, tmp_path):
    for package in ("torch", "ale_py", "matplotlib"):
        pytest.importorskip(package)
    from replay_tutorial.apex import preset, resume, train

    short = {"actors": 0, "total_steps": 1_200, "replay_start": 200, "evaluation_interval": 50}
    few = {"evaluation_episodes": 2, "confirmation_episodes": 0, "final_episodes": 3, "record_interval": 50}
    config = replace(preset("CartPole-v1"), **short, **few, runs=tmp_path, progress=False, solved_at=None)
    run = train(config).folder
    assert "trained in 1 part, the first" in record("pong", run, chart=True)[1]
    resume(run, 2_000, progress=False)
    body, page, chart = record("pong", run, chart=True)
    final = json.loads((run / "evaluation.json").read_text("utf-8"))
    assert 1_200 < body["steps"] <= 2_000 and f"| steps | {body['steps']:,} |" in page
    assert f"| mean return of 3 greedy episodes | {final['mean']:.2f} |" in page
    assert body["evaluations"]["steps"] and "trained in 2 parts, the first" in page
    assert "python chapters/records/pong.py runs/RUN --json" in page
    assert "<svg" in chart


def test_cliffwalk_has_the_updates_of_each_run(record):
    body, page = record("cliffwalk", "--states", 3, "--runs", 2)
    outcomes = body["outcomes"]
    assert [each["sampler"] for each in outcomes] == ["uniform", "alpha 0", "alpha 0.6", "alpha 1"]
    assert all(np.size(each["updates"]) == 2 for each in outcomes)
    assert "| 3 | alpha 1 |" in page


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


def test_linear_cliffwalk_has_the_updates_of_each_run(record):
    body, page = record("cliffwalk_linear", "--states", 3, "--runs", 3)
    table, linear = body["outcomes"]
    assert [(each["values"], each["states"]) for each in (table, linear)] == [("table", 3), ("linear", 3)]
    assert "oracle" in table["updates"] and "oracle" not in linear["updates"]
    assert f"| {spread(linear['updates']['alpha 1'])} |" in page


def test_factors_that_the_page_states():
    medians = {
        (each["values"], each["states"]): {name: np.median(runs) for name, runs in each["updates"].items()}
        for each in stored("cliffwalk-linear")["outcomes"]
    }
    for values, factors in {"linear": [5, 6, 8], "table": [7, 8, 10]}.items():
        counts = medians[values, 12]
        prioritized = ("alpha 0.6", "rank-based, alpha 0.7", "alpha 1")
        assert [round(counts["uniform"] / counts[name]) for name in prioritized] == factors
    assert round(medians["table", 12]["alpha 1"] / medians["table", 12]["oracle"]) == 16
