"""Checkpoints of several files: complete or absent, whatever happens while one is written."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import run_python

from replay_tutorial import Checkpoints

needs_links = pytest.mark.skipif(sys.platform == "win32", reason="links require a privilege")


def write(checkpoints: Checkpoints, step: int) -> None:
    with checkpoints.write(step) as folder:
        (folder / "nested").mkdir()
        for name in ("a", "nested/b"):
            (folder / name).write_text(str(step))


def contents(folder: Path) -> dict[str, list[str]]:
    return {path.name: [(path / name).read_text() for name in ("a", "nested/b")] for path in folder.iterdir()}


def test_the_newest_checkpoints_are_kept_in_the_order_of_writing(tmp_path):
    checkpoints = Checkpoints(tmp_path / "new" / "folder", keep=3)
    assert checkpoints.newest is None and checkpoints.complete() == []
    for step in (900, 20, 20, 3, 1_000):
        write(checkpoints, step)
    expected = {"0003_step_20": ["20"] * 2, "0004_step_3": ["3"] * 2, "0005_step_1000": ["1000"] * 2}
    assert contents(checkpoints.folder) == expected
    assert [path.name for path in checkpoints.complete()] == list(expected)
    assert checkpoints.newest == tmp_path / "new" / "folder" / "0005_step_1000"
    (tmp_path / "new" / "folder" / "0005_step_1000.unusable").mkdir()
    write(Checkpoints(checkpoints.folder, keep=1), 7)
    assert [path.name for path in checkpoints.complete()] == ["0006_step_7"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_while_a_checkpoint_is_written_leaves_the_ones_before(tmp_path, error):
    checkpoints = Checkpoints(tmp_path)
    write(checkpoints, 1)
    with pytest.raises(error), checkpoints.write(2) as folder:
        (folder / "a").write_text("2")
        raise error
    assert contents(tmp_path) == {"0001_step_1": ["1", "1"]}


KILLED = """
import os, sys
from itertools import count
from pathlib import Path
from replay_tutorial import Checkpoints

original = {name: getattr(os, name) for name in ("fsync", "replace", "rmdir")}

def write(checkpoints, step):
    with checkpoints.write(step) as folder:
        for name in ("a", "b"):
            (folder / name).write_text(str(step))

def killed(name):
    def call(*arguments, **options):
        global left
        if left == 0:
            os._exit(9)
        left -= 1
        return original[name](*arguments, **options)
    return call

for moment in count():
    checkpoints, left = Checkpoints(Path(sys.argv[1], str(moment))), moment
    write(checkpoints, 1)
    write(checkpoints, 2)
    if not (child := os.fork()):
        for name in original:
            setattr(os, name, killed(name))
        write(checkpoints, 3)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
"""


@pytest.mark.skipif(sys.platform == "win32", reason="uses fork")
def test_a_process_killed_at_any_call_leaves_complete_checkpoints_only(tmp_path):
    """Before each call that changes the disk; afterwards, the next checkpoint can be written."""
    finished = run_python("-c", KILLED, str(tmp_path))
    assert finished.returncode == 0, finished.stderr
    newest = []
    for moment in range(len(list(tmp_path.iterdir()))):
        checkpoints = Checkpoints(tmp_path / str(moment))
        for path in checkpoints.complete():
            assert {(path / name).read_text() for name in ("a", "b")} == {path.name.rpartition("_")[2]}
        newest.append(checkpoints.newest.name if checkpoints.newest else "none")
        write(checkpoints, 4)
        assert checkpoints.complete()[0].name == newest[-1]
        assert len([*checkpoints.folder.iterdir()]) == 2, "nothing else is left"
    assert set(newest) == {"0002_step_2", "0003_step_3"} and newest == sorted(newest)
    assert len(newest) > 6, "moments"


def test_the_name_of_a_checkpoint_contains_a_number_whatever_the_type_of_its_step(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (np.int64(7), True):
        write(checkpoints, step)
    assert [path.name for path in checkpoints.complete()] == ["0001_step_7", "0002_step_1"]


def test_wrong_numbers_are_refused_before_a_folder_is_created(tmp_path):
    for step, error in ((-1, ValueError), (2.5, TypeError)):
        with pytest.raises(error), Checkpoints(tmp_path / "none").write(step):
            pass
    with pytest.raises(ValueError, match="keep must be at least 1"):
        Checkpoints(tmp_path, keep=0)
    assert not (tmp_path / "none").exists()


@needs_links
def test_what_only_has_the_name_of_a_checkpoint_is_none_and_is_left_alone(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1)
    write(checkpoints, 1)
    (tmp_path / "0008_step_8").write_text("a file")
    (tmp_path / "0009_step_9").symlink_to(tmp_path / "nowhere")
    assert [path.name for path in checkpoints.complete()] == ["0001_step_1"]
    for step in (9, 9):
        write(checkpoints, step)
    assert checkpoints.newest == tmp_path / "0011_step_9"
    assert {path.name for path in tmp_path.iterdir()} == {"0008_step_8", "0009_step_9", "0011_step_9"}


@needs_links
@pytest.mark.parametrize("kind", ["file", "link to a folder", "link to nowhere", "folder"])
def test_whatever_is_called_unfinished_is_removed_but_not_what_it_links_to(tmp_path, kind):
    checkpoints, unfinished, other = (
        Checkpoints(tmp_path / "new"),
        tmp_path / "new" / "unfinished",
        tmp_path / "a",
    )
    checkpoints.folder.mkdir()
    if kind == "file":
        unfinished.write_text("a file")
    elif kind == "folder":
        (unfinished / "inside").mkdir(parents=True)
    else:
        unfinished.symlink_to(other)
    if kind == "link to a folder":
        other.mkdir()
        (other / "precious").write_text("kept")
    write(checkpoints, 1)
    assert contents(checkpoints.folder) == {"0001_step_1": ["1", "1"]}
    assert kind != "link to a folder" or (other / "precious").read_text() == "kept"


@needs_links
def test_a_checkpoint_that_was_moved_and_linked_is_used_and_only_its_link_removed(tmp_path):
    checkpoints, elsewhere = Checkpoints(tmp_path / "new", keep=1), tmp_path / "elsewhere"
    write(checkpoints, 1)
    checkpoints.newest.rename(elsewhere)
    (checkpoints.folder / "0001_step_1").symlink_to(elsewhere)
    assert (checkpoints.newest / "a").read_text() == "1"
    for step in (2, 3):
        write(checkpoints, step)
    assert contents(checkpoints.folder) == {"0003_step_3": ["3", "3"]}
    assert (elsewhere / "a").read_text() == "1"


@needs_links
def test_links_and_pipes_in_a_checkpoint_do_not_block_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with checkpoints.write(1) as folder:
        (folder / "link").symlink_to("nowhere")
        os.mkfifo(folder / "pipe")
    assert checkpoints.newest is not None


def test_a_folder_that_is_a_file_is_an_error_and_not_a_fresh_start(tmp_path):
    (tmp_path / "file").write_text("")
    checkpoints = Checkpoints(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        _ = checkpoints.newest
