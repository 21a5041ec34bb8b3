"""The site: it builds without a warning, loads nothing from outside, and names everything public."""

import dataclasses
import html
import inspect
import json
import re
import zlib
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import reader_bars
from built_site import ADDRESSES, Site, css_loads
from places import ROOT, modules_in, name_of

import replay_tutorial
from replay_tutorial import apex

OUTSIDE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)  # https://..., //...


def test_no_page_loads_anything_from_outside(site: Site) -> None:
    assert len(site.pages) >= 18
    loaded = [(page, address) for page, loads in site.pages.items() for address in loads.addresses]
    assert loaded
    assert [(page, address) for page, address in loaded if OUTSIDE.match(address)] == []


def test_solutions_and_errors_of_unsolved_cells_are_folded(site: Site) -> None:
    for page in (site.folder / "chapters").glob("[0-9]*.html"):
        text = page.read_text(encoding="utf-8")
        assert text.count("<summary>Your turn, in the notebook</summary>") >= 3, page.name
        open_text = re.sub(r"<details.*?</details>", "", text, flags=re.DOTALL)
        assert not re.search(r"NotYet: |Traceback", open_text), page.name
    text = (site.folder / "chapters" / "01_uniform_replay.html").read_text(encoding="utf-8")
    (solution,) = re.findall(r"<summary>Solution</summary>.*?</details>", text, re.DOTALL)
    assert "RingOfArrays" in solution


def test_a_chapter_shows_the_outputs_stored_in_its_notebook(site: Site) -> None:
    for path in (ROOT / "chapters").glob("[0-9]*.ipynb"):
        text = html.unescape((site.folder / "chapters" / f"{path.stem}.html").read_text(encoding="utf-8"))
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        for output in outputs:
            assert "".join(output.get("text", [])).rstrip() in text, path.name
        drawings = sum("image/svg+xml" in output.get("data", {}) for output in outputs)
        assert "<iframe" not in text, "the site starts the interactive drawings itself"
        assert len(re.findall(r'<svg [^>]*style="width:100%;max-width:[\d.]+px', text)) == drawings, path.name
        assert (site.folder / "chapters" / path.name).read_bytes() == path.read_bytes()


def test_a_page_shows_the_code_and_the_drawings_of_a_chapter_without_the_calls_that_display_them(
    site: Site,
) -> None:
    for path in (site.folder / "chapters").glob("[0-9]*.html"):
        blocks = re.findall(r"<code>(.*?)</code>", path.read_text(encoding="utf-8"), re.DOTALL)
        code = [html.unescape(re.sub("<[^>]+>", "", block)).strip() for block in blocks]
        assert [block for block in code if re.fullmatch(r"(?:show|draw_\w+)\([^\n]*\)", block)] == []
    text = (site.folder / "chapters" / "05b_reading_the_real_buffer.html").read_text(encoding="utf-8")
    assert 'aria-label="One record of 24 bytes' in text
    assert "<summary>Nested observations</summary>" in text


def test_no_style_sheet_loads_anything_from_outside_or_missing(site: Site) -> None:
    sheets = list(site.folder.rglob("*.css"))
    assert any(sheet.name == "katex.min.css" for sheet in sheets)
    for sheet in sheets:
        for address in css_loads(sheet.read_text(encoding="utf-8")):
            assert not OUTSIDE.match(address), f"{sheet.name}: {address}"
            assert (sheet.parent / urlsplit(address).path).is_file(), f"{sheet.name}: {address} is not there"


def test_everything_that_a_page_loads_is_there(site: Site) -> None:
    for page, loads in site.pages.items():
        for address in loads.addresses:
            path = unquote(urlsplit(address).path)
            if not path or address.startswith("data:"):
                continue
            # 404.html names its files from the server's root, because it is shown in place of any page
            start = site.folder.parent if path.startswith("/") else (site.folder / page).parent
            assert (start / path.lstrip("/")).is_file(), f"{page}: {address}"


def test_scripts_find_no_reason_to_fetch_from_outside(site: Site) -> None:
    # Material's script fetches mermaid for pages with such a drawing, and facts about a repository for pages
    # that name one; other addresses in scripts are names of XML dialects. What it knows is held here, so that
    # a new one is seen.
    unpkg = "https://unpkg.com"
    known = (f"{unpkg}/mermaid", f"{unpkg}/resize-observer-polyfill", "https://api.github.com")
    loader = re.compile(r"""https?://(?:unpkg|cdn|cdnjs|fonts|api|[\w.-]*jsdelivr)[\w./-]*""")
    for script in site.folder.rglob("*.js"):
        for address in loader.findall(script.read_text(encoding="utf-8")):
            assert address.startswith(known) or "gitlab" in address, f"{script.name}: {address}"
    for page, loads in site.pages.items():
        assert "mermaid" not in loads.classes, page
        text = (site.folder / page).read_text(encoding="utf-8")
        assert ADDRESSES["REPOSITORY_URL"] in text or "http-equiv" in text, page
        assert 'data-md-component="source"' not in text, f"{page} asks for facts about the repository"


def test_the_sitemap_names_every_page(site: Site) -> None:
    named = set(re.findall(r"<loc>(.*?)</loc>", (site.folder / "sitemap.xml").read_text(encoding="utf-8")))
    assert named == {ADDRESSES["SITE_URL"] + page for page in site.pages if page != "404.html"}


def test_mathematics_is_set_by_the_local_katex(site: Site) -> None:
    architecture = site.pages["design/architecture.html"]
    assert architecture.formulas >= 4
    for wanted in ["katex.min.js", "auto-render.min.js", "katex.min.css", "mathematics.js"]:
        assert [address for address in architecture.addresses if address.endswith(wanted)], wanted


def test_every_module_has_a_source_page_with_an_anchor_for_each_line(site: Site) -> None:
    for path in modules_in():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines:
            page = site.folder / "source" / name_of(path).replace(".py", ".html")
            anchors = re.findall(r'id="L-(\d+)"', page.read_text(encoding="utf-8"))
            assert anchors == [str(line) for line in range(1, lines + 1)], path.name


def test_the_reading_order_links_every_file_to_its_source(site: Site) -> None:
    page = (site.folder / "reading_order.html").read_text(encoding="utf-8")
    named = re.findall(r"<code>([\w/]+\.py)</code>", page)
    assert len(named) > 50
    for name in named:
        assert f'<a href="source/{name.removesuffix(".py")}.html"><code>{name}</code></a>' in page


def test_a_module_and_the_chapter_that_builds_it_link_each_other(site: Site) -> None:
    for path in modules_in():
        for number in reader_bars.BUILT.findall(path.read_text(encoding="utf-8"))[:1]:
            name = name_of(path).removesuffix(".py")
            (chapter,) = (site.folder / "chapters").glob(f"{number[0]}_*.html")
            to_module = f'<li><a href="../source/{name}.html"><code>{name}.py</code></a>:'
            assert to_module in chapter.read_text(encoding="utf-8")
            source = (site.folder / "source" / f"{name}.html").read_text(encoding="utf-8")
            to_chapter = f' in <a href="{"../" * (1 + name.count("/"))}chapters/{chapter.name}">chapter'
            assert to_chapter in source
    api = (site.folder / "api" / "shared.html").read_text(encoding="utf-8")
    assert '<p>Built in <a href="../chapters/07_apex.html">chapter 07</a>, <em>Ape-X</em>.</p>' in api
    assert (
        '../api/shared.html#replay_tutorial.Mailbox"' in (site.folder / "chapters/07_apex.html").read_text()
    )


def test_an_object_of_the_api_links_the_line_where_it_begins(site: Site) -> None:
    page = (site.folder / "api" / "buffers.html").read_text(encoding="utf-8")
    links = re.findall(r'<p class="source-link"><a href="\.\./source/([\w/]+)\.html#L-(\d+)">', page)
    first_lines = set()
    for name, line in links:
        source = (ROOT / "replay_tutorial" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        first_lines.add(source[int(line) - 1].split("(")[0])
    assert {"    def __init__", "    def sample", "    def update_priorities"} <= first_lines
    assert all(re.match(r"\s*(def|class|@)", line) for line in first_lines)


def test_the_settings_are_those_of_the_configuration(site: Site) -> None:
    pytest.importorskip("tyro", reason="the configuration needs the extra `train`")
    page = (site.folder / "api" / "settings.html").read_text(encoding="utf-8")
    rows = re.findall(r'<code id="replay_tutorial.apex.Config.(\w+)">.*?</tr>', page, re.DOTALL)
    assert rows == [field.name for field in dataclasses.fields(apex.Config)]


def test_every_paper_that_a_file_follows_stands_on_the_page_of_papers() -> None:
    papers = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    cited = re.compile(r"[A-Z]\w+(?: et al\.| and [A-Z]\w+)? (?:19|20)\d\d\b")
    for path in modules_in():
        text = " ".join(path.read_text(encoding="utf-8").split())
        for source in re.findall(r"(?:Paper|Papers|Source|Sources): (.*?)\"\"\"", text):
            for paper in cited.findall(source):
                assert paper in papers, f"{path.name}: {paper}"


@pytest.fixture(scope="module")
def places(site: Site) -> dict[str, str]:
    """Where the API pages explain an object: its full name → page#anchor."""
    compressed = (site.folder / "objects.inv").read_bytes().split(b"\n", 4)[4]
    found = {}
    for line in zlib.decompress(compressed).decode().splitlines():
        name, _, _, place, _ = line.split(" ", 4)
        found[name] = place.replace("#$", f"#{name}")
    return found


@pytest.mark.parametrize("package", [replay_tutorial, apex], ids=lambda package: package.__name__)
def test_every_public_name_stands_on_an_api_page(
    package: ModuleType, site: Site, places: dict[str, str]
) -> None:
    for name in package.__all__:
        place = places.get(f"{package.__name__}.{name}", "")
        page, _, anchor = place.partition("#")
        assert page.startswith("api/"), f"{name}: {place or 'nowhere'}"
        assert f'id="{anchor}"' in (site.folder / page).read_text(encoding="utf-8")


def test_every_public_method_stands_on_an_api_page(places: dict[str, str]) -> None:
    for name in replay_tutorial.__all__:
        public = getattr(replay_tutorial, name)
        if not inspect.isclass(public):
            continue
        classes = [base.__name__ for base in public.__mro__ if base.__name__ in replay_tutorial.__all__]
        for member, value in inspect.getmembers(public):
            if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                explained = [f"replay_tutorial.{owner}.{member}" in places for owner in classes]
                assert any(explained), f"{name}.{member} is explained neither there nor with a base class"


STACK = {"shape": (4, 84, 84), "dtype": np.uint8}
FLAG, NUMBER, ACTION = ({"dtype": dtype} for dtype in (bool, np.float32, np.int64))
ONE = {"obs": STACK, "action": ACTION, "reward": NUMBER, "terminated": FLAG}
BOTH = ONE | {"next_obs": STACK}


@pytest.mark.parametrize(
    ("how", "fields", "options"),
    [
        ("none", BOTH, {}),
        ('`dedupe_next="obs"`', ONE, {"dedupe_next": "obs"}),
        ('`dedupe_frames=["obs", "next_obs"]`', BOTH, {"dedupe_frames": ["obs", "next_obs"]}),
        ('`dedupe_next="obs", dedupe_frames="obs"`', ONE, {"dedupe_next": "obs", "dedupe_frames": "obs"}),
    ],
)
def test_the_api_page_has_the_true_memory_for_a_transition(
    how: str, fields: dict[str, Any], options: dict[str, Any]
) -> None:
    table = (ROOT / "docs" / "api" / "buffers.md").read_text(encoding="utf-8")
    try:
        buffer = replay_tutorial.ReplayBuffer(100_000, fields, **options)
    except MemoryError:
        pytest.skip("this system does not promise 5.6 GB of memory that nobody has touched")
    assert f"| {how} | {buffer.bytes_per_transition:,.0f} |" in table
