"""What the chapters draw: a ring of slots, and a sum tree.

Left out: everything that is measured (`notebook_charts`).
"""

from collections.abc import Collection, Sequence

from replay_tutorial.teaching.svg import Drawing

SLOT, HEIGHT = 56, 34  # pixels of a slot


def draw_ring(capacity: int, added: int, drawn: Collection[int] = ()) -> Drawing:
    """Draw the slots of a ring, the row in each, and the slot that is written next.

    Args:
        capacity: Number of slots.
        added: Rows added so far; the newest `capacity` are there.
        drawn: Slots to light.
    """
    drawing = Drawing(SLOT * capacity + 60, 116, f"a ring of {capacity} slots after {added} rows")
    drawing.text(50, 60, "row", at="end")
    drawing.text(50, 92, "slot", size=11, at="end")
    for slot in range(capacity):
        x = 60 + SLOT * slot
        newest = added - 1 - (added - 1 - slot) % capacity if added else -1
        drawing.box(x, 38, SLOT - 6, HEIGHT, lit=slot in drawn)
        drawing.text(x + SLOT / 2 - 3, 60, newest if newest >= 0 else "–")
        drawing.text(x + SLOT / 2 - 3, 92, slot, size=11)
    next_slot = 60 + SLOT * (added % capacity) + SLOT / 2 - 3
    drawing.arrow(next_slot, 22, next_slot, 36)
    drawing.text(next_slot, 15, f"next: {added}", size=12, lit=True)
    return drawing


def draw_tree(
    levels: Sequence[Sequence[float]], path: Collection[int] = (), query: float | None = None
) -> Drawing:
    """Draw a binary sum tree, the root on top, each node with its sum in the box and its number beside it.

    Args:
        levels: The sums of each level, from the root's one to the leaves.
        path: Nodes to light, with their edges; the root is node 1, and the children of n are 2n and 2n + 1.
        query: A number below the total, marked on the leaves laid end to end below the tree.
    """
    leaves, total = len(levels[-1]), levels[0][0]
    width, step = SLOT * leaves, 58
    height = step * len(levels) + (64 if query is not None else 20)
    drawing = Drawing(width + 20, height, f"a sum tree of {leaves} leaves, total {total:g}")
    for depth, sums in enumerate(levels):
        span, y = width / len(sums), 8 + step * depth
        for place, mass in enumerate(sums):
            node, x = 2**depth + place, 10 + span * (place + 0.5)
            if depth:
                parent_x = 10 + 2 * span * (place // 2 + 0.5)
                both = node in path and node // 2 in path
                drawing.line(parent_x, y - step + HEIGHT, x, y, lit=both)
            drawing.box(x - 20, y, 40, HEIGHT, lit=node in path)
            drawing.text(x, y + 22, f"{mass:g}", lit=node in path)
            drawing.text(x - 22, y + 10, node, size=9, at="end")
            if depth == len(levels) - 1:
                drawing.text(x, y + HEIGHT + 13, f"slot {place}", size=10)
    if query is not None:
        draw_line_of_masses(drawing, levels[-1], query, width, height - 40)
    return drawing


def draw_line_of_masses(
    drawing: Drawing, masses: Sequence[float], query: float, width: float, y: float
) -> None:
    """Draw the leaves laid end to end, each as long as its mass, and where a query falls."""
    total, start = sum(masses), 0.0
    for slot, mass in enumerate(masses):
        if mass > 0:
            x = 10 + width * start / total
            drawing.box(x, y, width * mass / total, 18, lit=start <= query < start + mass)
            drawing.text(x + width * mass / total / 2, y + 13, slot, size=10)
        start += mass
    place = 10 + width * min(query / total, 1.0)
    drawing.arrow(place, y + 36, place, y + 20)
    drawing.text(place + 8, y + 36, f"{query:g}", size=12, lit=True, at="start")


def draw_masses(masses: Sequence[float], queries: Sequence[float] = (), parts: int = 1) -> Drawing:
    """Draw masses laid end to end, each as wide as it is large, and what some queries find.

    Args:
        masses: The mass of each slot.
        queries: Numbers below the total; the slots that they find are lit.
        parts: Into how many equal parts the line is cut.
    """
    width, total, start = 640.0, sum(masses), 0.0
    drawing = Drawing(width + 20, 118, f"{len(masses)} masses end to end, total {total:g}")
    for slot, mass in enumerate(masses):
        if mass > 0:
            x, wide = 10 + width * start / total, width * mass / total
            found = any(start <= query < start + mass for query in queries)
            drawing.box(x, 22, wide, HEIGHT, lit=found)
            drawing.text(x + wide / 2, 44, f"{mass:g}", lit=found)
            drawing.text(x + wide / 2, 15, f"slot {slot}" if wide > 40 else slot, size=10)
        start += mass
    for part in range(1, parts):
        place = 10 + width * part / parts
        drawing.line(place, 60, place, 102)
    for query in queries:
        place = 10 + width * query / total
        drawing.arrow(place, 100, place, 58)
        if len(queries) == 1:
            drawing.text(place, 114, f"{query:g}", size=12, lit=True)
    for place, end in ((10.0, 0.0), (10 + width, total)):
        drawing.text(place, 72, f"{end:g}", size=10)
    return drawing


# What a transition passes, in order, and what comes back from the learner.
STATIONS = ("environment", "actor", "n-step window", "ring", "sum tree", "batch", "learner")


def draw_way(*lit: str) -> Drawing:
    """Draw the way of a transition from the environment to the learner.

    Args:
        *lit: Stations to light, of `STATIONS`.

    Raises:
        ValueError: If there is no such station.
    """
    if unknown := set(lit) - set(STATIONS):
        raise ValueError(f"There is no station {unknown.pop()!r}; there are {', '.join(STATIONS)}.")
    width, gap = 98, 16
    drawing = Drawing((width + gap) * len(STATIONS), 84, "the way of a transition")
    for place, station in enumerate(STATIONS):
        x = (width + gap) * place + 2
        drawing.box(x, 10, width, HEIGHT, lit=station in lit)
        drawing.text(x + width / 2, 32, station, lit=station in lit)
        if place:
            drawing.line(x - gap, 27, x, 27)
    tree, learner = (2 + (width + gap) * STATIONS.index(name) + width / 2 for name in ("sum tree", "learner"))
    drawing.line(learner, 44, learner, 60)
    drawing.line(learner, 60, tree, 60)
    drawing.line(tree, 60, tree, 44)
    drawing.text((tree + learner) / 2, 75, "priorities go back", size=11)
    return drawing


def draw_windows(rewards: Sequence[float], n: int, lit: int | None = None) -> Drawing:
    """Draw the steps of one episode, and below them the steps that each n-step row sums.

    Args:
        rewards: Of the steps, to the end of the episode.
        n: The most steps of a row.
        lit: A row to light.
    """
    count = len(rewards)
    drawing = Drawing(SLOT * count + 190, 62 + 20 * count, f"n-step windows of {n} over {count} steps")
    drawing.text(62, 30, "reward", at="end")
    for step, reward in enumerate(rewards):
        drawing.box(70 + SLOT * step, 8, SLOT - 6, HEIGHT)
        drawing.text(70 + SLOT * step + SLOT / 2 - 3, 30, f"{reward:g}")
    for row in range(count):
        steps, y = min(n, count - row), 52 + 20 * row
        drawing.text(62, y + 11, f"row {row}", size=11, at="end", lit=row == lit)
        drawing.box(70 + SLOT * row, y, SLOT * steps - 6, 14, lit=row == lit)
        word = "step" if steps == 1 else "steps"
        drawing.text(70 + SLOT * count, y + 11, f"{steps} {word}", size=11, at="start", lit=row == lit)
    return drawing
