"""What the tests of the site look at: its built pages, and what each of them makes a browser fetch."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

# As the workflow of the pages sets them: below a path, where 404.html has to find its style.
ADDRESSES = {"SITE_URL": "https://example.org/site/", "REPOSITORY_URL": "https://example.org/repository"}
CSS_LOADS = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")
LOADING_RELATIONS = {
    *("stylesheet", "preconnect", "dns-prefetch", "preload", "modulepreload", "prefetch", "icon", "manifest")
}
LOADING_ATTRIBUTES = {"src", "srcset", "poster"}  # of any tag
OTHER_LOADING_ATTRIBUTES = {("object", "data"), ("image", "href"), ("use", "href")}


class Loads(HTMLParser):
    """Gathers what a browser fetches for a page, and what could make Material's script fetch more."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.classes: set[str] = set()
        self.formulas = 0
        self.inside_style = False
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.inside_style = tag == "style"
        classes = values.get("class", "").split()
        self.classes.update(classes)
        self.formulas += "arithmatex" in classes
        self.addresses += [
            value
            for name, value in values.items()
            if name in LOADING_ATTRIBUTES or (tag, name) in OTHER_LOADING_ATTRIBUTES
        ]
        self.addresses += css_loads(values.get("style", ""))
        if tag == "link" and LOADING_RELATIONS & set(values.get("rel", "").lower().split()):
            self.addresses.append(values.get("href", ""))

    def handle_data(self, data: str) -> None:
        if self.inside_style:
            self.addresses += css_loads(data)

    def handle_endtag(self, tag: str) -> None:
        self.inside_style = False


class Site(NamedTuple):
    """The built site."""

    folder: Path
    pages: dict[str, Loads]


def css_loads(text: str) -> list[str]:
    """The addresses that a style sheet fetches; a data: address holds its content itself."""
    found = [first or second for first, second in CSS_LOADS.findall(text)]
    return [address for address in found if not address.startswith("data:")]
