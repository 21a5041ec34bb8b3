"""What the chapter on shared memory draws: a torn row, slots with their stamps, and two looks at one stamp.

Left out: rings and trees (`drawings`), and whatever is measured (`notebook_charts`).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from replay_tutorial.teaching.drawings import HEIGHT, SLOT
from replay_tutorial.teaching.svg import Drawing


def draw_row(values: npt.NDArray[np.float64]) -> Drawing:
    """Draw the values of one row side by side; each stretch of one number is a box, and the number is in it.

    Args:
        values: float64[n]; a whole row of the check has one number from end to end.
    """
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    ends = np.append(starts[1:], len(values))
    narrow = min(46.0, 640 / len(starts))  # wide enough for a number, however few values a part has
    widths = narrow + (640 - narrow * len(starts)) * (ends - starts) / len(values)
    drawing, x = Drawing(660, 84, f"a row of {len(values):,} values in {len(starts)} parts"), 10.0
    for place, (start, width) in enumerate(zip(starts.tolist(), widths.tolist(), strict=True)):
        drawing.box(x, 10, width, HEIGHT, lit=place % 2 == 1)
        if width > 40:
            drawing.text(x + width / 2, 31, f"{values[start]:.0f}", size=11, lit=place % 2 == 1)
        x += width
    drawing.text(10, 66, "value 0", size=11, at="start")
    drawing.text(650, 66, f"value {len(values) - 1:,}", size=11, at="end")
    return drawing


def draw_stamps(stamps: Sequence[int]) -> Drawing:
    """Draw slots with the row that each holds, and its stamp below; what somebody holds is lit.

    Args:
        stamps: As in `StampedRows`: 2 * (index + 1), and 1 more while the slot is held; 0 for never written.
    """
    drawing = Drawing(SLOT * len(stamps) + 76, 96, f"the stamps of {len(stamps)} slots")
    for y, head in ((30, "row"), (62, "stamp"), (84, "slot")):
        drawing.text(64, y, head, size=12, at="end")
    for slot, stamp in enumerate(map(int, stamps)):
        x = 74 + SLOT * slot
        held = stamp % 2 == 1
        drawing.box(x, 8, SLOT - 6, HEIGHT, lit=held)
        drawing.text(x + SLOT / 2 - 3, 30, "half" if held else stamp // 2 - 1 if stamp else "–", lit=held)
        drawing.text(x + SLOT / 2 - 3, 62, stamp, lit=held)
        drawing.text(x + SLOT / 2 - 3, 84, slot, size=11)
    return drawing


def draw_looks() -> Drawing:
    """Draw a writer that replaces row 3 by row 11 in a slot, and three samplers that look twice."""
    drawing = Drawing(680, 236, "a writer and three samplers; only equal even stamps mean a whole row")
    drawing.text(70, 42, "writer", at="end")
    for x, width, words, lit in (
        (80, 150, "row 3", False),
        (230, 240, "writes row 11", True),
        (470, 200, "row 11", False),
    ):
        drawing.box(x, 20, width, HEIGHT, lit=lit)
        drawing.text(x + width / 2, 42, words, lit=lit)
    drawing.text(70, 78, "stamp", at="end")
    for x, words in ((155, "8"), (350, "25: held"), (570, "24")):
        drawing.text(x, 78, words, lit=words.endswith("held"))
    drawing.line(230, 20, 230, 86)
    drawing.line(470, 20, 470, 86)
    looks = (
        (90, 210, "8 and 8: row 3, whole"),
        (150, 330, "8 and 25: thrown away"),
        (500, 640, "24 and 24: row 11, whole"),
    )
    for place, (start, end, words) in enumerate(looks):
        y = 112 + 40 * place
        drawing.text(70, y + 5, f"sampler {place + 1}", at="end")
        drawing.line(start, y, end, y, lit=True)
        for x in (start, end):
            drawing.box(x - 4, y - 8, 8, 16, lit=True)
        drawing.text(
            end + 14 if place < 2 else start - 14, y + 5, words, size=12, at="start" if place < 2 else "end"
        )
    drawing.text(80, 228, "time →", size=11, at="start")
    return drawing
