"""`cluster check`: what it finds on a real Ray, what it warns of, and how it refuses."""

import inspect
import os
import pickle
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="the cluster needs the extra `cluster`")
import ray

from replay_tutorial import __version__
from replay_tutorial.__main__ import main
from replay_tutorial.cluster import connection
from replay_tutorial.cluster.check import Host, faults_of, health_of, warnings_of
from replay_tutorial.cluster.connection import ClusterUnavailable, connect, knock
from replay_tutorial.cluster.options import ClusterOptions

CPUS = 3  # of the first node 1, of the second 2
IMPATIENT = {"RAY_NUM_REDIS_GET_RETRIES": "2"}  # Ray tries for 20 seconds
WHOLE, HALF = ClusterOptions("auto"), ClusterOptions("auto", cpus_per_actor=0.5)
LOOK = """
import pickle, sys
from replay_tutorial.cluster.connection import connect
from replay_tutorial.cluster.check import look_at_hosts
import ray
connect(sys.argv[1], 0)
hosts = look_at_hosts()
free = ray.available_resources()["CPU"]
sys.stdout.buffer.write(pickle.dumps((hosts, free)))
"""


def python(program: str, running_ray: Any, *arguments: str, **environment: str) -> Any:
    """What a process that has imported no Ray yet comes to."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**running_ray.environment, **environment},
        capture_output=True,
        timeout=300,
        check=False,
    )


def check(running_ray: Any, *arguments: str, begin: str = "pass", **environment: str) -> Any:
    """What the command says: the exit status, and what is printed."""
    program = f"import sys; {begin}; from replay_tutorial.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = ("cluster", "check", running_ray.address, *arguments)
    done = python(program, running_ray, *command, **environment)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture(scope="module")
def looked(running_ray: Any) -> tuple[list[Host], float]:
    """What is found on the Ray of the tests, and how many CPUs are free afterwards."""
    done = python(LOOK, running_ray, running_ray.address)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


@pytest.fixture
def hosts(looked: tuple[list[Host], float]) -> list[Host]:
    return looked[0]


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


def test_the_probes_leave_every_cpu_free(looked: tuple[list[Host], float]) -> None:
    assert looked[1] == CPUS


def test_hosts_that_agree_and_have_room_are_without_fault(hosts: list[Host]) -> None:
    assert faults_of(hosts, CPUS, CPUS, WHOLE) == []


def test_too_many_actors_are_told_what_is_missing(hosts: list[Host]) -> None:
    [fault] = faults_of(hosts, CPUS + 1, CPUS, WHOLE)
    assert f"{CPUS + 1} actors need 1 CPU" in fault
    [fault] = faults_of(hosts, CPUS, CPUS - 1, WHOLE)
    assert f"{CPUS - 1} CPUs are free" in fault


def test_small_actors_share_a_cpu(hosts: list[Host]) -> None:
    assert faults_of(hosts, 2 * CPUS, CPUS, HALF) == []
    [fault] = faults_of(hosts, 2 * CPUS + 1, CPUS, HALF)
    assert f"{2 * CPUS + 1} actors need 0.5 CPU" in fault
    [fault] = faults_of(hosts, 2 * CPUS, CPUS - 1, HALF)
    assert f"{CPUS - 1} CPUs are free" in fault


def test_actors_need_memory_too(hosts: list[Host]) -> None:
    small = [host._replace(memory=414 * 2**20) for host in hosts]
    [fault] = faults_of(small, 1, CPUS, WHOLE)
    assert "memory are for 0" in fault


def test_a_host_with_other_sources_is_named(hosts: list[Host]) -> None:
    other = hosts[1]._replace(name="old", installed=hosts[1].installed | {"sources": "0123456789ab"})
    [fault] = faults_of([hosts[0], other], 0, 0, WHOLE)
    assert fault.startswith("old has sources 0123456789ab.")


def test_a_host_that_does_not_answer_is_a_fault_and_no_room(hosts: list[Host]) -> None:
    dead = hosts[1]._replace(installed={}, environment={}, fault="No module named 'replay_tutorial'")
    first, second = faults_of([hosts[0], dead], CPUS, CPUS, WHOLE)
    assert "No module named 'replay_tutorial'" in first
    assert "memory are for 1" in second


def test_a_cluster_without_a_token_is_warned_of_and_has_room(hosts: list[Host]) -> None:
    assert warnings_of(hosts) == []
    open_hosts = [host._replace(environment={}) for host in hosts]
    [warning] = warnings_of(open_hosts)
    assert "RAY_AUTH_MODE=token" in warning
    assert faults_of(open_hosts, CPUS, CPUS, WHOLE) == []


def test_the_health_checks_say_when_a_host_is_lost() -> None:
    tuned = {"period_ms": "1000", "timeout_ms": "2000", "failure_threshold": "3"}
    assert health_of({f"RAY_health_check_{name}": value for name, value in tuned.items()}) == (3.0, 9.0)
    assert health_of({}) == (15.0, 65.0)


def test_the_command_says_yes_and_no(running_ray: Any) -> None:
    status, said, _ = check(running_ray, "--actors", str(CPUS))
    assert (status, said.splitlines()[-1]) == (0, f"this will hold {CPUS} actors: yes")
    more = ("--actors", str(CPUS + 1))
    status, said, _ = check(running_ray, *more)
    assert (status, said.splitlines()[-1]) == (1, f"this will hold {CPUS + 1} actors: no")
    status, said, _ = check(running_ray, *more, "--cpus-per-actor", "0.5")
    assert (status, said.splitlines()[-1]) == (0, f"this will hold {CPUS + 1} actors: yes")
    assert "health checks: a lost host is noticed after" in said


def test_a_share_of_a_cpu_that_no_run_would_take_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "check", "local", "--cpus-per-actor", "nan"]) == 2
    assert "cpus_per_actor is nan" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["here", "here:", ":6379", "10.0.0.1:port", "10.0.0.1:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(
        ClusterUnavailable, match="is no address of a cluster: give auto, local, or host:port"
    ):
        knock(address)


@pytest.mark.parametrize("auto", [False, True])
def test_an_address_where_nothing_answers_is_refused_at_once(
    auto: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound, so that nobody else gets it, and not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")  # as the file of a Ray that was killed says
        with pytest.raises(ClusterUnavailable, match=rf"nothing answers at [\d.]+:{port}"):
            knock("auto" if auto else f"127.0.0.1:{port}")


def test_a_host_without_ray_is_told_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none(address: str) -> str:
        raise ConnectionError(address)

    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", find_none)
    with pytest.raises(
        ClusterUnavailable, match="no Ray runs on this host: start one with `ray start --head`"
    ):
        knock("auto")


@pytest.mark.parametrize("has_token", [False, True])
def test_ray_is_asked_for_a_token_only_where_there_is_one(has_token: bool, tmp_path: Path) -> None:
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0123", encoding="utf-8")
    given = {name: text for name, text in os.environ.items() if not name.startswith("RAY_AUTH")}
    program = "import os, replay_tutorial.cluster; print(os.environ['RAY_AUTH_MODE'])"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**given, "HOME": str(tmp_path)}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == ("token" if has_token else "disabled")


def test_what_ray_tells_of_other_hosts_is_not_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twenty lines of a stack trace, when a host that was cut off comes back."""
    from ray._private import worker

    monkeypatch.setattr(worker, "print_to_stdstream", worker.print_to_stdstream)  # restored afterwards
    said = {
        "lines": ["Raylet is terminated.", "*** StackTrace Information ***"],
        "pid": "raylet",
        "is_err": False,
    }
    worker.print_to_stdstream(said, ignore_prefix=False)
    assert "StackTrace" in capsys.readouterr().out
    connection.silence()
    worker.print_to_stdstream(said, ignore_prefix=False)
    assert capsys.readouterr() == ("", "")
    assert "print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)


def test_a_run_on_a_cluster_without_a_token_is_warned_with_both_commands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(connection, "knock", lambda address: address)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    connect("auto", 0)
    assert "anybody who reaches this cluster can run code on it" in caplog.text
    assert "`ray get-auth-token --generate`" in caplog.text
    assert "`RAY_AUTH_MODE=token ray start ...`" in caplog.text


def test_a_client_without_the_token_is_refused(running_ray: Any, tmp_path: Path) -> None:
    forget = "import os; del os.environ['RAY_AUTH_TOKEN_PATH']"
    status, _, said = check(running_ray, begin=forget, HOME=str(tmp_path))
    assert status == 2
    assert "can't be used: RAY_AUTH_MODE is token, and this host has no token." in said
    assert (
        "Copy ~/.ray/auth_token from the cluster's head. If that has none either, run `ray get-auth-" in said
    )
    forget += ", os.environ['RAY_AUTH_MODE']"
    status, _, said = check(running_ray, begin=forget, HOME=str(tmp_path), **IMPATIENT)
    assert status == 2
    assert (
        "can't be used: what listens there is no Ray that works, or it asks for a token, and this host"
        in said
    )
    assert len(said.splitlines()) == 1, "Ray's own warnings hide ours"


def test_a_client_with_another_token_is_refused(running_ray: Any, tmp_path: Path) -> None:
    token = tmp_path / "auth_token"
    token.write_text("fedcba9876543210" * 4, encoding="utf-8")
    status, _, said = check(running_ray, RAY_AUTH_TOKEN_PATH=str(token), **IMPATIENT)
    assert status == 2
    assert "what listens there is no Ray that works, or its token is not the one of this host" in said
    assert "Copy ~/.ray/auth_token from the cluster's head" in said


HANG_UP = """
import os, signal, subprocess, time
from replay_tutorial.cluster.connection import connect
def group():
    command = ["ps", "-A", "-o", "pid=,pgid=,stat=,comm="]
    rows = [line.split(None, 3) for line in subprocess.check_output(command, text=True).splitlines()]
    return {(pid, name) for pid, group, state, name in rows
            if int(group) == os.getpgrp() and state[0] != "Z" and name != "ps"}
connect("local", 1)
started = group()
signal.signal(signal.SIGHUP, lambda *_: print("heard"))
os.killpg(0, signal.SIGHUP)
time.sleep(1)
print("raylet" in str(started), started - group())
"""


def test_what_a_local_cluster_started_outlives_a_closed_terminal_until_its_driver_ends(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HANG_UP]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as driver:
        said, error = driver.communicate(timeout=300)
    assert said.split("\n")[:2] == ["heard", "True set()"], error


def test_another_version_of_ray_is_refused(running_ray: Any) -> None:
    status, _, said = check(running_ray, begin="import ray; ray.__version__ = '2.59.0'")
    assert status == 2
    assert re.search(r"its versions are others than here.*Ray: 2\.60\.0.*Ray: 2\.59\.0", said, re.DOTALL)
    assert "Traceback" not in said


@pytest.mark.parametrize("what", ["The current node timed out during startup. This", "never heard of"])
def test_ray_that_does_not_begin_in_time_is_told_with_the_remedy_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ray = pytest.importorskip("ray", reason="needs the extra `cluster`")

    def init(**_: Any) -> None:
        raise Exception(what)  # noqa: TRY002 - as Ray does

    monkeypatch.setattr(ray, "init", init)
    known = "timed out" in what
    error = ClusterUnavailable if known else Exception
    with pytest.raises(error, match="could not begin in time: the machine" if known else what) as raised:
        connect("auto", 0)
    assert type(raised.value) is error


def test_a_missing_ray_is_told_with_the_remedy() -> None:
    missing = "import sys; sys.modules['ray'] = None; from replay_tutorial.__main__ import main; "
    command = [sys.executable, "-c", missing + "sys.exit(main(['cluster', 'check', 'local']))"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cluster needs ray, which isn't installed. The extra `cluster` brings it" in done.stderr
    assert 'pip install "replay_tutorial[cluster]"' in done.stderr


def test_a_launcher_is_printed_without_ray(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "launch", "aws"]) == 0
    assert "cluster_name: apex" in capsys.readouterr().out
