"""Drawings of chapters 06 and 07: processes and their memory, a missing fence, mailbox and limiter.

All are at most `WIDTH` pixels wide and use no text below `SMALL`, so that they are readable on a phone.
"""

from replay_course.drawings import Drawing
from replay_course.drawings_reading import SMALL, WIDTH

WRITERS = ((8, 14, "writer 0"), (8, 84, "writer 1"))  # left edge, top and name
SAMPLER = (320, 49, "sampler")
CONNECTIONS = {
    "queue": "The writers send rows through a queue of bytes; the sampler receives and stores all of them.",
    "manager": "The writers send rows to a manager, which stores them; the sampler requests batches from it.",
    "lock": "The rows lie in memory that all three processes map; writer 0 holds its lock, the others wait.",
    "killed": "Writer 0 was killed while it held the lock; writer 1 and the sampler wait for it forever.",
    "stamps": "The rows lie in memory that all processes map; each slot has a stamp, and no process waits.",
}


def draw_processes(connection: str) -> Drawing:
    """Draw two writers and a sampler, where the rows are (lit), and which process waits for which.

    Args:
        connection: A name in `CONNECTIONS`.

    Raises:
        ValueError: If there is no such connection.
    """
    if connection not in CONNECTIONS:
        raise ValueError(f"There is no {connection!r}; choose from {', '.join(CONNECTIONS)}.")
    drawing = Drawing(WIDTH, 170, CONNECTIONS[connection])
    for x, y, name in (*WRITERS, SAMPLER):
        drawing.box(x, y, 96, 48)
        drawing.text(x + 48, y + 20, name)
    if connection == "queue":
        drawing.box(176, 56, 80, 34, "queue", dashed=True)
        drawing.box(328, 74, 80, 18, "rows", lit=True, size=SMALL)
        for y in (38, 108):
            drawing.arrow(106, y, 174, 68 if y < 73 else 78)
        drawing.arrow(258, 73, 318, 73)
        drawing.text(212, 160, "each row is sent as bytes", size=SMALL)
        return drawing
    if connection == "manager":
        drawing.box(164, 40, 104, 66)
        drawing.text(216, 60, "manager")
        drawing.box(176, 74, 80, 22, "rows", lit=True, size=SMALL)
        for y in (38, 108):
            drawing.arrow(106, y, 162, 66 if y < 73 else 80)
        drawing.arrow(318, 62, 270, 62)
        drawing.arrow(270, 86, 318, 86)
        drawing.text(294, 54, "request", size=SMALL)
        drawing.text(294, 103, "batch", size=SMALL)
        drawing.text(212, 160, "each batch is sent as bytes", size=SMALL)
        return drawing
    drawing.box(164, 14, 104, 118, dashed=True)
    drawing.text(216, 32, "one memory" if connection == "stamps" else "lock: writer 0", size=SMALL)
    for slot in range(4):
        drawing.box(172, 42 + 21 * slot, 60, 18, f"row {slot}", lit=True, size=SMALL)
        if connection == "stamps":
            drawing.text(236, 56 + 21 * slot, 2 * (slot + 1), size=SMALL, at="start")
    for x, to_x, y in ((106, 162, 38), (106, 162, 108), (318, 270, 73)):
        drawing.arrow(x, y, to_x, y)
    said = {
        "lock": ("has the lock", "waits", "waits"),
        "killed": ("killed", "waits", "waits"),
        "stamps": ("writes", "writes", "reads"),
    }[connection]
    for (x, y, _), words in zip((*WRITERS, SAMPLER), said, strict=True):
        drawing.text(x + 48, y + 39, words, size=SMALL, lit=words in ("has the lock", "killed"))
    drawing.text(212, 160, CONNECTIONS[connection].partition("; ")[2].rstrip("."), size=SMALL)
    return drawing


def draw_reordering() -> Drawing:
    """Draw how a missing fence after `hold` lets a sampler return a torn row, in three tracks."""
    title = (
        "The writer executes hold, word 1, word 2, publish. Word 1 becomes visible before hold. In between, "
    )
    drawing = Drawing(
        WIDTH, 226, title + "the sampler checks the stamp twice, and returns a new word 1 and an old word 2."
    )
    for y, name in ((34, "executed"), (104, "visible"), (170, "sampler")):
        drawing.text(78, y, name, size=SMALL, at="end")
    executed = {"hold": 88, "word 1": 158, "word 2": 228, "publish": 298}
    visible = {"word 1": 88, "hold": 300, "word 2": 364}
    for step, x in executed.items():
        drawing.box(x, 14, 62, 30, step, lit=step == "word 1", size=SMALL)
    for step, x in visible.items():
        drawing.box(x, 84, 56, 30, step, lit=step == "word 1", size=SMALL)
        drawing.line(executed[step] + 31, 46, x + 28, 82, lit=step == "word 1")
    drawing.box(152, 150, 48, 30, "check", size=SMALL)
    drawing.box(202, 150, 40, 30, "copy", lit=True, size=SMALL)
    drawing.box(244, 150, 48, 30, "check", size=SMALL)
    drawing.text(222, 198, "both checks: row 0, published", size=SMALL)
    drawing.text(222, 216, "word 1 is new, word 2 is old: torn", size=SMALL, lit=True)
    return drawing


def draw_mailbox(version: int) -> Drawing:
    """Draw a mailbox while a learner writes a version, and an actor copies the one before it.

    Args:
        version: The newest complete version.
    """
    title = f"Version {version} is complete in place {version % 2}; an actor copies it. The learner writes "
    title += f"version {version + 1} over version {version - 1} in place {(version + 1) % 2}."
    drawing = Drawing(WIDTH, 148, title)
    for place in range(2):
        y, is_newest = 26 + 56 * place, version % 2 == place
        drawing.text(136, y + 20, f"place {place}", size=SMALL, at="end")
        values = [version] * 6 if is_newest else [version + 1] * 3 + [version - 1] * 3
        for number, value in enumerate(values):
            drawing.box(
                144 + 26 * number, y, 24, 30, value, lit=is_newest, dashed=not is_newest and number > 2
            )
        who, begin, end = ("actor", 304, 352) if is_newest else ("learner", 352, 304)
        drawing.arrow(begin, y + 15, end, y + 15)
        drawing.text(358, y + 20, who, at="start")
    drawing.text(144, 15, f"newest complete version: {version}", size=SMALL, at="start")
    drawing.text(144, 138, f"announced: {version + 1}", size=SMALL, at="start")
    return drawing


def draw_gauge(error: float, error_buffer: float) -> Drawing:
    """Draw the samples owed as a needle on a scale, with the band in which no process waits.

    Args:
        error: Samples owed; its marks are at most half a band outside of the band.
        error_buffer: Half the width of the band.
    """
    title = f"Samples owed: {error:g}. Below {-error_buffer:g} the learner waits, "
    title += f"above {error_buffer:g} the actors wait."
    drawing = Drawing(WIDTH, 112, title)
    scale = 196 / (1.5 * error_buffer)
    low, high = 212 - scale * error_buffer, 212 + scale * error_buffer
    drawing.box(low, 40, high - low, 26, lit=True)
    drawing.box(16, 40, low - 16, 26)
    drawing.box(high, 40, 408 - high, 26)
    for x, mark in ((low, -error_buffer), (212, 0), (high, error_buffer)):
        drawing.text(x, 84, f"{mark:g}", size=SMALL)
        drawing.line(x, 40, x, 70)
    needle = 212 + scale * min(max(error, -1.5 * error_buffer), 1.5 * error_buffer)
    drawing.arrow(needle, 22, needle, 38)
    drawing.text(min(max(needle, 60), 364), 16, f"{error:g} samples owed", size=SMALL, lit=True)
    drawing.text(16, 104, "the learner waits", size=SMALL, at="start")
    drawing.text(408, 104, "the actors wait", size=SMALL, at="end")
    return drawing
