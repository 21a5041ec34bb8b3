"""`cluster check`: what it finds on a real Ray, what it warns of, and how it refuses."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="the cluster needs the extra `cluster`")
import ray

from replay_tutorial import __version__
from replay_tutorial.__main__ import main
from replay_tutorial.cluster.cluster_check import Host, faults_of, health_of, look_at_hosts
from replay_tutorial.cluster.connection import NoCluster, connect

CPUS = 3  # of the first node 1, of the second 2


@pytest.fixture
def joined(cluster: Any) -> Iterator[Any]:
    connect(cluster.address)
    yield cluster
    ray.shutdown()


@pytest.fixture(scope="module")
def hosts(cluster: Any) -> list[Host]:
    """What is found on the cluster of the tests: two nodes."""
    connect(cluster.address)
    try:
        return look_at_hosts()
    finally:
        ray.shutdown()


def test_every_host_tells_what_it_is(hosts: list[Host]) -> None:
    assert [host.fault for host in hosts] == ["", ""]
    assert [host.here for host in hosts] == [True, False]
    assert sum(host.head for host in hosts) == 1
    assert sum(host.cpus for host in hosts) == CPUS
    for host in hosts:
        assert host.installed["ray"] == ray.__version__
        assert host.installed["replay_tutorial"] == __version__
        assert 0 < host.latency < 1
        assert host.rate > 1e6
        assert host.environment["RAY_AUTH_MODE"] == "token"


def test_the_probes_leave_every_cpu_free(joined: Any) -> None:
    look_at_hosts()
    assert ray.available_resources()["CPU"] == CPUS


def test_hosts_that_agree_and_have_room_are_without_fault(hosts: list[Host]) -> None:
    assert faults_of(hosts, CPUS, CPUS) == []


def test_too_many_actors_are_told_what_is_missing(hosts: list[Host]) -> None:
    [fault] = faults_of(hosts, CPUS + 1, CPUS)
    assert f"{CPUS + 1} actors need a free CPU" in fault
    [fault] = faults_of(hosts, CPUS, CPUS - 1)
    assert f"there are {CPUS - 1} free CPUs" in fault


def test_actors_need_memory_too(hosts: list[Host]) -> None:
    small = [host._replace(memory=299 * 2**20) for host in hosts]
    [fault] = faults_of(small, 1, CPUS)
    assert "memory for 0" in fault


def test_a_host_with_other_sources_is_named(hosts: list[Host]) -> None:
    other = hosts[1]._replace(name="old", installed=hosts[1].installed | {"sources": "0123456789ab"})
    [fault] = faults_of([hosts[0], other], 0, 0)
    assert fault.startswith("old has sources 0123456789ab.")


def test_a_host_that_does_not_answer_is_a_fault_and_no_room(hosts: list[Host]) -> None:
    dead = hosts[1]._replace(installed={}, environment={}, fault="No module named 'replay_tutorial'")
    first, second = faults_of([hosts[0], dead], CPUS, CPUS)
    assert "No module named 'replay_tutorial'" in first
    assert "memory for 1" in second


def test_a_cluster_without_a_token_is_a_fault(hosts: list[Host]) -> None:
    [fault] = faults_of([host._replace(environment={}) for host in hosts], 0, 0)
    assert "RAY_AUTH_MODE=token" in fault


def test_the_health_checks_say_when_a_host_is_lost() -> None:
    tuned = {"period_ms": "1000", "timeout_ms": "2000", "failure_threshold": "3"}
    assert health_of({f"RAY_health_check_{name}": value for name, value in tuned.items()}) == (3.0, 9.0)
    assert health_of({}) == (15.0, 65.0)


def test_the_command_says_yes_and_no(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", cluster.address, "--actors", str(CPUS)]) == 0
    assert capsys.readouterr().out.endswith(f"this will hold {CPUS} actors: yes\n")
    assert main(["cluster", "check", cluster.address, "--actors", str(CPUS + 1)]) == 1
    said = capsys.readouterr().out
    assert said.endswith(f"this will hold {CPUS + 1} actors: no\n")
    assert "health checks: a lost host is noticed after" in said
    assert not ray.is_initialized()


def test_ray_listens_on_127_0_0_1_only(joined: Any) -> None:
    psutil = pytest.importorskip("psutil", reason="tells who listens where")
    processes = psutil.Process().children(recursive=True)
    heard = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in [psutil.Process(), *processes]
        for connection in process.net_connections(kind="inet")
        if connection.status == "LISTEN"
    }
    assert heard == {"127.0.0.1"}


@pytest.mark.parametrize("address", ["here", "here:", ":6379", "10.0.0.1:port", "10.0.0.1:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(
        NoCluster, match=r"is no address: give host:port \(Ray's own is 6379\), auto, or local"
    ):
        connect(address)


def test_an_address_where_nobody_answers_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound, so that nobody else gets it, and not listening
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["cluster", "check", address]) == 2
    assert f"cluster check: nobody answers at {address}" in capsys.readouterr().err


def check(address: str, begin: str = "pass", **environment: str) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own, which has imported no Ray yet."""
    program = f"import sys; {begin}; from replay_tutorial.__main__ import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "cluster", "check", address],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_client_without_the_token_is_refused(cluster: Any, tmp_path: Path) -> None:
    done = check(cluster.address, "import os; del os.environ['RAY_AUTH_TOKEN_PATH']", HOME=str(tmp_path))
    assert done.returncode == 2
    assert "there is no token for" in done.stderr
    assert "Copy ~/.ray/auth_token" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_client_with_another_token_is_refused(cluster: Any, tmp_path: Path) -> None:
    token = tmp_path / "auth_token"
    token.write_text("fedcba9876543210" * 4, encoding="utf-8")
    patience = {"RAY_NUM_REDIS_GET_RETRIES": "2"}  # of Ray, which tries for 20 seconds
    done = check(cluster.address, RAY_AUTH_TOKEN_PATH=str(token), **patience)
    assert done.returncode == 2
    assert "Authentication token is missing or incorrect" in done.stderr  # Ray says it
    assert "is ~/.ray/auth_token here the same file as there?" in done.stderr


def test_another_version_of_ray_is_refused(cluster: Any) -> None:
    done = check(cluster.address, "import ray; ray.__version__ = '2.59.0'")
    assert done.returncode == 2
    assert "Ray: 2.59.0" in done.stderr
    assert "Install the same versions of Ray and Python on every host." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_ray_is_told_with_the_remedy() -> None:
    done = check("local", "sys.modules['ray'] = None")
    assert done.returncode == 1
    assert "cluster needs ray, which isn't installed. The extra `cluster` brings it" in done.stderr
    assert 'pip install "replay_tutorial[cluster]"' in done.stderr


def test_a_launcher_is_printed_without_ray(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "launch", "aws"]) == 0
    assert "cluster_name: apex" in capsys.readouterr().out
