"""The record of the recurrent recipe: its table and its figures."""

import json

import pytest

pytest.importorskip("torch")

from recurrent_dqn import main


def test_record_holds_the_mean_return_of_each_run_and_its_table_the_median(tmp_path, capsys):
    page, file = tmp_path / "page.md", tmp_path / "record.json"
    page.write_text("above\n<!-- recurrent-dqn:begin -->\n<!-- recurrent-dqn:end -->\n", encoding="utf-8")
    outputs = ["--json", str(file), "--markdown", str(page)]
    assert main(["--steps", "30", "--runs", "3", *outputs]) == 0
    means = json.loads(file.read_text(encoding="utf-8"))["mean_returns"]
    assert [len(each) for each in means.values()] == [3, 3]
    for agent, each in means.items():
        low, middle, high = sorted(each)
        assert f"| {agent} | {middle:.2f} ({low:.2f} to {high:.2f}) |" in page.read_text(encoding="utf-8")
    assert "30 training steps in each of 8 corridors, 3 runs per network" in capsys.readouterr().out
