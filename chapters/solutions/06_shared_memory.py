"""Solutions to the skeleton and the exercises of chapter 06."""


def my_read(stamps, rows, slot):
    """Check the stamp, copy the row, and check the stamp again: it must be even, nonzero and unchanged."""
    stamp = stamps[slot]
    if stamp == 0 or stamp % 2:
        return None
    row = rows[slot].copy()
    return row if stamps[slot] == stamp else None


# 1. 10 is 2 * (4 + 1), 4 is 2 * (1 + 1), 15 is odd, and 0 means never written.
my_rows = [4, 1, None, None]


def my_release(stamps, slot, owner_of, is_alive, abandoned, swap):
    """2. Swap the stamp that was checked: if it has changed, the slot belongs to a living writer."""
    stamp = stamps[slot]
    if stamp % 2 == 0 or owner_of(stamp) == 0:
        return True
    if is_alive(owner_of(stamp)):
        return False
    return swap(stamps, slot, stamp, abandoned(stamp))


def my_sample(stamps, rows, rng, batch_size):
    """3. Draw another slot if this one was never written, or is held: its writer may be dead."""
    batch = []
    while len(batch) < batch_size:
        slot = int(rng.integers(len(stamps)))
        stamp = stamps[slot]
        if stamp == 0 or stamp % 2:
            continue
        row = rows[slot].copy()
        if stamps[slot] == stamp:
            batch.append(row)
    return batch
