"""Answers to the checks of chapter 06."""

# Without the storm of two processes, through which test_chapters.py sends the solution.
CHECKS = {"my_read": "check_written(exercises.check_read, my_read)"}
READ = "def my_read(stamps, rows, slot):\n    "
RELEASE = "def my_release(stamps, slot, owner_of, is_alive, abandoned, swap):\n    "
SAMPLE = "def my_sample(stamps, rows, rng, batch_size):\n    "
WRONG = {
    "my_read": [
        ("the zeros of a slot that was never written", "stamp == 0 or ", ""),
        ("is torn or was never added", "stamp == 0 or stamp % 2", "stamp == 0"),
        ("is torn or was never added", "row if stamps[slot] == stamp else None", "row"),
        ("the stamp 8, the row, the row, the stamp 24; ", "stamps[slot] == stamp", "stamps[slot] % 2 == 0"),
        ("copy it", ".copy()", ""),
        ("the row, the row, the stamp 24, the stamp 24; ", READ + "row = rows[slot].copy()\n    stamp = stamps[slot]\n    if stamp and stamp % 2 == 0 and stamps[slot] == stamp:\n        return row"),
        ("the stamp 8, the stamp 8, the row, the row; ", READ + "stamp = stamps[slot]\n    if stamp and stamp % 2 == 0 and stamps[slot] == stamp:\n        return rows[slot].copy()"),
        ("keep the first stamp in a variable", READ + "if stamps[slot] == 0 or stamps[slot] % 2:\n        return None\n    stamp = stamps[slot]\n    row = rows[slot].copy()\n    return row if stamps[slot] == stamp else None"),
        ("is torn", ".copy()\n    return row if stamps[slot] == stamp else None", "\n    return row.copy() if stamps[slot] == stamp else None"),
        ("is torn", "return row if", "return rows[slot].copy() if"),
        ("the slot is 2, not 0", "stamp = stamps[slot]", "stamp = stamps[0]"),
        ("takes a single number", "rows[slot].copy()", "rows.take(slot)"),
        ("is torn", READ + "stamp = stamps.item(slot)\n    if stamp and stamp % 2 == 0:\n        return [rows[slot, column] for column in range(rows.shape[1])]"),
        ("the slot is 2, not slice", "stamp = stamps[slot]", "stamp = stamps[:][slot]"),
        ("the row, the stamp 24, the row; [1.0, 6.0, 6.0] was returned", READ + "row = rows[slot].copy()\n    stamp = stamps[slot]\n    return row if stamp and stamp % 2 == 0 and (rows[slot] == row).all() else None"),
        ("copy only one slot of the rows", "rows[slot].copy()", "rows.copy()[slot]"),
        ("don't wait", READ + "while True:\n        stamp = stamps[slot]\n        if stamp and stamp % 2 == 0:\n            row = rows[slot].copy()\n            if stamps[slot] == stamp:\n                return row"),
        ("the zeros of a slot that was never written", "row if stamps", "0 * row if stamps"),
        ("None was returned", "return row if stamps[slot] == stamp else None", "stamps[slot]"),
        ("was returned, which is torn", READ + "stamp = stamps[slot]\n    row = rows[slot].copy()\n    again = stamps[slot]\n    return row if again and again % 2 == 0 and (stamp == again or stamp % 2) else None"),
    ],
    "my_rows": [
        ("slot 0: the stamp 10", "my_rows = [5, 2, None, None]"),
        ("slot 2: the stamp 15 is odd", "my_rows = [4, 1, 6, None]"),
        ("slot 3: the stamp 0 means never written", "my_rows = [4, 1, None, -1]"),
        ("slot 3: the stamp 0 means never written", "my_rows = [4, 1, None, 0]"),
        ("slot 0", "my_rows = [float('nan')] * 4"),
        ("slot 0", "my_rows = [10, 4, 15, 0]"),
        ("slot 0", "my_rows = [None] * 4"),
        ("slot 1", "my_rows = [4, 0, None, None]"),
        ("replace each", "my_rows = [4, 1]"),
        ("replace each", "my_rows = 4"),
    ],
    "my_release": [
        ("it should be", "return swap(stamps, slot, stamp, abandoned(stamp))", "stamps[slot] = abandoned(stamp)\n    return True"),
        ("it should be", "swap(stamps, slot, stamp,", "swap(stamps, slot, stamps[slot],"),
        ("the result should be False", "if is_alive(owner_of(stamp)):\n        return False\n", ""),
        ("it should be", "abandoned(stamp))", "0)"),
        ("it should be", "abandoned(stamp))", "stamp + 1)"),
        ("the result should be True", "if stamp % 2 == 0 or", "if stamp == 0:\n        return False\n    if stamp % 2 == 0 or"),
        ("is_alive was asked about 0", " or owner_of(stamp) == 0", ""),
        ("is alive; the result should be False", "        return False", "        return True"),
        ("the result should be True", "return swap(", "swap("),
        ("the result should be True, not False", "return swap(", "return not swap("),
        ("which is no process", "is_alive(owner_of(stamp))", "is_alive(stamp)"),
        ("another slot", "swap(stamps, slot, stamp,", "swap(stamps, slot - 1, stamps[slot - 1],"),
        ("the result should be", "return True", "return float('nan')"),
        ("the result should be", RELEASE + "return stamps[slot] % 2 == 0"),
        ("the result should be False, not True", RELEASE + "return True"),
        ("it should be", "    if is_alive(owner_of(stamp)):\n        return False\n    return swap(stamps, slot, stamp, abandoned(stamp))", "    free = not is_alive(owner_of(stamp))\n    swap(stamps, slot, stamps[slot], abandoned(stamps[slot]))\n    return free"),
    ],
    "my_sample": [
        ("never written", "stamp == 0 or ", ""),
        ("half-written", "stamp == 0 or stamp % 2", "stamp == 0"),
        ("a torn row", "if stamps[slot] == stamp:\n            ", ""),
        ("what does the sampler wait for?", "            continue\n", "            while stamps[slot] % 2 or not stamps[slot]: pass\n"),
        ("copy it", ".copy()", "[:]"),
        ("must have the shape (400, 4)", "len(batch) < batch_size", "len(batch) < batch_size - 1"),
        ("drawn", "slot = int(rng.integers(len(stamps)))", "slot = (len(batch) + stamps.reads) % 4"),
        ("drawn", "slot = int(rng.integers(len(stamps)))", "slot = 0"),
        (
            "drawn",
            SAMPLE + "batch, slot = [], 0\n    while len(batch) < batch_size:\n        slot = (slot + 1) % len(stamps)\n        stamp = stamps[slot]\n        if stamp and stamp % 2 == 0:\n            row = rows[slot].copy()\n            if stamps[slot] == stamp:\n                batch.append(row)\n    return batch",
        ),
        ("drawn", "slot = int(rng.integers(len(stamps)))\n        stamp = stamps[slot]\n", "slot = int(rng.integers(len(stamps)))\n        while not stamps[slot] or stamps[slot] % 2:\n            slot = (slot + 1) % 4\n        stamp = stamps[slot]\n"),
        ("one row was drawn", "slot = int(rng.integers(len(stamps)))", "slot = int(max(rng.integers(len(stamps), size=2)))"),
        ("1 degree of freedom", "slot = int(rng.integers(len(stamps)))", "slot = int(max(rng.integers(len(stamps), size=2)))"),
        ("draw with `rng`", "slot = int(rng.integers(len(stamps)))", "slot = int(np.random.randint(len(stamps)))"),
        ("draw with `rng`", "batch = []", "batch, rng = [], np.random.default_rng(5)"),
        ("5 slots with the complete rows [3, 8, 13]", "len(stamps)", "4"),
        ("shape", "return batch", "return batch[0]"),
        ("NaN", "return batch", "return np.array(batch) * np.nan"),
    ],
}
RIGHT = {
    "my_read": [
        READ
        + """if stamps[slot] == 0 or stamps[slot] % 2:  # more checks than needed are right, too
        return None
    first = stamps[slot]
    row = rows[slot].copy()
    return row if first and first % 2 == 0 and first == stamps[slot] == stamps[slot] else None""",
        READ
        + """before = stamps[slot]
    if before > 0 and before % 2 == 0:
        kept = np.array(rows[slot])
        if stamps[slot] == before:
            return kept
    return None""",
        READ
        + """first = int(stamps[slot])
    if first & 1 or not first: return
    values = [*rows[slot]]
    return np.asarray(values) if int(stamps[slot]) == first else None""",
        READ
        + """first = stamps.item(slot)
    copy = np.empty(rows.shape[1], rows.dtype)
    copy[:] = rows[slot, :]
    return copy if first > 0 == first % 2 and stamps.item(slot) == first else None""",
        READ
        + """first, row, again = stamps.take(slot), rows.take(slot, axis=0), stamps[slot]
    return row if slot < len(rows) == stamps.size and first > 0 == first % 2 and first == again else None""",
        READ
        + """first, row = stamps[slot], rows[slot, :].copy()
    return row if first and not first % 2 and first == stamps[slot] else None""",
        READ
        + """first = stamps[slot]
    row = [rows[slot, column] for column in range(rows.shape[1])]
    return row if first and not first % 2 and first == stamps[slot] else None""",
    ],
    "my_rows": ["my_rows = (4, 1, None, None)", "my_rows = [s // 2 - 1 if s and s % 2 == 0 else None for s in exercises.STAMPS]"],
    "my_release": [
        RELEASE  # as the package, whose caller then tries to claim the slot
        + """stamp = stamps[slot]
    if stamp % 2 == 0 or owner_of(stamp) == 0:
        return True
    if is_alive(owner_of(stamp)):
        return False
    swap(stamps, slot, stamp, abandoned(stamp))
    return True""",
        RELEASE
        + """old = stamps[slot]
    owner = owner_of(old)
    held = old % 2 == 1 and owner != 0
    if not held:
        return True
    return not is_alive(owner) and swap(stamps, slot, old, abandoned(old))""",
        RELEASE
        + """old = stamps[slot]
    if old & 1 and owner_of(old):
        if is_alive(owner_of(old)):
            return False
        swap(stamps, slot, old, abandoned(old))
        return stamps[slot] % 2 == 0 or owner_of(stamps[slot]) == 0
    return np.True_""",
    ],
    "my_sample": [
        SAMPLE
        + """def read(slot):
        stamp = stamps[slot]
        if stamp > 0 and stamp % 2 == 0:
            row = np.array(rows[slot])
            return row if stamps[slot] == stamp else None
    batch = np.empty((batch_size, 4))
    for place in range(batch_size):
        row = None
        while row is None:
            row = read(rng.choice(len(stamps)))
        batch[place] = row
    return batch""",
        SAMPLE
        + """batch = []
    while True:
        for slot in rng.integers(0, len(stamps), batch_size):
            before = stamps[slot]
            if before and not before % 2:
                row = rows[slot].copy()
                if stamps[slot] == before:
                    batch.append(tuple(row))
                    if len(batch) == batch_size:
                        return batch""",
    ],
}
