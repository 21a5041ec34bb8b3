"""SVG drawings of boxes, lines and text that use the text colour of the page.

Lines and text are `currentColor`, so a drawing is readable on light and dark pages. Highlighted parts use the
accent colour.
"""

from html import escape

ACCENT = "#e8590c"
FAINT = 0.35  # opacity of lines in the background


class Drawing:
    """An SVG to which shapes are added, and which a notebook displays."""

    def __init__(self, width: float, height: float, title: str) -> None:
        """Create an empty drawing.

        Args:
            width: Width in pixels; scaled down on a narrower page.
            height: Height in pixels.
            title: Alternative text for screen readers.
        """
        self.width, self.height, self.title = width, height, title
        self.shapes: list[str] = []

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: object = "",
        lit: bool = False,
        size: float = 13,
    ) -> None:
        """Draw a rectangle with a centred text; x and y are its upper left corner. `lit` fills it."""
        look = (
            f'fill="{ACCENT}" fill-opacity="0.25" stroke="{ACCENT}"'
            if lit
            else 'fill="none" stroke="currentColor"'
        )
        self.shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" {look}/>')
        if text != "":
            self.text(x + width / 2, y + height / 2 + round(0.38 * size), text, size, lit)

    def line(self, x: float, y: float, to_x: float, to_y: float, lit: bool = False) -> None:
        """Draw a line; `lit` draws it thick and in the accent colour."""
        look = f'stroke="{ACCENT}" stroke-width="2.5"' if lit else f'stroke="currentColor" opacity="{FAINT}"'
        self.shapes.append(f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" {look}/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a highlighted horizontal or vertical line with an arrowhead at its end."""
        self.line(x, y, to_x, to_y, lit=True)
        length = max(abs(to_x - x), abs(to_y - y), 1e-9)
        ahead_x, ahead_y = 6 * (to_x - x) / length, 6 * (to_y - y) / length
        wings = " ".join(
            f"{to_x - ahead_x + side * ahead_y / 1.5:g},{to_y - ahead_y + side * ahead_x / 1.5:g}"
            for side in (1, -1)
        )
        self.shapes.append(f'<polygon points="{to_x:g},{to_y:g} {wings}" fill="{ACCENT}"/>')

    def text(
        self, x: float, y: float, text: object, size: float = 13, lit: bool = False, at: str = "middle"
    ) -> None:
        """Write text; x is its middle, "start" or "end", as `at` says, and y its baseline."""
        look = f'fill="{ACCENT}" font-weight="bold"' if lit else 'fill="currentColor"'
        place = f'x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{at}"'
        self.shapes.append(f"<text {place} {look}>{escape(str(text))}</text>")

    def svg(self) -> str:
        """Return the SVG element."""
        title = escape(self.title, quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" '
            f'aria-label="{title}" style="width:100%;max-width:{self.width:g}px;height:auto;'
            f'font-family:sans-serif;display:block;margin:auto">{"".join(self.shapes)}</svg>'
        )

    def _repr_html_(self) -> str:
        return f"<div>{self.svg()}</div>"  # Markdown doesn't change block elements
