"""Interactive drawings in a notebook: the sum tree and the shared ring, as on the documentation site.

A drawing is a page of its own in an `iframe`, which contains the scripts and the style of the site.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "assets" / "explore"
# Name of a drawing → height in pixels, scripts in the order of loading, and the object that starts it.
DRAWINGS = {
    "sum-tree": (940, ("tree_model", "parts", "tree_charts", "tree_view"), "SumTreeView"),
    "ring": (
        760,
        ("ring_stamps", "ring_model", "ring_explorer", "parts", "ring_words", "ring_picture", "ring_view"),
        "RingView",
    ),
}
BRIEF_HEIGHT = 640  # of the tree alone
# The colours that the site's theme defines.
COLOURS = """
html { font: 20px sans-serif; color-scheme: light dark }
:root { --md-default-bg-color: #fff; --md-default-fg-color: #222; --md-default-fg-color--light: #666;
        --md-default-fg-color--lightest: #ddd }
@media (prefers-color-scheme: dark) { :root { --md-default-bg-color: #222; --md-default-fg-color: #ddd;
        --md-default-fg-color--light: #999; --md-default-fg-color--lightest: #444 } }
"""


class Playable:
    """An interactive drawing that a notebook displays."""

    def __init__(self, name: str, priorities: Sequence[float] = ()) -> None:
        """Read the scripts of a drawing, "sum-tree" or "ring".

        The scripts are in the repository. If only the package is installed, a sentence is shown instead.

        Args:
            name: Name of the drawing.
            priorities: Eight priorities for the tree, which is then shown without alpha, beta and charts.

        Raises:
            ValueError: If there is no such drawing.
        """
        if name not in DRAWINGS:
            raise ValueError(f"There is no drawing {name!r}; the drawings are {', '.join(DRAWINGS)}.")
        self.height, scripts, view = DRAWINGS[name]
        self.data, self.page = f'data-explore="{name}"', ""
        if priorities:
            self.height = BRIEF_HEIGHT
            self.data += f' data-brief data-priorities="{" ".join(f"{each:g}" for each in priorities)}"'
        if not FOLDER.exists():
            return
        style = (FOLDER / "explore.css").read_text(encoding="utf-8")
        code = "\n".join((FOLDER / f"{script}.js").read_text(encoding="utf-8") for script in scripts)
        self.page = (
            f"<!doctype html><meta charset='utf-8'><style>{COLOURS}{style}</style>"
            f"<body class='md-typeset'><div class='explore' {self.data}></div>"
            f"<script>{code}\n{view}.start(document.querySelector('.explore'))</script>"
        )

    def _repr_html_(self) -> str:
        if not self.page:
            return "<p>To play with this drawing, open the notebook in a clone of the repository.</p>"
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe {self.data} style="{style}" srcdoc="{escape(self.page)}"></iframe>'
