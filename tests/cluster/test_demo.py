"""The demonstration refuses what it cannot show; what it shows needs hosts, and `make stress`."""

from pathlib import Path

import pytest
from cluster_demo import main


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--kill-after", "-1"], "must be 0 or more"),
        (["--cut-after", "inf"], "must be 0 or more"),
        (["--actors", "0"], "0"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert reason in capsys.readouterr().err


def test_the_reason_is_said_where_it_cannot_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 1
    assert "no hosts can be made here: it needs" in capsys.readouterr().err
