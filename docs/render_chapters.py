"""Execute the chapters and write each one, with its outputs, as a page and a notebook for the site.

    python docs/render_chapters.py                all chapters, to docs/chapters/
    python docs/render_chapters.py 04 06          chapters whose names start with 04 or 06
    python docs/render_chapters.py --notebooks    also update the notebooks in chapters/

An error in a cell stops the program, unless the cell is tagged `raises-exception`. The pages are not kept in
git, so that they always show what the current code prints.
"""

import asyncio
import copy
import html
import os
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
PAGES = Path(__file__).resolve().parent / "chapters"
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


def with_folds(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return a copy in which solutions, and errors of cells that aren't solved, are folded."""
    folded = copy.deepcopy(notebook)
    for cell in folded.cells:
        for output in cell.get("outputs", []):
            if output.get("ename") == "NotYet":
                fold = f"<summary>Not solved here</summary>\n<pre>{html.escape(output.traceback[-1])}</pre>"
                data = {"text/html": f'<details class="unsolved">{fold}</details>'}
                output.update(nbformat.v4.new_output("display_data", data))
            elif "solution" in cell.metadata.get("tags", []):
                fold = f"<summary>Solution</summary>\n\n{output.data['text/markdown']}"
                output.data = {"text/markdown": f'<details markdown="1">{fold}\n\n</details>'}
    return folded


async def render(source: Path, slots: asyncio.Semaphore, notebooks: bool) -> str:
    """Execute a chapter in a new kernel, write it, and return a line of statistics."""
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
    text, _ = MarkdownExporter().from_notebook_node(with_folds(notebook))
    text = re.sub(r"\((\d\db?_\w+)\.ipynb", r"(\1.md", text)  # links to other chapters
    text = text.replace("](../docs/", "](../")  # links to pages of the site
    # The site has the scripts of the interactive drawings, and starts them in such an element.
    text = re.sub(r'<iframe (data-explore="[\w-]+")[^>]*></iframe>', r"<div \1></div>", text)
    link = f"[Download this chapter as a notebook]({source.stem}.ipynb)"
    text = re.sub(r"^# .*$", lambda heading: f"{heading[0]}\n\n{link}", text, count=1, flags=re.MULTILINE)
    (PAGES / source.name).write_text(text, encoding="utf-8")
    with_images(notebook)
    for folder in [PAGES, CHAPTERS] if notebooks else [PAGES]:
        nbformat.write(notebook, folder / f"{source.stem}.ipynb")
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    words = sum(len(cell.source.split()) for cell in notebook.cells if cell.cell_type == "markdown")
    return f"{source.name}: {seconds:.0f} s, {len(cells)} code cells, {words:,} words"


async def main(prefixes: list[str], notebooks: bool) -> None:
    """Render all chapters, or those whose names start with one of the prefixes, two at a time."""
    PAGES.mkdir(exist_ok=True)
    sources = [
        path for path in sorted(CHAPTERS.glob("[0-9]*.md")) if path.name.startswith(tuple(prefixes) or "")
    ]
    slots = asyncio.Semaphore(CONCURRENT_CHAPTERS)
    for done in asyncio.as_completed([render(source, slots, notebooks) for source in sources]):
        print(await done, flush=True)


if __name__ == "__main__":
    arguments = set(sys.argv[1:])
    asyncio.run(main(sorted(arguments - {"--notebooks"}), "--notebooks" in arguments))
