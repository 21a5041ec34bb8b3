"""What chapters 05b and 06b rest on: parts of live sources, lists of calls, interrupts, and edited copies."""

import json
from typing import Any

import numpy as np
import pytest
from places import PACKAGE, ROOT

from replay_course import calls, edited_copy, interrupt_everywhere, show
from replay_course import exercises_reading as exercises
from replay_course import exercises_reading_shared as shared_exercises
from replay_course.exercises import CheckFailed
from replay_course.steps.uniform import RingOfRecords
from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.buffers import fields, prioritized_ring, ring
from replay_tutorial.shared import protocol

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
    whole, code = show(fields.StagedRows), show(fields.StagedRows, docstrings=False)
    assert '"""' in whole.text
    assert '"""' not in code.text
    assert [line for line in code.text.split("\n") if line not in whole.text.split("\n")] == []
    assert (
        show(fields.Fields.to_columns, docstrings=False).text.split("\n")[1] == "    columns: list[Any] = []"
    )


def test_a_folded_source_shows_what_it_does_and_its_code_on_a_click() -> None:
    folded = show(ring.Ring.append, fold="Rows > 1")._repr_markdown_()  # pyright: ignore[reportPrivateUsage]
    plain = show(ring.Ring.append)._repr_markdown_()  # pyright: ignore[reportPrivateUsage]
    assert folded == f'<details markdown="1"><summary>Rows &gt; 1</summary>\n\n{plain}\n\n</details>'


def test_calls_lists_the_functions_and_kernels_of_the_package_in_their_order() -> None:
    buffer = PrioritizedReplayBuffer(10, FIELD)
    found = calls(lambda: buffer.add(reward=1.0))
    assert found[0] == (0, "buffers/prioritized.py", "PrioritizedReplayBuffer.add")
    assert found[-1] == (2, "buffers/prioritized_ring.py", "append_with_masses (kernel)")
    assert repr(found).split("\n")[-2].endswith("  PrioritizedRing.append")
    assert len(buffer) == 2


@pytest.mark.parametrize("ten_lines", [exercises.ten_lines, shared_exercises.ten_lines])
def test_random_lines_are_lines_of_code_with_their_places(ten_lines: Any, capsys: Any) -> None:
    ten_lines()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    for line in printed:
        place, code = line.split("  ", 1)
        file, number = place.split(":")
        assert (PACKAGE / file).read_text(encoding="utf-8").split("\n")[int(number) - 1].strip() == code
        assert not code.startswith(("#", "@", "from ", "import ", '"""'))


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


def test_the_layout_of_the_record_is_that_of_the_package() -> None:
    record = fields.Fields(exercises.RECORD).dtype
    assert [record.fields[name][1] for name in record.names] == exercises.STARTS
    assert record.itemsize == exercises.SIZE


def test_the_contents_of_the_stamps_are_those_that_the_package_reads() -> None:
    stamps = shared_exercises.STAMPS
    shared_exercises.check_stamps([*map(protocol.index_of, stamps)], [*map(protocol.owner_of, stamps)])
