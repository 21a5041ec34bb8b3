"""`my_replay/`: checks store what a student writes, later chapters import it, and agents train with it."""

import inspect
import re
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from student import Notebook, answer_of, cells_of

from replay_course import agent_replay, check_written, exercises_prioritized, part, shared_replay
from replay_course.course import PARTS, VARIABLE, state_of, store
from replay_course.course_command import draw
from replay_course.course_source import NotStorable, module_source
from replay_course.exercises import CheckFailed
from replay_course.exercises_shared import check_reader
from replay_course.exercises_uniform import check_ring
from replay_course.steps.learning import one_file_dqn
from replay_course.steps.learning.apex_processes import ROW
from replay_course.steps.learning.online_q_learning import train
from replay_course.steps.learning.q_learning_with_replay import ReplayQLearning
from replay_course.steps.uniform import RingOfArrays
from replay_course.timing import Spread
from replay_tutorial.__main__ import main


def play(chapter: str) -> Notebook:
    """Import, write and check the parts of a chapter, as a student does."""
    notebook, checks = Notebook(), tuple(each.check.split(":")[1] for each in PARTS.values())
    notebook.run(cells_of(chapter)[0].source)
    notebook.names |= {"store": store, "check_reader": check_reader}
    notebook.run(answer_of(chapter, notebook))
    for cell in cells_of(chapter):
        is_check = {"try", "check"} & {*cell.metadata.get("tags", [])}
        if is_check and any(name in cell.source for name in checks):
            # The check of chapter 06 starts processes for seconds; another test runs it.
            notebook.run(cell.source.replace("check_written(exercises.check_reader", "store(check_reader"))
    return notebook


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty my_replay/, above the current folder."""
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["course", "start", str(tmp_path)]) == 0
    return tmp_path / "my_replay"


def test_a_students_parts_are_stored_imported_by_later_chapters_and_train_agents(folder: Path) -> None:
    for chapter in sorted({each.chapter for each in PARTS.values()}):
        notebook = play(chapter)
        if chapter == "05":
            tree = notebook.names["MyPrioritizedReplay"](8, {}).tree
            assert type(tree.tree).__module__ == "my_replay.sum_tree"
            assert tree.set_minimum.__module__ == "my_replay.minimum"
    for name, each in PARTS.items():
        assert state_of(name, folder / f"{name}.py") == "stored"
        yours = part(name)
        assert (yours.__module__, yours.__name__) == (f"my_replay.{name}", each.name)

    agent = ReplayQLearning(kind=part("ring"))
    train(agent, total_steps=600)
    assert type(agent.replay).__module__ == "my_replay.ring"
    assert len(agent.replay) == 600

    replay = agent_replay(seed=2)
    assert replay is not None
    _, curve = one_file_dqn.train(seed=2, total_steps=8_000, buffer=replay)
    assert type(replay.buffer).__module__ == "my_replay.prioritized"
    assert type(replay.window).__module__ == "my_replay.n_step"
    assert replay.buffer.next_index > 7_990
    assert max(score for _, score in curve) > 50, "an untrained agent reaches 10"

    shared = shared_replay(seed=0, capacity=8)
    assert shared is not None
    assert shared.read_row.__module__ == "my_replay.reader"
    shared.add(**{name: np.ones((8, *np.atleast_1d(field.get("shape", ())))) for name, field in ROW.items()})
    assert {*shared.sample(64)["indexes"]} == {*range(8)}


def test_status_and_report_show_what_is_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["course", "report"]) == 0
    assert "nothing to measure yet" in capsys.readouterr().out
    play("01")
    assert main(["course", "status"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"01 +ring +yours", told)
    assert re.search(r"02 +n_step +–", told)
    assert f"1 of {len(PARTS)} parts" in told


def test_a_report_shows_how_much_the_rounds_differ(capsys: pytest.CaptureFixture[str]) -> None:
    draw("add 1", {"MyRing": Spread(1.0, 2.0, 9.0), "ReplayBuffer": Spread(3.0, 4.0, 5.0)}, cpprb=1.5)
    told = capsys.readouterr().out
    assert re.search(r"MyRing +2.00 \(1.00, 9.00\) .* yours", told)
    assert re.search(r"cpprb +6.00 ", told)


def write_ring(notebook: Notebook, sampled: str = "len(self)", more: str = "") -> Any:
    """Write chapter 01's ring in a cell; `sampled` is the number of slots that it samples from."""
    notebook.run(f"""
import numpy as np

class MyRing:
    def __init__(self, capacity, fields, seed=0):
        self.capacity, self.added, self.rng = capacity, 0, np.random.default_rng(seed)
        arrays = {{n: np.zeros((capacity, *f.get("shape", ())), f["dtype"]) for n, f in fields.items()}}
        self.columns = arrays

    def __len__(self):
        return min(self.added, self.capacity)

    def add(self, **transition):
        for name, column in self.columns.items():
            column[self.added % self.capacity] = transition[name]
        self.added += 1

    def sample(self, batch_size):
        slots = self.rng.integers({sampled}, size=batch_size)
        {more}
        return {{name: column[slots] for name, column in self.columns.items()}}
""")
    return notebook.names["MyRing"]


def test_another_check_of_the_same_name_stores_nothing(folder: Path) -> None:
    store(exercises_prioritized.check_update, write_ring(Notebook()))  # chapter 00 has a check_update, too
    assert not (folder / "q_learning.py").exists()


def test_a_wrong_answer_is_not_stored(folder: Path) -> None:
    with pytest.raises(CheckFailed):
        check_written(check_ring, write_ring(Notebook(), "self.capacity"))
    assert not (folder / "ring.py").exists()


def test_a_cell_that_runs_again_replaces_what_it_stored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook, file = Notebook(), folder / "ring.py"
    for more in ("first = 1", "other = 2", "other = 2"):
        check_written(check_ring, write_ring(notebook, more=more))
        assert more in file.read_text(encoding="utf-8")
        assert more in inspect.getsource(part("ring").sample)
    assert capsys.readouterr().out.count("stored in my_replay/ring.py") == 3


def test_an_edited_part_is_kept_and_checked_before_it_is_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook, file = Notebook(), folder / "ring.py"
    kind = write_ring(notebook)
    check_written(check_ring, kind)
    right = file.read_text(encoding="utf-8")
    file.write_text(right.replace("class MyRing", "# by hand\n\n\nclass MyRing"), encoding="utf-8")
    capsys.readouterr()
    part("ring")
    assert "right: capacities" in capsys.readouterr().out, "checked again"
    check_written(check_ring, kind)
    assert "was edited by hand, so it is kept" in capsys.readouterr().out
    assert "by hand" in file.read_text(encoding="utf-8")
    for wrong, told in [
        (right.replace("len(self), size", "self.capacity, size"), "CheckFailed: .*empty"),
        (right.replace("import numpy as np", ""), "NameError: name 'np'"),
        (right.replace("def add", "def ad(d"), "SyntaxError"),
        (right.replace("class MyRing", "class Other"), "AttributeError: .*MyRing"),
    ]:
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(CheckFailed, match=rf"(?s)ring\.py: .*{told}.*delete it and run the check"):
            part("ring")
    file.write_bytes(b"# \xff\n")
    assert main(["course", "status"]) == 0
    assert main(["course", "report"]) == 2
    assert "delete it and run the check" in capsys.readouterr().err
    file.unlink()
    assert part("ring") is RingOfArrays


def test_a_part_that_another_one_imports_is_checked_too(folder: Path) -> None:
    play("04")
    play("05")
    tree = folder / "sum_tree.py"
    text = tree.read_text(encoding="utf-8")
    tree.write_text(text.replace("query >= self.nodes", "query > self.nodes"), encoding="utf-8")
    assert tree.read_text(encoding="utf-8") != text
    with pytest.raises(CheckFailed, match=r"sum_tree\.py: CheckFailed"):
        part("prioritized")
    tree.unlink()
    with pytest.raises(CheckFailed, match=r"sum_tree\.py: ModuleNotFoundError"):
        part("prioritized")


def test_a_part_that_an_older_check_accepted_is_checked_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_written(check_ring, write_ring(Notebook()))
    file = folder / "ring.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text[:-13] + "0" * 12 + "\n", encoding="utf-8")
    capsys.readouterr()
    main(["course", "status"])
    assert "accepted by an older check" in capsys.readouterr().out
    part("ring")
    assert "right: capacities" in capsys.readouterr().out


def test_a_folder_that_cant_be_written_doesnt_fail_the_check(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ring.tmp").mkdir()  # even root can't write a file of this name
    check_written(check_ring, write_ring(Notebook()))
    assert "accepted, but not stored in my_replay/ring.py: " in capsys.readouterr().out


def test_without_the_folder_nothing_is_stored_and_parts_are_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE)
    check_written(check_ring, write_ring(Notebook()))
    assert part("ring") is RingOfArrays
    assert "my_replay" not in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    assert main(["course", "status"]) == 2
    assert "course start" in capsys.readouterr().err


def test_the_variable_selects_the_folder_or_switches_it_off(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_written(check_ring, write_ring(Notebook()))
    monkeypatch.chdir("/")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert part("ring").__module__ == "my_replay.ring"
    monkeypatch.setenv(VARIABLE, "")
    assert part("ring") is RingOfArrays
    monkeypatch.setenv(VARIABLE, str(tmp_path / "notebooks"))
    with pytest.raises(FileNotFoundError, match="course start"):
        part("ring")


def test_start_keeps_what_is_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "__init__.py").write_text("# mine\n", encoding="utf-8")
    assert main(["course", "start", ".."]) == 0
    assert "exists already" in capsys.readouterr().out
    assert (folder / "__init__.py").read_text(encoding="utf-8") == "# mine\n"
    assert main(["course", "start", str(folder / "__init__.py")]) == 2


def test_a_module_has_what_the_code_of_a_notebook_uses() -> None:
    notebook = Notebook()
    notebook.run("""
import math
import numpy as np
from collections import deque as queue
from torch import nn
from replay_tutorial.buffers import sum_tree
LIMIT, NAMES = 3, ("a", "b")
""")
    notebook.run("""
def my_helper(x):
    return math.sqrt(x) + len(NAMES)

class MyBase:
    size: int = LIMIT

class MyThing(MyBase):
    @property
    def layer(self) -> nn.Module:
        return nn.Linear(1, 1)

    def twice(self, x, rest=queue()):
        return [my_helper(each) for each in (x, x)], np.zeros(self.size), sum_tree.SumTree(1), rest
""")
    text = module_source("MyThing", notebook.names["MyThing"])
    known: dict[str, Any] = {}
    exec(text, known)  # noqa: S102 - what was written
    assert known["MyThing"]().twice(4)[0] == [4, 4]
    assert text.index("def my_helper") < text.index("class MyThing")
    assert "queue" in text and "exercises" not in text


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("rng = object()\ndef my_part():\n    return rng", "uses `rng`, an object of type object"),
        (
            "def outer():\n    def my_part():\n        return 1\n    return my_part\nmy_part = outer()",
            "top level",
        ),
        ("big = 10\ndef my_part(n=big):\n    return n\nmy_part.__name__ = 'other'", "source of other"),
    ],
)
def test_what_a_module_cant_have_is_named(cell: str, told: str) -> None:
    notebook = Notebook()
    notebook.run(cell)
    assert isinstance(notebook.names["my_part"], FunctionType)
    with pytest.raises(NotStorable, match=told):
        module_source("my_part", notebook.names["my_part"])
