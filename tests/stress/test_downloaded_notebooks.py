"""Notebooks from the site, in an empty folder, with the package from its wheel: as they are, and solved."""

import os
import re
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from places import ROOT
from programs import run_python
from student import Notebook, answer_of, cells_of

from replay_course.course import PARTS
from replay_course.steps.learning import one_file_dqn

CHAPTERS = sorted((ROOT / "chapters").glob("[0-9]*.ipynb"))
CELL_TIMEOUT = 600  # seconds


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the package of a wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    program = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    assert run_python("-c", program).returncode == 0
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def execute(notebook: nbformat.NotebookNode, folder: Path, wheel: Path) -> str:
    """Execute a notebook in a folder; return all that it printed, and its errors."""
    environment = {name: value for name, value in os.environ.items() if name != "REPLAY_COURSE"}
    where = {"metadata": {"path": str(folder)}}
    first = "import replay_tutorial; print(replay_tutorial.__file__)"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    with TemporaryDirectory() as short:
        # Another program can take a TCP port between its choice and its use.
        transport = "ipc" if os.name == "posix" else "tcp"
        manager = AsyncKernelManager(transport=transport, connection_file=f"{short}/kernel.json")
        client = NotebookClient(notebook, manager, timeout=CELL_TIMEOUT, resources=where)
        variables = {"PYTHONPATH": str(wheel), "PYTHONDONTWRITEBYTECODE": ""}
        client.execute(env={**environment, **variables}, cleanup_kc=True)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert str(wheel) in outputs[0].text
    texts = [output.text for output in outputs if output.output_type == "stream"]
    errors = [f"{each.ename}: {each.evalue}" for each in outputs if each.output_type == "error"]
    return "\n".join([*texts, *errors])


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_downloaded_notebook_runs_in_an_empty_folder(path: Path, tmp_path: Path, wheel: Path) -> None:
    execute(nbformat.read(path, 4), tmp_path, wheel)
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_a_student_solves_all_chapters_and_later_ones_use_the_solutions(tmp_path: Path, wheel: Path) -> None:
    def course(*arguments: str) -> str:
        done = run_python(
            *("-m", "replay_tutorial", "course", *arguments),
            cwd=tmp_path,
            environment={"PYTHONPATH": str(wheel), "REPLAY_COURSE": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    course("start", str(tmp_path))
    told: dict[str, str] = {}
    for path in CHAPTERS:
        chapter, notebook = path.name.partition("_")[0], nbformat.read(path, 4)
        names = Notebook()
        names.run(cells_of(chapter)[0].source)
        answers = iter([answer_of(chapter, names)])
        for cell in notebook.cells:
            if {"write", "exercise"} & {*cell.metadata.get("tags", [])}:
                cell.source = next(answers, "")
        told[chapter] = execute(notebook, tmp_path, wheel)
        assert "NotYet" not in told[chapter]
    assert f"{len(PARTS)} of {len(PARTS)} parts" in course("status")
    for name, used in [
        *[("q_learning", "00"), ("ring", "01"), ("sum_tree", "05"), ("minimum", "05"), ("n_step", "05")],
        *[("prioritized", "05"), ("reader", "07"), ("limiter", "07"), ("windows", "09"), ("goals", "10")],
    ]:
        assert f"{name}: your {PARTS[name].name}" in told[used]
    (returns,) = re.findall(r"^mean returns: (.*)", told["05"], re.MULTILINE)
    assert float(returns.split()[-1]) >= one_file_dqn.SOLVED_AT, "the agent learns with the student's buffer"
    drawn = course("report")
    assert drawn.count("yours") == 5
    assert "cpprb" in drawn
