"""The drawings of the chapters: their text is readable on a phone, and they say in words what they show."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from replay_course.drawings import Drawing
from replay_course.drawings_reading import (
    draw_batch,
    draw_block,
    draw_core,
    draw_log,
    draw_record,
    draw_stamp,
)
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.shared.protocol import held_stamp
from replay_tutorial.shared.shared_ring import ring_specs

TEXT = r'<text x="([^"]+)" y="([^"]+)" font-size="([^"]+)" text-anchor="(\w+)"[^>]*>([^<]*)'
PHONE = 342  # pixels of a page that is 390 pixels wide, inside its margins
FIELDS = Fields({"obs": {"shape": 4}, "done": {"dtype": bool}, "reward": {}})
DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "core": lambda: draw_core("fields", "batch"),
    "record": lambda: draw_record(FIELDS.dtype),
    "batch": lambda: draw_batch(64, 1024, 7056),
    "block": lambda: draw_block(ring_specs(1000, FIELDS.dtype)),
    "stamp": lambda: draw_stamp(held_stamp(11, 5)),
    "log": lambda: draw_log(4, 2, 5, 7),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_fits_a_phone_with_text_of_nine_pixels_inside_its_edges(name: str) -> None:
    drawing = DRAWINGS[name]()
    assert len(drawing.title) > 40
    scale = min(1.0, PHONE / drawing.width)
    texts = re.findall(TEXT, drawing.svg())
    assert len(texts) > 3
    for x, y, size, anchor, text in texts:
        assert float(size) * scale >= 9, text
        width = 0.5 * float(size) * len(text)  # of most fonts
        left = float(x) - width * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        assert left >= 0, text
        assert left + width <= drawing.width, text
        assert 0 < float(y) <= drawing.height, text


def test_the_parts_of_a_record_and_its_gap_are_where_numpy_puts_them() -> None:
    assert (
        "obs: bytes 0 to 15, done: bytes 16 to 16, reward: bytes 20 to 23" in draw_record(FIELDS.dtype).title
    )
    packed = np.dtype([("action", np.int64), ("reward", np.float64)])
    assert ">gap<" in draw_record(FIELDS.dtype).svg()
    assert ">gap<" not in draw_record(packed).svg()


@pytest.mark.parametrize(("begun", "lost"), [(5, False), (6, False), (7, True)])
def test_a_log_shows_whether_an_entry_is_lost(begun: int, lost: bool) -> None:
    drawing = draw_log(length=4, followed=2, end=5, begun=begun)
    assert (">lost<" in drawing.svg()) == lost
    assert drawing.title.endswith("An entry is lost." if lost else "None is lost.")


def test_a_stop_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="There is no stop 'trie'; the stops are fields, stages"):
        draw_core("trie")
