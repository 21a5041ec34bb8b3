"""StructuredWriter: which patterns make an item, and when."""

from types import SimpleNamespace

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from recording_server import RecordingServer

from replay_tutorial.tables.core import waiting
from replay_tutorial.tables.writing.patterns import Pattern, StructuredWriter, reference, td_error

COLUMNS = {"a": {"dtype": np.int64}, "b": {"dtype": np.int64}, "td": {}}
STEP = reference(COLUMNS)
NEWEST = {"a": STEP["a"][-1]}
PAIR = {"a": STEP["a"][-2:]}
AT_END = [lambda state: state.is_end_episode]


def writer_of(*patterns):
    """A writer, and the server that records what it sends."""
    server = RecordingServer(COLUMNS)
    return StructuredWriter(server, patterns), server


def items_of(patterns, *episodes, **end):
    """What is made of episodes of these values of `a`."""
    writer, server = writer_of(*patterns)
    for steps in episodes:
        for step in steps:
            writer.append(step if isinstance(step, dict) else {"a": step})
        writer.end_episode(**end)
    return made(server)


def made(server):
    """The table and the values of `a` of each item."""
    return [(table, parts["a"].tolist()) for table, _, parts in server.items]


@pytest.mark.parametrize(
    ("condition", "steps"),
    [
        (lambda state: state.step_index <= 2, [0, 1, 2]),
        (lambda state: state.step_index >= 5, [5, 6, 7, 8, 9]),
        (lambda state: state.step_index == 3, [3]),
        (lambda state: state.step_index % 3 == 0, [0, 3, 6, 9]),
        (lambda state: state.steps_since_applied >= 4, [3, 7]),
        (lambda state: state.steps_since_applied >= 3, [2, 5, 8]),
        (lambda state: state.is_end_episode, [9]),
        (lambda state: state.data["a"] % 4 == 1, [1, 5, 9]),
        (lambda state: state.data.get("b", 0) > 0, []),
    ],
)
def test_a_condition_says_in_which_steps_there_are_items(condition, steps):
    """The same conditions and answers as in Reverb's own tests."""
    assert items_of([Pattern("t", NEWEST, when=[condition])], range(10)) == [("t", step) for step in steps]


def test_all_conditions_must_hold():
    even, late = (lambda state: state.step_index % 2 == 0), (lambda state: state.step_index > 5)
    assert items_of([Pattern("t", NEWEST, when=[even, late])], range(10)) == [("t", 6), ("t", 8)]


@pytest.mark.parametrize(
    ("index", "items"),
    [
        (-3, [0, 1, 2]),
        (slice(-2, None), [[0, 1], [1, 2], [2, 3], [3, 4]]),
        (slice(-5, None, 2), [[0, 2, 4]]),  # Reverb: 389 of 596 such items are wrong
        (slice(None, -4, -1), [[2, 1, 0], [3, 2, 1], [4, 3, 2]]),
    ],
)
def test_items_are_made_as_soon_as_there_are_enough_steps(index, items):
    assert items_of([Pattern("t", {"a": STEP["a"][index]})], range(5)) == [("t", item) for item in items]


@repeatable(60)
@given(st.lists(st.integers(-6, -1), min_size=1, max_size=4), st.integers(0, 3), st.integers(1, 20))
def test_a_pattern_holds_the_values_that_a_list_holds(offsets, gap, steps):
    values = list(range(steps))
    expected = [
        [values[: i + 1][offset] for offset in offsets]
        for i in range(steps)
        if i + 1 >= -min(offsets) and i % (gap + 1) == 0
    ]
    pattern = Pattern("t", {"a": STEP["a"][offsets]}, when=[lambda state: state.step_index % (gap + 1) == 0])
    assert [item for _, item in items_of([pattern], values)] == expected


@pytest.mark.parametrize("index", [0, 1, [], [-1, 0], *np.s_[:, :-1, -2:1, -2:0, 0:, -1:-3, ::-1, -1:0:-1]])
def test_a_pattern_counts_backwards_from_the_newest_step(index):
    with pytest.raises(IndexError, match="relative to the newest"):
        STEP["a"][index]


def test_an_unknown_column_is_refused_by_the_reference_and_by_the_writer():
    with pytest.raises(KeyError, match=r"'c'.*'a', 'b', 'td'"):
        STEP["c"]
    with pytest.raises(KeyError, match="'c'"):
        StructuredWriter(RecordingServer(COLUMNS), [Pattern("t", {"c": reference({"c": {}})["c"][-1]})])


@pytest.mark.parametrize("patterns", [[], [Pattern("t", {})]])
def test_a_writer_needs_patterns_with_parts(patterns):
    with pytest.raises(ValueError, match="at least one"):
        StructuredWriter(RecordingServer(COLUMNS), patterns)


def test_patterns_are_looked_at_in_order_and_all_items_of_a_step_travel_together():
    writer, server = writer_of(Pattern("two", NEWEST), Pattern("one", PAIR))
    for step in range(3):
        writer.append({"a": step})
    assert [table for table, _, _ in server.items] == ["two", "two", "one", "two", "one"]
    assert len(server.messages) == 3


def test_an_item_may_span_episodes_only_if_the_buffers_are_not_cleared():
    for clear_buffers, expected in [
        (True, [[0, 1], [1, 2], [10, 11]]),
        (False, [[0, 1], [1, 2], [2, 10], [10, 11]]),
    ]:
        items = items_of([Pattern("t", PAIR)], [0, 1, 2], [10, 11], clear_buffers=clear_buffers)
        assert items == [("t", pair) for pair in expected]


def test_an_episode_without_steps_makes_no_item():
    assert items_of([Pattern("t", NEWEST, when=AT_END)], [], [1], []) == [("t", 1)]


def test_a_partial_step_makes_an_item_as_soon_as_its_values_are_there_and_only_one():
    writer, server = writer_of(Pattern("t", NEWEST), Pattern("both", {**NEWEST, "b": STEP["b"][-1]}))
    writer.append({"b": 1}, partial_step=True)
    assert writer.step_is_open
    assert not server.items
    writer.append({"a": 5}, partial_step=True)
    assert [table for table, _, _ in server.items] == ["t", "both"]
    writer.append({"td": 0})
    assert not writer.step_is_open
    assert len(server.items) == 2


def test_steps_since_applied_grows_once_a_step_however_many_parts_it_has():
    seen = []

    def look(state):
        seen.append((state.step_index, state.steps_since_applied))
        return state.steps_since_applied >= 2

    writer, _ = writer_of(Pattern("t", NEWEST, when=[look]))
    for step in range(3):
        writer.append({"a": step}, partial_step=True)
        writer.append({"b": step})
    # in step 1 it makes its item, and is not asked again
    assert seen == [(0, 1), (0, 1), (1, 2), (2, 1), (2, 1)]


def test_steps_are_numbered_anew_in_each_episode_but_a_pattern_counts_on():
    seen = []

    def every_third(state):
        seen.append((state.step_index, state.steps_since_applied))
        return state.steps_since_applied >= 3

    items = items_of([Pattern("t", NEWEST, when=[every_third])], range(4), range(10, 14))
    assert items == [("t", 2), ("t", 11)]
    # the last step of each episode is looked at twice
    assert seen == [(0, 1), (1, 2), (2, 3), (3, 1), (3, 1), (0, 2), (1, 3), (2, 1), (3, 2), (3, 2)]


def test_a_step_counts_also_if_no_pattern_uses_its_columns():
    """Reverb drops such columns first, and does not look at a step of which nothing is left."""
    third = Pattern("t", NEWEST, when=[lambda state: state.steps_since_applied >= 3])
    assert items_of([third], [{"a": 0}, {"b": 1}, {"a": 2}, {"a": 3}]) == [("t", 2)]


def test_a_pattern_that_fails_costs_those_before_it_nothing_and_those_after_it_no_step():
    seen = []

    def look(state):
        seen.append(state.steps_since_applied)
        return False

    fails = Pattern("t", NEWEST, when=[lambda state: 1 / (state.step_index != 1) < 0])
    writer, server = writer_of(Pattern("first", NEWEST), fails, Pattern("t", NEWEST, when=[look]))
    writer.append({"a": 0})
    with pytest.raises(ZeroDivisionError):
        writer.append({"a": 1})
    writer.append({"a": 2})
    assert seen == [1, 3]
    assert made(server) == [("first", a) for a in range(3)]


def test_an_item_whose_priority_fails_is_lost_so_that_the_episode_can_end():
    writer, server = writer_of(Pattern("t", NEWEST, priority=lambda parts: 1 / int(parts["a"].numpy())))
    with pytest.raises(ZeroDivisionError):
        writer.append({"a": 0})
    writer.end_episode()
    writer.append({"a": 2})
    assert [priority for _, priority, _ in server.items] == [0.5]


def test_an_item_whose_condition_fails_is_lost_so_that_the_episode_can_end():
    writer, server = writer_of(Pattern("t", NEWEST, when=[lambda state: 1 / int(state.data["a"]) > 0]))
    with pytest.raises(ZeroDivisionError):
        writer.append({"a": 0})
    writer.end_episode()
    writer.append({"a": 2})
    assert [item["a"] for _, _, item in server.items] == [2]


def test_a_condition_that_failed_on_an_open_step_is_checked_again_when_the_step_is_complete():
    writer, server = writer_of(Pattern("t", NEWEST, when=[lambda state: state.data["b"] > 0]))
    with pytest.raises(KeyError):
        writer.append({"a": 1}, partial_step=True)
    writer.append({"b": 1})
    assert [item["a"] for _, _, item in server.items] == [1]


def test_the_end_of_an_episode_closes_an_open_step():
    writer, server = writer_of(Pattern("t", NEWEST, when=AT_END))
    writer.append({"a": 3}, partial_step=True)
    writer.end_episode()
    assert not writer.step_is_open
    assert server.items[0][2]["a"] == 3


def test_a_value_that_was_left_out_makes_no_item():
    steps = [{"a": 0}, {"b": 1}, {"a": 2}, {"a": 3}]
    assert items_of([Pattern("t", PAIR)], steps) == [("t", [2, 3])]
    assert items_of([Pattern("t", {"a": STEP["a"][-3::2]})], steps) == [("t", [0, 2])]


def test_conditions_see_the_newest_step_as_it_is_stored():
    seen = []

    def look(state):
        seen.append((dict(state.data), len(state.data), "b" in state.data))
        return False

    writer, _ = writer_of(Pattern("t", NEWEST, when=[look]))
    writer.append({"a": True}, partial_step=True)
    writer.append({"b": 2})
    assert seen == [({"a": 1}, 1, False), ({"a": 1, "b": 2}, 2, True)]
    assert type(seen[0][0]["a"]) is np.int64


def test_a_condition_can_not_change_what_is_stored():
    def meddle(state):
        state.data["x"][0] = 7
        return True

    pattern = Pattern("t", {"x": reference({"x": {}})["x"][-1]}, when=[meddle])
    writer = StructuredWriter(RecordingServer({"x": {"shape": 2}}), [pattern])
    with pytest.raises(ValueError, match="read-only"):
        writer.append({"x": [1, 2]})
    assert writer.history["x"][-1].numpy().tolist() == [1, 2]


@pytest.mark.parametrize(("max_weight", "priority"), [(0.9, 0.9 * 4 + 0.1 * 2), (1.0, 4.0), (0.0, 2.0)])
def test_the_priority_of_a_sequence_mixes_largest_and_mean_td_error(max_weight, priority):
    parts = {"errors": STEP["td"][-3:]}
    writer, server = writer_of(Pattern("t", parts, priority=td_error("errors", max_weight)))
    for td in (-4, 1, -1):
        writer.append({"td": td})
    assert [item[1] for item in server.items] == [pytest.approx(priority)]


def test_a_weight_beyond_1_is_refused():
    with pytest.raises(ValueError, match=r"max_weight must be in \[0, 1\]"):
        td_error("errors", 1.1)


def test_priorities_are_the_pattern_s():
    writer, server = writer_of(Pattern("t", NEWEST, priority=3.0), Pattern("t", NEWEST, priority=None))
    writer.append({"a": 0})
    assert [item[1] for item in server.items] == [3.0, None]


def test_items_that_timed_out_are_kept_and_made_once():
    at_end = [Pattern("end", NEWEST, when=AT_END)] * 2
    writer, server = writer_of(Pattern("t", NEWEST), Pattern("u", NEWEST), *at_end)
    with writer:
        server.room = 1
        with pytest.raises(TimeoutError):
            writer.append({"a": 0}, timeout=0)
        with pytest.raises(TimeoutError):
            writer.flush(timeout=0)
        with pytest.raises(RuntimeError, match="Call flush"):
            writer.append({"a": 1})  # nobody could say whether it is in
        with pytest.raises(TimeoutError):
            writer.end_episode(timeout=0)
        server.room = 2
        with pytest.raises(TimeoutError):
            writer.end_episode(timeout=0)  # now it is the item of the end that waits
        server.room = None
        writer.end_episode()
    assert made(server) == [("t", 0), ("u", 0), ("end", 0), ("end", 0)]
    assert not server.writers


def test_the_items_of_some_steps_travel_together():
    server = RecordingServer(COLUMNS)
    patterns = [Pattern("t", NEWEST), Pattern("u", PAIR), Pattern("end", NEWEST, when=AT_END)]
    with StructuredWriter(server, patterns, items_per_message=4) as writer:
        for step in range(4):
            writer.append({"a": step})
        writer.end_episode()
        writer.append({"a": 9})
    sent = [[(new.table, len(new.steps)) for new in message.items] for message in server.messages]
    # of step 0 one item, then two of each: five are there, and go; the items of a step are never parted
    assert [sum(count for _, count in message) for message in sent] == [5, 3, 1]
    assert [table for table, _, _ in server.items] == ["t", "t", "u", "t", "u", "t", "u", "end", "t"]
    assert server.items[-1][2]["a"] == 9


def test_the_end_of_an_episode_has_one_deadline(monkeypatch):
    """The clock advances by 4 s with each message."""
    clock, timeouts = [0.0], []
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class SlowServer(RecordingServer):
        def _insert(self, writer, message, timeout=None):
            timeouts.append(timeout)
            clock[0] += 4
            return super()._insert(writer, message, timeout)

    patterns = [Pattern("t", NEWEST), Pattern("end", NEWEST, when=AT_END)]
    for timeout, expected in [(10, [10, 6]), (5, [5, 1]), (3, [3, 0]), (0, [0, 0]), (None, [None, None])]:
        server = SlowServer(COLUMNS)
        writer = StructuredWriter(server, patterns)
        server.room = 0
        with pytest.raises(TimeoutError):
            writer.append({"a": 0})
        server.room = None
        timeouts.clear()
        writer.end_episode(timeout=timeout)
        assert timeouts == expected
