"""A file is replaced as a whole, or not at all."""

import multiprocessing
import os
import sys
import threading
from contextlib import nullcontext

import pytest

from replay_tutorial.buffers.runtime import atomic_file
from replay_tutorial.buffers.runtime.atomic_file import atomic_write, replace_file


def test_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    seen = []
    replace_file(path, lambda unfinished: (unfinished.write_text("new"), seen.append(path.read_text())))
    assert seen == ["old"]


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt("Ctrl-C")])
def test_writer_that_fails_leaves_the_old_file_alone(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")

    def write(unfinished):
        unfinished.write_text("half")
        raise error

    with pytest.raises(type(error), match=str(error)):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_written_over(tmp_path):
    path = tmp_path / "file"
    (tmp_path / ".file.unfinished").write_text("of a killed process")
    replace_file(path, lambda unfinished: unfinished.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("times", [3, 10])
def test_file_that_windows_refuses_to_replace_while_it_is_read_is_replaced_afterwards(
    tmp_path, monkeypatch, times
):
    path, refusals, replace = tmp_path / "file", [], os.replace
    path.write_text("old")

    def refuse_at_first(*places):
        if len(refusals) < times:
            refusals.append(places)
            raise PermissionError(13, "The process cannot access the file")
        replace(*places)

    monkeypatch.setattr(atomic_file, "RETRIES", 5)
    monkeypatch.setattr(atomic_file, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(os, "replace", refuse_at_first)
    with pytest.raises(PermissionError) if times > 5 else nullcontext():
        replace_file(path, lambda unfinished: unfinished.write_text("new"))
    assert (path.read_text(), len(refusals)) == (("new", 3) if times == 3 else ("old", 6))
    assert list(tmp_path.iterdir()) == [path]


def die_while_writing(path):
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        os._exit(9)


@pytest.mark.skipif(sys.platform == "win32", reason="stays there")
def test_what_a_killed_writer_left_is_removed_by_the_next_one_to_the_same_path(tmp_path):
    path, other = tmp_path / "file", tmp_path / "file.1-2.part"
    for place in (path, other):
        process = multiprocessing.get_context("spawn").Process(target=die_while_writing, args=(place,))
        process.start()
        process.join()
        assert process.exitcode == 9
    assert len(list(tmp_path.iterdir())) == 2
    with atomic_write(path) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    of_the_other = [left.name for left in tmp_path.iterdir() if left != path]
    assert len(of_the_other) == 1
    assert of_the_other[0].startswith(f".{other.name}.")


def test_what_another_is_writing_is_left_alone(tmp_path):
    path = tmp_path / "file"

    def write_a_second():
        with atomic_write(path) as file:
            file.write(b"second")

    with atomic_write(path) as file:
        file.write(b"first")
        second = threading.Thread(target=write_a_second)
        second.start()
        second.join()
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
