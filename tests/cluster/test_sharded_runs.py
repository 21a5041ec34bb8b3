"""Runs whose rows lie in shards, on a real cluster: one of them dies, and the run is resumed."""

import csv
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from cluster_parts import processes_named

pytest.importorskip("ray", reason="needs the extra `cluster`")

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.checkpoint import newest_checkpoint, whole_checkpoints
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.cluster import placement
from replay_tutorial.cluster.cluster_command import engine_of
from replay_tutorial.cluster.cluster_options import ClusterOptions
from replay_tutorial.cluster.connection import ClusterUnavailable

CONFIG = replace(preset("CartPole-v1"), hidden_sizes=(32,), record_interval=20, progress=False)
NODE = {"num_cpus": 2, "object_store_memory": 100 << 20, "memory": 1 << 30}
POLL_SECONDS = 240  # that anything may take on a busy machine


@pytest.fixture(scope="module")
def address():
    """A head without room for actors, and a node for two."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
    cluster.add_node(**NODE)
    yield cluster.address
    cluster.shutdown()


def engine(address, shards):
    return engine_of(ClusterOptions(address, shards=shards))


def updates_in(folder):
    path = next(iter(folder.glob("*/progress.csv")), None)
    if path is None:
        return 0
    with path.open(newline="") as file:
        return int(([{"update": 0}, *csv.DictReader(file)][-1])["update"])


def rows_of(folder):
    """The rows of all shards in the newest checkpoint, uint64[rows, words]."""
    rows = []
    for path in sorted(whole_checkpoints(folder)[-1][1].glob("replay_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            rows.append(np.array(file["rows"]))
    return np.concatenate(rows)


def test_run_goes_on_without_a_shard_and_is_resumed_with_as_many(address, tmp_path, capsys):
    steps = []

    def wait_for(what, condition):
        deadline = time.monotonic() + POLL_SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.1)
        if condition():
            steps.append(what)

    def let_die():
        wait_for("checkpoint", lambda: list(tmp_path.glob("*/checkpoints/*_step_*/replay_*.npz")))
        before = processes_named("ray::RemoteShard")
        os.kill(min(before), signal.SIGKILL)
        wait_for("reborn", lambda: len(processes_named("ray::RemoteShard") - before) == 1)
        updates = updates_in(tmp_path)
        wait_for("learned", lambda: updates_in(tmp_path) > updates + 400)
        os.kill(os.getpid(), signal.SIGINT)

    killer = threading.Thread(target=let_die, daemon=True)
    killer.start()
    config = replace(CONFIG, runs=tmp_path, checkpoint_seconds=2.0, solved_at=float("inf"))
    result = train(replace(config, total_steps=10**9), engine(address, 2))
    killer.join()
    printed = capsys.readouterr().out
    assert steps == ["checkpoint", "reborn", "learned"]
    assert result.end == "interrupted"
    assert "is gone, with its rows" in printed
    assert "begins again, with its rows of checkpoint" in printed
    checkpoint = newest_checkpoint(result.folder)
    ratio = checkpoint.samples / (checkpoint.step - config.replay_start)
    assert ratio == pytest.approx(config.samples_per_insert, rel=0.05)
    rows = rows_of(result.folder)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert processes_named("ray::RemoteShard") == processes_named("ray::play") == set()

    again = resume(result.folder, checkpoint.step + 2_000, progress=False, engine=engine(address, 2))
    assert again.end == "budget spent"
    assert again.updates > result.updates
    both = rows_of(result.folder)
    assert len(np.unique(both, axis=0)) == len(both)
    old = set(map(bytes, rows))
    kept = sum(row.tobytes() in old for row in both)
    assert kept > 0.8 * min(len(rows), config.capacity - (again.steps - checkpoint.step))


def test_more_shards_than_rows_are_refused_before_anything_is_made(address, tmp_path):
    config = replace(CONFIG, runs=tmp_path, capacity=2_000)
    with pytest.raises(ClusterUnavailable, match="shards is 3000, but the replay holds only 2000 rows"):
        train(config, engine(address, 3_000))
    assert list(tmp_path.iterdir()) == []


def test_shards_without_memory_are_refused_before_anything_is_made(address, tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "ROOM_SECONDS", 0.0)
    config = replace(CONFIG, runs=tmp_path, capacity=20_000_000)
    with pytest.raises(ClusterUnavailable, match=r"has memory for 0 of 1 shards of [\d.]+ GB. Add hosts"):
        train(config, engine(address, 1))
    assert list(tmp_path.iterdir()) == []
