"""Answers to the checks of chapter 06b."""

CLAIM = "my_can_claim = lambda stamp, index: "
FOLLOW = "my_follow = lambda log, begun, followed, end: "
LIST = "[log[place % len(log)] for place in range(followed, end)]"
WRONG = {
    "my_indexes": [
        ("write an index and an owner", "my_indexes, my_owners = [...] * 4, [...] * 4"),
        ("write an index and an owner", "my_owners = [0, 3, ..., 0]"),
        ("doesn't contain the owner 5", "my_owners = [0, 3, 5, 0]"),
        ("doesn't contain the index 0", "my_indexes = [6, 9, 11, 0]"),
        ("doesn't contain the index 7", "my_indexes = [7, 10, 12, 0]"),
        ("but 3 indexes", "my_indexes = [6, 9, 11]"),
        ("doesn't contain the owner 1", "my_owners = [0, 3, 1, 0]"),
        ("doesn't contain the index nan", "my_indexes = [float('nan')] * 4"),
        ("doesn't contain the owner nan", "my_owners = [0, float('nan'), 0, 0]"),
        ("doesn't contain the index None", "my_indexes = [6, 9, 11, None]"),
    ],
    "my_can_claim": [
        ("must return True or False, not None", CLAIM + "None"),
        ("must return True or False, not Ellipsis", CLAIM + "..."),
        ("must return True or False, not nan", CLAIM + "float('nan')"),
        ("may not claim", CLAIM + "True"),
        ("may claim", CLAIM + "False"),
        ("held by a dead process, but", CLAIM + "stamp & 1 == 0 and stamp >> 11 <= index"),
        ("may not claim", CLAIM + "not (stamp & 1 and stamp >> 1 & 1023)"),
        ("may not claim", CLAIM + "stamp >> 11 <= index + 1 and stamp & 2047 in (0, 1)"),
        ("held by process 1, but", CLAIM + "stamp >> 11 <= index"),
        ("held by process 512, but", CLAIM + "stamp >> 11 <= index and stamp & 3 != 3"),
        ("held by process 1, but", CLAIM + "stamp >> 11 <= index and stamp & 2045 in (0, 1)"),
        ("may claim", CLAIM + "stamp >> 11 < index and stamp & 2047 in (0, 1)"),
        ("never written, but", CLAIM + "stamp > 0 and stamp >> 11 <= index and stamp & 2047 in (0, 1)"),
    ],
    "my_follow": [
        ("returned None", FOLLOW + "None"),
        ("not None", "len(log) and followed < end", "2 * len(log) and followed < end"),
        ("not None", FOLLOW + f"None if end - followed > len(log) else {LIST}"),
        ("not None", FOLLOW + LIST),
        ("returned None", "begun - followed > len(log)", "begun - followed >= len(log)"),
        ("not None", "begun - followed > len(log)", "begun - followed > len(log) + 1"),
        ("no entry is new, and the updater is overwriting up to", " and followed < end", ""),
        ("my_follow returned [", "range(followed, end)", "range(followed, begun)"),
        ("my_follow returned [", "range(followed, end)", "range(followed, end - 1)"),
        ("my_follow returned [", FOLLOW + "[log[place % len(log)] for place in range(max(followed, begun - len(log)), end)]"),
        ("my_follow returned [nan]", FOLLOW + "[float('nan')] * (end - followed)"),
        ("must return a list or None, not nan", FOLLOW + "float('nan')"),
    ],
}
RIGHT = {
    "my_indexes": ["my_indexes, my_owners = (6, 9, 11, -1), (0, 3, 0, 0)", "my_indexes, my_owners = np.array([6, 9, 11, -1]), np.array([0, 3, 0, 0])"],
    "my_can_claim": [
        CLAIM + "(stamp >> 11) <= index and not (stamp & 1 and stamp >> 1 & 1023)",
        CLAIM + "stamp // 2048 - 1 < index and (stamp % 2 == 0 or stamp % 2048 == 1)",
        CLAIM + "not (stamp >= (index + 1) << 11 or (protocol.is_held(stamp) and protocol.owner_of(stamp) != 0))",
        CLAIM + "int(stamp < (index + 1) << 11 and stamp & 2047 in (0, 1))",
        CLAIM + "np.bool_(stamp < (index + 1) << 11 and stamp & 2047 in (0, 1))",
    ],
    "my_follow": [
        FOLLOW + f"np.array({LIST}) if followed == end or begun <= followed + len(log) else None",
        FOLLOW + f"tuple({LIST}) if followed in (end, *range(begun - len(log), end)) else None",
    ],
}
