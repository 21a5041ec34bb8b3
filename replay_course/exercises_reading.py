"""Checks of chapter 05b: the layout of a record, a ring that refuses rows, and another formula for masses."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from replay_course.edited_files import EditedCopy, edited_copy
from replay_course.exercises import CheckFailed, Hints, NotYet, expect
from replay_course.source import random_lines
from replay_tutorial.buffers import (
    base,
    fields,
    gather,
    priorities,
    prioritized,
    prioritized_ring,
    ring,
    rows,
    sum_tree,
    uniform,
)
from replay_tutorial.buffers.fields import Fields

RECORD: dict[str, dict[str, Any]] = {
    "pixels": {"shape": 5, "dtype": np.uint8},
    "reward": {},
    "action": {"dtype": np.int64},
    "done": {"dtype": bool},
}
STARTS, SIZE = [0, 8, 16, 24], 32

ten_lines = partial(
    random_lines,
    [base, fields, gather, priorities, prioritized, prioritized_ring, ring, rows, sum_tree, uniform],
)

refusing_hints = Hints(
    "A ring knows how many rows it stores, how many it can store, and how many are to be appended: "
    "self.stored, self.capacity and count.",
    "Raise the error before anything changes, and before a large batch is appended in parts: at the top of "
    "the method.",
)
eps_hints = Hints(
    "mass_of computes the mass of a priority. Which other function must stay its inverse?",
    "If mass = priority ** alpha + eps, then priority = (mass - eps) ** (1 / alpha).",
)


def check_record(starts: Sequence[Any], size: Any) -> None:
    """Check where the fields of `RECORD` start in a record, and how many bytes it has."""
    if ... in (*starts, size):
        raise NotYet("write the first byte of each field, and the size of the record")
    if len(starts) != len(STARTS):
        raise NotYet(f"there are {len(STARTS)} fields, and {len(starts)} numbers")
    for (name, field), start, right in zip(RECORD.items(), starts, STARTS, strict=True):
        if start != right:
            itemsize = Fields({name: field}).fields[name].dtype.itemsize
            raise NotYet(
                f"{name} doesn't start at byte {start}: it starts at the first multiple of {itemsize}, the "
                "size of an element, after the fields before it"
            )
    if size != SIZE:
        raise NotYet(f"the record doesn't have {size} bytes: the size is a multiple of 8")
    print(
        "right: each field starts at a multiple of its element size, and the record is padded to whole words"
    )


def copy_with_edits(module: Any, edits: Mapping[str, str]) -> EditedCopy:
    """Return an edited copy; raise NotYet if nothing has been changed."""
    copy = edited_copy(module, edits)
    if not copy.changed:
        raise NotYet("no line has been changed: write at least one edit, {a line: what replaces it}")
    return copy


def rows_of(buffer: Any) -> list[float]:
    """Return the rewards of the stored rows, oldest first."""
    return buffer[:]["reward"].tolist()


def check_refusing(edits: Mapping[str, str]) -> None:
    """Check a `ReplayBuffer` that raises ValueError instead of overwriting rows.

    Args:
        edits: Edits of `ring.py`, as for `edited_copy`.

    Raises:
        NotYet: If a full ring still overwrites its rows.
        CheckFailed: If rows are refused that fit, or a refused batch changes the buffer.
    """
    copy = copy_with_edits(ring, edits)
    for capacity in (1, 4, 7):
        buffer = copy.ReplayBuffer(capacity, {"reward": {}}, seed=0)
        where = f"capacity {capacity}"
        for number in range(capacity):
            accept(buffer, [float(number)], f"{where}, {number} rows stored")
        refuse(buffer, 1, f"{where}, full")
        buffer.clear()
        if capacity > 1:
            accept(buffer, [10.0] * (capacity - 1), f"{where}, after clear")
            refuse(buffer, 2, f"{where}, one slot is free")
            refuse(buffer, capacity + 5, f"{where}, one slot is free")
        accept(buffer, [11.0], f"{where}, one slot is free")
        refuse(buffer, 3, f"{where}, full again after clear")
        expect(np.isin(buffer.sample(50)["reward"], [10.0, 11.0]).all(), f"{where}: a batch has other rows")
    large = copy.ReplayBuffer(100, {"reward": {}, "image": {"shape": 2**14}}, seed=0)
    refuse(large, 130, "capacity 100, a batch of 130 rows of 64 KiB, which is appended in parts", image=2**14)
    print("right: rows are stored while they fit, and otherwise refused before anything changes")


def accept(buffer: Any, rewards: list[float], where: str) -> None:
    """Add rows that fit; raise CheckFailed if they are not stored."""
    stored = rows_of(buffer)
    try:
        index = buffer.add(reward=np.array(rewards))
    except ValueError as error:
        raise CheckFailed(f"{where}: {len(rewards)} rows fit, but add raised ValueError: {error}") from None
    found = rows_of(buffer)
    expect(found == stored + rewards, f"{where}: after adding {rewards}, the rows are {found}")
    first = buffer.next_index - len(rewards)
    expect(index == first, f"{where}: add returned {index!r}, not the index of the first row, {first}")


def refuse(buffer: Any, count: int, where: str, image: int = 0) -> None:
    """Add rows that don't fit; raise NotYet unless they are refused, CheckFailed if the buffer changes."""
    before = (buffer.next_index, rows_of(buffer))
    rows: dict[str, Any] = {"reward": np.full(count, -1.0)}
    rows |= {"image": np.zeros((count, image), np.float32)} if image else {}
    try:
        buffer.add(**rows)
    except ValueError:
        after = (buffer.next_index, rows_of(buffer))
        expect(
            before == after,
            f"{where}: {count} rows were refused, but {after[0] - before[0]} of them were counted, and "
            f"{after[1].count(-1.0)} stored",
        )
    except (AssertionError, LookupError, RuntimeError, TypeError) as error:
        raise CheckFailed(f"{where}: add raised {type(error).__name__} instead of ValueError") from None
    else:
        raise NotYet(f"{where}: add accepted {count} more, with {len(before[1])} stored; raise ValueError")


def check_eps(edits: Mapping[str, str]) -> None:
    """Check a `PrioritizedReplayBuffer` whose masses are priority ** alpha + eps.

    Args:
        edits: Edits of `priorities.py`, as for `edited_copy`.

    Raises:
        NotYet: If the masses are still those of the package.
        CheckFailed: If a mass, or a priority that is computed from a mass, is wrong.
    """
    copy = copy_with_edits(priorities, edits)
    given = np.array([0.0, 0.5, 1.0, 2.0, 7.0])
    for alpha, eps in [(0.5, 0.25), (0.8, 0.01)]:
        buffer = copy.PrioritizedReplayBuffer(8, {"reward": {}}, alpha=alpha, eps=eps, seed=0)
        where = f"alpha {alpha}, eps {eps}"
        buffer.add(reward=np.zeros(5), priorities=given)
        expect_masses(buffer, given, where)
        buffer.add(reward=0.0)
        expect_masses(buffer, np.append(given, 7.0), f"{where}, after a row without a priority")
        buffer.update_priorities([0, 3], [4.0, 0.0])
        expect_masses(buffer, np.array([4.0, 0.5, 1.0, 0.0, 7.0, 7.0]), f"{where}, after an update")
    print("right: masses are priority ** alpha + eps, and priorities are read back from them")


def expect_masses(buffer: Any, given: Any, where: str) -> None:
    """Raise CheckFailed unless the masses, their sum and the priorities are those of given priorities."""
    alpha, eps = buffer.alpha, buffer.eps
    masses, right = buffer._ring.leaves[: len(given)], given**alpha + eps
    if np.allclose(masses, (given + eps) ** alpha, rtol=1e-9):
        raise NotYet(f"{where}: the masses are still (priority + eps) ** alpha")
    wrong = ~np.isclose(masses, right, rtol=1e-9)
    expect(
        not wrong.any(),
        f"{where}: a row of priority {given[wrong][:1]} has the mass {masses[wrong][:1]}, "
        f"not {right[wrong][:1]}",
    )
    expect(np.isclose(buffer.total_mass, right.sum()), f"{where}: the total is {buffer.total_mass}")
    found = buffer.priorities[:]
    wrong = ~np.isclose(found, given, rtol=1e-9, atol=1e-9)
    expect(
        not wrong.any(),
        f"{where}: the masses are right, but buffer.priorities returns {found[wrong][:1]} for a priority of "
        f"{given[wrong][:1]}. Which function computes a priority from a mass?",
    )
