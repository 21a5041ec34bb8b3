"""The record of the run on Pong, here with a short run on another environment."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch")
pytest.importorskip("ale_py")
pytest.importorskip("matplotlib")

from pong import main

from replay_tutorial.apex import preset, resume, train


def test_record_and_table_hold_the_figures_of_the_run_in_one_or_two_parts(tmp_path, capsys):
    page, file, chart = (tmp_path / name for name in ("page.md", "record.json", "chart.svg"))
    page.write_text("<!-- pong:begin -->\n<!-- pong:end -->\n", encoding="utf-8")
    short = {"actors": 0, "total_steps": 1_200, "replay_start": 200, "evaluation_interval": 50}
    few = {"evaluation_episodes": 2, "confirmation_episodes": 0, "final_episodes": 3, "record_interval": 50}
    config = replace(preset("CartPole-v1"), **short, **few, runs=tmp_path, progress=False, solved_at=None)
    run = train(config).folder
    outputs = ["--json", str(file), "--markdown", str(page), "--chart", str(chart)]
    assert main([*outputs, str(run)]) == 0, "a run of one part"
    assert "trained in 1 part, the first" in page.read_text(encoding="utf-8")
    resume(run, 2_000, progress=False)
    assert main([str(run), *outputs]) == 0
    record, text = json.loads(file.read_text(encoding="utf-8")), page.read_text(encoding="utf-8")
    final = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    assert 1_200 < record["steps"] <= 2_000 and f"| steps | {record['steps']:,} |" in text
    assert f"| mean return of 3 greedy episodes | {final['mean']:.2f} |" in text
    assert record["evaluations"]["steps"] and "trained in 2 parts, the first" in text
    assert "python chapters/records/pong.py runs/RUN --json" in text
    assert "<svg" in chart.read_text(encoding="utf-8")
    capsys.readouterr()
