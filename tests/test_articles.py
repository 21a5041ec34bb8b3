"""Programs written from the calls that cpprb's articles use: they run, store and learn here.

They import `replay_tutorial.cpprb`. With nothing but the import line changed, they run on cpprb.
"""

import json
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from programs import Result

from replay_tutorial.buffers.runtime.numba_internals import COMPILING

pytest.importorskip("gymnasium")

PROGRAMS = Path(__file__).parent / "article_programs"
START_METHODS = ["fork", "spawn", "forkserver"] if os.name == "posix" else ["spawn"]

needs_cpprb = pytest.mark.skipif(find_spec("cpprb") is None, reason="cpprb is not installed")


def told_by(finished: Result) -> Any:
    """Return what a program printed; on stderr only the notice of a cold cache is allowed."""
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.replace(COMPILING + "\n", "") == ""
    return json.loads(finished.stdout.splitlines()[-1])


def check_that_it_learned(told: dict[str, Any]) -> None:
    """The network predicts its targets better than a constant.

    The articles' programs don't seed their buffers. In 120 runs the explained share was 0.75 to 0.95.
    """
    assert told["explained_before"] < 0, told
    assert told["explained"] > 0.5, told


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
@pytest.mark.parametrize("library", ["replay_tutorial.cpprb", pytest.param("cpprb", marks=needs_cpprb)])
def test_replay_program_stores_every_step_and_learns(
    library: str, kind: str, tmp_path: Path, run_program: Callable[..., Result]
) -> None:
    shutil.copy(PROGRAMS / "q_network.py", tmp_path)
    ours = (PROGRAMS / "replay_loop.py").read_text()
    theirs = ours.replace("from replay_tutorial.cpprb import", f"from {library} import")
    changed = sum(a != b for a, b in zip(ours.splitlines(), theirs.splitlines(), strict=True))
    assert changed == (library == "cpprb"), "nothing but the import line"
    (tmp_path / "replay_loop.py").write_text(theirs)
    told = told_by(run_program(tmp_path / "replay_loop.py", kind, "3000"))
    assert told["stored"] == 3000
    assert told["episodes"] > 10
    check_that_it_learned(told)
    if kind == "prioritized":
        assert 0 < told["least_weight"] < 0.9, "all weights are equal: the priorities had no effect"
        assert told["greatest_weight"] == pytest.approx(1)
        assert told["max_priority"] > 1


@pytest.mark.parametrize("start_method", START_METHODS)
def test_apex_skeleton_stores_what_explorers_sent_and_gives_them_what_was_learned(
    start_method: str, run_program: Callable[..., Result]
) -> None:
    told = told_by(run_program(PROGRAMS / "apex_skeleton.py", "2000", start_method))
    assert told["exit_codes"] == [0, 0]
    assert told["next_index"] == told["sent"], "every row that was sent is stored once"
    assert told["stored"] == told["sent"] < 1e6
    for received in told["received"]:
        assert received == list(range(1, 2000, 100)), "weights came in the order they were sent"
    check_that_it_learned(told)
    for lesson in told["lessons"]:
        assert lesson == pytest.approx(told["last_sent"], rel=1e-4), "an explorer holds the last weights sent"
