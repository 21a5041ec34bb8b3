"""Faults at random moments: real runs, interrupted from their first instruction on."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faults import main
from trial import Trial, is_pythons_own
from victim import Victim

import replay_tutorial

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sessions and signals of POSIX")


def test_ctrl_c_at_three_random_moments_leaves_nothing_but_a_run_that_goes_on(tmp_path, capsys):
    file, page = tmp_path / "faults.json", tmp_path / "page.md"
    page.write_text("<!-- faults-ctrl-c:begin -->\n<!-- faults-ctrl-c:end -->\n")
    arguments = ["--faults", "ctrl-c", "--times", "3", "--json", str(file), "--markdown", str(page)]
    status = main(arguments)
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


@pytest.mark.parametrize(
    ("file", "own"),
    [("start.py", True), (replay_tutorial.__file__, False), (multiprocessing.__file__, False)],
)
def test_traceback_of_the_program_is_not_taken_for_pythons_own(file, own):
    code = f"exec(compile('raise KeyboardInterrupt', {file!r}, 'exec'))"
    errors = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert is_pythons_own(errors) == own


def test_traceback_at_ctrl_c_is_wrong_as_soon_as_python_has_found_the_program(tmp_path):
    trial = Trial("ctrl-c", tmp_path, seed=0)
    trial.outcome.status = -signal.SIGINT
    with Victim(tmp_path, "--help") as victim:
        victim.end(60)
        for file, wrong in (("start.py", 0), (replay_tutorial.__file__, 1)):
            victim.errors.write_text(f'Traceback\n  File "{file}"\nKeyboardInterrupt\n')
            trial.outcome.before_program = False
            trial._check_end(victim)
            assert len(trial.outcome.wrong) == wrong


def test_files_that_a_dead_run_left_are_named(tmp_path):
    with Victim(tmp_path, "--help") as victim:
        victim.end(60)
        assert victim.files_left() == []
        (victim.temporary / "pymp-1").mkdir()
        assert victim.files_left() == ["pymp-1"]
    assert not victim.temporary.exists()
