"""The server with one caller: what is refused, and small things worked by hand."""

import math
from functools import partial
from typing import Any
from unittest.mock import Mock, call

import numpy as np
import pytest
from served import Sent, hook_of, send, table, write

from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.tables import (
    Client,
    Fifo,
    Hook,
    InsertOnSample,
    MaxHeap,
    MinHeap,
    MinSize,
    Prioritized,
    Queue,
    Server,
    Table,
    Uniform,
    importance_weights,
)
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, Part
from replay_tutorial.tables.core.table_state import TableState

COLUMNS = {"obs": {"shape": 2}, "reward": {}}
STEP = {"obs": [1.0, 2.0], "reward": 0.5}
EVENTS = ["on_insert", "on_sample", "on_update", "on_delete", "on_reset"]


def client_of(*tables: Table, capacity: int = 50) -> Client:
    return Client(Server(tables, COLUMNS, capacity, seed=0))


def state(server: Server) -> Any:
    """All that a refused call must leave as it is."""
    looks = {name: server.items(name) for name in server.info()}
    return (
        {name: (look.info.keys.tolist(), look.info.priorities.tolist()) for name, look in looks.items()},
        server.info(),
        server._rng.bit_generator.state,
        server._cells.allocator.references.tolist(),
        [server._cells.free_count(c) for c in range(2)],
    )


@pytest.mark.parametrize(
    "options, error",
    [
        ({"name": ""}, ValueError),
        ({"name": 3}, TypeError),
        ({"max_size": 0}, ValueError),
        ({"max_size": 2.5}, TypeError),
        ({"max_size": True}, TypeError),
        ({"max_times_sampled": -1}, ValueError),
        ({"rate_limiter": MinSize(10)}, ValueError),
        ({"rate_limiter": 3}, TypeError),
        ({"sampler": "uniform"}, TypeError),
        ({"remover": None}, TypeError),
    ],
)
def test_a_table_that_can_not_work_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        table(**options)


def test_a_server_that_can_not_work_is_refused() -> None:
    for tables, capacity in [([], 5), ([table(), table()], 5), ([table()], 0), ([table()], 2**31)]:
        with pytest.raises(ValueError):
            Server(tables, COLUMNS, capacity)
    with pytest.raises(ValueError, match="patience must be at least 0 seconds, not -1"):
        Server([table()], COLUMNS, 5, patience=-1)
    for target in ("t", "?"):
        with pytest.raises(ValueError, match="target"):
            Server([table(hooks=[InsertOnSample(target)])], COLUMNS, 5)


def test_a_column_is_given_once() -> None:
    client = client_of(table())
    for insert in (client.insert, client.insert_batch):
        with pytest.raises(KeyError, match="passed twice"):
            insert({"new": {"x": 1.0}, "new/x": 1.0}, {"t": 1.0})


def test_a_table_can_not_be_changed_under_its_server() -> None:
    config = table(max_size=3)
    with pytest.raises(AttributeError, match="cannot assign to field 'max_size'"):
        config.max_size = 10


def test_a_tuple_is_a_value_of_its_column() -> None:
    client = client_of(table())
    client.insert({"obs": (1.0, 2.0), "reward": 3.0}, {"t": 1.0})
    client.insert_batch({"obs": ([4.0, 5.0],), "reward": (6.0,)}, {"t": None})
    assert client.items("t").data["obs"].tolist() == [[1.0, 2.0], [4.0, 5.0]]
    assert client.items("t").data["reward"].tolist() == [3.0, 6.0]


@pytest.mark.parametrize(
    "priority", [math.nan, math.inf, -math.inf, -1.0, 1e300, "high", None.__class__, [1.0], True]
)
@pytest.mark.parametrize("sampler", [Prioritized(1.1), MinHeap()])
def test_a_priority_that_a_selector_can_not_take_changes_nothing(priority: Any, sampler: Any) -> None:
    """Reverb: -1 kills the table's worker, NaN is refused and stored, infinity is stored."""
    client = client_of(table(sampler=sampler), table("u"))
    key = client.insert(STEP, {"t": 1.0, "u": 1.0})["t"]
    before = state(client.server)
    if priority is True or (isinstance(sampler, MinHeap) and priority in (-1.0, 1e300)):
        client.insert(STEP, {"t": priority})
        return
    with pytest.raises((ValueError, TypeError)):
        client.insert(STEP, {"u": 1.0, "t": priority})
    with pytest.raises((ValueError, TypeError)):
        client.mutate_priorities("t", {key: priority}, [key])
    assert repr(state(client.server)) == repr(before)
    client.sample("t", 1, timeout=0)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda c: c.insert({}, {"t": 1.0}), ValueError),
        (lambda c: c.insert(STEP, {}), ValueError),
        (lambda c: c.insert(STEP, {"?": 1.0}), KeyError),
        (lambda c: c.insert({"?": 1.0}, {"t": 1.0}), KeyError),
        (lambda c: c.insert({"obs": [1.0, 2.0], "reward": "x"}, {"t": 1.0}), TypeError),
        (lambda c: c.insert({"obs": [1.0, 2.0, 3.0]}, {"t": 1.0}), ValueError),
        (lambda c: c.insert({"obs": [[1.0, 2.0]] * 2, "reward": [1.0, 2.0]}, {"t": 1.0}), ValueError),
        (lambda c: c.insert_batch({"obs": [[1.0, 2.0]], "reward": [1.0, 2.0]}, {"t": None}), ValueError),
        (lambda c: c.insert_batch({"reward": []}, {"t": None}), ValueError),
        (lambda c: c.insert_batch({"reward": [1.0, 2.0]}, {"t": [1.0]}), ValueError),
        (lambda c: c.insert_batch({"reward": [1.0]}, {"t": 1.0}), ValueError),
        (lambda c: c.insert(STEP, {3: 1.0}), KeyError),
        (lambda c: c.insert({"reward": 1.0}, {"t": 1.0}), ValueError),  # other parts than the items there
        (lambda c: c.sample("t", 0), ValueError),
        (lambda c: c.sample("t", 1.5), TypeError),
        (lambda c: c.sample("?", 1), KeyError),
        (lambda c: c.mutate_priorities("?", {0: 1.0}), KeyError),
        (lambda c: c.mutate_priorities("t", {0.5: 1.0}), TypeError),
        (lambda c: c.mutate_priorities("t", ([0, 1], [1.0])), ValueError),
        (lambda c: c.mutate_priorities("t", [(0, 5.0), (1, 7.0), (2, 9.0)]), ValueError),
        (lambda c: c.mutate_priorities("t", deletes=["a"]), TypeError),
        (lambda c: c.mutate_priorities("t", deletes=[[1]]), ValueError),
        (lambda c: c.reset("?"), KeyError),
        (lambda c: c.items("?"), KeyError),
        (lambda c: c.replace_limiter("?", MinSize(1)), KeyError),
        (lambda c: c.replace_limiter("t", 5), TypeError),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(call: Any, error: type[Exception]) -> None:
    client = client_of(table())
    client.insert(STEP, {"t": 1.0})
    before = state(client.server)
    with pytest.raises(error):
        call(client)
    assert repr(state(client.server)) == repr(before)


def test_no_priority_stands_for_the_highest_seen() -> None:
    client = client_of(table(remover=MaxHeap()))
    first = client.insert(STEP, {"t": None})["t"]
    client.mutate_priorities("t", {first: -7.0})
    client.insert(STEP, {"t": None})
    client.insert(STEP, {"t": 3.0})
    client.insert(STEP, {"t": None})
    assert client.items("t").info.priorities.tolist() == [-7.0, 1.0, 3.0, 3.0]
    client.reset("t")
    client.insert(STEP, {"t": -2.0})
    client.insert(STEP, {"t": None})
    assert client.items("t").info.priorities.tolist() == [-2.0, -2.0]


def test_weights_are_those_of_the_prioritized_buffer() -> None:
    priorities = np.random.default_rng(0).random(200) + 0.01
    columns = {"x": {"dtype": int}}
    client = Client(Server([table(sampler=Prioritized(0.6), max_size=200)], columns, 200))
    client.insert_batch({"x": np.arange(200)}, {"t": priorities})
    buffer = PrioritizedReplayBuffer(200, columns, alpha=0.6, eps=0.0, seed=0)
    buffer.add(x=np.arange(200), priorities=priorities)
    batch = buffer.sample(2_000, beta=0.4)
    theirs = dict(zip(batch["x"].tolist(), batch["weights"].tolist(), strict=True))
    sample = client.sample("t", 500)
    weights = importance_weights(sample.info, 0.4)
    assert weights.dtype == np.float32
    ours = dict(zip(sample.data["x"].tolist(), weights.tolist(), strict=True))
    both = sorted(ours.keys() & theirs.keys())
    assert len(both) > 100
    assert [ours[x] for x in both] == pytest.approx([theirs[x] for x in both], rel=3e-7)
    assert importance_weights(sample.info, 0.4, "batch").max() == 1.0
    rare = sample.info._replace(least_probabilities=np.full_like(sample.info.probabilities, 1e-60))
    with pytest.raises(ValueError, match='Pass normalize="batch"'):
        importance_weights(rare, 0.4)
    for beta, normalize in [(1.5, "store"), (0.5, "table")]:
        with pytest.raises(ValueError):
            importance_weights(sample.info, beta, normalize)


def test_hooks_hear_of_everything_in_order() -> None:
    heard: list[tuple[Any, ...]] = []

    def listen(event: str, tables: Any, table: str, *keys: int) -> None:
        assert table == "t"
        sampled = [tables[table].times_sampled(key) for key in keys if event == "on_sample"]
        heard.append((event, *[(key, tables[table].item(key).priority) for key in keys], *sampled))

    hook = hook_of(**{event: partial(listen, event) for event in EVENTS})
    client = client_of(table(max_size=1, max_times_sampled=2, hooks=[hook]))
    a, b = (client.insert(STEP, {"t": p})["t"] for p in (1.0, 2.0))
    client.mutate_priorities("t", {a: 5.0, b: 6.0})
    client.sample("t", 5, partial=True)
    client.reset("t")
    assert heard == [
        ("on_insert", (a, 1.0)),
        ("on_insert", (b, 2.0)),
        ("on_delete", (a, 1.0)),
        ("on_update", (b, 6.0)),
        ("on_sample", (b, 6.0), 1),
        ("on_sample", (b, 6.0), 2),
        ("on_delete", (b, 6.0)),
        ("on_reset",),
    ]


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_that_raises_is_logged_and_leaves_whole_tables(
    event: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = hook_of(**{event: None})  # can't be called
    client = client_of(table(max_size=2, max_times_sampled=1, hooks=[hook]))
    keys = [client.insert(STEP, {"t": 1.0})["t"] for _ in range(4)]
    client.mutate_priorities("t", {keys[3]: 2.0}, [keys[2]])
    assert client.items("t").info.keys.tolist() == keys[3:]
    assert client.sample("t", 5, partial=True).info.keys.tolist() == keys[3:]
    info = client.info()["t"]
    assert (info.size, info.inserts, info.deletes, info.samples) == (0, 4, 4, 1)
    assert client.server._cells.free_count(0) == 50
    client.reset("t")
    assert "failed in " + event in caplog.text and "object is not callable" in caplog.text


@pytest.mark.parametrize("options", [{}, {"max_times_sampled": 2 * 10**14}, {"hooks": [Hook()]}])
def test_a_batch_that_is_too_big_for_the_memory_is_not_counted(options: dict[str, Any]) -> None:
    client = client_of(table(**options))
    client.insert({"reward": 1.0}, {"t": None})
    with pytest.raises(MemoryError):
        client.sample("t", 10**14)
    info = client.info()["t"]
    assert (info.samples, info.unique_samples) == (0, 0)
    assert client.sample("t", 2).data["reward"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("ends", [[1, 1, 1], [3, 1, 2]])
def test_a_queue_keeps_the_items_of_a_batch_that_does_not_fit_into_memory(
    ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(Table.queue("q", 9))
    with client.writer(5) as writer:
        for reward in range(4):
            writer.append({"reward": reward})
        for end in ends:
            writer.create_item("q", 1.0, {"reward": writer.history["reward"][:end]})
    before = state(client.server)

    def out_of_memory(shape: Any, dtype: Any = float) -> Any:
        if dtype is np.uint8:
            raise MemoryError
        return np.zeros(shape, dtype)

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(np, "empty", out_of_memory)
        client.sample("q", 3)
    assert repr(state(client.server)) == repr(before)
    assert [item.data["reward"].tolist() for item in client.sample("q", 3)] == [
        list(range(end)) for end in ends
    ]


def test_a_long_item_that_is_gone_needs_no_memory() -> None:
    client = client_of(table(max_size=2, max_times_sampled=2 * 10**14))
    with client.writer(1) as writer:
        writer.append({"reward": 5.0})
        for length in (40_000, 1, 1):
            writer.create_item("t", 1.0, {"reward": writer.history["reward"][[0] * length]})
    with pytest.raises(MemoryError):  # for 1.6e19 bytes, NumPy would raise a ValueError
        client.sample("t", 10**14)
    rooms = []

    def limited(shape: Any, dtype: Any = float) -> Any:
        rooms.append(shape)
        if np.prod(shape) > 10_000:
            raise MemoryError
        return np.zeros(shape, dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", limited)
        assert client.sample("t", 1000).data["reward"].shape == (1000, 1)
    assert rooms[:2] == [(40_000_000, 4), (1000, 4)]


def test_a_copy_that_fails_leaves_no_item_half_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(table(max_times_sampled=1))
    client.insert_batch({"reward": [1.0, 2.0, 3.0]}, {"t": None})

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("replay_tutorial.tables.core.table_state.gather_cells", Mock(side_effect=MemoryError))
        client.sample("t", 2)
    assert client.info()["t"].size == len(client.items("t").info.keys) == 1
    assert client.server._cells.free_count(1) == 49
    client.insert_batch({"reward": [4.0] * 9}, {"t": None})
    assert client.info()["t"].size == 9


def test_a_fault_of_ours_is_not_hidden_by_a_short_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(table())
    client.insert(STEP, {"t": None})
    fails_the_second_time = Mock(side_effect=[client.sample("t", 1), RuntimeError("a fault of ours")])
    monkeypatch.setattr(TableState, "sample", fails_the_second_time)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        client.sample("t", 3)
    assert fails_the_second_time.call_args_list == [call(3), call(2)]


def test_an_item_is_copied_when_it_is_sampled_for_the_first_time() -> None:
    hook = InsertOnSample("seen")
    client = client_of(table(hooks=[hook]), table("seen", sampler=Fifo(), max_size=2, rate_limiter=Queue(2)))
    for reward in range(3):
        client.insert({"reward": reward}, {"t": 1.0 + reward})
    drawn = client.sample("t", 20, partial=True)
    assert hook.copied == 2 and hook.dropped == 1
    copies = client.items("seen")
    order = list(dict.fromkeys(drawn.data["reward"].tolist()))
    assert copies.data["reward"].tolist() == order[:2]
    assert copies.info.priorities.tolist() == [1.0 + reward for reward in order[:2]]
    assert client.server._cells.free_count(1) == 47, "a copy shares the steps"


@pytest.mark.parametrize("target", [{"signature": {"obs": "one"}}, {"sampler": Prioritized(1.0)}])
def test_a_copy_whose_parts_or_priority_do_not_fit_is_dropped(target: dict[str, Any]) -> None:
    hook = InsertOnSample("seen")
    client = client_of(table(sampler=MinHeap(), hooks=[hook]), table("seen", **target))
    client.insert({"reward": 1.0}, {"t": -1.0})
    assert client.sample("t", 1).data["reward"].tolist() == [1.0]
    assert (hook.copied, hook.dropped, client.info()["seen"].size) == (0, 1, 0)


@pytest.mark.parametrize("priority", [2, np.float32(2), np.int64(2), 2.0])
def test_a_hook_may_insert_a_copy_with_a_priority_of_any_number_type(priority: Any) -> None:
    def copy(tables: Any, table: str, key: int) -> None:
        tables["seen"].try_insert(tables[table].item(key)._replace(priority=priority))

    client = client_of(table(hooks=[hook_of(on_sample=copy)]), table("seen"))
    client.insert({"reward": 1.0}, {"t": 1.0})
    client.sample("t", 1)
    assert client.items("seen").info.priorities.tolist() == [2.0]


def test_batches_equal_single_samples() -> None:
    for sampler in (Uniform(), Prioritized(0.5), MinHeap(), Fifo()):
        one, many = (client_of(table(sampler=sampler)) for _ in range(2))
        for client in (one, many):
            client.insert_batch({"reward": range(5)}, {"t": [1.0, 2.0, 3.0, 4.0, 0.0]})
        singles = [one.sample("t", 1).info for _ in range(20)]
        np.testing.assert_array_equal(many.sample("t", 20).info, np.concatenate(singles, axis=1))


def nbytes(thing: Any) -> int:
    """Bytes of all arrays of an object, and of the objects that it has for itself."""
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, tuple | list):
        return sum(map(nbytes, thing))
    if isinstance(thing, dict):
        return sum(map(nbytes, thing.values()))
    own = vars(thing) if hasattr(thing, "__dict__") else {}
    return sum(nbytes(value) for name, value in own.items() if name != "leaves")  # a view


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized(0.6), MaxHeap()])
def test_an_item_takes_at_most_100_bytes_beside_its_steps(sampler: Any) -> None:
    count = 8**4 - 1  # with the newcomer's slot, a sum tree without padding
    server = Server([table(sampler=sampler, max_size=count)], COLUMNS, 2)
    layout = (Part("obs", "obs", 2), Part("reward", "reward", 2))
    values = np.zeros((2, 2), np.float32)
    runs = [ColumnSlice("obs", 0, values), ColumnSlice("reward", 0, values[0])]
    steps = np.array([[0, 1, 0, 1]] * count)
    send(server, Sent(1, 0, runs, [NewItems("t", None, layout, steps)], 2))
    contents = server._tables["t"]
    assert nbytes([contents.items, contents.sampler, contents.remover]) / count <= 100


class TestSignatures:
    """Which parts items must have: those declared, or else those of the first item, until `reset`."""

    def test_a_signature_settles_parts_and_lengths_before_the_first_item(self) -> None:
        client = client_of(table(signature={"pair": ("obs", 2), "reward": "one", "tail": ("reward", "any")}))
        before = state(client.server)
        with client.writer(5) as writer:
            for _ in range(5):
                writer.append(STEP)
            obs, reward = writer.history["obs"], writer.history["reward"]
            good = {"pair": obs[-2:], "reward": reward[-1], "tail": reward[-3:]}
            bad: list[dict[str, Any]] = [
                {**good, "pair": obs[-3:]},
                {**good, "reward": reward[-1:]},
                {"pairs" if name == "pair" else name: part for name, part in good.items()},
                {**good, "pair": reward[-2:]},
                {"pair": good["pair"]},
            ]
            match = r"signature of the table 't' is \{'pair': \('obs', 2\), "
            for trajectory in bad:
                with pytest.raises(ValueError, match=match):
                    writer.create_item("t", 1.0, trajectory)
            assert state(client.server) == before
            for tail in (reward[-3:], reward[-1:]):
                writer.create_item("t", 1.0, {**good, "tail": tail})
            client.reset("t")
            with pytest.raises(ValueError, match="signature"):
                writer.create_item("t", 1.0, bad[0])

    def test_a_column_of_a_signature_must_be_there(self) -> None:
        with pytest.raises(KeyError, match=r"column 'action'; the columns are \['obs', 'reward'\]"):
            client_of(table(signature={"action": "one"}))

    @pytest.mark.parametrize(
        ("signature", "match"),
        [
            ("obs", "dict such as"),
            ({}, "at least one part"),
            ({3: ("obs", 1)}, "must be a string, not 3"),
            ({"x": ("obs",)}, "part 'x' with the length"),
            ({"x": (1, 2)}, "part 'x' with the length"),
            ({"obs": 0}, "at least 1"),
            ({"obs": True}, "at least 1"),
            ({"obs": 2.0}, "at least 1"),
            ({"obs": ("obs", "two")}, "'two'"),
            ({"obs": np.zeros(3)}, "at least 1"),
        ],
    )
    def test_what_is_no_signature_is_refused(self, signature: Any, match: str) -> None:
        with pytest.raises((TypeError, ValueError), match=match):
            table(signature=signature)

    def test_a_length_may_be_an_integer_of_numpys(self) -> None:
        assert table(signature={"obs": np.int64(3)}).parts == {"obs": ("obs", 3)}

    @pytest.mark.parametrize("loaded", [False, True])
    def test_a_reset_forgets_the_parts_of_a_misspelt_first_item(self, loaded: bool, tmp_path: Any) -> None:
        client = client_of(table())
        with client.writer(1) as writer:
            writer.append(STEP)
            writer.create_item("t", 1.0, {"observation": writer.history["obs"][-1]})
        with pytest.raises(ValueError, match=r"first item of the table.* call reset"):
            client.insert(STEP, {"t": 1.0})
        if loaded:
            client.mutate_priorities("t", deletes=client.items("t").info.keys)
            client.save(tmp_path / "file")
            client.load(tmp_path / "file")
        else:
            client.reset("t")
        client.insert(STEP, {"t": 1.0})
        assert client.items("t").data.keys() == STEP.keys()

    def test_a_closed_writer_whose_items_waited_settles_nothing(self) -> None:
        client = client_of(table(rate_limiter=Queue(1), max_size=1))
        client.insert(STEP, {"t": 1.0})
        writer = client.writer(1)
        with pytest.raises(TimeoutError):
            write(writer, STEP, timeout=0)
        writer.close()
        client.reset("t")
        client.insert({"reward": 1.0}, {"t": 1.0})
        assert [*client.items("t").data] == ["reward"]

    def test_a_message_without_items_settles_nothing(self) -> None:
        client = client_of(table())
        none = NewItems("t", None, (Part("x", "obs", 1),), np.zeros((0, 1), np.int64))
        with pytest.raises(ValueError, match="at least one item"):
            send(client.server, Sent(1, 0, [], [none], 0))
        send(client.server, Sent(1, 0, [], [], 0))
        client.insert(STEP, {"t": 1.0})

    def test_items_that_wait_keep_the_parts_settled_over_a_reset(self) -> None:
        client = client_of(Table.queue("q", 1))
        writer = client.writer(1)
        write(writer, {"obs": [1.0, 2.0]}, "q")
        with pytest.raises(TimeoutError):
            write(writer, {"obs": [3.0, 4.0]}, "q", timeout=0)
        client.reset("q")
        with pytest.raises(ValueError, match="first item of the table"):
            client.insert(STEP, {"q": 1.0}, timeout=0)
        writer.flush()
        assert client.sample("q", 1).data.keys() == {"obs"}

    def test_a_file_with_other_parts_than_the_signature_is_refused(self, tmp_path: Any) -> None:
        client = client_of(table())
        client.insert(STEP, {"t": 1.0})
        client.save(tmp_path / "file")
        strict = client_of(table(signature={"obs": "one"}))
        before = state(strict.server)
        with pytest.raises(ValueError, match="signature of the table 't'"):
            strict.load(tmp_path / "file")
        assert state(strict.server) == before
        client_of(table(signature=dict.fromkeys(STEP, "one"))).load(tmp_path / "file")


def test_a_capacity_follows_from_the_sizes_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Table.queue("q", 10, signature={"a": ("obs", 3), "b": ("obs", 2), "reward": "any"})
    tables = [table(max_size=50), queue]
    server = Server(tables, COLUMNS)
    assert server._cells.capacity == 2 * (50 + 10 * 5) + 1000
    monkeypatch.setattr("replay_tutorial.tables.server.MAX_CELLS", 100)
    assert Server(tables, COLUMNS)._cells.capacity == 50, "as many cells as there are numbers for"


def test_names_that_cannot_be_sent_are_refused() -> None:
    """A server that greets a client sends the names of tables and columns."""
    half = "x\udc80"
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        Table.queue(half, 10)
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        Server([Table.queue("x", 10)], {half: {}})
