"""Calls in their form for Reverb: the right answer, or an error that names the form here."""

import pickle
from typing import Any

import numpy as np
import pytest
from served import serving, small_server

import replay_tutorial.tables as reverb

COLUMNS = {"obs": {"shape": 4}, "action": {"shape": 1}, "reward": {"shape": 1}}
STEP = [np.zeros(4), np.ones(1), np.ones(1)]
TrajectoryDataset: Any = reverb.TrajectoryDataset
TimestepDataset: Any = reverb.TimestepDataset
NAMED: Any = dict(zip(COLUMNS, STEP, strict=True))


PATTERNS = [reverb.Pattern("replay", {"obs": reverb.reference(COLUMNS)["obs"][-1]})]


def client_of(**options: Any) -> reverb.Client:
    table = reverb.Table(
        name="replay",
        sampler=reverb.selectors.Prioritized(0.8),
        remover=reverb.selectors.Fifo(),
        max_size=10,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server: Any = reverb.Server
    return reverb.Client(server(tables=[table], columns=COLUMNS, capacity=30, **options))


def written(client: Any) -> Any:
    writer = client.writer(3)
    writer.append(NAMED)
    return writer


ARGUMENTS: list[tuple[Any, str]] = [  # that TypeErrors explain
    (
        lambda client: client.insert(STEP, priorities={"replay": 1.0}),
        r"passed by column, as \{'obs': ..., 'action': ..., 'reward': ...\}, not as list",
    ),
    (lambda client: client.insert_batch(STEP, {"replay": [1.0]}), "by column"),
    (lambda client: client.writer(3).append(STEP), "by column"),
    (
        lambda client: client.writer(max_sequence_length=3),
        r"Client.writer\(\) has no argument 'max_sequence_length': use num_keep_alive_refs",
    ),
    (
        lambda client: written(client).create_item("replay", num_timesteps=1, priority=1.0),
        r"create_item\(\) has no argument 'num_timesteps': pass a trajectory",
    ),
    (
        lambda client: written(client).create_item("replay", 1, 1.0),  # a number of steps
        r"A trajectory must be a dict .*, not 1\.0",
    ),
    (lambda client: client.sample("replay", num_samples=3), "no argument 'num_samples': .* batch_size"),
    (lambda client: client.writer(2, max_in_flight_items=20), "use items_per_message"),
    (lambda client: written(client).flush(block_until_num_items=20), "always waits for all"),
    (lambda client: written(client).end_episode(timeout_ms=20), "timeout, in seconds"),
    (
        lambda client: client.structured_writer(PATTERNS).end_episode(timeout_ms=20),
        r"StructuredWriter.end_episode\(\) has no argument 'timeout_ms': use timeout, in seconds",
    ),
    (
        lambda client: TrajectoryDataset(client, "replay", 1, rate_limiter_timeout_ms=20),
        r"TrajectoryDataset\(\) has no argument 'rate_limiter_timeout_ms': use timeout, in seconds",
    ),
    (
        lambda client: TimestepDataset(client, "replay", 1, max_in_flight_samples_per_worker=2),
        "use in_flight",
    ),
    (
        lambda _: TrajectoryDataset(server_address="localhost:8000", table="replay"),
        "pass a client or a server as source",
    ),
    (lambda _: client_of(port=8000), r"Server\(\) has no argument 'port': Endpoint\("),
]
NAMES: list[tuple[Any, str]] = [  # that AttributeErrors explain
    (lambda client: client.server.port, r"Server has no 'port': .* Client\(server\)"),
    (lambda client: client.server_info(), r"client.info\(\)"),
    (lambda client: client.trajectory_writer(3), r"client.writer\(num"),
    (lambda client: client.sampel("replay"), "no attribute 'sampel'"),
]


@pytest.mark.parametrize(
    ("error", "call", "match"),
    [(TypeError, *row) for row in ARGUMENTS] + [(AttributeError, *row) for row in NAMES],
)
def test_a_call_of_reverb_is_answered_with_the_call_here(error: Any, call: Any, match: str) -> None:
    client = client_of()
    client.insert(NAMED, priorities={"replay": 1.0})
    with pytest.raises(error, match=match):
        call(client)
    assert client.info()["replay"].inserts == 1


def test_a_client_takes_an_address(key: bytes, tmp_path: Any) -> None:
    with serving(small_server(), tmp_path) as endpoint:
        client = reverb.Client(endpoint.address)
        assert isinstance(client.server, reverb.RemoteServer)
        assert client.info().keys() == {"replay", "queue"}
        again = pickle.loads(pickle.dumps(client))
        assert again.info().keys() == {"replay", "queue"}
        with pytest.raises(TypeError, match=r"sample\(\) has no argument 'num_samples'"):
            client.sample("replay", num_samples=1)  # pyright: ignore[reportCallIssue]
