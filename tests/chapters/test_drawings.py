"""The drawings of the chapters: their text is readable on a phone, and they say in words what they show."""

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from replay_course.drawings import (
    STATIONS,
    Drawing,
    draw_checks,
    draw_cliffwalk,
    draw_frames,
    draw_goals,
    draw_layouts,
    draw_masses,
    draw_ring,
    draw_roles,
    draw_sequences,
    draw_stamps,
    draw_tree,
    draw_waits,
    draw_way,
    draw_windows,
)
from replay_course.drawings_episodes import draw_corridor, draw_corridors, draw_relabelled, draw_unrolled
from replay_course.drawings_learning import (
    draw_cart,
    draw_ends,
    draw_late_update,
    draw_loop,
    draw_weights,
    draw_wide_node,
)
from replay_course.drawings_processes import (
    CONNECTIONS,
    draw_gauge,
    draw_mailbox,
    draw_processes,
    draw_reordering,
)
from replay_course.drawings_reading import (
    draw_batch,
    draw_block,
    draw_core,
    draw_log,
    draw_record,
    draw_stamp,
)
from replay_course.exercises_goals import numbered_episode
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.shared.protocol import held_stamp
from replay_tutorial.shared.shared_ring import ring_specs

TEXT = r'<text x="([^"]+)" y="([^"]+)" font-size="([^"]+)" text-anchor="(\w+)"[^>]*>([^<]*)'
PHONE = 342  # pixels of a page that is 390 pixels wide, inside its margins
FIELDS = Fields({"obs": {"shape": 4}, "done": {"dtype": bool}, "reward": {}})
EPISODE = numbered_episode(7, length=4)
RECORD = np.dtype([("obs", np.float32, 15), ("action", np.int64), ("reward", np.float32)])
MASSES = [1.0, 0.0, 3.0, 5.0, 0.5, 2.0, 4.0, 0.5]
SUMS = [[16.0], [9.0, 7.0], [1.0, 8.0, 2.5, 4.5], MASSES]
DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "cart": lambda: draw_cart([0.014, -0.023, -0.046, -0.048]),
    "loop": draw_loop,
    "online loop": lambda: draw_loop(online=True),
    "ring": lambda: draw_ring(8, added=11),
    "layouts": lambda: draw_layouts(RECORD, capacity=8, slot=3),
    "ends": draw_ends,
    "windows": lambda: draw_windows([1, 2, 4, 8, 16], n=3, lit=3),
    "frames": lambda: draw_frames(9, stack=4, lit=4),
    "cliffwalk": lambda: draw_cliffwalk(10),
    "masses": lambda: draw_masses(MASSES, queries=[4.5]),
    "weights": lambda: draw_weights([0] * 7 + [8], [0.1] * 7 + [0.3], [1.25] * 7 + [0.417]),
    "tree": lambda: draw_tree(SUMS, path=[1, 2, 5, 11], query=4.5),
    "waits": lambda: draw_waits(queries=4, levels=3),
    "node": lambda: draw_wide_node(SUMS),
    "late update": lambda: draw_late_update(capacity=8, new=5, sampled=2),
    "way": lambda: draw_way(*STATIONS),
    "stamps": lambda: draw_stamps([18, 20, 22, 25, 10, 12, 14, 16]),
    "checks": draw_checks,
    "roles": draw_roles,
    "sequences": lambda: draw_sequences(steps=6, starts=[0, 2, 4], length=4, burn_in=3),
    "core": lambda: draw_core("fields", "batch"),
    "record": lambda: draw_record(FIELDS.dtype),
    "batch": lambda: draw_batch(64, 1024, 7056),
    "block": lambda: draw_block(ring_specs(1000, FIELDS.dtype)),
    "stamp": lambda: draw_stamp(held_stamp(11, 5)),
    "log": lambda: draw_log(4, 2, 5, 7),
    **{connection: partial(draw_processes, connection) for connection in CONNECTIONS},
    "reordering": draw_reordering,
    "mailbox": lambda: draw_mailbox(4),
    "gauge": lambda: draw_gauge(560, 1000),
    "corridor": draw_corridor,
    "corridors": lambda: draw_corridors(np.zeros((2, 12, 2))),
    "unrolled": lambda: draw_unrolled(steps=12, start=8, length=4, burn_in=4),
    "relabelled": lambda: draw_relabelled(EPISODE, [EPISODE[0].goal, EPISODE[-1].next_obs]),
    "goals": lambda: draw_goals(2),
    "wrong goals": lambda: draw_goals(2, strategies=["future", "before", "next steps"]),
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


def test_the_names_of_the_stations_fit_their_boxes() -> None:
    svg = draw_way(*STATIONS).svg()
    widths = [float(width) for width in re.findall(r'<rect [^>]*?width="([\d.]+)"', svg)]
    texts = re.findall(TEXT, svg)
    for width, (*_, size, _, station) in zip(widths, texts, strict=False):
        assert 0.65 * float(size) * len(station) + 4 <= width, station  # bold letters are wide


def test_the_cache_lines_of_a_row_are_those_of_its_bytes() -> None:
    # Bytes 180 to 239, 24 to 31 and 12 to 15 of three arrays, or bytes 216 to 287 of one.
    title = draw_layouts(RECORD, capacity=8, slot=3).title
    assert "lie on 4 cache lines of 3 arrays, or on 2 adjacent cache lines" in title


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


def test_a_relabelled_episode_shows_the_rewards_for_each_goal() -> None:
    title = draw_relabelled(EPISODE, [EPISODE[0].goal, EPISODE[-1].next_obs]).title
    assert title.endswith("rewards -1, -1, -1, -1. Goal 74: rewards -1, -1, -1, 0.")


@pytest.mark.parametrize("step", range(6))
def test_the_goals_of_a_bug_are_wrong_where_future_can_not_choose_them(step: int) -> None:
    crosses = {name: draw_goals(step, strategies=[name]).svg().count("×") for name in ("future", "before")}
    assert crosses == {"future": 0, "before": 1}
    assert draw_goals(step, strategies=["next steps"]).svg().count("×") == min(step, 4)


def test_a_needle_outside_of_the_scale_stays_at_its_end() -> None:
    assert 'x1="408"' in draw_gauge(9_000, 1_000).svg()
    assert "9000 samples owed" in draw_gauge(9_000, 1_000).svg()


def test_a_connection_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="There is no 'pipe'; choose from queue, manager"):
        draw_processes("pipe")


def test_a_stop_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="There is no stop 'trie'; the stops are fields, stages"):
        draw_core("trie")
