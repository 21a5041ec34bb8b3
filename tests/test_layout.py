"""The layout of the package: arrows only go down, no circle in any folder, a docstring each."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from places import COURSE, PACKAGE, ROOT, modules_in, name_of

MODULES = modules_in()
LAB = [path for path in modules_in(ROOT / "benchmarks") if path.parent.name != "tests"]
NAMES = {*map(name_of, MODULES)}
FOLDERS = sorted({path.parent for path in [*MODULES, *LAB]})

# A layer may import those below it, and itself. Two of the same height stand side by side: neither imports
# the other. The package's own __init__ gathers the names of the two lowest.
LAYERS = [
    ["buffers"],
    ["shared"],
    ["__init__"],
    ["agents", "tables"],
    ["apex"],
    ["local"],
    ["cluster"],
    ["cpprb"],
]
HEIGHT = {layer: height for height, layers in enumerate(LAYERS) for layer in layers}
SEEN_BY = {  # these may import any layer; of the package, only those named may import them
    "replay_course/steps": {"replay_course"},
    "replay_course": {"__main__"},
    "__main__": set(),
}
PACKAGES = ("replay_tutorial", "replay_course", "benchmarks")
OURS = rf"({'|'.join(PACKAGES)})(\.\w+)+"  # names of our modules
# The one name that points up: it is looked up when a run begins and no other engine was handed in.
LOOKED_UP = {("replay_tutorial/apex/runs/engine.py", "replay_tutorial.local.local_engine")}

MAY_PRINT = {"apex", "cluster", "tables", "__main__", "replay_course", "replay_course/steps"}
DEPENDENCIES = {  # layer → extras that its imports may come from, beside the package's own dependencies
    "agents": ["train", "games", "sb3"],
    "apex": ["train"],
    "local": ["train"],
    "cluster": ["cluster", "train"],
    "__main__": ["train"],
    "replay_course": ["notebooks", "train"],
    "replay_course/steps": ["train"],
    "tables": ["tables"],
}
# Imported inside a function, for callers that have it anyway: whoever asks for fields from spaces has
# gymnasium, and who asks for a dataset of PyTorch has that.
WHEN_CALLED = {
    "replay_tutorial/buffers/spaces.py": {"gymnasium"},
    "replay_tutorial/tables/dataset.py": {"torch"},
}

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
each_of_both = pytest.mark.parametrize("path", [*MODULES, *LAB], ids=lambda path: str(path.relative_to(ROOT)))


def layer_of(path: Path) -> str:
    """The layer a file belongs to: its folder, or its own name at the top of the package."""
    if path.is_relative_to(COURSE):
        return "replay_course/steps" if path.is_relative_to(COURSE / "steps") else "replay_course"
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and absolute name of each module that a file imports, wherever in the file it does.

    The name of a module of ours in a string counts, too: somebody will import it.
    """
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from replay_tutorial.buffers import archive` imports a file, `... import ReplayBuffer` a name
            # of the folder.
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                yield node.lineno, whole if place_of(whole) else module
        elif isinstance(node, ast.Constant) and re.fullmatch(OURS, str(node.value)):
            yield node.lineno, node.value


def place_of(module: str) -> Path | None:
    """The file or folder of a module of ours; None if there is none."""
    place = ROOT.joinpath(*module.split("."))
    found = [each for each in (place, place.with_suffix(".py")) if each.exists()]
    return found[0] if module.startswith(PACKAGES) and found else None


def arrows(path: Path) -> Iterator[tuple[int, Path]]:
    """Line number and place of each import of the package's own, except those that are looked up."""
    for line, module in imported_modules(path):
        place = place_of(module)
        if place is not None and (path.relative_to(ROOT).as_posix(), module) not in LOOKED_UP:
            yield line, place / "__init__.py" if place.is_dir() else place


@each_module
def test_imports_only_go_down(path: Path) -> None:
    here = layer_of(path)
    for line, place in arrows(path):
        where = f"{path.relative_to(ROOT)}:{line} imports {place.relative_to(ROOT)}"
        assert place not in LAB, f"{where}: the library is complete without the lab"
        there = layer_of(place)
        if there in SEEN_BY:
            assert here in {there, *SEEN_BY[there]}, f"{where}: nothing imports what stands at the side"
        elif here not in SEEN_BY and there != here:
            assert HEIGHT[there] < HEIGHT[here], f"{where}: an arrow that goes up, or between neighbours"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_circle_in_a_folder(folder: Path) -> None:
    """Between what lies in it: files, and folders as one. Its __init__ is its door and may name them all."""
    graph: dict[str, set[str]] = {}
    for path in modules_in(folder):
        here = path.relative_to(folder).parts[0]
        for place in (place for _, place in arrows(path) if place.is_relative_to(folder)):
            there = place.relative_to(folder).parts[0]
            if "__init__.py" not in (here, there):
                graph.setdefault(here, set()).update({there} - {here})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" ← ".join(error.args[1]))


def test_the_names_that_are_looked_up_are_there() -> None:
    for path, module in LOOKED_UP:
        assert module in (ROOT / path).read_text(encoding="utf-8")
        assert place_of(module)


@each_module
def test_imports_are_declared_as_dependencies(path: Path) -> None:
    extras = ["", *DEPENDENCIES.get(layer_of(path), [])]
    declared = {name.replace("-", "_") for extra in extras for name in names_in(extra)}
    declared |= WHEN_CALLED.get(path.relative_to(ROOT).as_posix(), set())
    # numba is built on llvmlite and requires it
    other_names = {"ipython": "IPython", "pillow": "PIL", "numba": "llvmlite", "pyzmq": "zmq"}
    declared |= {name for distribution, name in other_names.items() if distribution in declared}
    for line, module in imported_modules(path):
        top = module.split(".")[0]
        if top not in PACKAGES and top not in sys.stdlib_module_names:
            assert top in declared, f"{path.relative_to(ROOT)}:{line} imports {module}: no extra names it"


def names_in(extra: str) -> list[str]:
    """The distributions of one extra of pyproject.toml, or of the package itself for an empty name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [re.match(r"[\w-]+", requirement).group().lower() for requirement in requirements]


def test_only_the_files_for_it_import_numba() -> None:
    users = {
        path for path in MODULES for _, name in imported_modules(path) if name.startswith(("numba", "llvm"))
    }
    # a rung is a file that can be copied by itself
    runtime = PACKAGE / "buffers" / "runtime"
    assert {path for path in users if layer_of(path) != "replay_course/steps"} == {
        runtime / "jit.py",
        runtime / "numba_internals.py",
    }


@each_module
def test_a_library_does_not_print(path: Path) -> None:
    if layer_of(path) in MAY_PRINT:
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print"), node.lineno


def opens_text(call: ast.Call) -> bool:
    """Whether a call of pathlib or `open` reads or writes text in the encoding of the system."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if not {*named} <= {"mode", "newline", "errors"}:
        return False  # it names the encoding, or is a method of ours
    if name in ("read_text", "write_text"):
        return len(call.args) == (name == "write_text")
    modes = [getattr(value, "value", None) for value in [*call.args[-1:], *named.values()]]
    is_mode = [isinstance(mode, str) and re.fullmatch(r"[rwax+tb]+", mode) is not None for mode in modes]
    binary = any(is_mode[i] and "b" in modes[i] for i in range(len(modes)))
    alone = len(call.args) <= isinstance(call.func, ast.Name)  # `path.open()` or `open(path)`
    return name == "open" and not binary and (alone or "newline" in named or any(is_mode))


def test_the_encoding_of_every_text_file_is_named() -> None:
    """Otherwise it is the system's: on Windows, one that lacks most of what these files contain."""
    for line, wrong in [
        ("path.read_text()", True),
        ('path.read_text("utf-8")', False),
        ("path.write_text(text)", True),
        ('path.write_text(text, encoding="utf-8")', False),
        ("path.open()", True),
        ("open(path)", True),
        ("RunFolder.open(path)", False),
        ('path.open("w", newline="")', True),
        ('path.open("ab")', False),
        ('open(path, "w")', True),
        ('open(path, "rb")', False),
        ("os.open(path, flags)", False),
    ]:
        assert opens_text(ast.parse(line, mode="eval").body) == wrong, line
    for path in [*MODULES, *LAB]:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if re.search(r"\bopen\(|_text\(", text) else ():
            assert not (isinstance(node, ast.Call) and opens_text(node)), f"{path}:{node.lineno}"


@cache
def documented_in_interfaces() -> dict[str, set[str]]:
    """The methods that each protocol and abstract class explains, so that its implementations need not."""
    found: dict[str, set[str]] = {}
    for path in [*MODULES, *LAB]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            bases = {getattr(base, "id", "") for base in getattr(node, "bases", ())}
            if isinstance(node, ast.ClassDef) and bases & {"Protocol", "ABC"}:
                methods = [method for method in node.body if isinstance(method, ast.FunctionDef)]
                found[node.name] = {method.name for method in methods if ast.get_docstring(method)}
    return found


@each_of_both
def test_everything_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a module opens by saying what it is"
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for owner in [tree, *classes]:
        # What a class implements, it says by its bases, or there is a protocol beside it.
        known = [] if owner is tree else [*owner.bases, *(ast.Name(other.name) for other in classes)]
        names = [getattr(name, "id", "") for name in known]
        promised = {method for name in names for method in documented_in_interfaces().get(name, ())}
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            if any(getattr(decorator, "attr", "") == "setter" for decorator in node.decorator_list):
                continue  # the property above it says what it is
            documented = ast.get_docstring(node) or node.name in promised
            assert documented, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def named_in(page: str) -> set[str]:
    """Return the modules that a page in docs/ names."""
    return set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs" / page).read_text(encoding="utf-8")))


def test_the_reading_order_names_modules_of_every_layer() -> None:
    named = named_in("reading_order.md")
    assert named <= NAMES, f"not there: {sorted(named - NAMES)}"
    assert {*HEIGHT} - {"__init__"} <= {name.partition("/")[0].removesuffix(".py") for name in named}


def test_the_page_on_methods_names_every_module_of_the_lab() -> None:
    named = {name for name in named_in("measurements/how.md") if name.startswith("benchmarks/")}
    modules = {path.relative_to(ROOT).as_posix() for path in LAB if path.name != "__init__.py"}
    assert named == modules


def test_each_detail_names_tests_and_a_chapter_or_recipe_that_are_there() -> None:
    page = (ROOT / "docs" / "details.md").read_text(encoding="utf-8")
    for detail in page.split("\n### ")[1:]:
        title = detail.partition("\n")[0]
        tests = re.findall(r"`(tests/[\w/]+\.py)::(?:(\w+)::)?(test_\w+)`", detail)
        pages = re.findall(r"\((chapters|recipes)/(\w+)\.md(?:#([\w-]+))?\)", detail)
        assert tests and pages, f"{title}: no test, or no chapter or recipe"
        for path, owner, test in tests:
            source = (ROOT / path).read_text(encoding="utf-8")
            assert f"def {test}(" in source and (not owner or f"class {owner}:" in source), f"{title}: {test}"
        for folder, name, anchor in pages:
            place = ROOT / ("chapters" if folder == "chapters" else "docs/recipes") / f"{name}.md"
            headings = re.findall(r"^#+ (.*)", place.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert {anchor} - {""} <= slugs, f"{title}: {name}.md has no heading {anchor}"
