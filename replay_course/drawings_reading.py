"""Drawings of chapters 05b and 06b: the parts of a buffer, a record's bytes, and the shared block.

All are at most `WIDTH` pixels wide and use no text below `SMALL`, so that they are readable on a phone.
"""

import numpy as np

from replay_course.drawings import Drawing
from replay_tutorial.shared import protocol
from replay_tutorial.shared.memory import HEADER_BYTES, Specs, padded_size

WIDTH, SMALL = 424, 12  # pixels

# Each stop of a row in `draw_core`: its left edge, top, width and height, and what the package calls it.
LEFT, MIDDLE, RIGHT = 8, 148, 288
STOPS = {
    "fields": (LEFT, 26, 128, 42, "checked columns"),
    "stages": (MIDDLE, 26, 128, 42, "frames, n-step"),
    "staged rows": (RIGHT, 26, 128, 42, "whole records"),
    "masses": (LEFT, 86, 128, 42, "of priorities"),
    "append": (LEFT, 148, 408, 28, "the kernel append_with_masses"),
    "sum tree": (LEFT, 196, 128, 42, "leaves, nodes"),
    "counters": (MIDDLE, 196, 128, 42, "next index"),
    "rows": (RIGHT, 196, 128, 42, "one per slot"),
    "update": (LEFT, 258, 128, 42, "update_leaves"),
    "draw": (MIDDLE, 258, 128, 42, "sync_tree, draw"),
    "gather": (RIGHT, 258, 128, 42, "views or copies"),
    "batch": (MIDDLE, 318, 268, 28, "the batch"),
}


def draw_core(*lit: str) -> Drawing:
    """Draw the stops of a row in the prioritized buffer: `add` above the ring, `sample` and updates below it.

    Args:
        *lit: Names in `STOPS` to highlight.

    Raises:
        ValueError: If a name is not in `STOPS`.
    """
    if unknown := set(lit) - set(STOPS):
        raise ValueError(f"There is no stop {unknown.pop()!r}; the stops are {', '.join(STOPS)}.")
    title = "add: fields, stages, staged rows and masses; one kernel appends to rows, counters and "
    title += "a sum tree. sample: draw, gather, batch. Updates return to the tree"
    drawing = Drawing(WIDTH, 372, f"{title}; highlighted: {', '.join(lit)}." if lit else f"{title}.")
    drawing.text(LEFT, 17, "add", at="start")
    drawing.text(416, 364, "sample returns it", size=SMALL, at="end")
    drawing.text(LEFT + 64, 336, "update_priorities", size=SMALL)
    for name, (x, y, width, height, what) in STOPS.items():
        is_lit = name in lit
        drawing.box(x, y, width, height, what if height < 40 else "", lit=is_lit, dashed=name == "stages")
        if height > 40:
            drawing.text(x + width / 2, y + 18, name, lit=is_lit)
            drawing.text(x + width / 2, y + 35, what, size=SMALL)
    for x, y, to_x, to_y in (
        (136, 47, 146, 47),  # fields → stages → staged rows
        (276, 47, 286, 47),
        (352, 70, 352, 146),  # staged rows and masses → kernel
        (72, 70, 72, 84),
        (72, 130, 72, 146),
        (72, 178, 72, 194),  # kernel → the three parts of the ring
        (212, 178, 212, 194),
        (352, 178, 352, 194),
        (72, 256, 72, 240),  # update → tree
        (72, 322, 72, 302),
        (136, 228, 160, 256),  # tree → draw → gather, rows → gather
        (276, 279, 286, 279),
        (352, 240, 352, 256),
        (212, 302, 212, 316),  # weights and rows → batch
        (352, 302, 352, 316),
    ):
        drawing.arrow(x, y, to_x, to_y)
    return drawing


def draw_record(dtype: np.dtype[np.void]) -> Drawing:
    """Draw the bytes of one record four times: as a record, as columns of fields, as bytes and as words.

    Args:
        dtype: Dtype of the record, of at most 32 bytes; bytes that belong to no field are gaps.
    """
    size, starts = dtype.itemsize, {name: dtype.fields[name][1] for name in dtype.names}  # pyright: ignore
    ends = {name: start + dtype[name].itemsize for name, start in starts.items()}
    byte = (WIDTH - 76) / size  # pixels
    gaps = [place for place in range(size) if not any(starts[n] <= place < ends[n] for n in starts)]
    title = f"One record of {size} bytes seen in four ways. "
    title += ", ".join(f"{name}: bytes {starts[name]} to {ends[name] - 1}" for name in starts)
    drawing = Drawing(WIDTH, 230, f"{title}; the other bytes are gaps.")

    tops = (24, 84, 130, 176)
    for top, name in zip(tops, ("records", "columns", "bytes", "words"), strict=True):
        drawing.text(60, top + 19, name, size=SMALL, at="end")

    def part(top: float, first: int, count: int, text: object = "", lit: bool = False) -> None:
        wide, is_gap = byte * count - (1.5 if count > 1 else 0), not lit and count == 1
        drawing.box(68 + byte * first, top, wide, 28, text, lit=lit, size=SMALL, dashed=is_gap)

    part(tops[0], 0, size, "one record")
    for name, start in starts.items():
        part(tops[1], start, ends[name] - start, lit=True)
        drawing.text(68 + byte * start, tops[1] - 6, name, size=SMALL, at="start")
    for place in range(size):
        part(tops[2], place, 1, lit=place not in gaps)
        if {place, place + 1, place + 2} <= {*gaps} and place - 1 not in gaps:
            drawing.text(68 + byte * (place + 1.5), tops[1] + 19, "gap", size=SMALL)
    for word in range(size // 8):
        part(tops[3], 8 * word, 8, f"word {word}")
        drawing.text(68 + byte * 8 * word, 222, 8 * word, size=SMALL, at="start")
    drawing.text(68 + byte * size, 222, size, size=SMALL, at="end")
    return drawing


def draw_batch(rows: int, small: int, large: int) -> Drawing:
    """Draw what a kept field of a batch keeps in memory: the block of all fields, or only its own.

    Args:
        rows: Number of rows of the batch.
        small: Bytes of an image that is copied with its row.
        large: Bytes of an image that is copied to an array of its own.
    """
    title = f"Batches of {rows} rows. Images of {small:,} bytes: all fields are views of one block, "
    title += f"so the rewards keep the images. Images of {large:,} bytes have an array of their own."
    drawing = Drawing(WIDTH, 210, title)
    for left, size, words in ((8, small, "keeps the images"), (232, large, "keeps no image")):
        is_large = left > 8
        drawing.text(left, 16, f"images of {size:,} bytes", size=SMALL, at="start")
        for row in range(4):
            y, text = 30 + 27 * row, "image" if row != 2 else "…"
            drawing.box(left + 80 if is_large else left + 62, y, 104, 23, text, size=SMALL)
            drawing.box(left, y, 60, 23, "reward" if row != 2 else "…", lit=True, size=SMALL)
        drawing.box(left - 4, 26, 68 if is_large else 174, 112, dashed=True)
        drawing.arrow(left + 30, 166, left + 30, 141)
        drawing.text(left, 182, 'batch["reward"]', size=SMALL, lit=True, at="start")
        drawing.text(left, 200, words, size=SMALL, at="start")
    return drawing


def draw_block(specs: Specs) -> Drawing:
    """Draw a block of shared memory: the header, then one array after the other, mapped by two processes.

    Args:
        specs: Maps the name of each array to its shape and dtype, as in `SharedArrays`.
    """
    title = f"A block of shared memory: a header of {HEADER_BYTES:,} bytes, then {', '.join(specs)}; "
    drawing = Drawing(WIDTH, 52 + 30 * (len(specs) + 1), title + "two processes map all of it.")
    drawing.text(8, 16, "first byte", size=SMALL, at="start")
    parts, offset = [(0, "header", "a JSON text")], HEADER_BYTES
    for name, (shape, dtype) in specs.items():
        parts.append((offset, name, f"{dtype}{list(shape)}"))
        offset += padded_size(shape, dtype)
    for place, (first, name, what) in enumerate(parts):
        y = 28 + 30 * place
        drawing.text(66, y + 19, f"{first:,}", size=SMALL, at="end")
        drawing.box(76, y, 240, 30, lit=place == 0)
        drawing.text(84, y + 19, name, size=SMALL, at="start")
        drawing.text(310, y + 19, what, size=SMALL, at="end")
    drawing.text(66, 28 + 30 * len(parts) + 14, f"{offset:,}", size=SMALL, at="end")
    middle = 28 + 15 * len(parts)
    for sign, name in ((-1, "writer"), (1, "sampler")):
        y = middle + sign * 38
        drawing.box(344, y - 22, 76, 44, lit=False)
        drawing.text(382, y - 3, name, size=SMALL)
        drawing.text(382, y + 14, "_arrays", size=SMALL)
        drawing.arrow(342, y, 319, y)
    return drawing


def draw_stamp(stamp: int) -> Drawing:
    """Draw the 64 bits of a stamp of the package in its three parts."""
    index, owner, held = stamp >> protocol.INDEX_SHIFT, protocol.owner_of(stamp), stamp & protocol.HELD
    title = f"Stamp {stamp}: index + 1 is {index}, the owner {owner}, and the bit for held is {held}."
    drawing, x = Drawing(WIDTH, 96, title), 8.0
    for name, value, bits, wide in (
        ("index + 1", f"0…0 {index:08b}", "bits 11 to 63", 216),
        ("owner", f"0…0 {owner:05b}", "bits 1 to 10", 132),
        ("held", held, "bit 0", 56),
    ):
        drawing.text(x + wide / 2, 16, name)
        drawing.box(x, 26, wide, 34, value, lit=name == "held" and held == 1)
        drawing.text(x + wide / 2, 80, bits, size=SMALL)
        x += wide + 2
    return drawing


def draw_log(length: int, followed: int, end: int, begun: int) -> Drawing:
    """Draw the log of updates, a ring: which entries a process has still to read, and which are overwritten.

    Args:
        length: Number of places.
        followed: Entries before this one have been read (`FOLLOWED`).
        end: Entries before this one are complete (`LOG_END`).
        begun: Entries before this one have been announced by the updater (`LOG_BEGUN`).
    """
    oldest, lost = begun - length, begun - followed > length
    title = f"A log of {length} places. Entries {followed} to {end - 1} are new to a reader. The updater has "
    title += f"announced entries up to {begun - 1}. " + ("An entry is lost." if lost else "None is lost.")
    first, wide = max(min(followed, oldest) - 1, 0), 56
    drawing = Drawing(WIDTH, 150, title)

    def left(entry: int) -> float:
        return 58 + wide * (entry - first)

    drawing.text(50, 66, "entry", size=SMALL, at="end")
    drawing.text(50, 98, "place", size=SMALL, at="end")
    for entry in range(first, begun):
        is_new, gone = followed <= entry < end, entry < oldest
        text = "lost" if is_new and gone else entry
        drawing.box(left(entry), 44, wide - 4, 34, text, lit=is_new, dashed=gone or entry >= end)
        drawing.text(left(entry) + wide / 2 - 2, 98, entry % length, size=SMALL)
    marks = (("FOLLOWED", followed, 18, 42), ("LOG_END", end, 18, 42), ("LOG_BEGUN", begun, 138, 80))
    for name, entry, y, tip in marks:
        drawing.arrow(left(entry) - 2, y + (6 if y < tip else -14), left(entry) - 2, tip)
        drawing.text(min(left(entry) - 2, WIDTH - 42), y, name, size=SMALL, lit=True)
    drawing.line(left(max(oldest, 0)), 108, left(begun) - 4, 108)
    drawing.text(left(max(oldest, 0)), 124, f"the last {length} entries", size=SMALL, at="start")
    return drawing
