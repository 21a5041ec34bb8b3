"""What users rely on beside the code: names, docstrings, examples, start-up time, pins, make."""

import ast
import doctest
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import tarfile
import textwrap
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import copy_sections
import numpy as np
import pytest
from hypothesis import settings
from places import PACKAGE, ROOT
from programs import run_python
from test_layout import MODULES, each_module, names_in

from benchmarks.startup import FIRST_SAMPLE, FIRST_UNIFORM_SAMPLE
from replay_course import load_record
from replay_tutorial import __version__

PUBLIC_NAMES = [
    "Batch",
    "Checkpoints",
    "EpisodeReplayBuffer",
    "HindsightReplayBuffer",
    "MPPrioritizedReplayBuffer",
    "MPReplayBuffer",
    "Mailbox",
    "Mixture",
    "NStep",
    "NStepWindow",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "SamplesPerInsert",
    "SequenceReplayBuffer",
    "fields_from_spaces",
    "laber",
    "sequence_priorities",
    "with_final_obs",
]

CHAPTERS = "".join(path.read_text("utf-8") for path in sorted((ROOT / "chapters").glob("[0-9]*.md")))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_examples_of_hypothesis_may_be_late_and_are_the_same_in_every_run_unless_others_are_asked_for() -> (
    None
):
    assert settings().deadline is None
    assert settings().derandomize == ("EXPLORE" not in os.environ)


def test_constraints_pin_every_dependency_to_one_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split(";")[0].strip() for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    pinned = [re.sub(r"[-_.]+", "-", pin.split("==")[0]).lower() for pin in pins]
    assert len(pinned) == len(set(pinned))
    for extra in PROJECT["optional-dependencies"]:
        assert set(names_in(extra)) <= {"replay_tutorial", *pinned}, extra
    assert set(names_in("")) <= set(pinned)
    assert "torch==2.13.0" in pins
    assert not [name for name in pinned if name.startswith(("nvidia", "triton", "cuda"))]


def test_the_public_names_are_these() -> None:
    import replay_tutorial

    assert sorted(replay_tutorial.__all__) == PUBLIC_NAMES
    assert [name for name in dir(replay_tutorial) if not name.startswith("__")] == sorted(PUBLIC_NAMES)
    listed = re.findall(r"(?m)^    (\w+)  +\w", replay_tutorial.__doc__ or "")
    assert sorted(listed) == PUBLIC_NAMES, "the first screen of help()"
    assert all(getattr(replay_tutorial, name).__name__ == name for name in PUBLIC_NAMES)
    with pytest.raises(AttributeError, match="no attribute 'ReplyBuffer'"):
        _ = replay_tutorial.ReplyBuffer  # pyright: ignore


def public_functions() -> Iterator[tuple[str, Callable[..., object], str]]:
    """Name, function and docstring of each public function and method; a class's counts for __init__."""
    import replay_tutorial

    for name in PUBLIC_NAMES:
        thing = getattr(replay_tutorial, name)
        if not inspect.isclass(thing):
            yield name, thing, inspect.getdoc(thing) or ""
            continue
        if isinstance(thing.__init__, FunctionType):  # not that of `dict`
            yield f"{name}()", thing.__init__, f"{inspect.getdoc(thing)}\n\n{inspect.getdoc(thing.__init__)}"
        for method, function in inspect.getmembers(thing):
            if isinstance(function, FunctionType) and not method.startswith("_"):
                yield f"{name}.{method}", function, inspect.getdoc(function) or ""


def test_public_docstrings_name_every_argument_result_and_error() -> None:
    faults = []
    for name, function, text in public_functions():
        signature, section = inspect.signature(function), text.partition("Args:")[2]
        for parameter in signature.parameters.values():
            stars = {parameter.VAR_POSITIONAL: r"\*", parameter.VAR_KEYWORD: r"\*\*"}.get(parameter.kind, "")
            named = re.search(rf"^\s+{stars}{parameter.name}\b.*:", section, re.MULTILINE)
            if parameter.name != "self" and not named:
                faults.append(f"{name}: Args does not name {parameter.name}")
        returns = signature.return_annotation not in (None, "None", signature.empty)
        # what takes nothing but self may say its result in its first sentence
        if returns and len(signature.parameters) > 1 and "Returns:" not in text:
            faults.append(f"{name}: no Returns")
        nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
        if any(isinstance(node, ast.Raise) and node.exc for node in nodes) and "Raises:" not in text:
            faults.append(f"{name}: no Raises")
    assert not faults, "\n".join(faults)


@each_module
def test_the_examples_in_docstrings_are_true(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "REPLAY_TUTORIAL_KEY", f"server-{bytes(64).hex()}"
    )  # so that no example creates a file
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if ">>>" in path.read_text(encoding="utf-8"):
        module = importlib.import_module(name)
        assert doctest.testmod(module, extraglobs={"np": np}, optionflags=doctest.ELLIPSIS).failed == 0


def printed(code: str, **environment: str) -> str:
    """What a fresh Python process prints."""
    result = run_python("-c", code, environment=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_import_loads_neither_torch_nor_gymnasium() -> None:
    heavy = {"torch", "gymnasium", "matplotlib", "tyro", "tensorboard", "rich", "cpprb", "zmq", "msgspec"}
    code = "import sys; from replay_tutorial import *; import replay_tutorial.tables; print(*sys.modules)"
    loaded = printed(code).split()
    assert "numba" in loaded
    assert not heavy & set(loaded)


@pytest.mark.parametrize(("program", "bound"), [(FIRST_SAMPLE, 10), (FIRST_UNIFORM_SAMPLE, 3)])
def test_first_sample_of_a_fresh_process_comes_soon(program: str, bound: float, tmp_path: Path) -> None:
    """Import to first sample, with a cold cache and a warm one, in the processor's time.

    Promised are less than 3 s, or 10 s for a prioritized buffer with a cold cache: three times what it took
    when this was written. A busy machine takes longer even in the processor's time: the best of three counts.
    """
    program, cold = program.replace("perf_counter", "process_time"), float("inf")
    for number in range(3):
        cache = tmp_path / str(number)
        cold = min(cold, float(printed(program, NUMBA_CACHE_DIR=str(cache))))
        if cold < bound:
            break
    compiled = sorted(cache.rglob("*.nbc"))
    assert cold < bound
    assert any(float(printed(program, NUMBA_CACHE_DIR=str(cache))) < 3 for _ in range(3))
    assert compiled, "the kernels are kept on disk"
    assert sorted(cache.rglob("*.nbc")) == compiled, "a second process compiles nothing"


PAGES = [f"docs/api/{name}.md" for name in ("buffers", "shared", "apex")]


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_in_a_page_run(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert programs
    for number, program in enumerate(programs):
        script = tmp_path / f"program_{number}.py"
        script.write_text(program, encoding="utf-8")
        result = run_python("-W", "error", script)
        assert result.returncode == 0, f"program {number} of {page}:\n{result.stderr}"


@pytest.mark.parametrize("page", copy_sections.PAGES, ids=lambda page: page.name)
def test_copied_sections_of_a_page_are_those_of_their_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert copy_sections.with_sections(text) == text, "run: python docs/copy_sections.py"


def test_the_settings_named_beside_the_papers_are_those_of_the_configuration() -> None:
    pytest.importorskip("tyro", reason="the configuration needs the extra `train`")
    from replay_tutorial.apex.config import Config

    text = (ROOT / "docs" / "design" / "decisions.md").read_text(encoding="utf-8")
    section = text.partition("Distance from the paper")[2]
    settings = re.findall(r"^\| `(\w+)` \| ([\d.,]+)", section, re.MULTILINE)
    assert len(settings) >= 9
    for name, value in settings:
        assert getattr(Config(), name) == float(value.rstrip(",").replace(",", "")), name


def test_the_changelog_begins_with_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == __version__


def test_the_files_for_a_release_agree_with_the_project() -> None:
    yaml = pytest.importorskip("yaml", reason="it comes with the extra `docs`")
    citation, recipe = [
        yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
        for name in ["CITATION.cff", "conda/recipe.yaml"]
    ]
    assert citation["version"] == recipe["context"]["version"] == __version__
    assert citation["authors"] == PROJECT["authors"]
    assert citation["abstract"] == recipe["about"]["summary"] == PROJECT["description"]
    assert citation["license"] == recipe["about"]["license"] == PROJECT["license"]
    needed = [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]
    python = recipe["context"]["python_min"]
    run = [entry.replace("${{ python_min }}", python) for entry in recipe["requirements"]["run"]]
    assert [entry.replace(" ", "") for entry in run] == needed
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_the_admitted_versions_of_numba_are_those_that_are_tested() -> None:
    (numba,) = [requirement for requirement in PROJECT["dependencies"] if requirement.startswith("numba")]
    oldest, above = map(int, re.fullmatch(r"numba>=0\.(\d+),<0\.(\d+)", numba).groups())
    script = (ROOT / "tests" / "numba_versions.sh").read_text(encoding="utf-8")
    assert f"set -- 0.{oldest}.0 0.{{{oldest + 1}..{above - 1}}}.*\n" in script


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_a_release_needs_a_tag_of_its_version_and_passing_tests(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="it comes with the extra `docs`")
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert jobs["publish"]["needs"] == ["tests", "build"]
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    (check,) = [step["run"] for step in jobs["build"]["steps"] if "tag" in step.get("name", "")]
    (tmp_path / "replay_tutorial").mkdir()
    shutil.copy(PACKAGE / "__init__.py", tmp_path / "replay_tutorial")
    for tag, passes in [(f"v{__version__}", True), ("v9.9.9", False)]:
        environment = {**os.environ, "GITHUB_REF_NAME": tag}
        done = subprocess.run(["bash", "-e", "-c", check], cwd=tmp_path, env=environment, check=False)
        assert (done.returncode == 0) == passes, tag


def test_the_paper_cites_what_its_bibliography_and_the_repository_have() -> None:
    paper = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text("utf-8"), re.MULTILINE)
    assert sorted(set(re.findall(r"@(\w+)", paper))) == sorted(entries)
    files = re.findall(r"`((?:docs|chapters)/[\w./-]+)`", paper)
    assert len(files) >= 5
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_console_script_is_the_command_line() -> None:
    module, _, name = PROJECT["scripts"]["replay-tutorial"].partition(":")
    called = f"import sys; from {module} import {name}; sys.argv[1:] = ['--version']; sys.exit({name}())"
    assert printed(called) == f"replay_tutorial {__version__}\n"


def test_a_program_loads_only_the_modules_of_its_buffer() -> None:
    loaded = printed(
        "import sys; from replay_tutorial import PrioritizedReplayBuffer; print(*sys.modules)"
    ).split()
    ours = {name.removeprefix("replay_tutorial.") for name in loaded if name.startswith("replay_tutorial.")}
    assert "buffers.prioritized" in ours
    assert not [name for name in ours if name.startswith(("buffers.episodes", "shared", "tables"))]


def test_windows_installs_and_runs_what_make_test_does() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"^EXTRAS_test := (.*)", makefile, re.MULTILINE)[1]
    recipe = re.search(r"^test: .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    commands = re.sub(r" \$\(ARGS\)| &&? \\|; .*|\t|\$\(BIN\)/", "", recipe).splitlines()
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    there = [line.strip() for line in workflow.splitlines() if line.strip().startswith(".venv\\Scripts")]
    install, *others = [line.removeprefix(".venv\\Scripts\\") for line in there]
    assert others == [
        line.replace("--pythonpath python", r"--pythonpath .venv\Scripts\python.exe") for line in commands
    ]
    for text in [install, (ROOT / "docs" / "start.md").read_text(encoding="utf-8")]:
        assert f'install -c constraints.txt -e ".[{extras}]"' in text


def not_ignored(paths: set[str]) -> set[str]:
    """Those that git doesn't ignore; all of them where there is no git to ask."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return paths
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    return paths if listed.returncode else paths & {*listed.stdout.split("\0")}


def build(kind: str, folder: Path) -> None:
    pytest.importorskip("hatchling", reason="it builds the package: the extra `dev`")
    printed(f"from hatchling.build import build_{kind}; build_{kind}({str(folder)!r})")


def test_source_distribution_holds_what_its_tests_need_and_its_readme_no_relative_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOSITORY_URL", "https://github.com/owner/replay_tutorial")
    build("sdist", tmp_path)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        files = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        text = files["PKG-INFO"].read().decode()
    needed = {"Makefile", "constraints.txt", "mkdocs.yml", "CONTRIBUTING.md", ".github/workflows/test.yml"}
    patterns = ["replay_tutorial/**/*.py", "tests/**/*.py", "chapters/*.*", "docs/assets/**/*.svg"]
    for pattern in [*patterns, "benchmarks/*", "benchmarks/[!.]*/**/*.*"]:
        needed |= not_ignored({p.relative_to(ROOT).as_posix() for p in ROOT.glob(pattern) if p.is_file()})
    assert needed - {*files} == set()
    links = re.findall(r"\]\((.*?)\)", text)
    assert "https://github.com/owner/replay_tutorial/raw/main/docs/assets/why_replay.svg" in links
    assert "Project-URL: Repository, https://github.com/owner/replay_tutorial\n" in text
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.mark.skipif(not shutil.which("make") or os.name == "nt", reason="needs make and a POSIX shell")
def test_make_says_when_python_is_too_old(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ["pyproject.toml", "constraints.txt"]:
        (tmp_path / name).touch()
    old = tmp_path / "old_python"
    old.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo Python 3.9.2; exit 0; }\nexit 1\n', encoding="utf-8"
    )
    old.chmod(0o755)
    command = ["make", "train", f"PYTHON={old}"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stdout
    assert "Python 3.9.2" in result.stdout
    assert not (tmp_path / ".venv").exists()


def test_wheel_holds_the_package_and_the_records_of_the_chapters(tmp_path: Path) -> None:
    build("wheel", tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        files = {name for name in archive.namelist() if name.endswith(".py")}
    assert files == {path.relative_to(ROOT).as_posix() for path in MODULES}
    names = {"bench", *re.findall(r'load_record\("([\w-]+)"\)', CHAPTERS)}
    assert len(names) >= 9
    program = f"""
import json
from pathlib import Path
from replay_course import record_files
assert Path(record_files.__file__).is_relative_to({str(tmp_path)!r})
print(json.dumps({{name: record_files.load_record(name) for name in {sorted(names)}}}))
"""
    done = run_python("-c", program, cwd=tmp_path, environment={"PYTHONPATH": str(tmp_path / "installed")})
    assert json.loads(done.stdout) == {name: load_record(name) for name in names}
