"""Hooks for mkdocs and properdocs, which call the `on_...` functions during a build.

They make a page of each chapter's notebook with its stored outputs, add a page with the source of every
module and program, turn file names into links to these pages, link the modules and the chapters that build
them, write the table of settings, and link images to their files.
"""

import ast
import html
import json
import re
from functools import cache
from pathlib import Path
from posixpath import dirname, relpath
from textwrap import indent
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

PACKAGE = Path(__file__).resolve().parents[1] / "replay_tutorial"
COURSE, SOLUTIONS = PACKAGE.parent / "replay_course", PACKAGE.parent / "chapters" / "solutions"
LAB, LAB_FOLDERS = PACKAGE.parent / "benchmarks", ("measuring", "peers", "conformance")
PROGRAMS = PACKAGE.parent / "docs" / "recipes" / "programs"
CHAPTERS = PACKAGE.parent / "chapters"
SETTINGS = "<!-- settings -->"

# A preceding `<a ...>` means that the name is a link already.
FILE = re.compile(
    r"(?P<link><a\b[^>]*>)?<code>(?:replay_tutorial/)?(?P<name>[\w/]+\.py)(?::(?P<line>\d+))?</code>"
)
# mkdocstrings' collapsed copy of an object's source; its first line number is the object's first line.
COPY = re.compile(
    r'<details class="mkdocstrings-source">\s*'
    r"<summary>Source code in <code>replay_tutorial/(?P<name>[\w/]+\.py)</code></summary>"
    r'.*?__codelineno-\d+-(?P<line>\d+)".*?</details>',
    re.DOTALL,
)
# The line in the docstrings of modules and of public classes.
BUILT = re.compile(r"^ *(?:Built|Read) in chapter (\d\db?), \*[^*]+\*\.$", re.MULTILINE)
# A drawing of a notebook: an image, because GitHub shows no elements. On a page, it is as wide as the column.
SVG = re.compile(r'<svg .*?color="#\d+" width="(?P<pixels>[\d.]+)" (?P<attributes>[^>]*?style=")')
# A cell that only displays code or a drawing: its page shows these, and not the call.
DISPLAYS = re.compile(r"(?:show|draw_\w+)\((?:[^\n]*|[^()]*)\)")
IMAGE = re.compile(r'<img\b[^>]*\bsrc="(?P<address>[^"]+\.(?:svg|png))"[^>]*>')


@cache
def modules() -> dict[str, Path]:
    """Return the programs and all modules of both packages and the lab that aren't empty, as {name: file}.

    The name is relative to the package, or begins with "replay_course/", "solutions/", "benchmarks/" or
    "docs/". Hidden files are skipped: editors leave lock files there, and Jupyter its checkpoints.
    """
    found = {path.relative_to(PACKAGE): path for path in sorted(PACKAGE.rglob("*.py"))}
    lab = [LAB.glob("*.py"), *(LAB.glob(f"{folder}/**/*.py") for folder in LAB_FOLDERS)]
    beside = [*lab, PROGRAMS.glob("*.py"), COURSE.rglob("*.py")]
    found |= {path.relative_to(LAB.parent): path for paths in beside for path in sorted(paths)}
    found |= {Path("solutions", path.name): path for path in sorted(SOLUTIONS.glob("*.py"))}
    visible = {name: path for name, path in found.items() if not any(p.startswith(".") for p in name.parts)}
    return {name.as_posix(): path for name, path in visible.items() if path.stat().st_size}


def page_of(name: str) -> str:
    """Return the address of a module's source page, without a suffix."""
    return "source/" + name.removesuffix(".py")


def first_sentence(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def source_page(name: str, path: Path) -> str:
    """Return the Markdown of a module's source page, without the source."""
    count = path.read_text(encoding="utf-8").count("\n")
    up = relpath("source/files.md", dirname(page_of(name)))
    return f"""---
title: {name}
hide: [navigation, toc]
search:
  exclude: true
---

# {Path(name).name}

`{path.relative_to(LAB.parent).as_posix()}`, {count} lines. [All files]({up})
"""


def source_code(path: Path) -> str:
    """Return a module's source as HTML, in which each line has an anchor such as #L-12."""
    text = path.read_text(encoding="utf-8")
    form = HtmlFormatter(linenos="table", lineanchors="L", linespans="L", anchorlinenos=True, wrapcode=True)
    # Keep the anchors on the lines' spans, so that CSS can highlight the target line, not the empty links.
    return re.sub(r'<a id="L-\d+"[^>]*></a>', "", highlight(text, PythonLexer(stripnl=False), form))


def index_page() -> str:
    """Return a Markdown page that lists all source pages by folder."""
    intro = (
        "All files of the package, the course, the lab and the complete programs. Start with the "
        "[reading order](../reading_order.md)."
    )
    lines = ["# Source", "", intro]
    folder = None
    for name, path in sorted(modules().items(), key=lambda item: (dirname(item[0]), item[0])):
        if dirname(name) != folder:
            folder = dirname(name)
            lines += ["", f"## {folder or 'replay_tutorial'}/", "", "| File | Description |", "|---|---|"]
        what = html.escape(first_sentence(path)).replace("|", "&#124;")
        lines.append(f"| [`{Path(name).name}`]({relpath(page_of(name), 'source')}.md) | {what} |")
    return "\n".join(lines) + "\n"


def built_in(number: str) -> str:
    """Return the end of a chapter's page: a list of the modules and public classes that it builds."""
    lines = []
    for name, path in modules().items():
        text = path.read_text(encoding="utf-8")
        if number in BUILT.findall(text):
            classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
            public = [each.name for each in classes if BUILT.search(ast.get_docstring(each) or "")]
            links = "".join(f" API: [`{each}`][replay_tutorial.{each}]." for each in public)
            lines.append(f"- `{name}`: {first_sentence(path)}{links}\n")
    return "\n## In the package\n\n" + "".join(lines) if lines else ""


def settings_table() -> str:
    """Return a table of the fields of `Config`: name, type, default and docstring."""
    tree = ast.parse((PACKAGE / "apex" / "config.py").read_text(encoding="utf-8"))
    config = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config")
    rows = ["| Setting | Type | Default | Description |", "|---|---|---|---|"]
    for field, text in zip(config.body, config.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            kind = field.annotation
            if isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Annotated":
                kind = kind.slice.elts[0]
            name = ast.unparse(field.target)
            types, default = (ast.unparse(node).replace("|", "&#124;") for node in (kind, field.value))
            anchor = f'<code id="replay_tutorial.apex.Config.{name}">{name}</code>'
            what = ast.literal_eval(text.value).replace("|", "&#124;")
            rows.append(f"| {anchor} | <code>{types}</code> | <code>{default}</code> | {what} |")
    return "\n".join(rows)


def chapter_page(path: Path) -> str:
    """Return the Markdown of a chapter's page: the cells of its notebook and their stored outputs."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif not (DISPLAYS.fullmatch(source) and cell["outputs"]):
            parts.append(f"```python\n{source}\n```")
        tags = cell["metadata"].get("tags", [])
        parts += [output_text(output, "solution" in tags) for output in cell.get("outputs", [])]
    text = "\n\n".join(parts)
    text = re.sub(r"\((\d\db?_\w+)\.ipynb", r"(\1.md", text)  # links to other chapters
    text = text.replace("](../docs/", "](../")  # links to pages of the site
    link = f"[Download this chapter as a notebook]({path.name})"
    return re.sub(r"^# .*$", lambda heading: f"{heading[0]}\n\n{link}", text, count=1, flags=re.MULTILINE)


def wide(match: re.Match[str]) -> str:
    """Return the start of a drawing, which the page shows up to 1.4 times as wide, and up to 620 pixels."""
    pixels = float(match["pixels"])
    most = max(pixels, min(1.4 * pixels, 620))
    return f"<svg {match['attributes']}width:100%;max-width:{most:g}px;height:auto;"


def output_text(output: dict[str, Any], is_solution: bool) -> str:
    """Return the Markdown of a cell's output; solutions and answers to empty skeletons are folded."""
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    if output.get("ename") == "NotYet":
        says = f"Without your code, the check says:\n<pre>{html.escape(output['traceback'][-1])}</pre>"
        return f'<details class="your-turn"><summary>Your turn, in the notebook</summary>\n{says}</details>'
    if is_solution:
        return f'<details markdown="1"><summary>Solution</summary>\n\n{data["text/markdown"]}\n\n</details>'
    if image := data.get("image/svg+xml"):
        return f"<div>{SVG.sub(wide, image, count=1)}</div>"
    if page := data.get("text/html"):
        # The site has the scripts of the interactive drawings, and starts them in such an element.
        return re.sub(r"<iframe (data-explore=[^>]*?) style=[^>]*></iframe>", r"<div \1></div>", page)
    if "text/markdown" in data:
        text = data["text/markdown"]
        is_ladder = text.startswith("| rung ")
        return f'<div class="measured ladder" markdown>\n\n{text}\n\n</div>' if is_ladder else text
    return indent("".join(output.get("text") or output.get("traceback") or data["text/plain"]), "    ")


def on_files(files: Any, config: Any) -> Any:
    """Add the chapters with their notebooks, and the source pages."""
    modules.cache_clear()  # the site may be served while files are added
    generated = type(next(iter(files))).generated  # of mkdocs or of properdocs
    for path in CHAPTERS.glob("[0-9]*.ipynb"):
        files.append(generated(config, f"chapters/{path.stem}.md", content=chapter_page(path)))
        files.append(generated(config, f"chapters/{path.name}", abs_src_path=str(path)))
    for name, path in modules().items():
        files.append(generated(config, page_of(name) + ".md", content=source_page(name, path)))
    files.append(generated(config, "source/files.md", content=index_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the placeholder for the table of settings, and list what a chapter builds."""
    if chapter := re.match(r"chapters/(\d\db?)_", page.file.src_uri):
        markdown += built_in(chapter[1])
    return markdown.replace(SETTINGS, settings_table()) if SETTINGS in markdown else markdown


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Link file names to their source pages, modules to their chapters, and images to their files."""
    known = modules()
    package = [name for name in known if not name.startswith(("benchmarks/", "docs/"))]
    by_name = {Path(name).name: name for name in package if not name.endswith("__init__.py")}

    def address(name: str) -> str:
        return relpath(page_of(name) + ".html", dirname(page.url))

    def link(match: re.Match[str]) -> str:
        name = match["name"] if match["name"] in known else by_name.get(match["name"])
        if match["link"] or not name or address(name) == relpath(page.url, dirname(page.url)):
            return match[0]
        line = f"#L-{match['line']}" if match["line"] else ""
        return f'<a href="{address(name)}{line}">{match[0]}</a>'

    def to_line(match: re.Match[str]) -> str:
        place = f"{address(match['name'])}#L-{match['line']}"
        return (
            f'<p class="source-link"><a href="{place}">Source: {match["name"]}, line {match["line"]}</a></p>'
        )

    def to_chapter(match: re.Match[str]) -> str:
        (chapter,) = CHAPTERS.glob(f"{match['number']}_*.md")
        place = relpath(f"chapters/{chapter.stem}.html", dirname(page.url))
        return f'{match["verb"]} in <a href="{place}">chapter {match["number"]}</a>'

    def enlarge(match: re.Match[str]) -> str:
        # With #on-page, the drawing's colours follow the page; alone, they follow the system's theme.
        address = match["address"]
        image = match[0].replace(f'"{address}"', f'"{address}#on-page"')
        return f'<a class="picture" href="{address}" title="Enlarge">{image}</a>'

    if page.file.src_uri == "chapters/index.md":  # its tables, from chapters/README.md, link notebooks
        content = re.sub(r'href="(\d\db?_\w+)\.ipynb"', r'href="\1.html"', content)
    content = IMAGE.sub(enlarge, FILE.sub(link, COPY.sub(to_line, content)))
    # A module's source is added here, because Markdown would take as long to parse it as all other pages.
    sources = {page_of(name) + ".md": path for name, path in known.items()}
    if path := sources.get(page.file.src_uri):
        content += source_code(path)
    return re.sub(r"(?P<verb>Built|Read) in chapter (?P<number>\d\db?)", to_chapter, content)


def on_post_page(output: str, **_: Any) -> str:
    """Remove the attribute that makes the theme's script fetch the repository's stars from GitHub."""
    return output.replace(' data-md-component="source"', "")


on_post_template = on_post_page  # 404.html
