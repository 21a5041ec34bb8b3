"""Writers on a real server: what is sampled is what was named, and cells nobody names are free again."""

import gc
from unittest.mock import Mock

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from served import table, write

from replay_tutorial.tables import (
    CapacityError,
    Client,
    Closed,
    Pattern,
    Server,
    StructuredWriter,
    Table,
    TrajectoryWriter,
    UnknownWriter,
    reference,
)

COLUMNS = {
    "obs": {"shape": (2,), "dtype": np.float32},
    "action": {"dtype": np.int64},
    "done": {"shape": 1, "dtype": bool},
}
SHAPES = {"obs": (2,), "action": (), "done": (1,)}


class Program:
    """Writers beside lists of their steps; the queue holds 3 items, and is emptied when it is full."""

    def __init__(self, structure, keep, capacity, per_message):
        self.structure, self.keep, self.per_message = structure, keep, per_message
        self.server = Server([Table.queue("queue", 3)], COLUMNS, capacity)
        self.writers = [TrajectoryWriter(self.server, keep, per_message) for _ in range(2)]
        self.steps = [[], []]
        self.begin = [0, 0]  # of the episode
        self.is_open = [False, False]
        self.pending = [[], []]  # items in flight: priority, and values by part
        self.expected = []  # items that were sent
        self.count = 0
        self.sampled = 0

    def append(self, who, names, partial_step):
        if self.is_open[who]:
            names = [name for name in names if name not in self.steps[who][-1]]
        if not names and not self.is_open[who]:
            return
        values = {}
        for name in names:
            self.count += 1
            values[name] = {"obs": [self.count, -self.count], "action": self.count}.get(
                name, self.count % 2 == 0
            )
        self.writers[who].append(values, partial_step=partial_step)
        if not self.is_open[who]:
            self.steps[who].append({})
        self.steps[who][-1].update(values)
        self.is_open[who] = self.writers[who].step_is_open
        assert self.is_open[who] == partial_step
        assert self.writers[who].episode_steps == len(self.steps[who]) - self.begin[who] - partial_step

    def failing_append(self, who, names):
        with pytest.raises((TypeError, ValueError)):
            self.writers[who].append(dict.fromkeys(names, self.count) | {"done": "no number"})

    def item(self, who, places):
        writer, steps = self.writers[who], self.steps[who]
        trajectory, expected = {}, {}
        for number, (name, squeezed) in enumerate(self.structure):
            there = [i for i in range(max(0, len(steps) - self.keep), len(steps)) if name in steps[i]]
            if not there:
                return
            named = [there[int(place * len(there))] for place in places[number]]
            index = named[0] - len(steps) if squeezed else named
            trajectory[f"{name} {number}"] = writer.history[name][index]
            values = [np.array(steps[i][name], COLUMNS[name]["dtype"]).reshape(SHAPES[name]) for i in named]
            expected[f"{name} {number}"] = values[0] if squeezed else np.stack(values)
        self.count += 1
        self.pending[who].append((float(self.count), expected))
        is_sent = len(self.pending[who]) == self.per_message
        if is_sent:
            self.send(who)
        try:
            assert (writer.create_item("queue", self.count, trajectory, timeout=0) is not None) == is_sent
        except TimeoutError:
            self.until_sent(writer.flush)

    def send(self, who):
        """Expect the items in flight."""
        self.expected += self.pending[who]
        self.pending[who] = []

    def until_sent(self, call, *arguments):
        while True:
            try:
                return call(*arguments, timeout=0)
            except TimeoutError:
                self.sample_all()

    def end_episode(self, who, clear_buffers):
        self.send(who)
        self.until_sent(self.writers[who].end_episode, clear_buffers)
        self.is_open[who] = False
        if clear_buffers:
            self.steps[who] = []
        self.begin[who] = len(self.steps[who])

    def sample_all(self):
        while self.server.info()["queue"].size:
            sample = self.server.sample("queue", 3, partial=True)
            for item in sample:
                priority, expected = self.expected[self.sampled]
                assert item.info.priority == priority
                assert item.data.keys() == expected.keys()
                for name, values in expected.items():
                    assert item.data[name].dtype == values.dtype
                    np.testing.assert_array_equal(item.data[name], values)
                self.sampled += 1
            for name, lengths in (sample.lengths or {}).items():
                if name not in sample.squeezed:
                    assert not any(v[n:].any() for v, n in zip(sample.data[name], lengths, strict=True))


@repeatable(80)
@given(st.integers(0, 2**32 - 1), st.integers(0, 120), st.integers(1, 6), st.sampled_from([1, 3]))
def test_sampled_items_hold_exactly_the_values_that_were_named(seed, operations, keep, per_message):
    """The check that Reverb fails: 306 of 797 items of steps that are not neighbours."""
    rng, capacity = np.random.default_rng(seed), 60
    structure = [(rng.choice(list(COLUMNS)), rng.random() < 0.5) for _ in range(rng.integers(1, 4))]
    run = Program(structure, keep, capacity, per_message)
    for _ in range(operations):
        who = int(rng.integers(2))
        names = rng.permutation(list(COLUMNS)).tolist()
        match rng.choice(["append", "part", "fail", "item", "end"], p=[0.4, 0.15, 0.05, 0.35, 0.05]):
            case "append":
                run.append(who, names, partial_step=False)
            case "part":
                run.append(who, names[: rng.integers(3)], partial_step=rng.random() < 0.5)
            case "fail":
                run.failing_append(who, names[: rng.integers(3)])
            case "item":
                run.item(who, [rng.random(rng.integers(1, 5)).tolist() for _ in structure])
            case "end":
                run.end_episode(who, clear_buffers=rng.random() < 0.5)
    for who, writer in enumerate(run.writers):
        run.send(who)
        run.until_sent(writer.flush)
        writer.close()
    run.sample_all()
    assert run.sampled == len(run.expected)
    assert [run.server._cells.free_count(column) for column in range(3)] == [capacity] * 3


def test_a_stopped_server_acknowledges_nothing_that_did_not_happen():
    server = Server([Table.queue("q", 1)], COLUMNS, capacity=10)
    with TrajectoryWriter(server, 1) as writer:
        write(writer, {"action": 1}, "q")
        server.close()
        with pytest.raises(Closed):
            write(writer, {"action": 2}, "q")
        with pytest.raises(Closed):
            writer.flush()
        writer.close()
    assert server.info()["q"].inserts == 1


def test_a_client_makes_writers():
    client = Client(Server([table()], COLUMNS, capacity=10))
    with client.writer(num_keep_alive_refs=1) as writer:
        key = write(writer, {"action": 7})
    with client.structured_writer([Pattern("t", {"action": reference(COLUMNS)["action"][-1]})]) as writer:
        assert isinstance(writer, StructuredWriter)
        writer.append({"action": 8})
    assert client.items("t").data["action"].tolist() == [7, 8]
    assert client.items("t").info.keys[0] == key


@pytest.mark.parametrize("loads", [True, False])
def test_a_writer_begins_a_new_episode_after_a_load_or_when_it_was_closed_elsewhere(tmp_path, loads):
    server = Server([table()], COLUMNS, capacity=10)
    writers = [TrajectoryWriter(server, 2) for _ in range(2)]
    for writer in writers:
        write(writer, {"action": 1})
    if loads:
        server.save(tmp_path / "server.zip")
        server.load(tmp_path / "server.zip")
    else:
        for writer in writers:
            server._close_writer(writer._writer)
    with pytest.raises(UnknownWriter):
        writers[0].create_item("t", 1.0, {"action": writers[0].history["action"][-1]})
    writers[1].end_episode()  # it is at an end anyway, and hears nothing of it
    for writer in writers:
        assert writer.episode_steps == 0
        write(writer, {"action": 2})
    assert sorted(server.items("t").data["action"].tolist()) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("table_name", "priority", "index", "match"),
    [
        ("t", np.nan, -1, "not nan"),
        ("t", 1.0, slice(-1, None), "parts"),
        ("other", 1.0, -1, "no table 'other'"),
        ("t", 1.0, 0, "'action' is full: of its 2 cells, 2 are"),
    ],
)
def test_a_refused_message_of_several_items_changes_nothing_and_stops_nobody(
    table_name, priority, index, match
):
    server = Server([table()], COLUMNS, capacity=2)
    writer = TrajectoryWriter(server, 9, items_per_message=3)
    for action in range(2):
        writer.append({"action": action})
    write(writer, {"action": 2})
    action = writer.history["action"]
    writer.create_item(table_name, priority, {"action": action[index]})
    with pytest.raises((ValueError, KeyError, CapacityError), match=match) as refused:
        writer.create_item("t", 1.0, {"action": action[1]})
    assert "3 items of the message" in refused.value.__notes__[0]
    assert server.info()["t"].inserts == 0
    writer.flush()
    for _ in range(3):
        writer.create_item("t", 1.0, {"action": action[-1]})
    assert server.items("t").data["action"].tolist() == [2] * 3


def test_an_item_that_was_accepted_is_not_lost_for_want_of_memory(monkeypatch):
    server = Server([table()], COLUMNS, capacity=9)
    writer = TrajectoryWriter(server, 9)
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(server._tables["t"], "insert", Mock(side_effect=MemoryError))
        write(writer, {"action": 0})
    with pytest.raises(RuntimeError, match="flush"):
        write(writer, {"action": 1})
    writer.flush()
    write(writer, {"action": 2})
    assert server.items("t").data["action"].tolist() == [0, 2]


def test_a_writer_that_vanishes_while_the_lock_is_held_stops_nobody():
    """The next insert frees its cell, before it needs one."""
    server = Server([table()], COLUMNS, capacity=1)
    lost = TrajectoryWriter(server, 9)
    write(lost, {"action": 1})
    server.reset("t")
    with server._lock:
        del lost
        gc.collect()
        assert server._cells.allocator.references.sum() == 1, "nothing happens in a finalizer"
    writer = TrajectoryWriter(server, 9)
    write(writer, {"action": 2})
    server.reset("t")
    writer.close()
    assert not server._cells.allocator.references.any()


def test_lists_take_as_much_room_as_the_items_that_are_there():
    """Those whose items have gone could otherwise fill the memory."""
    server = Server([table(max_size=10)], COLUMNS, capacity=400)
    items = server._tables["t"].items
    with TrajectoryWriter(server, 300) as writer:
        for action in range(300):
            length = 4 if action < 100 else 1 + action % 40
            write(writer, {"action": action}, length=min(length, action + 1))
            assert len(items.cells) <= (3 * 11 * 4 if action < 100 else 4 * 11 * 40)
    assert sorted(server.items("t").lengths["action"].tolist()) == list(range(11, 21))
    server.reset("t")
    assert not len(items.cells)
