"""Execute the chapters and write each one, with its outputs, as a page for the site.

    python docs/render_chapters.py            all chapters, to docs/chapters/
    python docs/render_chapters.py 04 06      chapters whose names start with 04 or 06

An error in a cell stops the program, unless the cell is tagged `raises-exception`. The pages are not kept in
git, so that they always show what the current code prints.
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
CELL_TIMEOUT = 300  # seconds; long enough for a busy machine
CONCURRENT_CHAPTERS = 2


def without_traceback(notebook: nbformat.NotebookNode) -> None:
    """Shorten the traceback of each intended error to its last line, without terminal colours."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [re.sub(r"\x1b\[[\d;]*m", "", output.traceback[-1])]


async def render(source: Path, slots: asyncio.Semaphore) -> str:
    """Execute a chapter in a new kernel, write its page, and return a line of statistics."""
    notebook = jupytext.read(source)
    async with slots:
        start = time.perf_counter()
        where = {"metadata": {"path": str(CHAPTERS)}}
        client = NotebookClient(notebook, timeout=CELL_TIMEOUT, resources=where, coalesce_streams=True)
        await client.async_execute()
        seconds = time.perf_counter() - start
    without_traceback(notebook)
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    text = re.sub(r"\((\d\d_\w+)\.ipynb", r"(\1.md", text)  # links to other chapters
    (PAGES / source.name).write_text(text, encoding="utf-8")
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    return f"{source.name}: {seconds:.0f} s, {len(cells)} code cells, {words:,} words"


async def main(prefixes: list[str]) -> None:
    """Render all chapters, or those whose names start with one of the prefixes, two at a time."""
    PAGES.mkdir(exist_ok=True)
    sources = [
        path for path in sorted(CHAPTERS.glob("[0-9]*.md")) if path.name.startswith(tuple(prefixes) or "")
    ]
    slots = asyncio.Semaphore(CONCURRENT_CHAPTERS)
    for done in asyncio.as_completed([render(source, slots) for source in sources]):
        print(await done, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
