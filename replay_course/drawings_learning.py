"""Drawings of what chapters 00 to 05 explain: the task, the loop, ends of episodes, weights, a late update.

A drawing is as wide as a phone, so that its text is readable there.
"""

from collections.abc import Sequence

from replay_course.drawings import ACCENT, Drawing

WIDTH = 400  # pixels
SIZE = 12  # of text


def draw_cart(obs: Sequence[float]) -> Drawing:
    """Draw CartPole with the names and values of an observation.

    Args:
        obs: Position and velocity of the cart, angle and angular velocity of the pole.
    """
    names = ("position", "velocity", "angle", "angular velocity")
    texts = [f"{name} {value:.3f}".replace("-", "−") for name, value in zip(names, obs, strict=True)]
    position, velocity, angle, spin = texts
    title = f"A cart on a track with a leaning pole: {position}, {velocity}, {angle}, {spin}. "
    drawing = Drawing(WIDTH, 190, title + "Action 0 pushes the cart to the left, action 1 to the right.")
    drawing.line(20, 150, 380, 150)
    drawing.line(200, 142, 200, 158)
    drawing.text(200, 174, "0", SIZE)
    drawing.box(160, 116, 80, 30)
    way, side = (1 if value >= 0 else -1 for value in (obs[1], obs[2]))
    top = 200 + 34 * side
    drawing.line(200, 116, 200, 12)
    drawing.shapes.append(f'<line x1="200" y1="116" x2="{top}" y2="18" stroke="{ACCENT}" stroke-width="7"/>')
    drawing.shapes.append(
        f'<path d="M200 56 A60 60 0 0 {int(side > 0)} {200 + 19 * side} 59" fill="none" '
        'stroke="currentColor"/>'
    )
    drawing.arrow(200 - 26 * way, 131, 200 + 26 * way, 131)
    drawing.text(200 - 14 * side, 44, angle, SIZE, at="end" if side > 0 else "start")
    drawing.text(top + 12 * side, 24, spin, SIZE, at="start" if side > 0 else "end")
    drawing.text(214 if side < 0 else 186, 104, velocity, SIZE, at="start" if side < 0 else "end")
    drawing.text(228, 174, position, SIZE, at="start")
    drawing.arrow(66, 131, 154, 131)
    drawing.text(62, 135, "1: push", SIZE, at="end")
    drawing.arrow(334, 131, 246, 131)
    drawing.text(338, 135, "0: push", SIZE, at="start")
    return drawing


def draw_loop(online: bool = False) -> Drawing:
    """Draw how an agent acts and learns: from stored transitions, or `online`, from each one once."""
    order = "environment, agent" if online else "environment, buffer, batch, agent"
    drawing = Drawing(WIDTH, 92 if online else 162, f"The loop of acting and learning: {order}, environment.")
    drawing.box(4, 8, 108, 36, "environment", size=SIZE)
    drawing.box(288, 8, 108, 36, "agent: Q", size=SIZE)
    drawing.arrow(284, 18, 116, 18)
    drawing.text(200, 12, "action", SIZE)
    if online:
        drawing.arrow(116, 34, 284, 34)
        drawing.text(200, 52, "transition: one update,", SIZE)
        drawing.text(200, 68, "then it is discarded", SIZE)
        return drawing
    drawing.arrow(58, 48, 58, 104)
    drawing.text(66, 80, "transition", SIZE, at="start")
    drawing.box(4, 108, 108, 36, "buffer", lit=True, size=SIZE)
    drawing.arrow(116, 126, 284, 126)
    drawing.text(200, 118, "64 at random", SIZE)
    drawing.text(200, 144, "old ones, too", SIZE)
    drawing.box(288, 108, 108, 36, "batch", size=SIZE)
    drawing.arrow(342, 104, 342, 48)
    drawing.text(334, 80, "update", SIZE, at="end")
    return drawing


def draw_ends() -> Drawing:
    """Draw a terminated and a truncated episode, the target of each step, and the step between them."""
    title = (
        "Two episodes of three steps. The target of the last step is r in the terminated one, and r + γV in "
        "the truncated one, as in all other steps. The step that only resets is crossed out."
    )
    drawing = Drawing(WIDTH, 128, title)
    step, radius, y = 51, 9, 34
    for place in range(8):
        x, is_end = 16 + step * place, place == 3
        fill = "currentColor" if is_end else "none"
        dash = ' stroke-dasharray="3 2"' if place == 7 else ""
        drawing.shapes.append(
            f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" stroke="currentColor"{dash}/>'
        )
        drawing.text(x, y - 16, f"s{place % 4}", SIZE)
        if place == 3:  # the step that only resets
            drawing.line(x + radius + 3, y, x + step - radius - 3, y)
            drawing.text(x + step / 2, y + 6, "✕", 16, lit=True)
            drawing.text(x + step / 2, y + 28, "skip", SIZE, lit=True)
        elif place < 7:
            drawing.arrow(x + radius + 3, y, x + step - radius - 3, y)
            drawing.text(x + step / 2, y + 28, "r" if place == 2 else "r + γV", SIZE, lit=place == 2)
    drawing.text(16 + 1.5 * step, 90, "episode 0: terminated", SIZE)
    drawing.text(16 + 1.5 * step, 107, "nothing follows s3", SIZE)
    drawing.text(16 + 5.5 * step, 90, "episode 1: truncated", SIZE)
    drawing.text(16 + 5.5 * step, 107, "s3 has a value", SIZE)
    return drawing


def draw_weights(
    rewards: Sequence[float], probabilities: Sequence[float], weights: Sequence[float]
) -> Drawing:
    """Draw the probability and the weight of each row, and their product, which is the same for all."""
    products = [chance * weight for chance, weight in zip(probabilities, weights, strict=True)]
    title = f"Probabilities and weights of {len(weights)} rows, and their products, all {products[0]:.3f}."
    drawing = Drawing(WIDTH, 232, title)
    step = 312 / len(weights)
    for place, (name, values) in enumerate((("P", probabilities), ("w", weights), ("P × w", products))):
        bottom, highest = 62 + 74 * place, max(values)
        drawing.text(72, bottom - 12, name, SIZE + 1, at="end", lit=place == 2)
        for row, value in enumerate(values):
            high = 38 * value / highest
            drawing.box(84 + step * row, bottom - high, step - 7, high, lit=place == 2)
            drawing.text(84 + step * row + (step - 7) / 2, bottom - high - 4, f"{value:.3g}", 11)
    for row, reward in enumerate(rewards):
        drawing.text(84 + step * row + (step - 7) / 2, 228, f"{reward:g}", SIZE)
    drawing.text(72, 228, "reward", SIZE, at="end")
    return drawing


def draw_wide_node(sums: Sequence[Sequence[float]]) -> Drawing:
    """Draw the root of the package's tree, its children in one cache line, and the sums between them.

    Args:
        sums: The sums of each level, from the root to its eight children.
    """
    title = f"A node with sum {sums[0][0]:g} and its eight children in one cache line of 64 bytes; "
    drawing = Drawing(WIDTH, 240, title + "the two levels of sums between them are not stored.")
    for depth, level in enumerate(sums):
        span, y = 384 / len(level), 24 + 48 * depth
        stored = depth in (0, 3)
        for place, mass in enumerate(level):
            x = 8 + span * (place + 0.5)
            if depth:
                drawing.line(8 + 2 * span * (place // 2 + 0.5), y - 20, x, y)
            if stored:
                drawing.box(x - 20, y, 40, 28, f"{mass:g}", lit=depth == 3, size=SIZE + 1)
            else:
                drawing.text(x, y + 19, f"{mass:g}", SIZE + 1)
            if depth == 3:
                drawing.text(x, y + 41, 8 + place, 11)
    drawing.text(200, 16, "node 7", 11)
    drawing.text(8, 91, "added up", 11, at="start")
    drawing.text(8, 105, "on the way", 11, at="start")
    drawing.shapes.append(
        f'<rect x="3" y="162" width="394" height="52" rx="6" fill="none" stroke="{ACCENT}" stroke-width="2"/>'
    )
    drawing.text(200, 232, "one cache line: 8 masses of 8 bytes", SIZE, lit=True)
    return drawing


def draw_late_update(capacity: int, new: int, sampled: int) -> Drawing:
    """Draw a full ring, the ring after new rows, and where the priority of a replaced row goes.

    Args:
        capacity: Number of slots; the first rows are 0 to `capacity` - 1.
        new: Number of rows added after the batch was sampled.
        sampled: The sampled row, less than `new`, so that it has been replaced.
    """
    owner = sampled + capacity
    title = f"Row {sampled} is sampled; {new} rows are added. By slot, its priority reaches row {owner}; "
    drawing = Drawing(WIDTH, 226, title + "by index, it is dropped.")
    wide = (WIDTH - 52) / capacity

    def ring(y: float, name: str, rows: Sequence[int], lit: int) -> None:
        drawing.text(44, y + 21, name, SIZE, at="end")
        for slot, row in enumerate(rows):
            drawing.box(52 + wide * slot, y, wide - 5, 32, row, lit=row == lit)

    middle = 52 + wide * sampled + (wide - 5) / 2
    drawing.text(44, 14, "slot", 11, at="end")
    for slot in range(capacity):
        drawing.text(52 + wide * slot + (wide - 5) / 2, 14, slot, 11)
    ring(22, "before", range(capacity), sampled)
    drawing.text(middle + 8, 76, f"row {sampled} is sampled: error 50", SIZE, at="start")
    drawing.line(middle, 56, middle, 84)
    ring(92, "after", [slot + capacity if slot < new else slot for slot in range(capacity)], owner)
    drawing.arrow(middle, 172, middle, 128)
    drawing.text(middle, 188, f"by slot {sampled}: row {owner}", SIZE, lit=True)
    drawing.text(middle, 204, "gets priority 50", SIZE, lit=True)
    drawing.text(246, 189, "✕", 16)
    drawing.text(258, 188, f"by index {sampled}: the row is", SIZE, at="start")
    drawing.text(258, 204, "gone, so it is dropped", SIZE, at="start")
    return drawing
