"""Faults at random moments: real runs, interrupted from their first instruction on."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from replay_tutorial.__main__ import main
from replay_tutorial.bench.training.faults import Outcome, Trial, lines_of
from replay_tutorial.bench.training.victim import Victim

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sessions and signals of POSIX")


def test_ctrl_c_at_three_random_moments_leaves_nothing_but_a_run_that_goes_on(tmp_path, capsys):
    file, page = tmp_path / "faults.json", tmp_path / "page.md"
    page.write_text("<!-- faults:begin -->\n<!-- faults:end -->\n")
    arguments = ["--faults", "ctrl-c", "--times", "3", "--json", str(file), "--markdown", str(page)]
    status = main(["bench", "faults", *arguments])
    assert status == 0, capsys.readouterr().out
    first, *others = json.loads(file.read_text())["outcomes"]
    assert first["resumed_step"] >= first["saved_step"] + 1_000
    assert len(others) == 2
    assert all(outcome["status"] in (130, -signal.SIGINT) for outcome in others)
    assert "| ctrl-c | 3 |" in page.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_victim_hears_ctrl_c_from_its_first_instruction_on_even_in_the_background(tmp_path):
    """A script's background job ignores Ctrl-C, and so did all that it started, until they had a handler."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Victim(tmp_path, "--help") as victim:
            ignored = (
                Path(f"/proc/{victim.process.pid}/status").read_text().partition("SigIgn:")[2].split()[0]
            )
            assert int(ignored, 16) & 1 << (signal.SIGINT - 1) == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_run_that_ends_otherwise_than_it_must_is_wrong(tmp_path):
    trial = Trial("learner", tmp_path, seed=0)
    with Victim(tmp_path, "train", "NoSuchThing-v0", "--runs", str(tmp_path / "runs")) as victim:
        assert victim.left(0.0) == 1
        trial.outcome.status = 7
        trial._check_end(victim)
        assert victim.end(60) == 1
        assert victim.left(1.0) == 0
    assert any("exit status 7" in wrong for wrong in trial.outcome.wrong)
    assert any("nobody said" in wrong for wrong in trial.outcome.wrong)


def test_wrong_outcomes_are_counted():
    outcomes = [Outcome("actor", 1.0, wrong=["a", "b"]), Outcome("actor", 1.0, saved_step=5, resumed_step=6)]
    assert "| actor | 2 | 1 | 1 | 0.0 | 1 |" in lines_of(outcomes)
