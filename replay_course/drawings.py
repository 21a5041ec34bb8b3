"""Drawings of the chapters: rings, trees, the path of a transition, torn rows, stamps, the roles of Ape-X.

Lines and text are `currentColor`, so a drawing is readable on light and dark pages. Highlighted parts use the
accent colour.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

SLOT, HEIGHT = 56, 34  # width and height of a slot in pixels
NARROW = 50  # width of a slot if eight of them are as wide as a phone
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
        dashed: bool = False,
    ) -> None:
        """Draw a rectangle with a centred text; x and y are its upper left corner. `lit` fills it."""
        look = (
            f'fill="{ACCENT}" fill-opacity="0.25" stroke="{ACCENT}"'
            if lit
            else 'fill="none" stroke="currentColor"'
        )
        look += ' stroke-dasharray="3 3"' * dashed
        self.shapes.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" {look}/>')
        if text != "":
            self.text(x + width / 2, y + height / 2 + round(0.38 * size), text, size, lit)

    def line(self, x: float, y: float, to_x: float, to_y: float, lit: bool = False) -> None:
        """Draw a line; `lit` draws it thick and in the accent colour."""
        look = f'stroke="{ACCENT}" stroke-width="2.5"' if lit else f'stroke="currentColor" opacity="{FAINT}"'
        self.shapes.append(f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" {look}/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a highlighted line with an arrowhead at its end."""
        self.line(x, y, to_x, to_y, lit=True)
        length = max(math.hypot(to_x - x, to_y - y), 1e-9)
        ahead_x, ahead_y = 6 * (to_x - x) / length, 6 * (to_y - y) / length
        wings = " ".join(
            f"{to_x - ahead_x + side * ahead_y / 1.5:g},{to_y - ahead_y - side * ahead_x / 1.5:g}"
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


def draw_ring(capacity: int, added: int) -> Drawing:
    """Draw the slots of a ring, the row in each slot, the next slot to write, and the way back to slot 0.

    Args:
        capacity: Number of slots.
        added: Number of rows added; the newest `capacity` are stored.
    """
    target = added % capacity
    title = f"Ring of {capacity} slots after {added} rows; row {added} goes to slot {target}; "
    step = NARROW - 8  # pixels
    drawing = Drawing(step * capacity + 52, 170, title + f"after slot {capacity - 1} comes slot 0.")
    drawing.text(8, 14, f"after {added} rows", at="start")
    drawing.text(40, 86, "row", size=12, at="end")
    drawing.text(40, 116, "slot", size=12, at="end")
    for slot in range(capacity):
        x = 46 + step * slot
        newest = added - 1 - (added - 1 - slot) % capacity if added else -1
        drawing.box(x, 64, step - 5, HEIGHT, newest if newest >= 0 else "–", lit=slot == target)
        drawing.text(x + step / 2 - 3, 116, slot, size=12)
    first, last, here = (43 + step * (slot + 0.5) for slot in (0, capacity - 1, target))
    drawing.arrow(here, 46, here, 62)
    at = "start" if target < capacity / 3 else "end" if target > capacity * 2 / 3 else "middle"
    drawing.text(here, 40, f"row {added}: {added} % {capacity} = {target}", size=12, lit=True, at=at)
    for x, y, to_x, to_y in ((last, 122, last, 138), (last, 138, first, 138)):
        drawing.line(x, y, to_x, to_y, lit=True)
    drawing.arrow(first, 138, first, 122)
    drawing.text((first + last) / 2, 154, f"after slot {capacity - 1}, slot 0 again", size=12)
    return drawing


def draw_layouts(record: np.dtype[np.void], capacity: int, slot: int) -> Drawing:
    """Draw the cache lines with the values of one row: in an array per field, and in an array of records.

    Args:
        record: The fields of a row, without gaps.
        capacity: Number of slots.
        slot: The row whose bytes and cache lines are highlighted.
    """
    line, wide, high, left = 64, 17, 18, 80  # bytes of a cache line, and its pixels
    parts = [(name, record[name].itemsize) for name in record.names or ()]
    drawing = Drawing(NARROW * 8, 22 * len(parts) + 92, "")
    touched = list[int]()

    def strip(y: float, name: str, size: int) -> None:
        lines = -(-capacity * size // line)
        first, last = slot * size // line, (slot * size + size - 1) // line
        drawing.text(left - 8, y + 13, name, size=12, at="end")
        for place in range(lines):
            drawing.box(left + wide * place, y, wide, high, lit=first <= place <= last)
        scale = wide / line
        drawing.shapes.append(
            f'<rect x="{left + scale * slot * size:g}" y="{y + 4:g}" width="{max(scale * size, 2):g}" '
            f'height="{high - 8}" fill="{ACCENT}"/>'
        )
        touched.append(last - first + 1)

    for place, (name, size) in enumerate(parts):
        strip(26 + 22 * place, name, size)
    y = 22 * len(parts) + 44
    far = sum(touched)
    drawing.text(left, 16, f"one array per field: {far} cache lines", size=12, at="start")
    strip(y + 22, "records", record.itemsize)
    drawing.text(left, y + 12, f"records: {touched[-1]} cache lines, side by side", size=12, at="start")
    drawing.title = f"The values of row {slot} lie on {far} cache lines of {len(parts)} arrays, or on "
    drawing.title += f"{touched[-1]} adjacent cache lines of one array of records."
    return drawing


def draw_frames(frames: int, stack: int, lit: int) -> Drawing:
    """Draw frames in memory, and the stacks of each row: `obs` and `next_obs`.

    Args:
        frames: Number of frames; the stacks of row n begin with the frames n and n + 1.
        stack: Number of frames of a stack.
        lit: The frame whose stacks are highlighted.
    """
    rows = frames - stack
    title = f"{frames} frames and the stacks of {rows} rows; the stacks with frame {lit} are highlighted."
    wide = 33  # of a frame in pixels
    drawing = Drawing(100 + wide * frames, 56 + 34 * rows, title)
    drawing.text(92, 30, "frame", size=12, at="end")
    for frame in range(frames):
        drawing.box(100 + wide * frame, 8, wide - 5, HEIGHT, frame, lit=frame == lit)
    for row in range(rows):
        for place, name in enumerate(["obs", "next_obs"]):
            first, y = row + place, 54 + 34 * row + 14 * place
            drawing.text(92, y + 10, f"row {row} {name}", size=11, at="end")
            drawing.box(100 + wide * first, y, wide * stack - 5, 11, lit=first <= lit < first + stack)
    return drawing


def draw_cliffwalk(states: int) -> Drawing:
    """Draw the Blind Cliffwalk, where in each state one action leads on and the other ends the episode."""
    title = f"{states} states in a row; a wrong action in any of them ends the episode without a reward."
    step = 33  # from state to state, in pixels
    drawing = Drawing(step * states + 68, 116, title)
    for state in range(states):
        x = 4 + step * state
        drawing.box(x, 8, 21, HEIGHT, state)
        drawing.arrow(x + 22, 25, x + step - 1, 25)
        drawing.line(x + 10, 8 + HEIGHT, x + 10, 84)
    drawing.box(4 + step * states, 8, 60, HEIGHT, "reward 1", lit=True, size=11)
    drawing.line(4, 84, step * states - 4, 84)
    drawing.text(step * states / 2, 104, "the cliff: the episode ends, reward 0", size=12)
    return drawing


def draw_tree(
    levels: Sequence[Sequence[float]], path: Collection[int] = (), query: float | None = None
) -> Drawing:
    """Draw a binary sum tree; each box contains the sum of a node, with the node's number next to it.

    Args:
        levels: Sums of each level, from the root to the leaves.
        path: Nodes to highlight, with their edges; the root is node 1, and node n has the children 2n and
            2n + 1.
        query: A point below the total, marked on the masses laid end to end below the tree.
    """
    leaves, total = len(levels[-1]), levels[0][0]
    width, step = (NARROW - 2) * leaves, 58
    height = step * len(levels) + (76 if query is not None else 32)
    title = f"Sum tree of {leaves} leaves with total {total:g}"
    title += f"; highlighted: nodes {', '.join(map(str, sorted(path)))}." if path else "."
    drawing = Drawing(width + 16, height, title)
    for depth, sums in enumerate(levels):
        span, y = width / len(sums), 8 + step * depth
        for place, mass in enumerate(sums):
            node, x = 2**depth + place, 8 + span * (place + 0.5)
            if depth:
                parent_x = 8 + 2 * span * (place // 2 + 0.5)
                both = node in path and node // 2 in path
                drawing.line(parent_x, y - step + HEIGHT, x, y, lit=both)
            drawing.box(x - 20, y, 40, HEIGHT, f"{mass:g}", lit=node in path)
            if depth < len(levels) - 1:
                drawing.text(x - 23, y + 12, node, size=11, at="end")
            else:
                drawing.text(x, y + HEIGHT + 13, node, size=11)
                drawing.text(x, y + HEIGHT + 27, f"slot {place}", size=11)
    if query is not None:
        y, place = height - 40, 8 + width * min(query / total, 1.0)
        for slot, _, x, wide, found in end_to_end(levels[-1], width, [query], left=8):
            drawing.box(x, y, wide, 18, slot, lit=found, size=11)
        drawing.arrow(place, y + 36, place, y + 20)
        drawing.text(place + 8, y + 36, f"{query:g}", size=12, lit=True, at="start")
    return drawing


def draw_waits(queries: int, levels: int) -> Drawing:
    """Draw when queries wait for memory: one query after another, and level by level.

    Each box is a wait of a query for the sum of one level; time runs to the right. A query can't request
    a sum before that of the level above has arrived, but queries don't wait for each other.
    """
    title = (
        f"{queries} queries on {levels} levels: one after another, and level by level, where waits overlap."
    )
    wide, high, begin = 27, 18, 66
    drawing = Drawing(begin + wide * queries * levels + 8, 2 * (22 * queries + 44), title)
    for part, name in enumerate(["one after another", "level by level"]):
        top = part * (22 * queries + 44) + 30
        drawing.text(begin, top - 12, name, size=12, at="start")
        for query in range(queries):
            drawing.text(begin - 8, top + 22 * query + 14, f"query {query}", size=11, at="end")
            for level in range(levels):
                # Level by level, a request follows the one before it at once: a tenth of a wait.
                start = level * (1 + 0.1 * queries) + 0.1 * query if part else query * levels + level
                x, y = begin + wide * start, top + 22 * query
                drawing.box(x, y, wide - 3, high, level + 1, lit=level == 0, size=11)
    return drawing


def end_to_end(
    masses: Sequence[float], width: float, queries: Sequence[float], left: float = 10
) -> Iterator[tuple[int, float, float, float, bool]]:
    """Yield slot, mass, left edge, width (pixels), and whether a query finds it, for each slot with mass.

    The first slot begins at `left`.
    """
    total, start = sum(masses), 0.0
    for slot, mass in enumerate(masses):
        if mass > 0:
            found = any(start <= query < start + mass for query in queries)
            yield slot, mass, left + width * start / total, width * mass / total, found
        start += mass


def draw_masses(masses: Sequence[float], queries: Sequence[float] = (), parts: int = 1) -> Drawing:
    """Draw masses laid end to end on a line, and the slots that queries find.

    Args:
        masses: The mass of each slot.
        queries: Points below the total; the slots that they find are highlighted.
        parts: Number of equal segments marked on the line.
    """
    width, total = 376.0, sum(masses)
    title = f"{len(masses)} masses laid end to end, total {total:g}"
    title += f"; queries at {', '.join(f'{query:g}' for query in queries)}." if len(queries) else "."
    drawing = Drawing(width + 24, 124, title)
    for slot, mass, x, wide, found in end_to_end(masses, width, queries):
        label = f"{mass:g}"
        fits = 0.6 * 11 * len(label) <= wide  # a character is up to 0.6 sizes wide
        drawing.box(x, 22, wide, HEIGHT, label if fits else "", lit=found, size=11)
        drawing.text(x + wide / 2, 15, slot, size=11)
    for slot in (slot for slot, mass in enumerate(masses) if not mass):  # where its segment would be
        drawing.text(10 + width * sum(masses[:slot]) / total, 15, slot, size=11)
    for part in range(1, parts):
        place = 10 + width * part / parts
        drawing.line(place, 60, place, 102)
    for query in queries:
        place = 10 + width * query / total
        drawing.arrow(place, 100, place, 58)
        if len(queries) == 1:
            drawing.text(place, 116, f"{query:g}", size=12, lit=True)
    for place, end in ((10.0, 0.0), (10 + width, total)):
        drawing.text(place, 72, f"{end:g}", size=11)
    return drawing


# The stations of a transition, in order. Priorities return from the learner to the sum tree.
STATIONS = ("environment", "actor", "n-step window", "ring", "sum tree", "batch", "learner")


def draw_way(*lit: str) -> Drawing:
    """Draw the path of a transition from the environment to the learner.

    Args:
        *lit: Names in `STATIONS` to highlight.

    Raises:
        ValueError: If a name is not in `STATIONS`.
    """
    if unknown := set(lit) - set(STATIONS):
        raise ValueError(f"There is no station {unknown.pop()!r}; the stations are {', '.join(STATIONS)}.")
    title = f"Path of a transition: {', '.join(STATIONS)}; priorities return from the learner to the sum tree"
    title += f"; highlighted: {', '.join(lit)}." if lit else "."
    widths, gap = (102, 90, 118, 90), 16  # of the four columns, and between them, in pixels
    lefts = [2 + sum(widths[:column]) + gap * column for column in range(4)]
    drawing = Drawing(sum(widths) + 3 * gap + 4, 128, title)
    for place, station in enumerate(STATIONS):  # four to the right, the others below them, back to the left
        column, y = (place, 6) if place < 4 else (7 - place, 68)
        x, wide = lefts[column], widths[column]
        drawing.box(x, y, wide, HEIGHT, station, lit=station in lit, size=12)
        if place == 4:
            drawing.line(x + wide / 2, 6 + HEIGHT, x + wide / 2, 68)
        elif place:
            edge = x - gap if place < 4 else x + wide
            drawing.line(edge, y + 17, edge + gap, y + 17)
    learner, tree = (lefts[column] + widths[column] / 2 for column in (1, 3))
    for x, y, to_x, to_y in ((learner, 102, learner, 112), (learner, 112, tree, 112), (tree, 112, tree, 102)):
        drawing.line(x, y, to_x, to_y)
    drawing.text((learner + tree) / 2, 125, "updated priorities", size=12)
    return drawing


def draw_goals(
    step: int,
    lengths: Sequence[int] = (6, 4),
    strategies: Sequence[str] = ("final", "future", "episode", "random"),
) -> Drawing:
    """Draw the states of two episodes, and which of them can become the goal of a step.

    Args:
        step: Step of the first episode whose goal is replaced.
        lengths: Number of steps of each episode.
        strategies: Names of strategies, or of the bugs "before" (states before the action) and "next steps"
            (as many steps as the episode has). Crosses mark goals of a bug that *future* can't choose.
    """
    states = [(episode, number) for episode in range(2) for number in range(lengths[episode] + 1)]
    later = {(0, number) for number in range(step + 1, lengths[0] + 1)}
    goals = {
        "final": {(0, lengths[0])},
        "future": later,
        "episode": {(0, number) for number in range(1, lengths[0] + 1)},
        "random": {state for state in states if state[1]},
        "before": {(0, number) for number in range(step, lengths[0])},
        "next steps": later | {(1, number) for number in range(1, step + 1)},
    }
    title = f"Possible goals of step {step} of {lengths[0]}. "
    for strategy in strategies:
        names = [f"{'other ' * episode}s{number}" for episode, number in sorted(goals[strategy])]
        title += f"{strategy}: {', '.join(names)}. "
    wide = 27
    drawing = Drawing(424, 60 + 34 * len(strategies), title.strip())
    x = {state: 82 + wide * place + 12 * state[0] for place, state in enumerate(states)}
    for episode, number in states:
        drawing.text(x[episode, number] + 11, 16, f"s{number}", size=12)
    for row, strategy in enumerate(strategies):
        y = 54 + 34 * row
        drawing.text(74, y + 17, strategy, size=12, at="end")
        for state in states:
            chosen = state in goals[strategy]
            is_wrong = chosen and strategy in ("before", "next steps") and state not in later
            drawing.box(x[state], y, 23, 24, "×" if is_wrong else "", lit=chosen)
    drawing.arrow(x[0, step] + 11, 38, x[0, step + 1] + 11, 38)
    drawing.text(x[0, step] + 4, 32, f"step {step}", size=12, lit=True)
    drawing.text(x[1, 0], 38, "another episode", size=12, at="start")
    return drawing


def draw_windows(rewards: Sequence[float], n: int, lit: int | None = None) -> Drawing:
    """Draw the steps of an episode and, below them, the span of each n-step row, with obs → next_obs and R.

    Args:
        rewards: Reward of each step, up to the end of the episode.
        n: Maximum number of steps of a row; at most 10.
        lit: Row to highlight.
    """
    count = len(rewards)
    title = f"Rows of up to {n} steps in an episode of {count} steps; the last rows are shorter."
    wide, left = 38, 52  # of a step, and beside the first one, in pixels
    drawing = Drawing(left + wide * count + 150, 62 + 20 * count, title)
    drawing.text(left - 6, 30, "reward", size=12, at="end")
    drawing.text(left + wide * count + 6, 30, "obs → next_obs: R", size=12, at="start")
    for step, reward in enumerate(rewards):
        drawing.box(left + wide * step, 8, wide - 5, HEIGHT, f"{reward:g}")
    for row in range(count):
        steps, y = min(n, count - row), 52 + 20 * row
        drawing.text(left - 6, y + 11, f"row {row}", size=11, at="end", lit=row == lit)
        drawing.box(left + wide * row, y, wide * steps - 5, 14, lit=row == lit)
        powers = ["", "γ", *("γ" + "⁰¹²³⁴⁵⁶⁷⁸⁹"[power] for power in range(2, 10))]
        parts = [f"{rewards[row + step]:g}{powers[step]}" for step in range(steps)]
        text = f"{row} → {row + steps}: {' + '.join(parts)}"
        drawing.text(left + wide * count + 6, y + 11, text, size=11, at="start", lit=row == lit)
    return drawing


def draw_sequences(steps: int, starts: Sequence[int], length: int, burn_in: int = 0) -> Drawing:
    """Draw the steps of an episode and, below them, windows: steps to learn from are lit, "–" is padding.

    Args:
        steps: Number of steps of the episode.
        starts: The first step to learn from of each window.
        length: Number of entries to learn from.
        burn_in: Number of entries before them.
    """
    before = max(burn_in - min(starts), 0)  # columns to the left of step 0
    count = before + max(steps, max(starts) + length)
    title = f"Windows of {burn_in} + {length} entries in an episode of {steps} steps, which start at "
    title += f"{', '.join(map(str, starts))}; entries outside the episode are padding."
    wide, left = 29, 60  # of a step, and beside the first one, in pixels
    drawing = Drawing(left + wide * count, 54 + 34 * len(starts), title)
    drawing.text(left - 8, 30, "step", size=12, at="end")
    for step in range(steps):
        drawing.box(left + wide * (before + step), 8, wide - 4, HEIGHT, step)
    for place, start in enumerate(starts):
        y = 54 + 34 * place
        drawing.text(left - 8, y + 18, f"from {start}", size=12, at="end")
        for step in range(start - burn_in, start + length):
            real, x = 0 <= step < steps, left + wide * (before + step)
            drawing.box(x, y, wide - 4, 26, step if real else "–", lit=real and step >= start, size=12)
    return drawing


def draw_row(values: npt.NDArray[np.float64]) -> Drawing:
    """Draw the values of one row; consecutive equal values form one box.

    Args:
        values: float64[n]; in `check_shared`, all values of a complete row are equal.
    """
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    ends = np.append(starts[1:], len(values))
    narrow = min(36.0, 380 / len(starts))  # wide enough for a number, even if a run is short
    widths = narrow + (380 - narrow * len(starts)) * (ends - starts) / len(values)
    title = f"Row of {len(values):,} values; number of runs of equal values: {len(starts)}."
    drawing, x = Drawing(400, 84, title), 10.0
    for place, (start, width) in enumerate(zip(starts.tolist(), widths.tolist(), strict=True)):
        text = f"{values[start]:.0f}" if width > 34 else ""
        drawing.box(x, 10, width, HEIGHT, text, lit=place % 2 == 1, size=11)
        x += width
    drawing.text(10, 66, "value 0", size=11, at="start")
    drawing.text(390, 66, f"value {len(values) - 1:,}", size=11, at="end")
    return drawing


def draw_stamps(stamps: Sequence[int]) -> Drawing:
    """Draw slots with their rows and stamps; held slots are lit.

    Args:
        stamps: As in `StampedRows`: 2 * (index + 1), plus 1 while the slot is held; 0 if never written.
    """
    wide = 42  # of a slot in pixels
    drawing = Drawing(wide * len(stamps) + 58, 96, f"Rows and stamps of {len(stamps)} slots.")
    for y, head in ((30, "row"), (62, "stamp"), (84, "slot")):
        drawing.text(50, y, head, size=12, at="end")
    for slot, stamp in enumerate(map(int, stamps)):
        x = 58 + wide * slot
        held = stamp % 2 == 1
        text = "held" if held else stamp // 2 - 1 if stamp else "–"
        drawing.box(x, 8, wide - 5, HEIGHT, text, lit=held, size=12)
        drawing.text(x + wide / 2 - 2, 62, stamp, lit=held)
        drawing.text(x + wide / 2 - 2, 84, slot, size=11)
    return drawing


def draw_checks() -> Drawing:
    """Draw a writer that replaces row 3 with row 11, and three samplers that check the stamp twice."""
    drawing = Drawing(400, 236, "A writer and three samplers; two equal even stamps mean a complete row.")
    drawing.text(56, 42, "writer", size=12, at="end")
    for x, width, words, lit in (
        (62, 74, "row 3", False),
        (136, 136, "writes row 11", True),
        (272, 124, "row 11", False),
    ):
        drawing.box(x, 20, width, HEIGHT, words, lit=lit)
    drawing.text(56, 78, "stamp", size=12, at="end")
    for x, words in ((99, "8"), (204, "25: held"), (334, "24")):
        drawing.text(x, 78, words, lit=words.endswith("held"))
    drawing.line(136, 20, 136, 86)
    drawing.line(272, 20, 272, 86)
    checks = (
        (70, 126, "8 and 8: row 3, complete"),
        (106, 200, "8 and 25: discarded"),
        (290, 384, "24 and 24: row 11, complete"),
    )
    for place, (start, end, words) in enumerate(checks):
        y = 112 + 40 * place
        drawing.text(56, y + 5, f"sampler {place + 1}", size=11, at="end")
        drawing.line(start, y, end, y, lit=True)
        for x in (start, end):
            drawing.box(x - 4, y - 8, 8, 16, lit=True)
        drawing.text(
            end + 14 if place < 2 else start - 14, y + 5, words, size=12, at="start" if place < 2 else "end"
        )
    drawing.text(62, 228, "time →", size=11, at="start")
    return drawing


# Each part of Ape-X: left, top, width and height of its box in pixels.
PLACES = {
    "actor 0": (4, 60, 84, 34),
    "actor 1": (4, 102, 84, 34),
    "actor 2": (4, 144, 84, 34),
    "limiter": (160, 10, 102, 34),
    "replay": (168, 94, 86, 50),
    "mailbox": (160, 190, 102, 34),
    "learner": (326, 94, 70, 50),
}


def draw_roles(*lit: str) -> Drawing:
    """Draw actors, replay, learner, mailbox and limiter, and the data that they exchange.

    Args:
        *lit: Boxes to light: `actor 0`, `actor 1`, `actor 2`, `limiter`, `replay`, `mailbox`, `learner`.

    Raises:
        ValueError: If there is no such box.
    """
    if unknown := set(lit) - set(PLACES):
        raise ValueError(f"There is no {unknown.pop()!r}; choose from {', '.join(PLACES)}.")
    drawing = Drawing(400, 234, "Actors, replay, learner, mailbox and limiter, and the data between them.")
    for name, (x, y, width, height) in PLACES.items():
        drawing.box(x, y, width, height, name, lit=name in lit, size=12)
    drawing.arrow(92, 119, 164, 119)
    drawing.text(128, 113, "rows,", size=11)
    drawing.text(128, 134, "priorities", size=11)
    drawing.arrow(258, 108, 322, 108)
    drawing.text(288, 101, "batches", size=11)
    drawing.arrow(322, 130, 258, 130)
    drawing.text(290, 146, "priorities", size=11)
    drawing.line(361, 148, 361, 207, lit=True)
    drawing.arrow(361, 207, 266, 207)
    drawing.text(314, 200, "parameters", size=11)
    drawing.line(156, 207, 46, 207, lit=True)
    drawing.arrow(46, 207, 46, 182)
    drawing.text(102, 200, "parameters", size=11)
    for x, y, word in ((128, 98, "may I add?"), (288, 88, "may I draw?")):
        drawing.line(x, y, x, 27)
        drawing.line(x, 27, 160 if x < 200 else 262, 27)
        drawing.text(x - 6 if x < 200 else x + 6, 48, word, size=11, at="end" if x < 200 else "start")
    return drawing
