"""Solutions to the exercises of chapter 06b."""

# 1. The index is the stamp without its lowest 11 bits, minus 1; the owner is in the ten bits above the lowest.
my_indexes = [6, 9, 11, -1]
my_owners = [0, 3, 0, 0]


def my_can_claim(stamp, index):
    """2. Return whether the stamp is of an older row, and its holder, if any, is dead."""
    held, owner = stamp & 1, stamp >> 1 & 1023
    return (stamp >> 11) - 1 < index and not (held and owner)


def my_follow(log, begun, followed, end):
    """3. Return None if an entry may have been overwritten: `begun` is more than a lap after `followed`."""
    if begun - followed > len(log) and followed < end:
        return None
    return [log[place % len(log)] for place in range(followed, end)]
