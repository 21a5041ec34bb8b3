"""The site as a browser shows it: no error, nothing from outside, formulas, search, both palettes, phones."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from built_site import Site
from PIL import Image, ImageStat

from replay_course import Playable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

OpenPage = Callable[..., "Page"]
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
TABS = 4  # pages that load at a time
# The page may not scroll sideways; what is wider than the page scrolls in itself, and is not counted here.
OVERHANG = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
# a script sets it, a moment after the system has changed
IS_DARK = "document.body.dataset.mdColorScheme === 'slate'"
# Each page has a worker that indexes the whole site for its search, which takes as long as the page itself.
NO_WORKER = "globalThis.Worker = class extends EventTarget { postMessage() {} }"
# Sizes of the text in drawings and charts, in pixels.
TEXTS = """
[...document.querySelectorAll(".md-content svg[role='img'] text")].map(
    (text) => parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getBoundingClientRect().width
        / text.ownerSVGElement.viewBox.baseVal.width)
"""
# Blocks of code that are wider than the column, on a desktop.
CUT_CODE = """
[...document.querySelectorAll(".language-python pre > code")]
    .filter((code) => code.scrollWidth > code.clientWidth).length
"""
FORMULAS = "[document.querySelectorAll('.arithmatex').length, document.querySelectorAll('.katex').length]"


@dataclass
class Visit:
    """What a browser met on one page."""

    faults: list[str] = field(default_factory=list)  # errors, and requests that failed or went outside
    overhang: dict[str, int] = field(default_factory=dict)  # width → pixels that the page scrolls sideways
    cut_code: int = 0
    texts: list[float] = field(default_factory=list)  # sizes of the text in drawings on a phone, in pixels
    formulas: int = 0
    formulas_set: int = 0
    dark: bool = False  # its background changes when the system turns dark


def new_page(browser: "Browser | BrowserContext", search: bool = False) -> "Page":
    """Open a page whose waits are long: no test fails by being late on a busy machine."""
    page = browser.new_page()
    if not search:
        page.add_init_script(NO_WORKER)
    page.set_default_timeout(300_000)  # ms
    page.set_default_navigation_timeout(300_000)
    return page


def watch(page: "Page", address: str, see: Callable[[str], None]) -> None:
    """Tell `see` what a page should never do."""

    def is_inside(request: "Request") -> bool:
        return request.url.startswith((address, "data:", "blob:"))

    def is_bad(said: "ConsoleMessage") -> bool:
        return said.type in ("error", "warning")

    # Not by `page.route`, which would keep the browser from reusing what it has loaded for other pages.
    page.on("request", lambda request: None if is_inside(request) else see(f"outside: {request.url}"))
    page.on("console", lambda said: see(f"{said.text} {said.location['url']}") if is_bad(said) else None)
    page.on("pageerror", lambda error: see(f"error: {error}"))
    page.on("requestfailed", lambda request: see(f"failed: {request.url} {request.failure}"))


def by_length(site: Site) -> list[str]:
    """All pages, the longest last."""
    return sorted(site.pages, key=lambda name: (site.folder / name).stat().st_size)


def worth_a_visit(site: Site) -> list[str]:
    """All pages, but of the source pages, which one function makes, only the longest of each package."""
    longest = {}
    for name in by_length(site):
        first, _, rest = name.partition("/")
        longest[rest.split("/")[0] if first == "source" else name] = name
    return sorted(longest.values())


def different_pages(site: Site) -> list[str]:
    """The longest page of each folder, and those that are like no other."""
    longest = {name.rpartition("/")[0].partition("/")[0]: name for name in by_length(site)}
    return sorted({*longest.values(), "404.html", "design/architecture.html", "explore.html", "index.html"})


@pytest.fixture(scope="module", params=[different_pages, pytest.param(worth_a_visit, marks=pytest.mark.long)])
def visits(site: Site, address: str, browser: "Browser", request: pytest.FixtureRequest) -> dict[str, Visit]:
    """A visit to each page: at first on a desktop, then as narrow as a phone, then in the dark.

    Several pages load at a time, because the browser waits half a second for more requests of each. Each tab
    shows many pages: a new one takes a new process.
    """
    found = {name: Visit() for name in request.param(site)}
    context, names = browser.new_context(viewport=DESKTOP, color_scheme="light"), list(found)
    tabs = [new_page(context) for _ in range(TABS)]
    shown: dict[Page, Visit] = {}
    for tab in tabs:
        watch(tab, address, lambda fault, tab=tab: shown[tab].faults.append(fault))
    while names:
        some, names = names[:TABS], names[TABS:]
        for name, tab in zip(some, tabs, strict=False):
            tab.set_viewport_size(DESKTOP)
            tab.emulate_media(color_scheme="light")
            shown[tab] = found[name]
            tab.goto(address + name, wait_until="commit")
        for name, tab in zip(some, tabs, strict=False):
            tab.wait_for_load_state("networkidle")  # leaving a page aborts its pending requests
            tab.bring_to_front()  # background pages are rarely rendered and switch to dark mode late
            look_at(tab, found[name])
    context.close()
    return found


def look_at(page: "Page", visit: Visit) -> None:
    """Record what a loaded page shows."""
    visit.overhang["desktop"] = page.evaluate(OVERHANG)
    visit.cut_code = page.evaluate(CUT_CODE)
    page.set_viewport_size(PHONE)
    visit.overhang["phone"] = page.evaluate(OVERHANG)
    visit.texts = page.evaluate(TEXTS)
    visit.formulas, visit.formulas_set = page.evaluate(FORMULAS)
    light = page.evaluate(BACKGROUND)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(IS_DARK)
    visit.dark = page.evaluate(BACKGROUND) != light


def test_every_page_loads_without_an_error_and_nothing_from_outside(visits: dict[str, Visit]) -> None:
    assert {name: visit.faults for name, visit in visits.items() if visit.faults} == {}


def test_no_page_scrolls_sideways(visits: dict[str, Visit]) -> None:
    wide = {name: visit.overhang for name, visit in visits.items() if any(visit.overhang.values())}
    assert wide == {}, "pixels that stand over"


def test_no_code_of_a_chapter_or_of_the_first_page_is_cut_on_a_desktop(visits: dict[str, Visit]) -> None:
    chapters = {name: visit for name, visit in visits.items() if name.startswith(("chapters/", "index"))}
    assert {name: visit.cut_code for name, visit in chapters.items() if visit.cut_code} == {}


def test_text_in_drawings_is_at_least_nine_pixels_high_on_a_phone(visits: dict[str, Visit]) -> None:
    assert sum(len(visit.texts) for visit in visits.values()) > 10 * len(visits)
    small = {name: min(visit.texts) for name, visit in visits.items() if min(visit.texts, default=9.0) < 8.99}
    assert small == {}


def test_every_formula_is_set(visits: dict[str, Visit]) -> None:
    assert sum(visit.formulas for visit in visits.values()) >= 4
    for name, visit in visits.items():
        assert visit.formulas_set == visit.formulas, name


def test_every_page_is_light_or_dark_as_the_system_is(visits: dict[str, Visit]) -> None:
    assert [name for name, visit in visits.items() if not visit.dark] == []


def test_a_request_to_the_outside_is_reported_and_not_sent(browser: "Browser") -> None:
    faults: list[str] = []
    page, outside = new_page(browser), "http://192.0.2.1/picture.png"
    watch(page, "data:", faults.append)
    with page.expect_event("requestfailed"):
        page.set_content(f"<img src='{outside}'>", wait_until="commit")
    assert f"outside: {outside}" in faults
    told = re.compile(rf"failed: {re.escape(outside)} net::ERR_(NAME_NOT_RESOLVED|PROXY)")
    assert any(map(told.match, faults)), faults
    page.close()


@pytest.fixture(scope="module")
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    """What the pages share: the files and the compiled scripts that the browser has loaded."""
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def open_page(address: str, context: "BrowserContext") -> Iterator[OpenPage]:
    """A function that opens a page of the site; it is closed after the test."""
    with ExitStack() as pages:

        def open_page(
            path: str, viewport: dict[str, int] = DESKTOP, color_scheme: str = "light", search: bool = False
        ) -> "Page":
            page = pages.enter_context(new_page(context, search))
            page.set_viewport_size(viewport)
            page.emulate_media(color_scheme=color_scheme)
            page.goto(address + path)
            return page

        yield open_page


def test_search_finds_the_sum_tree(open_page: OpenPage) -> None:
    page = open_page("index.html", search=True)
    page.locator("input.md-search__input").press_sequentially("sum tree")  # it listens to keys
    page.wait_for_selector(".md-search-result__item")
    assert "sum tree" in page.locator(".md-search-result__list").inner_text().lower()


def test_a_table_of_measurements_shows_its_spread_on_demand(open_page: OpenPage) -> None:
    page = open_page("measurements/index.html")
    spread, button = page.locator(".spread").first, page.locator(".spread-button").first
    assert not spread.is_visible()
    button.press("Enter")
    assert spread.is_visible()
    assert spread.inner_text().strip().startswith("(")
    button.press("Enter")
    assert not spread.is_visible()


def test_a_version_with_a_remark_is_no_measurement(open_page: OpenPage) -> None:
    page = open_page("start.html")
    assert page.get_by_text("(Debian forky)").is_visible()


def test_a_wide_table_scrolls_in_itself_on_a_phone(open_page: OpenPage) -> None:
    page = open_page("measurements/buffers.html", viewport=PHONE)
    frame = page.locator(".md-typeset__scrollwrap").first
    assert frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
    assert frame.evaluate("frame => { frame.scrollLeft = 100; return frame.scrollLeft }") == 100


def test_a_chart_can_be_enlarged(address: str, open_page: OpenPage) -> None:
    page = open_page("measurements/buffers.html", viewport=PHONE)
    page.locator("a.picture").first.click()
    page.wait_for_url(address + "measurements/article-4096.svg")


def brightness(screenshot: bytes) -> float:
    """The mean of a picture's pixels, from 0 for black to 255."""
    return ImageStat.Stat(Image.open(io.BytesIO(screenshot)).convert("L")).mean[0]


DRAWINGS = ["measurements/scale.svg", "measurements/learning.svg", "assets/layers.svg"]


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_a_drawing_opened_alone_is_light_or_dark_as_the_system_is(drawing: str, open_page: OpenPage) -> None:
    page = open_page(drawing)
    page.emulate_media(color_scheme="light")
    assert brightness(page.screenshot()) > 200
    page.emulate_media(color_scheme="dark")
    assert brightness(page.screenshot()) < 80, "with what lies around it"


@pytest.mark.parametrize("system", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_a_chart_on_a_page_follows_the_palette_of_the_page_alone(system: str, open_page: OpenPage) -> None:
    page = open_page("measurements/cost.html", color_scheme=system)
    chart = page.locator("a.picture img").first
    for palette, is_as_bright in [("default", (200, 255)), ("slate", (0, 80))]:
        page.evaluate("palette => document.body.dataset.mdColorScheme = palette", palette)
        assert is_as_bright[0] < brightness(chart.screenshot()) < is_as_bright[1], palette


FOCUSED = "document.activeElement.getAttribute('aria-label')"


@pytest.mark.parametrize("size", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.long)])
def test_the_tree_of_the_first_page_is_played_with_by_keyboard(
    size: dict[str, int], open_page: OpenPage
) -> None:
    page = open_page("index.html", viewport=size)
    tree = page.locator("[data-explore=sum-tree]")
    lines = tree.locator(".explore-log li")
    step = tree.get_by_role("button", name="Step", exact=True)
    for _ in range(3):
        step.press("Enter")
    assert lines.count() == 5, "the query, three comparisons, the slot"
    assert "is drawn" in lines.last.inner_text()
    for name, tabs in [("query", 3), ("priority of slot 5", 6)]:
        for _ in range(tabs):
            page.keyboard.press("Tab")
        assert page.evaluate(FOCUSED) == name
    page.keyboard.press("ArrowUp")
    sums = ["5 = 4 + 1", "15 = 5 + 10", "25 = 10 + 15"]
    assert lines.all_inner_texts() == ["Slot 5 now has mass 1.", *sums]
    number = tree.locator("svg text.explore-middle").first
    colours = []
    for palette in ["light", "dark"]:
        page.emulate_media(color_scheme=palette)
        page.wait_for_function(f"({IS_DARK}) === {'true' if palette == 'dark' else 'false'}")
        colours.append(number.evaluate("text => getComputedStyle(text).fill"))
    assert colours[0] != colours[1]


@pytest.mark.parametrize("size", [DESKTOP, pytest.param(PHONE, marks=pytest.mark.long)])
def test_a_step_of_the_episode_is_selected_with_keys_and_pointer(
    size: dict[str, int], open_page: OpenPage
) -> None:
    page = open_page("explore.html", viewport=size)
    drawing = page.locator("[data-explore=episode]")
    step = drawing.get_by_role("slider", name="step", exact=True)
    message = drawing.locator(".explore-message")
    step.locator("rect").first.wait_for()
    step.press("Home")
    assert "The window that starts at step 0 learns from steps 0 to 3." in message.inner_text()
    step.press("ArrowRight")
    assert "No window starts at step 1" in message.inner_text()
    page.keyboard.press("Shift+Tab")  # to the last control above the strip
    assert page.evaluate("document.activeElement.value") == "pad"
    drawing.get_by_label("show").select_option("goals")
    drawing.get_by_label("strategy").select_option("final")
    told = "Step 1 gets goal 3, achieved after step 8. Step 2 reaches the goal"
    assert told in message.inner_text()
    step.scroll_into_view_if_needed()
    cell = step.locator("rect").nth(4).bounding_box()
    assert cell is not None
    page.mouse.click(cell["x"] + cell["width"] / 2, cell["y"] + cell["height"] / 2)
    assert "Step 4 gets goal 3" in message.inner_text()


def test_the_first_chapter_and_the_three_doors_are_on_the_first_screen(open_page: OpenPage) -> None:
    page = open_page("index.html")
    doors = page.locator(".grid.cards ul > li")
    assert doors.locator("strong").all_inner_texts() == ["Learn", "Import", "Read"]
    bottom = page.locator(".grid.cards").evaluate("element => element.getBoundingClientRect().bottom")
    assert bottom < DESKTOP["height"]
    page.locator(".hero .md-button--primary").click()
    page.wait_for_url("**/chapters/00_why_replay.html")


@pytest.mark.parametrize(("name", "pictures", "ranges"), [("index", 1, 0), ("explore", 2, 2)])
def test_a_brief_tree_stands_without_its_charts(
    name: str, pictures: int, ranges: int, open_page: OpenPage
) -> None:
    page = open_page(f"{name}.html")
    tree = page.locator("[data-explore=sum-tree]")
    assert tree.locator("svg").count() == pictures
    assert tree.locator("input[type=range]").count() == ranges


def test_a_link_to_a_line_of_source_marks_it(open_page: OpenPage) -> None:
    page = open_page("api/buffers.html")
    page.locator(".source-link a").first.click()
    page.wait_for_selector(":target")  # of the next page
    page.wait_for_load_state("networkidle")  # nothing moves the line any more
    line = page.locator(":target")
    assert line.inner_text().strip().startswith("def __init__")
    assert line.is_visible()
    top = line.evaluate("line => line.getBoundingClientRect().top")
    assert 48 < top < DESKTOP["height"], "below the header, on the screen"


def test_the_number_of_a_line_of_source_is_beside_it(open_page: OpenPage) -> None:
    page = open_page("source/buffers/sum_tree.html")
    for line in [2, 100, 300]:
        number = page.locator(".linenodiv").get_by_text(str(line), exact=True).bounding_box()
        code = page.locator(f"#L-{line}").bounding_box()
        assert abs(number["y"] - code["y"]) < code["height"] / 2, line


@pytest.mark.parametrize(("name", "button"), [("sum-tree", "Step"), ("ring", "check stamp 0")])
def test_a_drawing_is_played_with_in_a_notebook(name: str, button: str, browser: "Browser") -> None:
    faults: list[str] = []
    page = new_page(browser)
    watch(page, "data:", faults.append)
    page.set_content(Playable(name)._repr_html_())
    drawing = page.frame_locator("iframe")
    before = drawing.locator(".explore").inner_text()
    drawing.get_by_role("button", name=button).first.click()
    assert drawing.locator(".explore").inner_text() != before
    assert faults == []
    page.close()
