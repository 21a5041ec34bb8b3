"""Runs on a real cluster: three nodes of Ray on this machine, which die in the middle of a run."""

import csv
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import pytest
from cluster_parts import processes_named
from places import ROOT

pytest.importorskip("ray", reason="needs the extra `cluster`")

from replay_tutorial import __main__
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs import run as run_module
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.cluster import command, placement, workers
from replay_tutorial.cluster.connection import ClusterUnavailable, connect
from replay_tutorial.cluster.engine import ClusterEngine
from replay_tutorial.cluster.options import ClusterOptions, saved_options, split_options
from replay_tutorial.cluster.remote_gateway import call, is_lost

SHORT = {
    "total_steps": 4_000,
    "hidden_sizes": (32,),
    "evaluation_interval": 50,
    "record_interval": 20,
    "confirmation_episodes": 10,
    "final_episodes": 20,
    "progress": False,
}
NODE = {"num_cpus": 2, "object_store_memory": 100 << 20}
POLL_SECONDS = 240  # that anything may take on a busy machine


@pytest.fixture(scope="module")
def nodes():
    """A head without room for actors, and two nodes with room for two each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        cluster.add_node(**NODE)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def engine(nodes):
    return ClusterEngine(ClusterOptions(nodes.address))


def short(tmp_path, environment="CartPole-v1", **changes):
    return replace(preset(environment), runs=tmp_path, **(SHORT | changes))


def records(folder, name="progress.csv"):
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_short_run_is_recorded_as_on_one_machine_and_can_be_resumed_anywhere(engine, nodes, tmp_path):
    result = train(short(tmp_path), engine)
    assert multiprocessing.active_children() == []
    assert result.end == "budget spent"
    assert 4_000 <= result.steps < 5_000
    assert len(result.evaluation.returns) == 20
    rows = records(result.folder)
    assert [int(row["update"]) for row in rows] == list(range(20, result.updates + 1, 20))
    assert {row["hosts"] for row in rows} <= {"", "3"}
    assert rows[-1]["actors"] in ("1", "2")  # it may be over before the second has begun
    assert {row["rows_lost"] for row in rows} <= {"", "0"}
    assert all(0 <= float(row["parameters_age"] or 0) < 1_000 for row in rows)
    told = json.loads((result.folder / "cluster.json").read_text())
    assert sorted(host["cpus"] for host in told["hosts"]) == [0, 2, 2]

    again = resume(result.folder, 5_000, progress=False, engine=engine)
    assert 5_000 <= again.steps < 6_000
    assert again.updates > result.updates
    assert saved_options(result.folder) == engine.options
    at_home = resume(result.folder, 6_000, progress=False)
    assert at_home.updates > again.updates
    assert saved_options(result.folder) is None


def test_run_goes_on_without_an_actor_a_gateway_and_a_node(engine, nodes, tmp_path):
    """And ends with the learned policy; what dies is replaced."""
    printed, deaths = [], []

    def let_die():
        wait_for(lambda: list(tmp_path.glob("*/progress.csv")) and len(records(run_in(tmp_path))) > 10)
        os.kill(min(processes_named("ray::play")), signal.SIGKILL)
        deaths.append("actor")
        wait_for(lambda: records(run_in(tmp_path))[-1]["restarts"] == "1")
        os.kill(min(processes_named("ray::RemoteGateway")), signal.SIGKILL)
        deaths.append("gateway")
        updates = int(records(run_in(tmp_path))[-1]["update"])
        wait_for(lambda: int(records(run_in(tmp_path))[-1]["update"]) > updates + 500)
        nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
        deaths.append("node")

    def wait_for(condition):
        deadline = time.monotonic() + POLL_SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.1)
        printed.append(condition())

    killer = threading.Thread(target=let_die)
    killer.start()
    # The first look comes after all these deaths.
    config = short(tmp_path, total_steps=400_000, hidden_sizes=(128, 128), evaluation_interval=5_000)
    result = train(replace(config, solved_at=475.0, confirmation_episodes=100), engine)
    killer.join()
    nodes.add_node(**NODE)
    assert deaths == ["actor", "gateway", "node"]
    assert all(printed)
    assert result.end == "solved"
    assert result.evaluation.mean > 450
    ratio = result.updates * config.batch_size / (result.steps - config.replay_start)
    assert ratio == pytest.approx(config.samples_per_insert, rel=0.05)
    for name in ("ray::play", "ray::RemoteGateway"):
        assert processes_named(name, orphans=True) == set()


def run_in(folder):
    return next(folder.iterdir())


def test_error_in_an_environment_ends_the_run_with_its_traceback(engine, tmp_path):
    with pytest.raises(ProcessDied, match=r"(?s)actor \d failed:.*small_environments.py.*the pole is broken"):
        train(short(tmp_path, "small_environments:Crashing-v0", actors=1), engine)


def test_host_with_other_sources_is_refused(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "digest_of_sources", lambda: "others")
    with pytest.raises(ProcessDied, match="has another version of replay_tutorial than the learner's host"):
        train(short(tmp_path), engine)


def test_gateway_that_cannot_be_started_ends_the_run_with_the_reason(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(workers.RemoteGateway, "pack", lambda context: b"nothing of ours")
    with pytest.raises(ProcessDied, match=r"(?s)a gateway failed:.*incorrect header check"):
        train(short(tmp_path), engine)


def test_head_that_is_silent_ends_the_run_before_ray_does(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "HEAD_SECONDS", 0.0)
    with pytest.raises(ProcessDied, match="the head of the cluster has not answered"):
        train(short(tmp_path), engine)


def test_error_that_cannot_be_brought_here_is_no_lost_call():
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError, UnserializableException

    assert not is_lost(UnserializableException("a stack trace"))
    assert not is_lost(RayTaskError("play", "a traceback", ValueError()))
    assert not is_lost(ValueError())
    assert is_lost(GetTimeoutError())
    assert is_lost(ActorUnavailableError("away", None))


def test_chunk_that_the_own_host_cannot_take_is_lost_and_no_error():
    class Full:
        """A gateway whose caller's store has no room."""

        class send:
            @staticmethod
            def remote(*_):
                raise OSError("no space left")

    answer = call(Full.send, None, 0, None)
    assert is_lost(answer.exception())
    assert "no space left" in str(answer.exception())


def test_cluster_without_room_is_refused_before_anything_is_made(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "ROOM_SECONDS", 0.0)
    with pytest.raises(ClusterUnavailable, match=r"no place for 1 of 5 actors: an actor needs 1 CPU and 415"):
        train(short(tmp_path, actors=5), engine)
    assert list(tmp_path.iterdir()) == []


def test_actors_need_free_places_and_a_cluster_that_can_grow_is_asked_for_them(nodes, monkeypatch):
    import ray
    from ray.util import placement_group_table

    def free_resources():
        seen.append([(wish["state"], *wish["bundles"].values()) for wish in placement_group_table().values()])
        return ray.available_resources()

    seen, options = [], ClusterOptions(nodes.address)
    connect(nodes.address, 0)
    try:
        known = placement_group_table()
        placement.await_room(4, options)
        assert {wish["state"] for name, wish in placement_group_table().items() if name not in known} == {
            "REMOVED"
        }
        sleep = ray.remote(num_cpus=2)(lambda: time.sleep(1_000)).remote()
        deadline = time.monotonic() + POLL_SECONDS
        while ray.available_resources().get("CPU", 0) != 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        placement.await_room(2, options)
        monkeypatch.setattr(placement, "ROOM_SECONDS", 1.0)
        monkeypatch.setattr(placement, "free_resources", free_resources)
        with pytest.raises(ClusterUnavailable, match=r"no place for 1 of 3 actors: .* 2 CPUs and"):
            placement.await_room(3, options)
        needs = {"CPU": 1.0, "memory": float(placement.ACTOR_MEMORY)}
        assert [wish for wish in seen[-1] if wish[0] == "PENDING"] == [("PENDING", *3 * [needs])]
        assert "PENDING" not in [wish["state"] for wish in placement_group_table().values()]
        ray.cancel(sleep, force=True)
    finally:
        ray.shutdown()


def test_local_cluster_has_room_for_actors_of_many_cores(tmp_path, monkeypatch):
    import ray

    def refuse(**options):
        raise ValueError(f"num_cpus={options['num_cpus']}")

    monkeypatch.setattr(ray, "init", refuse)
    engine = ClusterEngine(ClusterOptions("local", cpus_per_actor=2.5))
    with pytest.raises(ClusterUnavailable, match="num_cpus=103"):
        train(short(tmp_path, actors=41), engine)


def test_run_in_one_process_needs_no_cluster(engine, tmp_path):
    with pytest.raises(ClusterUnavailable, match="actors is 0"):
        train(short(tmp_path, actors=0), engine)
    assert list(tmp_path.iterdir()) == []


def test_options_are_split_from_the_settings():
    arguments = ["CartPole-v1", "--cluster", "auto", "--seed", "1", "--gateways=2"]
    assert split_options("train", arguments) == (ClusterOptions("auto", 2), ["CartPole-v1", "--seed", "1"])
    assert split_options("train", ["--seed", "1"]) == (None, ["--seed", "1"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--gateways", "2"], "--gateways is for a run on a cluster: add --cluster ADDRESS"),
        (["--cpus-per-actor", "0.5"], "--cpus-per-actor is for a run on a cluster"),
        (["--cluster", "auto", "--gateways", "0"], "gateways is 0; it must be at least 1"),
        (["--cluster", "auto", "--cpus-per-actor", "nan"], "cpus_per_actor is nan"),
        (["--cluster", ""], "cluster is empty"),
        (["--cluster"], "expected one argument"),
    ],
)
def test_options_that_cannot_work_are_refused(arguments, reason, capsys):
    with pytest.raises(SystemExit, match="2"):
        split_options("train", arguments)
    assert reason in capsys.readouterr().err


def options_of_resume(monkeypatch, *arguments):
    """What `resume` runs with; nothing is run."""
    taken = []
    monkeypatch.setattr(command, "engine_of", lambda options: taken.append(options))
    monkeypatch.setattr(run_module, "resume", lambda *_: pytest.skip("reached"))
    with pytest.raises(pytest.skip.Exception):
        __main__.resume(arguments)
    return taken[0]


def test_resumed_run_keeps_its_cluster_and_options_unless_others_are_given(tmp_path, monkeypatch):
    run = str(tmp_path)
    assert options_of_resume(monkeypatch, run) is None
    options = ClusterOptions("10.0.0.1:6379", gateways=2, cpus_per_actor=0.5)
    (tmp_path / "cluster.json").write_text(json.dumps({**asdict(options), "hosts": [], "ray": "2.60.0"}))
    assert options_of_resume(monkeypatch, run) == options
    assert options_of_resume(monkeypatch, run, "--cluster", "auto") == replace(options, address="auto")
    assert options_of_resume(monkeypatch, run, "--gateways", "3") == replace(options, gateways=3)
    assert options_of_resume(monkeypatch, run, "--cluster", "none") is None
    (tmp_path / "cluster.json").write_text('{"gateways": 0}')
    with pytest.raises(SystemExit, match="2"):
        __main__.resume([run])


def test_options_of_a_cluster_are_listed_by_resume(capsys):
    with pytest.raises(SystemExit, match="0"):
        __main__.resume(["--help"])
    listed = capsys.readouterr().out
    assert all(option in listed for option in ("--cluster ADDRESS", "--gateways", "--cpus-per-actor"))


def test_commands_without_a_cluster_do_not_import_ray():
    program = "import sys, replay_tutorial.__main__ as m; m.main(['train', '--help'])"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('ray' in sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "--cluster" in done.stdout + done.stderr
