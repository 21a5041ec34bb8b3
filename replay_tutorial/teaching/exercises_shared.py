"""The exercises of chapter 06: stamps to be read, a reader to be written, and an order with two faults."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.teaching.exercises import NotYet
from replay_tutorial.teaching.own_protocol import explore_protocol

STAMPS = (10, 4, 15, 0)
# An author's protocol, tested for a year on a laptop.
HASTY_WRITER = ("hold", "words", "fence", "publish")
HASTY_SAMPLER = ("look", "fence", "words", "look")


def check_rows(rows: Sequence[Any]) -> None:
    """Check which row a sampler gets from each slot with `STAMPS`; None for a slot without a whole one."""
    if len(rows) != len(STAMPS) or ... in rows:
        raise NotYet("write an index for each of the four slots, or None where a sampler gets nothing")
    for slot, (given, stamp) in enumerate(zip(rows, STAMPS, strict=True)):
        right = None if stamp == 0 or stamp % 2 else stamp // 2 - 1
        if given == right:
            continue
        if right is None:
            what = "was never written" if stamp == 0 else "is odd: somebody is writing, or has died there"
            raise NotYet(f"slot {slot}: the stamp {stamp} {what}, and a sampler gets no row, not row {given}")
        raise NotYet(f"slot {slot}: the stamp {stamp} is 2 * (index + 1), so the index is not {given}")
    print("right: rows 4 and 1, and nothing from the other two")


class WatchedStamps:
    """Stamps that count how often they are looked at, and a writer that strikes between two looks."""

    def __init__(self, stamp: int, then: int) -> None:
        """Begin with a stamp in slot 0; from the second look on it is another."""
        self.values, self.looks = (stamp, then), 0

    def __getitem__(self, slot: int) -> int:
        """Look."""
        self.looks += 1
        return self.values[min(self.looks, 2) - 1]


class WatchedRows:
    """Rows whose content changes under a reader that has not copied it."""

    def __init__(self, stamps: WatchedStamps) -> None:
        """Hold one row; it is read after the first look, or before."""
        self.stamps, self.row = stamps, np.full(3, 7.0)
        self.looks_before: int | None = None

    def __getitem__(self, slot: int) -> npt.NDArray[np.float64]:
        """Read."""
        self.looks_before = self.stamps.looks
        return self.row


def check_read(read: Callable[..., Any]) -> None:
    """Check a function `read(stamps, rows, slot)` that returns a copy of a whole row, or None."""
    for stamp, then, whole, where in (
        (8, 8, True, "8 at both looks"),
        (0, 0, False, "0: never written"),
        (9, 9, False, "9 at both looks: held all the while"),
        (8, 25, False, "8, and 25 after the copy: a writer came"),
        (8, 24, False, "8, and 24 after the copy: a writer came and went"),
    ):
        stamps = WatchedStamps(stamp, then)
        rows = WatchedRows(stamps)
        got = read(stamps, rows, 0)
        if not whole and got is not None:
            raise NotYet(f"the stamp is {where}; the row must not be returned, and it was")
        if whole and got is None:
            raise NotYet(f"the stamp is {where}; the row is whole, and None was returned")
        if whole and (rows.looks_before != 1 or stamps.looks != 2):
            raise NotYet(
                f"{rows.looks_before} looks before the copy and {stamps.looks} in all; make it 1 and 2"
            )
        rows.row[:] = 8.0
        if got is not None and not np.array_equal(got, np.full(3, 7.0)):
            raise NotYet("a writer has changed the slot since, and the returned row changed with it: copy it")
    print("right: a row is returned only if both looks find the same even stamp, and it is a copy")


def check_mended(writer: Sequence[str], sampler: Sequence[str]) -> None:
    """Check an order of stores and loads that is to take the place of the hasty one."""
    try:
        report = explore_protocol(writer, sampler)
    except ValueError as error:
        raise NotYet(str(error)) from None
    if report.violation:
        last = "; ".join((*report.trail, *report.last)[-3:])
        raise NotYet(f"{report.violation}. It ends so: {last}. What could a fence have kept apart?")
    print(f"right: {report.states} states, and nothing is torn in any of them")
