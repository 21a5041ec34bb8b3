"""The exercises of chapter 06, solved."""

# 1. 10 is 2 * (4 + 1), 4 is 2 * (1 + 1), 15 is odd, 0 was never written.
my_rows = [4, 1, None, None]


def my_read(stamps, rows, slot):
    """2. A look, a copy, a look: the same even stamp, and not zero."""
    stamp = stamps[slot]
    if stamp == 0 or stamp % 2:
        return None
    row = rows[slot].copy()
    return row if stamps[slot] == stamp else None


# 3. The new row's words may be seen before the stamp that says "held", and the second look may come before the copy.
my_writer = ["hold", "fence", "words", "fence", "publish"]
my_sampler = ["look", "fence", "words", "fence", "look"]
