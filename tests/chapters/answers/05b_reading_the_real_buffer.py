"""Answers to the checks of chapter 05b."""

APPEND = "if count == 1:"
RAISE = '    raise ValueError("full")'


def before(line: str, *lines: str) -> str:
    """Return an edit that inserts lines before a line."""
    return f"my_ring_edits = {({line: chr(10).join([*lines, line])})!r}"


def masses(mass: str, priority: str | None = None) -> str:
    """Return edits of the lines that compute a mass, and a priority."""
    edits = {"return power(priority + eps, alpha)": f"return {mass}"}
    edits |= {"return mass ** (1.0 / alpha) - eps": f"return {priority}"} if priority else {}
    return f"my_mass_edits = {edits!r}"


FULL = "if self.stored == self.capacity:"
NO_ROOM = "if self.stored + count > self.capacity:"
INVERSE = "(mass - eps) ** (1.0 / alpha)"
WRONG = {
    "my_starts": [
        ("write the first byte", "my_starts, my_size = [..., ..., ..., ...], ..."),
        ("write the first byte", "my_starts, my_size = [0, 8, 16, 24], ..."),
        ("reward doesn't start at byte 5", "my_starts, my_size = [0, 5, 9, 17], 18"),
        ("action doesn't start at byte 12", "my_starts, my_size = [0, 8, 12, 20], 24"),
        ("done doesn't start at byte 32", "my_starts, my_size = [0, 8, 16, 32], 40"),
        ("doesn't have 25 bytes", "my_size = 25"),
        ("doesn't have 64 bytes", "my_size = 64"),
        ("doesn't have nan bytes", "my_size = float('nan')"),
        ("pixels doesn't start at byte nan", "my_starts, my_size = [float('nan')] * 4, 32"),
        ("and 3 numbers", "my_starts = [0, 8, 16]"),
        ("and 5 numbers", "my_starts = [0, 8, 16, 24, 32]"),
    ],
    "my_ring_edits": [
        ("no line has been changed", "my_ring_edits = {}"),
        ("no line has been changed", before(APPEND)),
        ("has 0 lines", "my_ring_edits = {'if count == 2:': 'pass'}"),
        ("full: add accepted 1 more", before(APPEND, "...")),
        ("one slot is free: add accepted 2 more", before(APPEND, FULL, RAISE)),
        ("fit, but add raised ValueError", before(APPEND, "if self.stored + count >= self.capacity:", RAISE)),
        ("full: add accepted 1 more", before(APPEND, "if self.stored + count > self.capacity + 1:", RAISE)),
        ("fit, but add raised ValueError", before(APPEND, "if self.next_index + count > self.capacity:", RAISE)),
        ("full: add accepted 1 more", before(APPEND, "if count > self.capacity:", RAISE)),
        ("full again after clear: add accepted 3 more", before(APPEND, "if count == 1 and self.stored == self.capacity:", RAISE)),
        ("full: add accepted 1 more", before(APPEND, NO_ROOM, "    return self.next_index")),
        ("raised AssertionError instead", before(APPEND, "assert self.stored + count <= self.capacity")),
        ("were counted", before("if change is None:", "index = self.next_index + 1", "self.counters[NEXT_INDEX] += count", "if self.stored < index:", RAISE, "self.counters[NEXT_INDEX] -= count")),
        (
            "which is appended in parts: 130 rows were refused, but",
            "my_ring_edits = {'staged = self._stage(count, columns)': " + repr(f"{NO_ROOM}\n{RAISE}\nstaged = self._stage(count, columns)") + ", "
            "'if count == 1:': " + repr(f"if count == 1:\n    {FULL}\n    {RAISE}") + "}",
        ),
    ],
    "my_mass_edits": [
        ("no line has been changed", "my_mass_edits = {}"),
        ("still (priority + eps) ** alpha", masses("power(eps + priority, alpha)")),
        ("but buffer.priorities returns", masses("power(priority, alpha) + eps")),
        ("still (priority + eps) ** alpha", "my_mass_edits = {'return mass ** (1.0 / alpha) - eps': 'return mass'}"),
        ("has the mass", masses("power(priority, alpha)", "mass ** (1.0 / alpha)")),
        ("has the mass", masses("power(priority + eps, alpha) + eps", INVERSE)),
        ("has the mass [nan]", masses("np.nan * priority", INVERSE)),
        ("has the mass [1.]", masses("1.0", INVERSE)),
        ("has the mass", masses("np.sqrt(priority) + eps", "(mass - eps) ** 2")),
        ("has the mass", masses("priority + eps", "mass - eps")),
        ("but buffer.priorities returns", masses("power(priority, alpha) + eps", "mass ** (1 / alpha) - eps ** (1 / alpha)")),
        ("but buffer.priorities returns", masses("power(priority, alpha) + eps", "mass * np.nan")),
    ],
}
RIGHT = {
    "my_starts": ["my_starts, my_size = (0, 8, 16, 24), 32.0", "my_starts, my_size = np.array([0, 8, 16, 24]), np.int64(32)"],
    "my_ring_edits": [
        before(APPEND, "free = self.capacity - self.stored", "if count > free:", RAISE),
        before(APPEND, "if self.next_index + count - self.oldest_index > self.capacity:", RAISE),
        before(APPEND, "end = self.counters[NEXT_INDEX] + count", "if end - self.counters[CLEARED] > self.capacity:", RAISE),
        f"my_ring_edits = {({APPEND: f'{NO_ROOM}{chr(10)}{RAISE}{chr(10)}el{APPEND}'})!r}",
    ],
    "my_mass_edits": [
        masses("eps + priority**alpha", "(mass - eps) ** (1 / alpha)"),
        masses("eps + power(priority, alpha)", "np.power(mass - eps, 1.0 / alpha)"),
    ],
}
