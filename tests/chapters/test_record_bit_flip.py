"""The record of the bit-flipping recipe: its table and its figures."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("gymnasium")

from bit_flip import main


def test_record_holds_the_rate_of_each_run_and_its_table_the_median(tmp_path, capsys):
    page, file = tmp_path / "page.md", tmp_path / "record.json"
    page.write_text("above\n<!-- bit-flip:begin -->\n<!-- bit-flip:end -->\n", encoding="utf-8")
    arguments = [
        "--bits",
        "3",
        "--episodes",
        "4",
        "--runs",
        "3",
        "--json",
        str(file),
        "--markdown",
        str(page),
    ]
    assert main(arguments) == 0
    rates = json.loads(file.read_text(encoding="utf-8"))["success_rates"]
    assert [len(each) for each in rates.values()] == [3, 3]
    for agent, each in rates.items():
        low, middle, high = sorted(each)
        assert f"| {agent} | {middle:.1%} ({low:.1%} to {high:.1%}) |" in page.read_text(encoding="utf-8")
    assert "3 bits, 4 training episodes, 3 runs per agent" in capsys.readouterr().out
