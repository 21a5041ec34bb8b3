"""Writers beside a server of dicts: what they send and when, and what they refuse."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from recording_server import RecordingServer

from replay_tutorial.tables.writing.writer import TrajectoryWriter

COLUMNS = {
    "obs": {"shape": (2,), "dtype": np.float32},
    "action": {"dtype": np.int64},
    "done": {"shape": 1, "dtype": bool},
}


@pytest.fixture
def server():
    return RecordingServer(COLUMNS)


@pytest.fixture
def writer(server):
    return TrajectoryWriter(server, num_keep_alive_refs=4)


def step(number):
    return {"obs": np.array([number, number / 2], np.float32), "action": number, "done": number % 3 == 0}


def append_steps(writer, *numbers):
    for number in numbers:
        writer.append(step(number))


def newest(writer, *names):
    return {name: writer.history[name][-1] for name in names or COLUMNS}


# --- append ---


def test_a_value_is_copied_when_it_is_appended(writer, server):
    obs = np.ones(2, np.float32)
    writer.append({"obs": obs})
    obs[:] = 7
    writer.create_item("table", 1, newest(writer, "obs"))
    assert server.items[0][2]["obs"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        ({"obs": [1, 2], "action": 1.5}, ValueError, "'action' has the dtype int64, which can't hold 1.5"),
        ({"action": 3, "obs": [1, 2, 3]}, ValueError, "'obs' has shape"),
        ({"action": 3, "obs": [[1, 2], [3, 4]]}, ValueError, "not a batch of 2|same number"),
        ({"obs": [[1, 2], [3, 4]]}, ValueError, "not a batch of 2"),
        ({"obs": [1, 2], "action": "three"}, TypeError, "'action' must be numeric"),
        ({"obs": [1, 2], "action": None}, TypeError, "'action' must be numeric"),
        ({"obs": [1, 2], "reward": 1}, KeyError, "no column 'reward'"),
        ({"obs": [1, 2], "action": {"x": 1}}, TypeError, "'action' must be numeric"),
        ({}, ValueError, "at least one column"),
    ],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_an_append_that_fails_changes_nothing(writer, server, data, error, match, is_open):
    append_steps(writer, 0)
    if is_open:
        writer.append({"done": True}, partial_step=True)
        if not data:
            return
    before = (writer.history.end, writer.episode_steps, writer.step_is_open)
    with pytest.raises(error, match=match):
        writer.append(data)
    assert (writer.history.end, writer.episode_steps, writer.step_is_open) == before
    writer.append({"obs": [1, 1], "action": 1})
    writer.create_item("table", 1, {"obs": writer.history["obs"][:], "action": writer.history["action"][:]})
    assert server.items[0][2]["action"].tolist() == [0, 1]
    assert server.items[0][2]["obs"][1].tolist() == [1, 1]


def test_nested_values_go_to_columns_with_joined_names():
    server = RecordingServer({"obs/image": {"shape": 2}, "obs/goal/0": {}, "action": {"shape": 2}})
    writer = TrajectoryWriter(server, 1)
    for number in range(2):
        writer.append({"obs": {"image": [1, 2], "goal": (number,)}, "action": [3, 4]})
    writer.create_item("table", 1, newest(writer, "obs/goal/0", "action"))
    assert server.items[0][2]["obs/goal/0"] == 1
    assert server.items[0][2]["action"].tolist() == [3, 4]
    with pytest.raises(KeyError, match="passed twice"):
        writer.append({"obs": {"image": [1, 2]}, "obs/image": [1, 2]})


def test_a_column_given_twice_in_a_step_is_named_and_changes_nothing(writer):
    writer.append({"obs": [1, 1]}, partial_step=True)
    with pytest.raises(ValueError, match="open step already has a value in 'obs'"):
        writer.append({"action": 5, "obs": [2, 2]})
    writer.append({"action": 1})
    assert writer.history["obs"][-1].numpy().tolist() == [1, 1]
    assert writer.history["action"][-1].numpy() == 1


# --- items ---


def test_only_steps_that_are_named_are_sent_as_runs_also_around_the_ring(server):
    writer = TrajectoryWriter(server, 6)
    append_steps(writer, *range(9))
    writer.create_item("table", 1, {"obs": writer.history["obs"][[-1, -4, -3]]})
    runs = [(run.column, run.first_step, run.values[:, 0].tolist()) for run in server.messages[0].slices]
    assert runs == [("obs", 5, [5, 6]), ("obs", 8, [8])]
    assert server.items[0][2]["obs"][:, 0].tolist() == [8, 5, 6]


def test_the_server_may_forget_what_the_writer_can_not_name_any_more(writer, server):
    for number in range(10):
        append_steps(writer, number)
        writer.create_item("table", 1, newest(writer))
        assert server.messages[-1].keep_from == max(0, number - 3)
    (state,) = server.writers
    assert {step for _, step in state.values} == {6, 7, 8, 9}
    writer.end_episode()
    assert not server.writers
    append_steps(writer, 10)
    writer.create_item("table", 1, newest(writer))
    writer.end_episode(clear_buffers=False)
    assert len(server.writers) == 1


@pytest.mark.parametrize(
    ("trajectory", "error", "match"),
    [({}, ValueError, "at least one part"), ({"obs": np.zeros(2)}, TypeError, "'obs' must consist of cells")],
)
def test_what_is_no_trajectory_is_refused(writer, trajectory, error, match):
    append_steps(writer, 0)
    with pytest.raises(error, match=match):
        writer.create_item("table", 1, trajectory)


@pytest.mark.parametrize("ends", [False, True])
def test_cells_that_have_expired_or_are_of_an_earlier_episode_are_refused(writer, ends):
    append_steps(writer, 0)
    old = newest(writer)
    if ends:
        writer.end_episode()
    append_steps(writer, *range(1, 2 if ends else 5))
    with pytest.raises(IndexError, match="reaches 1 steps before" if ends else "no longer holds step 0"):
        writer.create_item("table", 1, old)


def test_cells_of_another_writer_are_refused(writer, server):
    other = TrajectoryWriter(server, 1)
    append_steps(other, 0)
    append_steps(writer, 1)
    with pytest.raises(ValueError, match="another writer"):
        writer.create_item("table", 1, newest(other))


# --- items in flight ---


def test_items_in_flight_travel_in_one_message_with_each_value_in_one_run(server):
    writer = TrajectoryWriter(server, 2, items_per_message=3)
    keys = []
    for number in range(4):
        append_steps(writer, number)
        if number:
            keys.append(writer.create_item("t", number, {"action": writer.history["action"][-2:]}))
    assert keys == [None, None, 3]
    (message,) = server.messages
    ((column, first_step, values),) = message.slices
    assert (column, first_step, values.tolist()) == ("action", 0, [0, 1, 2, 3])
    ((table, priorities, layout, steps),) = message.items
    assert (table, priorities.tolist(), len(layout)) == ("t", [1, 2, 3], 1)
    assert steps.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_items_of_several_kinds_keep_their_order(server):
    writer = TrajectoryWriter(server, 1, items_per_message=6)
    append_steps(writer, 5)
    kinds = [
        ("one", 1, "action"),
        ("one", None, "action"),
        ("two", 2, "action"),
        ("two", 3, "obs"),
        ("one", 4, "action"),
    ]
    for table, priority, name in kinds:
        assert writer.create_item(table, priority, newest(writer, name)) is None
    kinds.append(("one", 5, "action"))
    assert writer.create_item("one", 5, newest(writer, "action")) is not None
    assert len(server.messages) == 1 and len(server.messages[0].items) == 5
    assert [(table, priority, *parts) for table, priority, parts in server.items] == kinds


@pytest.mark.parametrize("is_left", [False, True])
def test_what_is_in_flight_is_lost_after_an_error_or_a_close(server, is_left):
    writer = TrajectoryWriter(server, 1, items_per_message=20)
    append_steps(writer, 0)
    writer.create_item("t", 1, newest(writer))
    writer.__exit__(KeyError, KeyError(), None) if is_left else writer.close()
    assert not server.messages
    with pytest.raises(ValueError, match="closed"):
        append_steps(writer, 1)


def test_a_message_in_flight_that_times_out_goes_on_once(server):
    writer = TrajectoryWriter(server, 1, items_per_message=3)
    for number in range(2):
        append_steps(writer, number)
        writer.create_item("t", 1, newest(writer, "action"))
    append_steps(writer, 2)
    with pytest.raises(ValueError, match="timeout must be"):
        writer.create_item("t", 1, newest(writer, "action"), timeout=-1)
    server.room = 2
    with pytest.raises(TimeoutError):
        writer.create_item("t", 1, newest(writer, "action"), timeout=0)
    append_steps(writer, 3)
    with pytest.raises(RuntimeError, match="Call flush"):
        writer.create_item("t", 1, newest(writer, "action"))
    server.room = None
    writer.flush()
    writer.create_item("t", 1, newest(writer, "action"))
    writer.end_episode()
    assert [parts["action"] for _, _, parts in server.items] == [0, 1, 2, 3]


def test_a_priority_that_is_no_number_is_refused_before_it_is_in_flight(server):
    writer = TrajectoryWriter(server, 1, items_per_message=2)
    append_steps(writer, 0)
    for priority in ("1.5", [1.0], 1j):
        with pytest.raises(TypeError):
            writer.create_item("t", priority, newest(writer, "action"))
    writer.flush()
    assert not server.messages


# --- timeouts and interruptions ---


def test_an_item_that_timed_out_is_kept_and_inserted_once(writer, server):
    append_steps(writer, 0)
    server.room = 0
    item = partial(writer.create_item, "table", 1, newest(writer))
    for wait in (item, writer.flush, writer.end_episode):
        with pytest.raises(TimeoutError):
            wait(timeout=0)
    assert writer.episode_steps == 1  # nothing has been reset
    for call in (writer.flush, writer.end_episode):
        with pytest.raises(ValueError, match="timeout must be at least 0"):
            call(timeout=-0.01)
    append_steps(writer, *range(1, 9))  # the message holds copies
    server.room = None
    assert (writer.flush(), writer.flush()) == ([1], [])
    writer.create_item("table", 1, newest(writer))
    assert [parts["action"].item() for _, _, parts in server.items] == [0, 8]


def test_a_message_that_is_refused_when_it_is_sent_again_is_dropped(writer, server, monkeypatch):
    append_steps(writer, 0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(server, "_insert", Mock(side_effect=KeyboardInterrupt))
        writer.create_item("table", -1, newest(writer))
    with pytest.raises(ValueError, match="priority"):
        writer.flush()
    writer.create_item("table", 1, newest(writer))  # with its values, which the server has never had
    assert len(server.items) == 1


# --- episodes, and the end ---


def test_with_waits_for_what_timed_out_and_closes(server):
    with TrajectoryWriter(server, 1) as writer:
        append_steps(writer, 0)
        server.room = 0
        with pytest.raises(TimeoutError):
            writer.create_item("table", 1, newest(writer), timeout=0)
        server.room = None
    assert len(server.items) == 1
    assert not server.writers
    item = partial(writer.create_item, "table", 1, {"x": writer.history["action"][-1]})
    for call in (partial(writer.append, step(1)), item, writer.end_episode):
        with pytest.raises(ValueError, match="closed"):
            call()
    writer.close()


@pytest.mark.parametrize("numbers", [(0,), (-1,), (1, 0)])
def test_a_writer_holds_at_least_one_step_and_sends_at_least_one_item(server, numbers):
    with pytest.raises(ValueError, match=f"at least 1, not {numbers[-1]}"):
        TrajectoryWriter(server, *numbers)
