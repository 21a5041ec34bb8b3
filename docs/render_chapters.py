"""Execute the chapters, and write each as a page with its outputs.

    python docs/render_chapters.py            all of them, into docs/chapters/
    python docs/render_chapters.py 04 06      those whose names begin so

A cell that fails stops it, unless it is tagged `raises-exception`. What is written is not kept in git: the
page of a chapter is what its code has just printed.
"""

import asyncio
import re
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
PAGES = Path(__file__).resolve().parent / "chapters"
SECONDS = 300  # for one cell, on the busiest machine
AT_ONCE = 2


def without_traceback(notebook: nbformat.NotebookNode) -> None:
    """Show of an error that a chapter provokes what a notebook shows: its last line."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [re.sub(r"\x1b\[[\d;]*m", "", output.traceback[-1])]


async def render(source: Path, turns: asyncio.Semaphore) -> str:
    """Execute a chapter in a fresh kernel, and write its page; return what there is to tell about it."""
    notebook = jupytext.read(source)
    async with turns:
        start = time.perf_counter()
        where = {"metadata": {"path": str(CHAPTERS)}}
        client = NotebookClient(notebook, timeout=SECONDS, resources=where, coalesce_streams=True)
        await client.async_execute()
        seconds = time.perf_counter() - start
    without_traceback(notebook)
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    text = re.sub(r"\((\d\d_\w+)\.ipynb", r"(\1.md", text)  # links to other chapters
    (PAGES / source.name).write_text(text, encoding="utf-8")
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    return f"{source.name}: {seconds:.0f} s, {len(cells)} cells of code, {words:,} words"


async def main(prefixes: list[str]) -> None:
    """Render all chapters, or those whose names begin with one of the prefixes, two at a time."""
    PAGES.mkdir(exist_ok=True)
    sources = [
        path for path in sorted(CHAPTERS.glob("[0-9]*.md")) if path.name.startswith(tuple(prefixes) or "")
    ]
    turns = asyncio.Semaphore(AT_ONCE)
    for done in asyncio.as_completed([render(source, turns) for source in sources]):
        print(await done, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
