"""The record of MinAtar: only missing runs are performed, and the table holds the mean of each agent."""

import json
from dataclasses import asdict

import pytest

pytest.importorskip("torch")
gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("matplotlib")

import minatar_curves
from minatar_curves import AGENTS, Run
from small_environments import Tiles


@pytest.fixture
def performed(monkeypatch):
    """Replace training by made-up returns, and return the list of the runs performed."""
    runs = []

    def made_up(folder, game, agent, seed, frames):
        runs.append((game, agent, seed, frames))
        value = 10 * list(AGENTS).index(agent) + seed
        steps = list(range(20_000, frames + 1, 20_000))
        late = [value if step > frames - 50_000 else 0 for step in steps]
        return Run(game, agent, seed, frames, 1.0, steps, late, [each + 0.5 for each in late])

    monkeypatch.setattr(minatar_curves, "record_run", made_up)
    return runs


@pytest.fixture
def outputs(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- minatar:begin -->\n<!-- minatar:end -->\n", encoding="utf-8")
    return {"--json": tmp_path / "record.json", "--chart": tmp_path / "chart.svg", "--markdown": page}


def record(outputs, *arguments):
    flat = [str(each) for pair in outputs.items() for each in pair]
    return minatar_curves.main(["--games", "Breakout", *arguments, *flat])


def test_all_agents_finish_a_seed_before_the_next_and_a_repeated_command_adds_what_is_missing(
    performed, outputs
):
    assert record(outputs, "--frames", "200000", "--seeds", "0", "1") == 0
    assert performed == [("Breakout", agent, seed, 200_000) for seed in (0, 1) for agent in AGENTS]
    performed.clear()
    assert record(outputs, "--frames", "200000", "--seeds", "0", "1", "2") == 0
    assert performed == [("Breakout", agent, 2, 200_000) for agent in AGENTS]
    performed.clear()
    assert record(outputs, "--frames", "300000", "--seeds", "0") == 0, "the runs of seed 0 are too short"
    assert performed == [("Breakout", agent, 0, 300_000) for agent in AGENTS]
    assert len(json.loads(outputs["--json"].read_text("utf-8"))["runs"]) == 3 * len(AGENTS)


def test_table_holds_the_mean_over_the_seeds_and_the_chart_the_published_curves(performed, outputs):
    record(outputs, "--frames", "200000", "--seeds", "0", "1")
    text = outputs["--markdown"].read_text("utf-8")
    # The last agent's returns: 30 and 31 in the last 50,000 frames, 0 before: in three of ten evaluations.
    assert "| Breakout | Ape-X, uniform | 9.2 (9.0, 9.3) | 30.5 (30.0, 31.0) | 31.0 (30.5, 31.5) |  |" in text
    # Published for double DQN: 4.4 at 100,000 frames and 6.1 at 200,000; the mean of 5.25 and 6.1.
    assert "| 10.5 (10.0, 11.0) | 11.0 (10.5, 11.5) | 5.7 |" in text
    assert "Ape-X minus Ape-X, uniform, all evaluations of each seed: -9.0, -9.0." in text
    assert "double DQN, published" in outputs["--chart"].read_text("utf-8")


def test_runs_with_other_settings_are_refused(performed, outputs, capsys, monkeypatch):
    record(outputs, "--frames", "200000", "--seeds", "0")
    monkeypatch.setitem(AGENTS, "Ape-X", {"n_step": 5})
    with pytest.raises(SystemExit):
        record(outputs, "--frames", "200000", "--seeds", "0", "1")
    assert "runs of Breakout with other settings" in capsys.readouterr().err


def test_run_that_is_continued_equals_a_longer_run(monkeypatch, tmp_path):
    gymnasium.register("MinAtar/Tiles-v1", entry_point=Tiles)
    tiny = {"evaluation_interval": 50, "record_interval": 50, "evaluation_episodes": 2, "batch_size": 8}
    monkeypatch.setattr(minatar_curves, "RUN", {**minatar_curves.RUN, **tiny})
    short, whole, continued = (
        asdict(minatar_curves.record_run(tmp_path / folder, "Tiles", "without replay", 0, frames))
        for folder, frames in [("in parts", 204), ("at once", 300), ("in parts", 300)]
    )
    assert len(whole["steps"]) == len(whole["greedy"]) == len(whole["training"]) > len(short["steps"]) > 1
    assert {**continued, "seconds": 0} == {**whole, "seconds": 0}
