"""What needs a real Ray, of three nodes on this machine: runs in which nodes die, and `cluster check`."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from cluster_parts import NODE, TIMEOUT_SECONDS, add_node, processes_named
from run_parts import records, short

pytest.importorskip("ray", reason="needs the extra `cluster`")
import ray

from replay_tutorial import __version__
from replay_tutorial.__main__ import main
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.cluster import check, placement, workers
from replay_tutorial.cluster.check import find_problems, find_warnings, inspect_hosts
from replay_tutorial.cluster.connection import ClusterUnavailable, connect
from replay_tutorial.cluster.engine import ClusterEngine
from replay_tutorial.cluster.options import ClusterOptions, saved_options

CPUS = 4  # of all nodes
OURS = ("ray::play", "ray::RemoteGateway")


@pytest.fixture
def engine(nodes):
    return ClusterEngine(ClusterOptions(nodes.address))


def test_short_run_is_recorded_as_on_one_machine_and_can_be_resumed_anywhere(engine, tmp_path, monkeypatch):
    for name in ("COLLECT_SECONDS", "COUNT_SECONDS"):  # the run takes a few seconds only
        monkeypatch.setattr(workers, name, 0.1)
    changes = {"samples_per_insert": 16.0, "evaluation_interval": 1_000}  # each evaluation takes a second
    result = train(short(tmp_path, solved_at=1e9, **changes), engine)
    assert multiprocessing.active_children() == []
    assert result.end == "budget spent"
    assert result.steps >= 3_000  # by how much depends on how late this process notices
    assert len(result.evaluation.returns) == 10
    rows = records(result.folder / "progress.csv")
    assert [int(row["update"]) for row in rows] == list(range(20, result.updates + 1, 20))
    assert {row["hosts"] for row in rows} <= {"", "3"}
    assert rows[-1]["actors"] in ("1", "2")  # it may be over before the second has begun
    assert {row["rows_lost"] for row in rows} <= {"", "0"}
    assert all(0 <= float(row["parameters_age"] or 0) < 1_000 for row in rows)
    told = json.loads((result.folder / "cluster.json").read_text())
    assert sorted(host["cpus"] for host in told["hosts"]) == [0, 2, 2]

    assert saved_options(result.folder) == engine.options
    at_home = resume(result.folder, result.steps + 2_000, progress=False)  # more than the limiter's band
    assert at_home.updates > result.updates
    assert saved_options(result.folder) is None
    again = resume(result.folder, at_home.steps + 2_000, progress=False, engine=engine)
    assert again.steps >= at_home.steps + 2_000
    assert again.updates > at_home.updates


@pytest.mark.long
def test_run_goes_on_without_an_actor_a_gateway_and_a_node(engine, nodes, tmp_path):
    """And ends with a policy that has learned; what dies is replaced."""
    seen, deaths, known = [], [], set()

    def ours():
        return set().union(*(processes_named(name, known) for name in OURS))

    def written():
        return records(next(tmp_path.glob("*/progress.csv")))

    def let_die():
        wait_for(lambda: list(tmp_path.glob("*/progress.csv")) and len(written()) > 5)
        os.kill(min(processes_named("ray::play")), signal.SIGKILL)
        deaths.append("actor")
        wait_for(lambda: written()[-1]["restarts"] == "1")
        os.kill(min(processes_named("ray::RemoteGateway")), signal.SIGKILL)
        deaths.append("gateway")
        updates = int(written()[-1]["update"])
        wait_for(lambda: int(written()[-1]["update"]) > updates + 100)
        known.update(ours())  # the last node's lose their raylet
        nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
        deaths.append("node")

    def wait_for(condition):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.1)
        seen.append(condition())

    killer = threading.Thread(target=let_die)
    killer.start()
    # The first evaluation may end the run as solved; it comes after all these deaths, also on a busy machine.
    changes = {"total_steps": 10**9, "hidden_sizes": (128, 128), "evaluation_interval": 4_000}
    config = short(tmp_path, solved_at=150.0, confirmation_episodes=50, **changes)
    result = train(config, engine)
    killer.join()
    add_node(nodes, **NODE)
    assert deaths == ["actor", "gateway", "node"]
    wait_for(lambda: not ours())  # Ray kills them some time later
    assert all(seen)
    assert result.end == "solved"
    assert result.evaluation.mean > 60  # of ten episodes; a random policy has 22
    ratio = result.updates * config.batch_size / (result.steps - config.replay_start)
    assert ratio == pytest.approx(config.samples_per_insert, rel=0.1)


@pytest.mark.parametrize(
    ("patch", "reason"),
    [
        (None, r"(?s)actor \d failed:.*small_environments.py.*the pole is broken"),
        (("digest_of_sources", lambda: "others"), "has a different version of replay_tutorial from the"),
        (("HEAD_TIMEOUT_SECONDS", 0.0), "the head of the cluster has not responded"),
        (("RemoteGateway.pack", lambda _: b"nothing of ours"), r"(?s)a gateway failed:.*incorrect header"),
    ],
    ids=["error of an environment", "other sources", "silent head", "gateway that cannot start"],
)
def test_fault_ends_the_run_with_the_reason(engine, tmp_path, monkeypatch, patch, reason):
    if patch is not None:
        monkeypatch.setattr(f"{workers.__name__}.{patch[0]}", patch[1])
    with pytest.raises(ProcessDied, match=reason):
        train(short(tmp_path, "small_environments:Crashing-v0", actors=1), engine)


def wait_for_cpus(count):
    """Ray kills the workers of a test some time later."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while (free := ray.available_resources().get("CPU", 0)) != count and time.monotonic() < deadline:
        time.sleep(0.1)
    assert free == count


@pytest.fixture
def joined(nodes):
    connect(nodes.address, 0)
    try:
        wait_for_cpus(CPUS)
        yield
    finally:
        ray.shutdown()


def test_cluster_without_room_is_refused_before_anything_is_made(engine, joined, tmp_path, monkeypatch):
    monkeypatch.setattr(placement, "CAPACITY_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(ClusterUnavailable, match=r"no room for 1 of 5 actors: an actor needs 1 CPU and 415"):
        train(short(tmp_path, actors=5), engine)
    assert list(tmp_path.iterdir()) == []


def test_actors_need_free_places_and_a_cluster_that_can_grow_is_asked_for_them(nodes, joined, monkeypatch):
    from ray.util import placement_group_table

    def reservations():
        table = placement_group_table()
        return {name: (made["state"], *made["bundles"].values()) for name, made in table.items()}

    def free_resources():
        seen.append(reservations().values())
        return ray.available_resources()

    seen, options, known = [], ClusterOptions(nodes.address), reservations()
    placement.wait_for_capacity(CPUS, options)
    assert {made[0] for name, made in reservations().items() if name not in known} == {"REMOVED"}
    sleep = ray.remote(num_cpus=2)(lambda: time.sleep(1_000)).remote()
    wait_for_cpus(2)
    placement.wait_for_capacity(2, options)
    monkeypatch.setattr(placement, "CAPACITY_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(placement, "free_resources", free_resources)
    with pytest.raises(ClusterUnavailable, match=r"no room for 1 of 3 actors: .* 2 CPUs and"):
        placement.wait_for_capacity(3, options)
    needs = {"CPU": 1.0, "memory": float(placement.ACTOR_MEMORY)}
    assert [made for made in seen[-1] if made[0] == "PENDING"] == [("PENDING", *3 * [needs])]
    assert "PENDING" not in [made[0] for made in reservations().values()]
    ray.cancel(sleep, force=True)


def test_every_host_says_what_it_is_and_what_would_be_wrong_with_it(joined, monkeypatch):
    monkeypatch.setattr(check, "ANSWER_TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    hosts, whole = inspect_hosts(), ClusterOptions("auto")
    half = replace(whole, cpus_per_actor=0.5)
    assert ray.available_resources()["CPU"] == CPUS, "the probes have left every CPU"
    assert [host.error for host in hosts] == ["", "", ""]
    assert [host.here for host in hosts].index(True) == 0
    assert (sum(host.head for host in hosts), sum(host.cpus for host in hosts)) == (1, CPUS)
    for host in hosts:
        assert (host.installed["ray"], host.installed["replay_tutorial"]) == (ray.__version__, __version__)
        assert 0 < host.latency < 10
        assert host.rate > 1e5
        assert host.environment["RAY_AUTH_MODE"] == "token"

    for options, actors in ((whole, CPUS), (half, 2 * CPUS)):
        assert find_problems(hosts, actors, CPUS, options) == []
        for asked, free in ((actors + 1, CPUS), (actors, CPUS - 1)):
            [fault] = find_problems(hosts, asked, free, options)
            assert f"{asked} actors need {options.cpus_per_actor:g} CPU" in fault
            assert f"{free} CPUs are free" in fault
    small = [host._replace(memory=414 * 2**20) for host in hosts]
    [fault] = find_problems(small, 1, CPUS, whole)
    assert "room for 0 actors" in fault
    other = hosts[1]._replace(name="old", installed=hosts[1].installed | {"sources": "0123456789ab"})
    [fault] = find_problems([hosts[0], other], 0, 0, whole)
    assert fault.startswith("old has sources 0123456789ab.")
    dead = hosts[1]._replace(installed={}, environment={}, error="No module named 'replay_tutorial'")
    first, second = find_problems([dead], CPUS, CPUS, whole)
    assert "No module named 'replay_tutorial'" in first
    assert "room for 0 actors" in second

    assert find_warnings(hosts) == []
    [warning] = find_warnings([host._replace(environment={}) for host in hosts])
    assert "RAY_AUTH_MODE=token" in warning


def test_the_command_says_yes_and_no(nodes, capsys, monkeypatch):
    monkeypatch.setattr(check, "ANSWER_TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    for cpus, status, answer in (("1", 1, "no"), ("0.5", 0, "yes")):
        more = ["--actors", str(CPUS + 1), "--cpus-per-actor", cpus]
        assert main(["cluster", "check", nodes.address, *more]) == status
        told = capsys.readouterr().out
        assert told.splitlines()[-1] == f"{CPUS + 1} actors fit: {answer}"
        assert "health checks: a lost host is detected after" in told


CHECK = "import os, sys; {}; from replay_tutorial.__main__ import main; sys.exit(main(sys.argv[1:]))"
FORGET = "del os.environ['RAY_AUTH_TOKEN_PATH']"
REFUSED = {  # what a client does first → the reason, perhaps on several lines
    FORGET: (
        r"can't be used: RAY_AUTH_MODE is token, but this host has no token\. Copy ~/\.ray/auth_token "
        r"from the cluster's head\. If the head has no token either, run `ray get-auth-.*"
    ),
    f"{FORGET}, os.environ['RAY_AUTH_MODE']": (
        "can't be used: no working Ray listens there, or it requires a token, but this host has none.*"
    ),
    "open(os.environ['HOME'] + '/other', 'w').write('fedcba98' * 8); "
    "os.environ['RAY_AUTH_TOKEN_PATH'] = os.environ['HOME'] + '/other'": (
        "no working Ray listens there, or its token differs from that of this host.* Copy .*head.*"
    ),
    "import ray; ray.__version__ = '2.59.0'": (
        r".*its versions differ from those of this host[\s\S]*Ray: 2\.60\.0[\s\S]*Ray: 2\.59\.0[\s\S]*"
    ),
}


def test_clients_without_the_token_or_with_another_ray_are_refused(nodes, tmp_path):
    home, impatient = {"HOME": str(tmp_path)}, {"RAY_NUM_REDIS_GET_RETRIES": "2"}  # Ray's own: 20 seconds
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", CHECK.format(begin), "cluster", "check", nodes.address],
            env=os.environ | home | ({} if "__version__" in begin else impatient),  # that one must connect
            stderr=subprocess.PIPE,
            text=True,
        )
        for begin in REFUSED
    ]
    for client, reason in zip(clients, REFUSED.values(), strict=True):
        _, said = client.communicate(timeout=300)
        assert client.returncode == 2
        assert re.fullmatch(rf"cluster check: the cluster at .*{reason}\n", said), said
        assert "Traceback" not in said
