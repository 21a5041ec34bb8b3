"""Connecting to Ray, without one: how it is refused, warned of, and kept quiet."""

import inspect
import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("ray", reason="the cluster needs the extra `cluster`")
import ray
from ray._private import worker
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayTaskError, UnserializableException

from replay_tutorial.__main__ import main
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import train
from replay_tutorial.cluster import connection
from replay_tutorial.cluster.check import detection_seconds
from replay_tutorial.cluster.connection import ClusterUnavailable, check_reachable, connect
from replay_tutorial.cluster.engine import ClusterEngine
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.cluster.ray_processes import call, is_lost


@pytest.mark.parametrize("address", ["here", "here:", ":6379", "10.0.0.1:port", "10.0.0.1:99999"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ClusterUnavailable, match="is not a cluster address: pass auto, local, or"):
        check_reachable(address)


@pytest.mark.parametrize("auto", [False, True])
def test_an_address_where_nothing_answers_is_refused_at_once(auto, monkeypatch):
    with socket.socket() as taken:  # bound, so that nobody else gets it, and not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")  # as the file of a Ray that was killed says
        with pytest.raises(ClusterUnavailable, match=rf"can't connect to [\d.]+:{port}"):
            check_reachable("auto" if auto else f"127.0.0.1:{port}")


def test_a_host_without_ray_is_told_how_to_start_it(monkeypatch):
    def find_none(address):
        raise ConnectionError(address)

    monkeypatch.setattr("ray._private.services.canonicalize_bootstrap_address", find_none)
    with pytest.raises(ClusterUnavailable, match="Ray is not running on this host: start it with `ray start"):
        check_reachable("auto")


@pytest.mark.parametrize("has_token", [False, True])
def test_ray_is_asked_for_a_token_only_where_there_is_one(has_token, tmp_path):
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0123", encoding="utf-8")
    given = {name: text for name, text in os.environ.items() if not name.startswith("RAY_AUTH")}
    program = "import os, replay_tutorial.cluster; print(os.environ['RAY_AUTH_MODE'])"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**given, "HOME": str(tmp_path)}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == ("token" if has_token else "disabled")


def test_what_ray_tells_of_other_hosts_is_not_printed(monkeypatch, capsys):
    """Twenty lines of a stack trace, when a host that was cut off comes back."""
    monkeypatch.setattr(worker, "print_to_stdstream", lambda data, ignore_prefix: print(data["lines"]))
    connection.suppress_driver_output()
    worker.print_to_stdstream({"lines": ["*** StackTrace Information ***"]}, ignore_prefix=False)
    assert capsys.readouterr() == ("", "")
    assert "print_to_stdstream(" in inspect.getsource(worker.listen_error_messages)


def test_a_run_on_a_cluster_without_a_token_is_warned_with_both_commands(monkeypatch, caplog):
    monkeypatch.setattr(ray, "init", lambda **_: None)
    monkeypatch.setattr(connection, "check_reachable", lambda address: address)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    connect("auto", 0)
    assert "anyone who can reach this cluster can run code on it" in caplog.text
    assert "`ray get-auth-token --generate`" in caplog.text
    assert "`RAY_AUTH_MODE=token ray start ...`" in caplog.text


@pytest.mark.parametrize("what", ["The current node timed out during startup. This", "never heard of"])
def test_ray_that_does_not_begin_in_time_is_told_with_the_remedy_and_other_errors_are_raised(
    monkeypatch, what
):
    def init(**_):
        raise Exception(what)  # noqa: TRY002 - as Ray does

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(connection, "check_reachable", lambda address: address)
    known = "timed out" in what
    error = ClusterUnavailable if known else Exception
    with pytest.raises(error, match="did not start in time: the machine" if known else what) as raised:
        connect("auto", 0)
    assert type(raised.value) is error


def test_local_cluster_has_room_for_actors_of_many_cores(tmp_path, monkeypatch):
    def refuse(**options):
        raise ValueError(f"num_cpus={options['num_cpus']}")

    monkeypatch.setattr(ray, "init", refuse)
    engine = ClusterEngine(ClusterOptions("local", cpus_per_actor=2.5))
    with pytest.raises(ClusterUnavailable, match="num_cpus=103"):
        train(replace(preset("CartPole-v1"), runs=tmp_path, actors=41), engine)


def test_run_in_one_process_needs_no_cluster(tmp_path):
    with pytest.raises(ClusterUnavailable, match="actors is 0"):
        train(replace(preset("CartPole-v1"), runs=tmp_path, actors=0), ClusterEngine(ClusterOptions("auto")))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_ray_is_told_with_the_remedy():
    missing = "import sys; sys.modules['ray'] = None; from replay_tutorial.__main__ import main; "
    command = [sys.executable, "-c", missing + "sys.exit(main(['cluster', 'check', 'local']))"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cluster requires ray, which is not installed. Install the extra `cluster`" in done.stderr
    assert 'pip install "replay_tutorial[cluster]"' in done.stderr


def test_a_share_of_a_cpu_that_no_run_would_take_is_refused(capsys):
    assert main(["cluster", "check", "local", "--cpus-per-actor", "nan"]) == 2
    assert "cpus_per_actor is nan" in capsys.readouterr().err


def test_the_health_checks_say_when_a_host_is_lost():
    tuned = {"period_ms": "1000", "timeout_ms": "2000", "failure_threshold": "3"}
    assert detection_seconds({f"RAY_health_check_{name}": value for name, value in tuned.items()}) == (
        3.0,
        9.0,
    )
    assert detection_seconds({}) == (15.0, 65.0)


def test_call_that_did_not_get_through_is_lost_and_an_error_that_cannot_be_brought_here_is_not():
    class Full:
        """A gateway whose caller's store has no room."""

        class send:
            @staticmethod
            def remote(*_):
                raise OSError("no space left")

    full = call(Full.send, None, 0, None).exception()
    assert "no space left" in str(full)
    assert all(map(is_lost, [full, GetTimeoutError(), ActorUnavailableError("away", None)]))
    wrong = [UnserializableException("a stack trace"), RayTaskError("play", "a traceback", ValueError())]
    assert not any(map(is_lost, [*wrong, ValueError()]))
