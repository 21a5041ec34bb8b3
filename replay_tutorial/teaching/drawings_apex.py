"""What chapter 07 draws: the roles of Ape-X, and the three places where they meet.

Left out: the evaluator and the parent, which take no part in learning.
"""

from replay_tutorial.teaching.svg import Drawing

# Who and what there is: name → left, top, width, height in pixels.
PLACES = {
    "actor 0": (10, 60, 110, 34),
    "actor 1": (10, 102, 110, 34),
    "actor 2": (10, 144, 110, 34),
    "limiter": (260, 10, 120, 34),
    "replay": (260, 94, 120, 50),
    "mailbox": (260, 190, 120, 34),
    "learner": (520, 94, 110, 50),
}


def draw_roles(*lit: str) -> Drawing:
    """Draw actors, replay, learner, mailbox and limiter, and what goes from one to the other.

    Args:
        *lit: Whom to light: `actor 0`, `actor 1`, `actor 2`, `limiter`, `replay`, `mailbox`, `learner`.

    Raises:
        ValueError: If there is no such role.
    """
    if unknown := set(lit) - set(PLACES):
        raise ValueError(f"There is no {unknown.pop()!r}; there are {', '.join(PLACES)}.")
    drawing = Drawing(640, 234, "actors, replay, learner, mailbox and limiter")
    for name, (x, y, width, height) in PLACES.items():
        drawing.box(x, y, width, height, lit=name in lit)
        drawing.text(x + width / 2, y + height / 2 + 5, name, lit=name in lit)
    drawing.arrow(124, 119, 256, 119)
    drawing.text(190, 112, "rows, priorities", size=11)
    drawing.arrow(384, 108, 516, 108)
    drawing.text(450, 101, "batches", size=11)
    drawing.arrow(516, 130, 384, 130)
    drawing.text(450, 146, "priorities", size=11)
    drawing.line(575, 148, 575, 207, lit=True)
    drawing.arrow(575, 207, 384, 207)
    drawing.text(480, 200, "parameters", size=11)
    drawing.line(256, 207, 65, 207, lit=True)
    drawing.arrow(65, 207, 65, 182)
    drawing.text(160, 200, "parameters", size=11)
    for x, y, word in ((190, 96, "may I add?"), (450, 86, "may I draw?")):
        drawing.line(x, y, x, 27)
        drawing.line(x, 27, 260 if x < 320 else 380, 27)
        drawing.text(x - 6 if x < 320 else x + 6, 60, word, size=11, at="end" if x < 320 else "start")
    return drawing
