"""A smoke test of the lab: quick commands write their records, the others start. It has its own tests."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from benchmarks.__main__ import COMMANDS, main

LIST_BUFFER = ROOT / "benchmarks" / "conformance" / "adapters" / "your_buffer.py"
RECORDS = sorted((ROOT / "docs" / "measurements").glob("*.json"))


def check_provenance(record: object) -> int:
    """Count the parts of a record that say where it was made; they also say how, when and with what."""
    if not isinstance(record, dict):
        return sum(map(check_provenance, record)) if isinstance(record, list) else 0
    if "machine" not in record:
        return sum(map(check_provenance, record.values()))
    assert {"processor", "cores", "system"} == {*record["machine"]}
    assert {"python", "numpy", "numba", "replay_tutorial"} <= {*record["versions"]}
    assert date.fromisoformat(record["date"])
    assert all(each.startswith("python ") for each in np.atleast_1d(record["command"]))
    return 1


def test_buffers_are_measured_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "kernels.json"
    size = ["--cases", "kernels", "--capacity", "600", "--rounds", "1"]
    assert main(["buffers", *size, "--json", str(path)]) == 0
    record = json.loads(path.read_text(encoding="utf-8"))
    assert check_provenance(record) == 1
    assert record["command"] == f"python -m benchmarks buffers {' '.join(size)} --json {path}"
    documented = json.loads((ROOT / "docs" / "measurements" / "kernels.json").read_text(encoding="utf-8"))
    assert record.keys() == documented.keys()
    assert [row["operation"] for row in record["rows"]] == [row["operation"] for row in documented["rows"]]
    assert "| sample 512, uniform / take_rows |" in capsys.readouterr().out


def test_a_plain_list_is_checked(capsys: pytest.CaptureFixture) -> None:
    assert main(["conformance", "--adapter", str(LIST_BUFFER)]) == 0
    assert "5 yes, 0 no," in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_starts(name: str, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("gymnasium", reason="training runs need the extra `train`")
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert f"usage: python -m benchmarks {name} " in capsys.readouterr().out


def test_unknown_commands_are_refused_with_the_names_of_all(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    told = capsys.readouterr().err
    assert all(name in told for name in COMMANDS)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_record_of_the_site_says_how_it_was_made(path: Path) -> None:
    assert check_provenance(json.loads(path.read_text(encoding="utf-8"))) >= 1
