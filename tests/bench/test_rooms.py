"""The rooms of the benchmarks: in every folder imports go one way, and the rooms import only what lies below them."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from places import PACKAGE

BENCH = PACKAGE / "bench"
NAME = "replay_tutorial.bench"
FOLDERS = sorted(path for path in [BENCH, *BENCH.rglob("*")] if path.is_dir() and path.name != "__pycache__")
# room → what it may import of the others
BELOW = {
    "method": set(),
    "peers": {"method"},
    "one_process": {"method", "peers"},
    "many_processes": {"method", "peers"},
    "training": {"method", "peers"},
}


def imported(path: Path) -> Iterator[str]:
    """The modules of `bench` that a file imports, anywhere in it, or names in a text, as for `import_module`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [word for word in node.value.split() if word.startswith(NAME)]
        else:
            continue
        yield from (name for name in names if name.startswith(f"{NAME}."))


def child(folder: Path, parts: tuple[str, ...]) -> str | None:
    """The file or folder right below `folder` that a path of names leads to; None if it leads elsewhere."""
    here = folder.relative_to(BENCH).parts
    return parts[len(here)] if parts[: len(here)] == here and len(parts) > len(here) else None


def arrows(folder: Path) -> dict[str, set[str]]:
    """Child → the other children of the same folder that it imports."""
    graph: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        source = child(folder, path.relative_to(BENCH).with_suffix("").parts)
        targets = {child(folder, tuple(name.split(".")[2:])) for name in imported(path)}
        graph.setdefault(source, set()).update(targets - {source, None})
    return graph


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_two_children_of_a_folder_import_each_other(folder):
    graph = arrows(folder)
    names = {path.stem for path in folder.iterdir() if path.is_dir() or path.suffix == ".py"}
    graph = {name: targets & names for name, targets in graph.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"{folder.name}: {' → '.join(reversed(error.args[1]))}")


@pytest.mark.parametrize("room", BELOW)
def test_a_room_imports_only_what_lies_below_it(room):
    assert arrows(BENCH)[room] <= BELOW[room]


def test_every_folder_is_a_room():
    assert {folder.name for folder in FOLDERS if folder != BENCH} == set(BELOW)


def test_a_circle_is_seen_also_inside_of_functions_and_texts(tmp_path):
    file = tmp_path / "file.py"
    file.write_text(
        f"def draw():\n    from {NAME}.peers import lineup\n"
        f"    import importlib\n    importlib.import_module('{NAME}.method.charts')\n"
        f"TEXT = '''\nfrom {NAME}.one_process.memory_layouts import fill\n'''\n"
    )
    assert set(imported(file)) == {
        f"{NAME}.peers.lineup",
        f"{NAME}.method.charts",
        f"{NAME}.one_process.memory_layouts",
    }
