"""The rooms of the benchmarks import only what lies below them, and never each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import PACKAGE

BENCH = PACKAGE / "bench"
NAME = "replay_tutorial.bench."
# room → what it may import of the others; test_layout finds the circles
BELOW = {
    "peers": set(),
    "one_process": {"peers"},
    "many_processes": {"peers"},
    "training": {"peers"},
    "tables": {"peers"},
    "cluster": {"training"},
}


def imported(path: Path) -> Iterator[str]:
    """The modules of `bench` that a file imports or names in a text, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = node.value.split()
        else:
            continue
        yield from (name for name in names if name.startswith(NAME))


def rooms_of(path: Path) -> set[str]:
    """The rooms that a file imports from."""
    return {name.split(".")[2] for name in imported(path)}


@pytest.mark.parametrize("room", BELOW)
def test_a_room_imports_only_what_lies_below_it(room):
    files = sorted((BENCH / room).rglob("*.py"))
    above = {path.name: rooms_of(path) - {room} - BELOW[room] for path in files}
    assert files
    assert not {name: rooms for name, rooms in above.items() if rooms}


def test_every_folder_is_a_room():
    folders = {path.name for path in BENCH.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(BELOW)


def test_an_import_is_seen_also_inside_of_functions_and_texts(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        f"def draw():\n    from {NAME}peers import lineup\n"
        f"    import importlib\n    importlib.import_module('{NAME}training.scores')\n"
        f"TEXT = '''\nfrom {NAME}one_process.memory import fill\n'''\n"
    )
    assert rooms_of(file) == {"peers", "training", "one_process"}
