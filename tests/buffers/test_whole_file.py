"""A file is replaced as a whole, or not at all."""

import pytest

from replay_tutorial.buffers.whole_file import replace_file


def test_file_is_replaced_and_nothing_unfinished_stays(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    replace_file(path, lambda unfinished: unfinished.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    seen = []
    replace_file(path, lambda unfinished: (unfinished.write_text("new"), seen.append(path.read_text())))
    assert seen == ["old"]


def test_writer_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write(unfinished):
        unfinished.write_text("half")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_is_written_over(tmp_path):
    path = tmp_path / "file"
    (tmp_path / ".file.unfinished").write_text("of a killed process")
    replace_file(path, lambda unfinished: unfinished.write_text("new"))
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
