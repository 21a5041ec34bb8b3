"""The throughput benchmark: its shares, its record, and one real run of a second."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import throughput
from benchmarks.__main__ import main
from benchmarks.throughput import Round, body_of, lines_of, settings_of
from replay_tutorial.apex.config import preset

SMALL = replace(
    preset("CartPole-v1"), capacity=2_000, hidden_sizes=(16,), publish_interval=1, record_interval=1
)

BOTH = {"wide open": SMALL, "the preset's ratio": SMALL}


def test_shares_are_taken_inside_their_rounds():
    rounds = [
        Round(raw_steps=100.0, solo_updates=10.0, runs={"wide open": (50.0, 9.0)}),
        Round(raw_steps=1_000.0, solo_updates=100.0, runs={"wide open": (500.0, 90.0)}),
    ]
    run = body_of(BOTH, rounds)["runs"]["wide open"]
    assert run["share_of_raw_steps"].median == run["share_of_raw_steps"].upper == 0.5
    assert run["share_of_solo_updates"].lower == pytest.approx(0.9)
    assert run["steps"].median == 275.0
    assert run["samples_per_insert"].median == pytest.approx(9.0 * SMALL.batch_size / 50.0)


def test_real_runs_are_measured_recorded_and_drawn(tmp_path, monkeypatch):
    small = {
        name: replace(config, hidden_sizes=(16,), slack=100 if "ratio" in name else config.slack)
        for name, config in settings_of("CartPole-v1", [1]).items()
    }
    monkeypatch.setattr(throughput, "settings_of", lambda environment, actors: small)
    page, file = tmp_path / "page.md", tmp_path / "throughput.json"
    page.write_text("<!-- throughput:begin -->\n<!-- throughput:end -->\n")
    where = ["--json", str(file), "--markdown", str(page)]
    for seconds in (1, 4, 16, 64):  # until the machine lets the runs insert some hundred rows
        status = main(["throughput", "--rounds", "1", "--seconds", f"{seconds}", "--warm-up", "0.5", *where])
        record = json.loads(file.read_text())
        if status == 0 and all(run["steps"]["median"] * seconds > 500 for run in record["runs"].values()):
            break
    assert status == 0
    assert set(record["runs"]) == {"wide open", "the preset's ratio"}
    for run in record["runs"].values():
        assert all(np.isfinite(spread["median"]) for spread in run.values())
        assert run["updates"]["median"] > 0
    # The limiter's band is 100 rows wide, a tenth of a second.
    assert 1.0 < record["runs"]["the preset's ratio"]["samples_per_insert"]["median"] < 16.0
    assert "| the preset's ratio | 1 |" in page.read_text()
    assert len(lines_of(body_of(BOTH, [Round(1, 1, {})]))) == 4


def test_first_number_of_actors_runs_with_both_limiters_and_the_others_wide_open():
    configs = settings_of("CartPole-v1", [2, 1, 4])
    assert all(config.total_steps > 10**9 and config.solved_at > 500 for config in configs.values())
    assert {name: config.actors for name, config in configs.items()} == {
        "wide open": 2,
        "wide open, 1": 1,
        "wide open, 4": 4,
        "the preset's ratio": 2,
    }
    for name, config in configs.items():
        assert config.slack > 10**8 if "wide" in name else config.slack == preset("CartPole-v1").slack
    rounds = [Round(100.0, 10.0, {name: (50.0 * config.actors, 9.0) for name, config in configs.items()})]
    table = lines_of(body_of(configs, rounds))
    assert any(line.startswith("| wide open, 4 | 4 | 200") for line in table)
