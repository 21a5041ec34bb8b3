"""How much of the core a reader of the chapters can read: `python tests/reader_bars.py`.

    python tests/reader_bars.py                            all figures, beside the recorded ones and the bars
    python tests/reader_bars.py replay_tutorial/FILE.py    the names in a file that no chapter mentions
    python tests/reader_bars.py --record                   record the figures in reader_bars.json

"Unknown" is the share of a file's code lines that use a name which no chapter so far mentions, neither in its
text nor in its code nor in the source that it shows. A dropped name is no gain if its idea only moved: read
the lines, too. "Loaded" counts the modules of the package that a program loads if it adds to a buffer without
options and samples from it; "called" counts the Python functions that run then. A test compares each figure
with the recorded one, so that it can't get worse unnoticed.
"""

import ast
import builtins
import io
import json
import keyword
import re
import sys
import tokenize
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import FrameType

from places import PACKAGE, ROOT, modules_in
from programs import run_python

BUILT = re.compile(r"^ *(?:Built|Read) in chapter (\d\db?), \*([^*]+)\*\.$", re.MULTILINE)
NOT_BUILT = {  # modules that no chapter builds: what a buffer needs beside its idea, and options
    *(
        "archive",
        "batch",
        "cast",
        "checkpoints",
        "frameworks",
        "inherited_options",
        "private",
        "ranking",
        "spaces",
        "stages",
        "streams",
    ),
    *("block_file", "processes", "scheme_draw", "shared_frames", "snapshot", "statistics"),
}
FOLDERS = {"buffers": (5, 20), "shared": (8, 30)}  # the last chapter that its readers know; bar in percent
BARS = {
    "loaded by PrioritizedReplayBuffer, lines": 2500,
    "loaded by PrioritizedReplayBuffer, files": 14,
    "loaded by MPPrioritizedReplayBuffer, lines": 4200,
    "loaded by MPPrioritizedReplayBuffer, files": 22,
    "lines in buffers/ and shared/": 9500,
}
RECORDED = Path(__file__).with_suffix(".json")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


def core() -> list[Path]:
    """Return the modules that the chapters build, without the options in folders of their own."""
    paths = [
        path for folder in FOLDERS for path in modules_in(PACKAGE / folder) if path.parent.name == folder
    ]
    return [path for path in paths if path.stem not in {"__init__", *NOT_BUILT}]


@cache
def known_names(last: int) -> set[str]:
    """Return all words in the notebooks of chapters 00 to `last`."""
    names = set[str]()
    for path in (ROOT / "chapters").glob("[0-9]*.ipynb"):
        if int(path.name[:2]) <= last:
            cells = json.dumps(json.loads(path.read_text(encoding="utf-8"))["cells"])
            names |= set(re.findall(r"[A-Za-z_]\w*", cells.replace("\\n", " ")))
    return names


def tokens_of_code(source: str) -> list[tokenize.TokenInfo]:
    """Return the tokens without docstrings and comments; an f-string is one token, as in Python 3.11."""
    docstrings = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            docstrings |= {*range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)}
    found, depth = list[tokenize.TokenInfo](), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        depth -= kind == "FSTRING_END"
        if token.type not in NO_CODE and token.start[0] not in docstrings and not depth:
            found.append(token)
        depth += kind == "FSTRING_START"
    return found


def unknown_names(path: Path) -> tuple[dict[str, list[int]], int]:
    """Return {name: lines} of the names that no chapter so far mentions, and the number of code lines."""
    last, _ = FOLDERS[path.relative_to(PACKAGE).parts[0]]
    known = known_names(last)
    tokens = tokens_of_code(path.read_text(encoding="utf-8"))
    names = dict[str, list[int]]()
    for token in tokens:
        name, ours = token.string, not keyword.iskeyword(token.string) and not hasattr(builtins, token.string)
        if token.type == tokenize.NAME and ours and name not in known:
            names.setdefault(name, []).append(token.start[0])
    return names, len({token.start[0] for token in tokens})


def line_count(paths: Iterable[Path]) -> int:
    """Return the number of lines of some files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def called(call: Callable[[], object]) -> set[tuple[str, str]]:
    """Return (file, name) of each Python function of the package that runs in a call after the first two."""
    found = set[tuple[str, str]]()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and Path(code.co_filename).is_relative_to(PACKAGE) and "<" not in code.co_name:
            found.add((code.co_filename, code.co_qualname))

    call()
    call()  # the first call of `add` sets the maximum priority, the second computes its mass
    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def loaded_files() -> set[Path]:
    """Return the files of the package's modules that this process has loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith("replay_tutorial")]
    return {Path(module.__file__) for module in modules if module.__file__}


def use(names: list[str]) -> dict[str, int]:
    """Use buffers without options, and return what the first one loads and what each one calls."""
    import numpy as np

    import replay_tutorial

    figures = dict[str, int]()
    for name in names:
        kind = getattr(replay_tutorial, name)
        imported = loaded_files()
        buffer = kind(1000, {"obs": {"shape": 4}, "reward": {}}, seed=0)
        row = {"obs": np.zeros(4, np.float32), "reward": np.float32(0)}
        for method, call in {"add": partial(buffer.add, **row), "sample": partial(buffer.sample, 32)}.items():
            found = called(call)
            figures[f"called by {name}.{method}, functions"] = len(found)
            figures[f"called by {name}.{method}, files"] = len({file for file, _ in found})
        if name == names[0]:
            # what compiles kernels depends on whether their code was cached
            files = imported | {path for path in loaded_files() if path.parent.name != "runtime"}
            figures[f"loaded by {name}, lines"] = line_count(files)
            figures[f"loaded by {name}, files"] = len(files)
    return figures


def measure() -> dict[str, int]:
    """Return all figures; the less of each, the better."""
    pairs = ("PrioritizedReplayBuffer", "ReplayBuffer"), ("MPPrioritizedReplayBuffer", "MPReplayBuffer")
    with ThreadPoolExecutor() as pool:
        programs = pool.map(partial(run_python, __file__, "--use"), *zip(*pairs, strict=True))
        figures = dict[str, int]()
        for path in core():
            names, count = unknown_names(path)
            lines = {line for lines in names.values() for line in lines}
            figures[f"unknown in {path.relative_to(PACKAGE).as_posix()}, %"] = round(100 * len(lines) / count)
        figures["lines in buffers/ and shared/"] = line_count(
            [path for folder in FOLDERS for path in modules_in(PACKAGE / folder)]
        )
        for program in programs:
            assert program.returncode == 0, program.stderr
            figures |= json.loads(program.stdout)
    return figures


def bar_of(figure: str) -> int | None:
    """Return the value that a figure should reach."""
    folder = re.match(r"unknown in (\w+)/", figure)
    return FOLDERS[folder[1]][1] if folder else BARS.get(figure)


def main(arguments: list[str]) -> None:
    """Print the table, or what the arguments ask for."""
    if arguments[:1] == ["--use"]:
        print(json.dumps(use(arguments[1:])))
    elif arguments == ["--record"]:
        RECORDED.write_text(json.dumps(measure(), indent=1) + "\n", encoding="utf-8")
    elif arguments:
        for name, lines in unknown_names(Path(arguments[0]).resolve())[0].items():
            print(f"{name}: {', '.join(map(str, dict.fromkeys(lines)))}")
    else:
        recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
        print(f"{'':52}   now  recorded   bar")
        for name, value in measure().items():
            print(f"{name:52}{value:6}{recorded.get(name, '-'):>10}{bar_of(name) or '':>6}")


if __name__ == "__main__":
    main(sys.argv[1:])
