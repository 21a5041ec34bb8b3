"""Datasets: which batches come, and when they end."""

import multiprocessing
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
from served import drawing_threads, serving, table, until

from replay_tutorial.tables import (
    Cancelled,
    Client,
    Closed,
    RemoteServer,
    Server,
    Table,
    TimestepDataset,
    TrajectoryDataset,
    TrajectoryWriter,
    as_torch,
)
from replay_tutorial.tables.core.results import Sample, SampleInfo, concatenate_samples

COLUMNS = {"obs": {"shape": 2}, "action": {"dtype": np.int64}}
PATIENCE = 300.0  # seconds after which a test has hung


def server_of(*tables):
    return Server(tables or [Table.queue("queue", 100)], COLUMNS, capacity=1000, seed=0)


def write(server, lengths, table="queue", squeeze_obs=False):
    """Insert trajectories of consecutive numbers, of these lengths."""
    number = 0
    with TrajectoryWriter(server, num_keep_alive_refs=20) as writer:
        for length in lengths:
            for _ in range(length):
                writer.append({"obs": [number, -number], "action": number})
                number += 1
            obs = writer.history["obs"][-1 if squeeze_obs else slice(-length, None)]
            writer.create_item(table, 1.0, {"action": writer.history["action"][-length:], "obs": obs})
            writer.end_episode()


def acts(samples):
    return [sample.data["action"].tolist() for sample in samples]


@pytest.fixture(params=[0, 1, 3], ids=["at once", "1 ahead", "3 ahead"])
def in_flight(request):
    yield request.param
    assert not drawing_threads()


@pytest.mark.parametrize(
    ("batch_size", "options", "batches", "left"),
    [
        (2, {"timeout": 0.0}, [[[0], [1]], [[2], [3]], [[4]]], 0),
        (3, {"max_samples": 4}, [[[0], [1], [2]], [[3]]], 1),  # as in Reverb
        (9, {"timeout": 0.0}, [[[0], [1], [2], [3], [4]]], 0),
    ],
)
def test_batches_come_until_the_timeout_or_max_samples(in_flight, batch_size, options, batches, left):
    server = server_of()
    assert not list(TrajectoryDataset(server, "queue", batch_size, timeout=0.0, in_flight=in_flight))
    write(server, [1] * 5)
    samples = list(TrajectoryDataset(server, "queue", batch_size, in_flight=in_flight, **options))
    assert acts(samples) == batches
    assert server.info()["queue"].size == left
    sizes = [sample.info.table_size.tolist() for sample in samples]
    assert np.concatenate(sizes).tolist() == [5, 4, 3, 2, 1][: sum(map(len, batches))]


def test_the_clock_begins_anew_with_each_item_and_stands_still_while_nobody_waits(in_flight):
    server = server_of()
    batches = iter(TrajectoryDataset(server, "queue", 1, timeout=0.06, in_flight=in_flight))
    for _ in range(2):
        write(server, [1])
        assert len(next(batches).info.keys) == 1
        time.sleep(0.1)  # longer than the timeout, but nobody has asked
    write(server, [1] * 3)
    next(batches)
    time.sleep(0.1)  # nobody waits: two are ready, or still in the table
    asked_at = time.monotonic()
    assert len(list(batches)) == 2
    assert 0.05 <= time.monotonic() - asked_at < PATIENCE


def test_a_batch_is_filled_from_several_draws(in_flight):
    """A table gives out what it may; here one item at a time."""
    server = server_of()
    writing = threading.Thread(target=lambda: [(time.sleep(0.02), write(server, [1])) for _ in range(6)])
    writing.start()
    samples = list(TrajectoryDataset(server, "queue", 3, max_samples=6, in_flight=in_flight))
    writing.join()
    assert [len(sample.info.keys) for sample in samples] == [3, 3]


def test_a_thread_draws_only_so_many_batches_ahead():
    server = server_of(table())
    write(server, [1] * 3, table="t")
    batches = iter(TrajectoryDataset(server, "t", 4, in_flight=2))
    next(batches)
    until(lambda: server.info()["t"].samples == 12)
    time.sleep(0.05)
    assert server.info()["t"].samples == 12  # one used, two that wait
    batches.close()
    assert not drawing_threads()


def test_what_the_draw_fails_with_reaches_the_reader(in_flight):
    server = server_of()
    with pytest.raises(KeyError, match="no table 'other'"):
        next(iter(TrajectoryDataset(server, "other", 1, in_flight=in_flight)))


@pytest.mark.parametrize(("dataset", "lengths"), [(TrajectoryDataset, [1] * 3), (TimestepDataset, [3])])
def test_what_was_drawn_before_an_error_is_handed_over_first(in_flight, dataset, lengths):
    """The table has counted it."""
    server = server_of()
    write(server, lengths)
    batches = iter(dataset(server, "queue", 2, in_flight=in_flight))
    assert next(batches).data["action"].ravel().tolist() == [0, 1]

    def close_when_all_is_drawn():
        until(lambda: server.info()["queue"].waiting_samples == 1)
        server.close()

    with ThreadPoolExecutor() as pool:
        pool.submit(close_when_all_is_drawn)
        assert next(batches).data["action"].ravel().tolist() == [2]
        with pytest.raises(Closed):
            next(batches)


class Script:
    """A source that answers as it was told to: None is a timeout, a number the seconds that an item takes."""

    def __init__(self, *answers):
        self.answers = list(answers)
        server = server_of()
        write(server, [1])
        self.item = server.sample("queue", 1)

    def sample(self, table, batch_size, timeout=None, partial=False, should_cancel=None):
        seconds = self.answers.pop(0) if self.answers else None
        if seconds is None:
            raise TimeoutError
        time.sleep(seconds)
        return self.item


def test_what_was_drawn_in_the_last_moment_is_handed_over():
    """The timeout is over while the draw is under way; the table has counted it."""
    assert len(list(TrajectoryDataset(Script(None, 0.1), "t", 1, timeout=0.0, in_flight=1))) == 1


def test_a_draw_that_takes_long_is_not_taken_for_an_empty_table():
    script = Script(None, 0.0, 0.1, 0.0)
    assert len(list(TrajectoryDataset(script, "t", 1, timeout=0.06, in_flight=1))) == 3


def test_what_is_there_when_the_time_is_up_is_drawn_and_the_clock_begins_anew():
    """The first look finds nothing, the last one an item; so twice, and then nothing is there any more."""
    looks = Script(None, 0.0, None, 0.0)

    def sample(table, batch_size, timeout=None, partial=False, should_cancel=None):
        if timeout == 0.0:
            return looks.sample(table, batch_size)
        while not should_cancel():  # its turn has come, but it has not noticed when its time is up
            time.sleep(0.001)
        raise Cancelled

    dataset = TrajectoryDataset(SimpleNamespace(sample=sample), "t", 1, timeout=0.05, in_flight=1)
    assert len(list(dataset)) == 2


def test_a_thread_that_waits_keeps_its_place_in_the_line_and_says_what_for(caplog):
    server = Server([Table.queue("queue", 100)], COLUMNS, capacity=1000, patience=0.05)
    batches = iter(TrajectoryDataset(server, "queue", 1, in_flight=1))
    with ThreadPoolExecutor() as pool, closing(batches):
        first = pool.submit(next, batches)
        until(lambda: server.info()["queue"].waiting_samples == 1)
        later = pool.submit(server.sample, "queue", 1, PATIENCE)
        until(lambda: len(caplog.records) == 2)
        assert "sample('queue') waits for more inserts" in caplog.records[0].getMessage()
        write(server, [1, 1])
        assert first.result(PATIENCE).data["action"].tolist() == [[0]]
        assert later.result(PATIENCE).data["action"].tolist() == [[1]]


def test_a_thread_leaves_the_line_of_a_server_in_another_process(there):
    """What comes later is not taken by one whom nobody waits for."""
    dataset = TrajectoryDataset(there.server, "queue", 1, timeout=0.1, in_flight=1)
    assert list(dataset) == []
    assert not drawing_threads()
    until(lambda: there.served.info()["queue"].waiting_samples == 0)
    Client(there.served).insert({"action": 7}, {"queue": 1.0})
    assert there.served.info()["queue"].size == 1
    assert acts(dataset) == [[7]]


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_trajectories_of_different_lengths_are_padded_on_request(batch_size, in_flight):
    server = server_of()
    write(server, [2, 1, 3])
    samples = list(TrajectoryDataset(server, "queue", batch_size, timeout=0.0, in_flight=in_flight, pad=True))
    whole = concatenate_samples(samples)
    assert whole.data["action"].tolist() == [[0, 1, 0], [2, 0, 0], [3, 4, 5]]
    assert whole.data["obs"][0].tolist() == [[0, 0], [1, -1], [0, 0]]
    assert whole.lengths["action"].tolist() == whole.lengths["obs"].tolist() == [2, 1, 3]
    assert sum(len(sample.info.keys) for sample in samples) == 3


def test_a_squeezed_part_has_the_length_1_when_samples_are_joined():
    server = server_of()
    write(server, [2, 2, 3], squeeze_obs=True)
    samples = list(TrajectoryDataset(server, "queue", 1, timeout=0.0))
    assert [sample.lengths for sample in samples] == [None] * 3
    whole = concatenate_samples(samples)
    assert whole.squeezed == {"obs"}
    assert whole.data["obs"].tolist() == [[1, -1], [3, -3], [6, -6]]
    assert whole.lengths["obs"].tolist() == [1, 1, 1]
    assert whole.lengths["action"].tolist() == [2, 2, 3]


def test_trajectories_of_different_lengths_are_refused_without_pad(in_flight):
    server = server_of()
    write(server, [2, 1])
    with pytest.raises(ValueError, match=r"different lengths.*pad=True"):
        list(TrajectoryDataset(server, "queue", 2, timeout=0.0, in_flight=in_flight))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_samples": 0}, "max_samples must be at least 1"),
        ({"in_flight": -1}, "in_flight must be at least 0"),
        ({"timeout": -1.0}, "timeout must be at least 0"),
        ({"timeout": float("nan")}, "timeout must be at least 0"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_is_drawn(options, match):
    for dataset in (TrajectoryDataset, TimestepDataset):
        with pytest.raises(ValueError, match=match):
            dataset(server_of(), "queue", **{"batch_size": 1, **options})


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_steps_come_in_order_and_say_where_a_trajectory_begins(batch_size, in_flight):
    server = server_of()
    write(server, [3, 1, 5, 2])
    batches = list(TimestepDataset(server, "queue", batch_size, timeout=0.0, in_flight=in_flight))
    assert [len(batch.positions) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert np.concatenate([batch.data["action"] for batch in batches]).tolist() == list(range(11))
    assert np.concatenate([batch.data["obs"] for batch in batches])[:, 1].tolist() == [-i for i in range(11)]
    positions = np.concatenate([batch.positions for batch in batches]).tolist()
    assert positions == [*range(3), *range(1), *range(5), *range(2)]
    keys = np.concatenate([batch.info.keys for batch in batches])
    assert [np.count_nonzero(keys == key) for key in dict.fromkeys(keys.tolist())] == [3, 1, 5, 2]


def test_datasets_of_steps_count_trajectories():
    server = server_of()
    write(server, [3, 2, 2])
    batches = TimestepDataset(server, "queue", 4, max_samples=2)
    assert [batch.data["action"].tolist() for batch in batches] == [[0, 1, 2, 3], [4]]
    assert server.info()["queue"].size == 1


def test_steps_are_not_told_apart_without_an_axis_of_time_or_where_lengths_differ():
    """Also if a part without the axis has as many numbers as the others have steps."""
    for obs, action, match in [
        (-1, slice(-2, None), r"'obs'.* have no time axis"),
        (-1, -1, r"'action', 'obs'.* have no time axis"),
        (slice(-2, None), slice(-1, None), "'obs': 2, 'action': 1"),
    ]:
        server = server_of()
        with TrajectoryWriter(server, 2) as writer:
            for i in range(2):
                writer.append({"obs": [i, i], "action": i})
            parts = {"obs": writer.history["obs"][obs], "action": writer.history["action"][action]}
            writer.create_item("queue", 1.0, parts)
        with pytest.raises(ValueError, match=match):
            list(TimestepDataset(server, "queue", 1, timeout=0.0))


def test_a_loop_over_a_sample_yields_items_as_reverb_does():
    server = server_of()
    write(server, [2, 1])
    sample = server.items("queue")
    items = list(sample)
    assert len(sample) == len(items) == 2
    assert [item.info.key for item in items] == sample.info.keys.tolist()
    assert [type(number) for number in items[0].info] == [int, float, float, int, float, int]
    assert [item.data["action"].tolist() for item in items] == [[0, 1], [2]], "without the zeros behind"


def test_a_sample_of_pinned_memory_is_one_of_its_tensors():
    class Tensor:
        def pin_memory(self):
            return "pinned"

    info = SampleInfo(*[np.arange(1)] * 6)
    assert Sample(info, {"obs": Tensor()}, None, frozenset()).pin_memory().data == {"obs": "pinned"}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_of_pytorch_makes_tensors(num_workers, key, tmp_path):
    """Each item comes once, however the system starts processes: some need pickle."""
    torch = pytest.importorskip("torch")
    server = server_of()
    write(server, [2] * 12)
    with serving(server, tmp_path) as endpoint, RemoteServer(endpoint.address) as remote:
        dataset = as_torch(TrajectoryDataset(Client(remote), "queue", 2, timeout=num_workers / 2))
        # An earlier test may have started the fork server, Python 3.14's default, without the key.
        start = {"forkserver": "spawn"}.get(multiprocessing.get_start_method()) if num_workers else None
        options = {"num_workers": num_workers, "multiprocessing_context": start}
        loader = torch.utils.data.DataLoader(pickle.loads(pickle.dumps(dataset)), batch_size=None, **options)
        samples = list(loader)
    assert {sample.data["obs"].dtype for sample in samples} == {torch.float32}
    assert {sample.info.keys.dtype for sample in samples} == {torch.int64}
    drawn = [action for sample in samples for action in sample.data["action"].tolist()]
    assert sorted(drawn) == [[i, i + 1] for i in range(0, 24, 2)]


def test_each_worker_has_a_request_in_flight_and_together_they_draw_max_samples(key, tmp_path):
    server = server_of()
    with serving(server, tmp_path) as endpoint, RemoteServer(endpoint.address) as remote:
        dataset = TrajectoryDataset(remote, "queue", 2, max_samples=7, in_flight=4, workers=4)
        with ThreadPoolExecutor(1) as pool:
            batches = pool.submit(list, dataset)
            until(lambda: server.info()["queue"].waiting_samples == 4)
            write(server, [2] * 12)
            counts = [len(batch) for batch in batches.result(60)]
    assert sorted(counts) == [1, 2, 2, 2] and server.info()["queue"].samples == 7
    assert not drawing_threads()
