"""Execute the chapters, and renew the outputs in their notebooks, which the site shows.

    python docs/render_chapters.py                execute all chapters, to see that every cell runs
    python docs/render_chapters.py 04 06          chapters whose names start with 04 or 06
    python docs/render_chapters.py --notebooks    also store the outputs in chapters/
    python docs/render_chapters.py --code         renew only the code in the stored outputs; takes seconds

An error in a cell stops the program, unless the cell is tagged `raises-exception`. Stored outputs include
measured times, so run `--notebooks` on a machine that runs nothing else.
"""

import ast
import asyncio
import os
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jupytext
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
os.environ["REPLAY_COURSE"] = ""  # without the code of a my_replay/ folder
CELL_TIMEOUT = 300  # seconds; long enough for a busy machine
CONCURRENT_CHAPTERS = 2
# What makes an image of an element: the namespace, and a colour in place of the page's, which it can't see.
SVG = re.compile(
    r"<svg (?P<attributes>[^>]*)width:100%;max-width:(?P<pixels>[\d.]+)px;height:auto;(?P<rest>.*</svg>)",
    re.DOTALL,
)
IMAGE = 'xmlns:xlink="http://www.w3.org/1999/xlink" color="#808080"'


def without_traceback(notebook: nbformat.NotebookNode) -> None:
    """Shorten the traceback of each intended error to its last line, without terminal colours."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [re.sub(r"\x1b\[[\d;]*m", "", output.traceback[-1])]


def without_random_ids(notebook: nbformat.NotebookNode) -> None:
    """Number the cells, so that the next run changes only outputs that differ."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"


def with_images(notebook: nbformat.NotebookNode) -> None:
    """Turn SVG elements in HTML outputs into images, because GitHub removes the elements."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if svg := SVG.search(output.get("data", {}).get("text/html", "")):
                del output.data["text/html"]
                output.data["image/svg+xml"] = (
                    f'<svg {IMAGE} width="{svg["pixels"]}" {svg["attributes"]}{svg["rest"]}'
                )


def renew_code(notebook: nbformat.NotebookNode) -> bool:
    """Write the current code into the stored outputs of `show`; return whether any differed."""
    names: dict[str, Any] = {}
    renewed = False
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for line in ast.parse(cell.source).body:
            if isinstance(line, ast.Import | ast.ImportFrom):
                exec(ast.unparse(line), names)  # noqa: S102 - an import of a chapter
        if cell.source.startswith("show("):
            shown = eval(cell.source, names)
            data = {"text/markdown": shown._repr_markdown_(), "text/plain": repr(shown)}
            renewed |= cell.outputs[0].data != data
            cell.outputs[0].data = nbformat.from_dict(data)
    return renewed


async def render(source: Path, slots: asyncio.Semaphore, notebooks: bool) -> str:
    """Execute a chapter in a new kernel, and return a line of statistics; `notebooks` stores the outputs."""
    notebook = jupytext.read(source)
    without_random_ids(notebook)
    async with slots:
        start = time.perf_counter()
        with TemporaryDirectory() as folder:
            # A kernel's TCP ports are chosen before it opens them, so that another program can take one.
            transport = "ipc" if os.name == "posix" else "tcp"
            manager = AsyncKernelManager(transport=transport, connection_file=f"{folder}/kernel.json")
            where = {"metadata": {"path": str(CHAPTERS)}}
            client = NotebookClient(
                notebook, manager, timeout=CELL_TIMEOUT, resources=where, coalesce_streams=True
            )
            client.record_timing = False
            await client.async_execute(cleanup_kc=True)
        seconds = time.perf_counter() - start
    without_traceback(notebook)
    with_images(notebook)
    if notebooks:
        nbformat.write(notebook, source.with_suffix(".ipynb"))
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    return f"{source.name}: {seconds:.0f} s, {len(cells)} code cells, {words:,} words"


async def execute(sources: list[Path], notebooks: bool) -> None:
    """Execute chapters, two at a time."""
    slots = asyncio.Semaphore(CONCURRENT_CHAPTERS)
    for done in asyncio.as_completed([render(source, slots, notebooks) for source in sources]):
        print(await done, flush=True)


if __name__ == "__main__":
    options = {"--notebooks", "--code"} & {*sys.argv[1:]}
    prefixes = tuple(each for each in sys.argv[1:] if each not in options) or ("",)
    chosen = [path for path in sorted(CHAPTERS.glob("[0-9]*.md")) if path.name.startswith(prefixes)]
    if "--code" in options:
        for path in (path.with_suffix(".ipynb") for path in chosen):
            stored = nbformat.read(path, 4)
            if renew_code(stored):
                nbformat.write(stored, path)
                print(f"renewed {path.name}")
    else:
        asyncio.run(execute(chosen, "--notebooks" in options))
