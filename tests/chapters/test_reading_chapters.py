"""What chapters 05b and 06b rest on: parts of live sources, lists of calls, interrupts, and edited copies."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from places import ROOT

from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.buffers import fields, priorities, prioritized_ring, ring
from replay_tutorial.shared import protocol
from replay_tutorial.steps.uniform import RingOfRecords
from replay_tutorial.teaching import calls, edited_copy, interrupt_everywhere, show
from replay_tutorial.teaching import exercises_reading as exercises
from replay_tutorial.teaching import exercises_reading_shared as shared_exercises
from replay_tutorial.teaching.exercises import CheckFailed, NotYet

FIELD = {"reward": {"dtype": np.float64, "shape": ()}}
KERNEL = "first_index, capacity, count = counters[NEXT_INDEX], rows.shape[0], new_rows.shape[0]"


def test_a_part_of_a_source_begins_and_ends_with_the_lines_that_are_asked_for() -> None:
    whole, part = show(ring.Ring.append), show(ring.Ring.append, first="if count == 1:", last="else:")
    lines = part.text.split("\n")
    assert (lines[0], lines[-1], len(lines)) == ("if count == 1:", "else:", 6)
    first, number = (int(source.place.rpartition(":")[2]) for source in (whole, part))
    assert whole.text.split("\n")[number - first].strip() == lines[0]
    assert len(show(ring, first="NEXT_INDEX, CLEARED").text.split("\n")) == 1
    with pytest.raises(
        ValueError, match=r"No line of the source from line \d+ on contains 'elif count == 2'"
    ):
        show(ring.Ring.append, first="elif count == 2")


def test_a_source_is_shown_without_its_docstrings() -> None:
    whole, code = show(ring.StagedRows), show(ring.StagedRows, docstrings=False)
    assert '"""' in whole.text
    assert '"""' not in code.text
    assert [line for line in code.text.split("\n") if line not in whole.text.split("\n")] == []
    assert (
        show(fields.Fields.to_columns, docstrings=False).text.split("\n")[1] == "    columns: list[Any] = []"
    )


def test_calls_lists_the_functions_and_kernels_of_the_package_in_their_order() -> None:
    buffer = PrioritizedReplayBuffer(10, FIELD)
    found = calls(lambda: buffer.add(reward=1.0))
    assert found[0] == (0, "buffers/prioritized.py", "PrioritizedReplayBuffer.add")
    assert found[-1] == (2, "buffers/prioritized_ring.py", "append_with_masses (kernel)")
    assert repr(found).split("\n")[-2].endswith("  PrioritizedRing.append")
    assert len(buffer) == 2


@pytest.mark.parametrize("number", ["05b", "06b"])
def test_the_sources_that_the_chapter_shows_exist(number: str) -> None:
    (path,) = (ROOT / "chapters").glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    known: dict[str, Any] = {}
    exec(sources[0], known)  # noqa: S102 - the chapter's imports
    shown = [line for source in sources for line in source.split("\n") if line.startswith("show(")]
    assert len(shown) >= 20
    for line in shown:
        exec(line, known)  # noqa: S102 - a line of a chapter


def filled(kind: Any) -> Any:
    buffer = kind(2, FIELD)
    for reward in range(3):
        buffer.add(reward=float(reward))
    return buffer


def test_an_interrupt_leaves_a_ring_of_python_half_changed_and_a_kernel_never() -> None:
    in_python = interrupt_everywhere(
        lambda: filled(RingOfRecords),
        lambda buffer: buffer.add(reward=9.0),
        lambda buffer: (buffer.added, buffer.rows.tobytes()),
    )
    in_kernel = interrupt_everywhere(
        lambda: filled(PrioritizedReplayBuffer),
        lambda buffer: buffer.add(reward=9.0, priorities=7.0),
        lambda buffer: (buffer.indexes.tolist(), buffer[:].reward.tolist(), buffer.priorities[:].tolist()),
    )
    assert in_python["neither"] > 0
    assert in_kernel["neither"] == 0
    assert min(in_kernel["before"], in_kernel["after"]) > 0


def test_an_edited_copy_leaves_the_package_as_it_is_and_is_used_by_both_buffers() -> None:
    copy = edited_copy(ring, {KERNEL: f"{KERNEL}\nfirst_index += 5"})
    for name in ("ReplayBuffer", "PrioritizedReplayBuffer"):
        assert getattr(copy, name)(10, FIELD).add(reward=1.0) == 5
    assert PrioritizedReplayBuffer(10, FIELD).add(reward=1.0) == 0
    assert "+    first_index += 5" in copy.difference
    assert prioritized_ring.append_rows is ring.append_rows


@pytest.mark.parametrize("line", ["no such line", "@kernel"])
def test_an_edit_of_a_line_that_does_not_occur_once_is_refused(line: str) -> None:
    with pytest.raises(CheckFailed, match=rf"prioritized_ring.py has \d lines '{line}'; choose a line that"):
        edited_copy(prioritized_ring, {line: "pass"})


APPEND = "if count == 1:"


def before(line: str, *lines: str) -> dict[str, str]:
    """Return an edit that inserts lines before a line."""
    return {line: "\n".join([*lines, line])}


RAISE = '    raise ValueError("full")'
REFUSING = {
    "with stored": before(APPEND, "if self.stored + count > self.capacity:", RAISE),
    "free slots": before(APPEND, "free = self.capacity - self.stored", "if count > free:", RAISE),
    "with indexes": before(APPEND, "if self.next_index + count - self.oldest_index > self.capacity:", RAISE),
    "from the counters": before(
        APPEND,
        "cleared = self.counters[CLEARED]",
        "if self.counters[NEXT_INDEX] - cleared + count > self.capacity:",
        RAISE,
    ),
    "with an elif": {APPEND: f"if self.stored + count > self.capacity:\n{RAISE}\nelif count == 1:"},
}
NOT_REFUSING = {
    "nothing": {},
    "an empty statement": before(APPEND, "..."),
    "only if it is full": before(APPEND, "if self.stored == self.capacity:", RAISE),
    "one too early": before(APPEND, "if self.stored + count >= self.capacity:", RAISE),
    "one too late": before(APPEND, "if self.stored + count > self.capacity + 1:", RAISE),
    "without clear": before(APPEND, "if self.next_index + count > self.capacity:", RAISE),
    "only long batches": before(APPEND, "if count > self.capacity:", RAISE),
    "only single rows": {APPEND: f"if count == 1:\n    if self.stored == self.capacity:\n    {RAISE}"},
    "ignored silently": before(APPEND, "if self.stored + count > self.capacity:", "    return 0"),
    "after the change": {
        "return append_rows(self.bytes, self.counters, staged.bytes)": "index = append_rows(self.bytes, "
        f"self.counters, staged.bytes)\nif self.next_index > self.capacity:\n{RAISE}\nreturn index"
    },
    "in each part of a large batch": before(
        "staged = self._stage(count, columns)", "if self.stored + count > self.capacity:", RAISE
    ) | {APPEND: f"if count == 1:\n    if self.stored == self.capacity:\n    {RAISE}"},
    "another error": before(APPEND, "assert self.stored + count <= self.capacity"),
}  # fmt: skip


@pytest.mark.parametrize("edits", REFUSING.values(), ids=REFUSING)
def test_a_ring_that_refuses_is_accepted(edits: dict[str, str]) -> None:
    exercises.check_refusing(edits)


@pytest.mark.parametrize("edits", NOT_REFUSING.values(), ids=NOT_REFUSING)
def test_a_ring_that_overwrites_or_refuses_wrongly_is_not_accepted(edits: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        exercises.check_refusing(edits)


MASS, PRIORITY = "return power(priority + eps, alpha)", "return mass ** (1.0 / alpha) - eps"
RIGHT_MASS, RIGHT_PRIORITY = "return power(priority, alpha) + eps", "return (mass - eps) ** (1.0 / alpha)"
NEW_MASSES = {
    "both": {MASS: RIGHT_MASS, PRIORITY: RIGHT_PRIORITY},
    "with operators": {MASS: "return eps + priority**alpha", PRIORITY: "return (mass - eps) ** (1 / alpha)"},
}
WRONG_MASSES = {
    "nothing": {},
    "a comment": before(MASS, "# eps"),
    "the mass only": {MASS: RIGHT_MASS},
    "the priority only": {PRIORITY: RIGHT_PRIORITY},
    "no eps": {MASS: "return power(priority, alpha)", PRIORITY: "return mass ** (1.0 / alpha)"},
    "eps twice": {MASS: "return power(priority + eps, alpha) + eps", PRIORITY: RIGHT_PRIORITY},
    "NaN": {MASS: "return np.nan * priority", PRIORITY: RIGHT_PRIORITY},
    "constant": {MASS: "return 1.0", PRIORITY: RIGHT_PRIORITY},
    "one alpha only": {MASS: "return np.sqrt(priority) + eps", PRIORITY: "return (mass - eps) ** 2"},
    "no alpha": {MASS: "return priority + eps", PRIORITY: "return mass - eps"},
    "another inverse": {MASS: RIGHT_MASS, PRIORITY: "return mass ** (1 / alpha) - eps ** (1 / alpha)"},
}  # fmt: skip


@pytest.mark.parametrize("edits", NEW_MASSES.values(), ids=NEW_MASSES)
def test_a_mass_with_eps_outside_is_accepted(edits: dict[str, str]) -> None:
    exercises.check_eps(edits)


@pytest.mark.parametrize("edits", WRONG_MASSES.values(), ids=WRONG_MASSES)
def test_another_mass_is_not_accepted(edits: dict[str, str]) -> None:
    with pytest.raises(AssertionError):
        exercises.check_eps(edits)


@pytest.mark.parametrize(
    ("starts", "size"),
    [
        ([..., ..., ..., ...], ...),
        ([0, 5, 9, 17], 18),  # without gaps
        ([0, 8, 12, 20], 24),  # int64 at a multiple of 4
        ([0, 8, 16, 24], 25),
        ([0, 8, 16, 24], float("nan")),
        ([float("nan")] * 4, 32),
        ([0, 8, 16], 32),
        ([0, 8, 16, 24, 32], 32),
        ([0, 8, 16, 32], 64),
    ],
)
def test_another_layout_of_the_record_is_not_accepted(starts: list[Any], size: Any) -> None:
    with pytest.raises(NotYet):
        exercises.check_record(starts, size)


@pytest.mark.parametrize("starts", [[0, 8, 16, 24], (0, 8, 16, 24), np.array([0, 8, 16, 24])])
def test_the_layout_of_the_record_is_that_of_the_package(starts: Any) -> None:
    exercises.check_record(starts, 32)
    record = fields.Fields(exercises.RECORD).dtype
    assert [record.fields[name][1] for name in record.names] == exercises.STARTS
    assert record.itemsize == exercises.SIZE


def test_the_checks_name_the_mistake() -> None:
    with pytest.raises(CheckFailed, match="one slot is free: 1 rows fit, but add raised ValueError"):
        exercises.check_refusing(NOT_REFUSING["without clear"])
    with pytest.raises(CheckFailed, match="Which function computes a priority from a mass"):
        exercises.check_eps({MASS: RIGHT_MASS})
    assert priorities.mass_of(2.0, 1.0, 0.5) == pytest.approx(2.5)


RIGHT_CLAIMS = {
    "with bits": lambda stamp, index: (stamp >> 11) <= index and not (stamp & 1 and stamp >> 1 & 1023),
    "with division": lambda stamp, index: stamp // 2048 - 1 < index and (stamp % 2 == 0 or stamp % 2048 == 1),
    "as in the kernel": lambda stamp, index: (
        not (stamp >= (index + 1) << 11 or (protocol.is_held(stamp) and protocol.owner_of(stamp) != 0))
    ),
    "as a number": lambda stamp, index: int(stamp < (index + 1) << 11 and stamp & 2047 in (0, 1)),
}
WRONG_CLAIMS: dict[str, Callable[[int, int], Any]] = {
    "nothing": lambda stamp, index: None,
    "the skeleton": lambda stamp, index: ...,
    "always": lambda stamp, index: True,
    "never": lambda stamp, index: False,
    "only complete rows": lambda stamp, index: stamp & 1 == 0 and stamp >> 11 <= index,
    "newer rows, too": lambda stamp, index: not (stamp & 1 and stamp >> 1 & 1023),
    "the same row, too": lambda stamp, index: stamp >> 11 <= index + 1 and stamp & 2047 in (0, 1),
    "held by anybody": lambda stamp, index: stamp >> 11 <= index,
    "one bit of the owner": lambda stamp, index: stamp >> 11 <= index and stamp & 3 != 3,
    "not the lowest bit of the owner": lambda stamp, index: stamp >> 11 <= index and stamp & 2045 in (0, 1),
    "index without 1": lambda stamp, index: stamp >> 11 < index and stamp & 2047 in (0, 1),
    "not a new slot": lambda stamp, index: stamp > 0 and stamp >> 11 <= index and stamp & 2047 in (0, 1),
    "NaN": lambda stamp, index: float("nan"),
}


@pytest.mark.parametrize("can_claim", RIGHT_CLAIMS.values(), ids=RIGHT_CLAIMS)
def test_the_rule_for_claims_is_accepted(can_claim: Any) -> None:
    shared_exercises.check_claim(can_claim)


@pytest.mark.parametrize("can_claim", WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_another_rule_for_claims_is_not_accepted(can_claim: Any) -> None:
    with pytest.raises(NotYet):
        shared_exercises.check_claim(can_claim)


def entries(log: list[int], first: int, end: int) -> list[int]:
    return [log[place % len(log)] for place in range(first, end)]


RIGHT_FOLLOWS = {
    "a list": lambda log, begun, followed, end: (
        None if begun - followed > len(log) and end > followed else entries(log, followed, end)
    ),
    "an array": lambda log, begun, followed, end: (
        np.array(entries(log, followed, end)) if followed == end or begun <= followed + len(log) else None
    ),
    "a tuple": lambda log, begun, followed, end: (
        tuple(entries(log, followed, end)) if followed in (end, *range(begun - len(log), end)) else None
    ),
}
WRONG_FOLLOWS: dict[str, Callable[[list[int], int, int, int], Any]] = {
    "nothing": lambda log, begun, followed, end: None,
    "the bug": lambda log, begun, followed, end: (
        None if end - followed > len(log) else entries(log, followed, end)
    ),
    "never lost": lambda log, begun, followed, end: entries(log, followed, end),
    "one too early": lambda log, begun, followed, end: (
        None if begun - followed >= len(log) and end > followed else entries(log, followed, end)
    ),
    "one too late": lambda log, begun, followed, end: (
        None if begun - followed > len(log) + 1 and end > followed else entries(log, followed, end)
    ),
    "lost although there are none": lambda log, begun, followed, end: (
        None if begun - followed > len(log) else entries(log, followed, end)
    ),
    "from begun": lambda log, begun, followed, end: (
        None if begun - followed > len(log) and end > followed else entries(log, followed, begun)
    ),
    "the newest only": lambda log, begun, followed, end: entries(log, max(followed, begun - len(log)), end),
    "NaN": lambda log, begun, followed, end: [float("nan")] * (end - followed),
    "without the last": lambda log, begun, followed, end: (
        None if begun - followed > len(log) and end > followed else entries(log, followed, end - 1)
    ),
}


@pytest.mark.parametrize("follow", RIGHT_FOLLOWS.values(), ids=RIGHT_FOLLOWS)
def test_a_log_that_is_followed_is_accepted(follow: Any) -> None:
    shared_exercises.check_follow(follow)


@pytest.mark.parametrize("follow", WRONG_FOLLOWS.values(), ids=WRONG_FOLLOWS)
def test_a_log_that_loses_entries_is_not_accepted(follow: Any) -> None:
    with pytest.raises(NotYet):
        shared_exercises.check_follow(follow)


@pytest.mark.parametrize(
    ("indexes", "owners"),
    [
        ([...] * 4, [...] * 4),
        ([6, 9, 11, -1], [0, 3, 5, 0]),
        ([6, 9, 11, 0], [0, 3, 0, 0]),
        ([7, 10, 12, 0], [0, 3, 0, 0]),
        ([6, 9, 11], [0, 3, 0]),
        ([6, 9, 11, -1], [1, 3, 1, 0]),
        ([float("nan")] * 4, [0, 3, 0, 0]),
        ([6, 9, 11, -1], [float("nan")] * 4),
        ([6, 9, 11, None], [0, 3, 0, 0]),
    ],
)
def test_other_contents_of_the_stamps_are_not_accepted(indexes: list[Any], owners: list[Any]) -> None:
    with pytest.raises(NotYet):
        shared_exercises.check_stamps(indexes, owners)


def test_the_contents_of_the_stamps_are_those_that_the_package_reads() -> None:
    stamps = shared_exercises.STAMPS
    indexes, owners = map(protocol.index_of, stamps), map(protocol.owner_of, stamps)
    shared_exercises.check_stamps(list(indexes), list(owners))
    assert (shared_exercises.INDEXES, shared_exercises.OWNERS) == ([6, 9, 11, -1], [0, 3, 0, 0])
