"""Programs written from the calls that cpprb's articles use: they run, store and learn here.

They stand in `article_programs/` and are run as a reader would run them, each in a process of its own. The
same files run on cpprb by changing nothing but the import line, which is what these tests do where it is
installed.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from replay_tutorial.buffers.jit import COMPILING

pytest.importorskip("gymnasium")

PROGRAMS = Path(__file__).parent / "article_programs"
START_METHODS = ["fork", "spawn", "forkserver"] if os.name == "posix" else ["spawn"]

needs_cpprb = pytest.mark.skipif(find_spec("cpprb") is None, reason="cpprb is not installed")


def run_program(program: Path, *arguments: str) -> Any:
    """Runs a program and returns what it printed; on stderr only the notice of a cold cache may stand."""
    paths = os.pathsep.join([str(PROGRAMS), str(ROOT), os.environ.get("PYTHONPATH", "")])
    finished = subprocess.run(
        [sys.executable, str(program), *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.replace(COMPILING + "\n", "") == ""
    return json.loads(finished.stdout.splitlines()[-1])


def with_import_line_changed(name: str, folder: Path) -> Path:
    """Writes the program with cpprb imported in place of this package: one line differs."""
    ours = (PROGRAMS / name).read_text()
    theirs = ours.replace("from replay_tutorial import", "from cpprb import")
    assert sum(a != b for a, b in zip(ours.splitlines(), theirs.splitlines(), strict=True)) == 1
    program = folder / name
    program.write_text(theirs)
    return program


def check_that_it_learned(told: dict) -> None:
    """The network predicts its targets better than a constant.

    The articles' programs don't seed their buffers. In 120 runs the explained share was 0.75 to 0.95.
    """
    assert told["explained_before"] < 0, told
    assert told["explained"] > 0.5, told


def check_er(told: dict) -> None:
    assert told["stored"] == 3000
    assert told["episodes"] > 10
    check_that_it_learned(told)


def check_per(told: dict) -> None:
    assert told["stored"] == 3000
    assert 0 < told["least_weight"] < 0.9, "all weights are equal: the priorities had no effect"
    assert told["greatest_weight"] == pytest.approx(1)
    assert told["max_priority"] > 1
    check_that_it_learned(told)


def test_experience_replay_program_stores_every_step_and_learns():
    check_er(run_program(PROGRAMS / "er_loop.py", "3000"))


def test_prioritized_replay_program_weighs_its_samples_and_learns():
    mock, told = run_program(PROGRAMS / "per_loop.py", "3000")
    assert mock["stored"] == 3000
    assert mock["max_priority"] == 1, "the TD error 0, one number, is that of every row"
    check_per(told)


@needs_cpprb
def test_experience_replay_program_runs_on_cpprb_by_its_import_line(tmp_path):
    check_er(run_program(with_import_line_changed("er_loop.py", tmp_path), "3000"))


@needs_cpprb
def test_prioritized_replay_program_runs_on_cpprb_by_its_import_line(tmp_path):
    # Of the mock cpprb makes NaN weights: it reads past the end of the one priority.
    _, told = run_program(with_import_line_changed("per_loop.py", tmp_path), "3000")
    check_per(told)


@pytest.mark.parametrize("start_method", START_METHODS)
def test_apex_skeleton_stores_what_explorers_sent_and_gives_them_what_was_learned(start_method):
    told = run_program(PROGRAMS / "apex_skeleton.py", "2000", start_method)
    assert told["exit_codes"] == [0, 0]
    assert told["next_index"] == told["sent"], "every row that was sent is stored once"
    assert told["stored"] == told["sent"] < 1e6
    for received in told["received"]:
        assert received == list(range(1, 2000, 100)), "weights came in the order they were sent"
    check_that_it_learned(told)
    for lesson in told["lessons"]:
        assert lesson == pytest.approx(told["last_sent"], rel=1e-4), "an explorer holds the last weights sent"
