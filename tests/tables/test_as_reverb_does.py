"""Lines of what is known of Reverb that no other test holds, through the calls that a program makes.

Where Reverb's answer is another one, the docstring says so, and docs/design/decisions.md why.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_tutorial.tables import (
    Client,
    Endpoint,
    Fifo,
    Lifo,
    MaxHeap,
    MinHeap,
    MinSize,
    Pattern,
    Prioritized,
    Queue,
    RateLimiter,
    RemoteServer,
    SampleToInsertRatio,
    Server,
    Stack,
    StepState,
    Table,
    TrajectoryDataset,
    Uniform,
    reference,
)

COLUMNS = {"x": {"shape": (), "dtype": np.int64}, "y": {"shape": (), "dtype": np.int64}}
KINDS = [Uniform(), Fifo(), Lifo(), MinHeap(), MaxHeap()]


def table(name: str = "t", **options: Any) -> Table:
    given: dict[str, Any] = {
        "sampler": Uniform(),
        "remover": Fifo(),
        "max_size": 50,
        "rate_limiter": MinSize(1),
        **options,
    }
    return Table(name, **given)


def client_of(*tables: Table) -> Client:
    return Client(Server(tables, COLUMNS, capacity=200, seed=0))


def insert(client: Client, count: int = 1, name: str = "t") -> int:
    """Insert until it would wait, at most so many; return how many went in."""
    for done in range(count):
        try:
            client.insert({"x": done}, {name: 1.0}, timeout=0)
        except TimeoutError:
            return done
    return count


def sample(client: Client, count: int = 1, name: str = "t") -> int:
    """Sample until it would wait, at most so many; return how many came."""
    try:
        return len(client.sample(name, count, timeout=0, partial=True).info.keys)
    except TimeoutError:
        return 0


def values(client: Client, name: str = "t") -> list[int]:
    data = client.items(name).data
    return sorted(data["x"].tolist()) if data else []


# --- limiters ---


@pytest.mark.parametrize(
    ("limiter", "numbers"),
    [
        (MinSize(7), (1.0, 7, -sys.float_info.max, sys.float_info.max)),
        (SampleToInsertRatio(2.0, 10, 4.0), (2.0, 10, 16.0, 24.0)),
        (SampleToInsertRatio(2.0, 10, (7.0, 30.0)), (2.0, 10, 7.0, 30.0)),
        (Queue(5), (1.0, 1, 0.0, 5.0)),
        (Stack(5), (1.0, 1, 0.0, 5.0)),
    ],
)
def test_a_limiter_has_the_four_numbers_of_reverb(limiter: RateLimiter, numbers: tuple[float, ...]) -> None:
    """Around samples_per_insert · min_size where the error is one number; as given where it is a pair."""
    shown = (limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff)
    assert shown == numbers


def test_a_table_walks_through_its_band() -> None:
    """From 16 to 24: twelve inserts, then in turns eight samples and four inserts."""
    client = client_of(table(rate_limiter=SampleToInsertRatio(2, 10, 4)))
    walk = [
        insert(client, 99),
        sample(client, 99),
        insert(client, 99),
        sample(client, 99),
        insert(client, 99),
    ]
    assert walk == [12, 8, 4, 8, 4]


def test_asking_does_not_count() -> None:
    client = client_of(Table.queue("t", 2))
    insert(client, 2)
    before = client.info()
    assert [insert(client) for _ in range(5)] == [0] * 5
    assert client.info() == before
    sample(client, 2)
    assert [sample(client) for _ in range(5)] == [0] * 5
    assert client.info()["t"].samples == 2


def test_a_deletion_makes_inserts_free_where_a_sample_does_not() -> None:
    """The cursor is 10, then 9, of 5 at most; one item of two that there must be is below min_size."""
    client = client_of(table(rate_limiter=RateLimiter(5.0, 2, 0.0, 5.0)))
    assert insert(client, 9) == 2
    assert sample(client) == 1 and insert(client) == 0
    client.mutate_priorities("t", deletes=client.items("t").info.keys[:1])
    assert sample(client) == 0, "below min_size nothing is sampled"
    assert insert(client, 9) == 1 and sample(client) == 1


@pytest.mark.parametrize("options", [{"max_times_sampled": 1}, {"max_size": 3, "max_times_sampled": 2}])
def test_items_that_are_sampled_away_bring_a_table_below_its_min_size(options: dict[str, Any]) -> None:
    client = client_of(table(sampler=Fifo(), rate_limiter=MinSize(3), **options))
    insert(client, 3)
    assert sample(client, 99) == options["max_times_sampled"], "two items are left, of three"
    assert sample(client) == 0 and insert(client) == 1 and sample(client) == 1


def test_the_cursor_of_a_queue_is_its_number_of_items() -> None:
    client, rng = client_of(Table.queue("t", 4)), np.random.default_rng(0)
    for _ in range(200):
        (insert if rng.random() < 0.5 else sample)(client, int(rng.integers(1, 4)))
        info = client.info()["t"]
        assert 0 <= info.inserts - info.samples == info.size <= 4


# --- tables ---


def test_the_remover_takes_one_item_for_each_that_comes() -> None:
    """0.5 goes at once; 1 goes only when 4 has come."""
    client, left = client_of(table(remover=MinHeap(), max_size=3)), list[list[float]]()
    for priority in (5.0, 1.0, 3.0, 0.5, 4.0):
        client.insert({"x": 0}, {"t": priority})
        left.append(sorted(client.items("t").info.priorities.tolist()))
    assert left == [[5.0], [1.0, 5.0], [1.0, 3.0, 5.0], [1.0, 3.0, 5.0], [3.0, 4.0, 5.0]]


def test_a_full_table_that_removes_the_newest_keeps_the_oldest() -> None:
    client = client_of(table(remover=Lifo(), max_size=3))
    keys = [client.insert({"x": x}, {"t": 1.0})["t"] for x in range(6)]
    assert values(client) == [0, 1, 2]
    assert client.mutate_priorities("t", deletes=keys[3:]) == 3, "the newcomers had keys, and are gone"


def test_an_insert_that_timed_out_is_not_carried_out_later() -> None:
    """In Reverb it stays in the table's line, and goes in when there is room."""
    client = client_of(Table.queue("t", 1))
    with client.writer(num_keep_alive_refs=1) as writer:
        for x in range(2):
            writer.append({"x": x})
            if x == 0:
                writer.create_item("t", 1.0, {"x": writer.history["x"][-1]})
        with pytest.raises(TimeoutError):
            writer.create_item("t", 1.0, {"x": writer.history["x"][-1]}, timeout=0)
        sample(client)
        assert sample(client) == 0 and client.info()["t"].inserts == 1
        writer.flush(timeout=0)
        assert values(client) == [1]


def test_an_item_that_timed_out_is_lost_when_its_writer_is_closed() -> None:
    client = client_of(Table.queue("t", 1))
    insert(client)
    writer = client.writer(num_keep_alive_refs=1)
    writer.append({"x": 5})
    with pytest.raises(TimeoutError):
        writer.create_item("t", 1.0, {"x": writer.history["x"][-1]}, timeout=0)
    writer.close()
    sample(client)
    assert insert(client) == 1 and values(client) == [0]


def test_a_batch_is_drawn_with_replacement() -> None:
    client = client_of(table())
    insert(client)
    drawn = client.sample("t", 5)
    assert drawn.info.times_sampled.tolist() == [1, 2, 3, 4, 5]
    assert client.info()["t"].unique_samples == 1


# --- priorities ---


@pytest.mark.parametrize("kind", KINDS)
def test_selectors_that_do_not_weigh_take_any_number_but_nan_and_infinity(kind: Any) -> None:
    """Reverb takes infinity, and NaN where it comes by `mutate_priorities`."""
    client = client_of(table(sampler=kind, remover=kind))
    given = [-1.5, 0.0, -1e300, 1e300]
    keys = [client.insert({"x": 0}, {"t": priority})["t"] for priority in given]
    assert sorted(client.items("t").info.priorities.tolist()) == sorted(given)
    assert client.mutate_priorities("t", dict.fromkeys(keys, -7.25)) == 0
    assert client.sample("t", 1).info.priorities.tolist() == [-7.25]
    for priority in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="must be between"):
            client.insert({"x": 0}, {"t": priority})
        with pytest.raises(ValueError, match="must be between"):
            client.mutate_priorities("t", {keys[0]: priority})


def test_a_key_that_is_deleted_and_updated_is_deleted() -> None:
    """As in Reverb, whose docstring says otherwise; here the update counts as stale."""
    client = client_of(table())
    one, other = (client.insert({"x": x}, {"t": 1.0})["t"] for x in range(2))
    assert client.mutate_priorities("t", {one: 5.0, other: 6.0}, deletes=[one]) == 1
    left = client.items("t").info
    assert left.keys.tolist() == [other] and left.priorities.tolist() == [6.0]


def test_changing_priorities_counts_nothing_and_deleting_counts_no_samples() -> None:
    client = client_of(table())
    insert(client, 3)
    sample(client, 99)
    before, keys = client.info()["t"], client.items("t").info.keys
    client.mutate_priorities("t", (keys, np.full(3, 2.0)))
    assert client.info()["t"] == before._replace(highest_priority=2.0)
    client.mutate_priorities("t", deletes=keys)
    assert client.info()["t"] == before._replace(highest_priority=2.0, size=0, deletes=3)


# --- writers ---


def test_an_item_keeps_steps_that_its_writer_can_not_name_any_more() -> None:
    client = client_of(table())
    with client.writer(num_keep_alive_refs=3) as writer:
        for x in range(30):
            writer.append({"x": x})
            if x % 3 == 2:
                writer.create_item("t", 1.0, {"x": writer.history["x"][-3:]})
    assert sorted(client.items("t").data["x"].tolist()) == np.arange(30).reshape(10, 3).tolist()


def test_a_history_without_a_step_names_none() -> None:
    """Reverb: a RuntimeError, before the first `append`."""
    writer = client_of(table()).writer(num_keep_alive_refs=3)
    for index in (-1, 0, slice(-2, None), slice(None), [0]):
        with pytest.raises(IndexError, match="'x'"):
            writer.history["x"][index]


def test_steps_are_numbered_anew_in_each_episode_but_a_pattern_counts_on() -> None:
    seen: list[tuple[int, int]] = []

    def every_third(state: StepState) -> bool:
        seen.append((state.step_index, state.steps_since_applied))
        return state.steps_since_applied >= 3

    client = client_of(table())
    pattern = Pattern("t", {"x": reference(COLUMNS)["x"][-1]}, when=[every_third])
    with client.structured_writer([pattern]) as writer:
        for episode in range(2):
            for step in range(4):
                writer.append({"x": 10 * episode + step})
            writer.end_episode()
    assert values(client) == [2, 11]
    # the last step of each episode is looked at twice
    assert seen == [(0, 1), (1, 2), (2, 3), (3, 1), (3, 1), (0, 2), (1, 3), (2, 1), (3, 2), (3, 2)]


def test_a_step_counts_also_if_no_pattern_uses_its_columns() -> None:
    """Reverb drops such columns first, and does not look at a step of which nothing is left."""
    client = client_of(table())

    def is_third(state: StepState) -> bool:
        return state.steps_since_applied >= 3

    pattern = Pattern("t", {"x": reference(COLUMNS)["x"][-1]}, when=[is_third])
    with client.structured_writer([pattern]) as writer:
        for data in ({"x": 0}, {"y": 1}, {"x": 2}, {"x": 3}):
            writer.append(data)
    assert values(client) == [2]


# --- files ---


def test_what_is_saved_is_one_moment_of_all_tables(tmp_path: Path) -> None:
    """Each step is in both tables. Reverb copies one table after the other, and may miss one of the two."""
    client = client_of(table("one"), table("two"))
    stop, path = threading.Event(), tmp_path / "file"

    def write() -> None:
        x = 0
        while not stop.is_set():
            x += 1
            client.insert({"x": x}, {"one": 1.0, "two": 1.0})
            time.sleep(0)  # so that the other thread may have the lock

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            client.save(path)
            loaded = client_of(table("one"), table("two"))
            loaded.load(path)
            assert values(loaded, "one") == values(loaded, "two")
            assert loaded.info()["one"].inserts == loaded.info()["two"].inserts
    finally:
        stop.set()
        thread.join()


def test_a_limiter_goes_on_counting_after_a_load(tmp_path: Path) -> None:
    client, loaded = (client_of(table(rate_limiter=SampleToInsertRatio(2, 10, 4))) for _ in range(2))
    assert (insert(client, 99), sample(client, 3)) == (12, 3)
    client.save(tmp_path / "file")
    loaded.load(tmp_path / "file")
    assert (sample(loaded, 99), insert(loaded, 99), sample(loaded, 99)) == (5, 4, 8)


def test_of_equal_priorities_the_same_one_is_next_after_a_load(tmp_path: Path) -> None:
    """Reverb: the oldest insert, although it was updated last."""
    client, loaded = (client_of(table(sampler=MaxHeap())) for _ in range(2))
    keys = [client.insert({"x": x}, {"t": 1.0})["t"] for x in range(3)]
    client.mutate_priorities("t", {keys[0]: 1.0})
    client.save(tmp_path / "file")
    loaded.load(tmp_path / "file")
    assert client.sample("t", 1).data["x"].tolist() == loaded.sample("t", 1).data["x"].tolist() == [1]


@pytest.mark.parametrize(
    "others",
    [
        [table(sampler=Prioritized(0.5)), table("added")],  # Reverb: it begins empty
        [table(sampler=Prioritized(0.6))],  # Reverb: the file's selector wins
        [table(sampler=Prioritized(0.5), remover=Lifo())],
        [table(sampler=Prioritized(0.5), max_size=51)],  # Reverb: the file's size wins
        [table("renamed", sampler=Prioritized(0.5))],
    ],
)
def test_a_file_of_other_tables_is_refused_and_changes_nothing(others: list[Table], tmp_path: Path) -> None:
    client, other = client_of(table(sampler=Prioritized(0.5))), client_of(*others)
    insert(client, 3)
    client.save(tmp_path / "file")
    insert(other, 2, others[0].name)
    before = other.info()
    with pytest.raises(ValueError, match="different layout"):
        other.load(tmp_path / "file")
    assert other.info() == before


# --- datasets ---


def test_a_dataset_with_a_timeout_of_0_ends_at_once_also_through_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Reverb 0 means for ever, once the server is another process."""
    key = "a key for the tests, of some length"
    monkeypatch.setenv("REPLAY_TUTORIAL_KEY", key)
    server = Server([Table.queue("t", 9)], COLUMNS, capacity=9)
    with Endpoint(server, "127.0.0.1:0", key.encode()) as endpoint, RemoteServer(endpoint.address) as there:
        begin = time.monotonic()
        assert list(TrajectoryDataset(there, "t", 2, timeout=0.0)) == []
        insert(Client(there), 3)
        batches = [batch.data["x"].tolist() for batch in TrajectoryDataset(there, "t", 2, timeout=0.0)]
        assert batches == [[0, 1], [2]] and time.monotonic() - begin < 300


def test_a_sample_shows_the_priority_of_now() -> None:
    client = client_of(table(sampler=Prioritized(1.0)))
    insert(client, 2)
    keys = client.items("t").info.keys
    client.mutate_priorities("t", (keys, np.array([0.0, 3.0])))
    drawn = client.sample("t", 4).info
    assert drawn.priorities.tolist() == [3.0] * 4 and drawn.probabilities.tolist() == [1.0] * 4


def test_a_pattern_that_fails_costs_those_before_it_nothing() -> None:
    columns = {"x": {"shape": ()}, "y": {"shape": ()}}
    step = reference(columns)
    tables = [Table(n, sampler=Uniform(), remover=Fifo(), max_size=9, rate_limiter=MinSize(1)) for n in "tu"]
    server = Server(tables, columns, capacity=20)
    patterns = [
        Pattern("t", {"x": step["x"][-1]}),
        Pattern("u", {"x": step["x"][-1]}, when=[lambda state: state.data["y"] > 0]),
    ]
    with Client(server).structured_writer(patterns) as writer:
        with pytest.raises(KeyError, match="y"):
            writer.append({"x": 1})
        writer.append({"x": 2, "y": 1})
    assert server.items("t").data["x"].tolist() == [1, 2]
    assert server.items("u").data["x"].tolist() == [2]
