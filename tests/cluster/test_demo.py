"""The demonstration: a run on three hosts, and what happens to one of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from replay_tutorial.bench.cluster.demo import CUT, KILLED, LEARNER, Fault, Show, main, wait_with
from replay_tutorial.bench.cluster.hosts import Hosts, why_not

needs_hosts = pytest.mark.skipif(why_not() is not None, reason=f"hosts: {why_not()}")

SLEEP = "import sys, time; time.sleep(float(sys.argv[1]))"


def sleep(hosts: Hosts, host: int, seconds: float) -> "subprocess.Popen[bytes]":
    """A process that lives for a while."""
    return hosts.run(host, [sys.executable, "-I", "-S", "-c", SLEEP, str(seconds)])


@needs_hosts
def test_faults_happen_while_train_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with Hosts(3) as hosts:
        killed, cut = sleep(hosts, KILLED, 1000), sleep(hosts, CUT, 1000)
        train = sleep(hosts, LEARNER, 1)
        assert wait_with([Fault("kill", 0.1), Fault("cut", 0.2)], train, hosts, Show()) == 0
        assert killed.wait() == -9
        assert cut.poll() is None
    first, second = capsys.readouterr().out.splitlines()
    assert "host 1 is killed: 1 processes" in first
    assert "the cable of host 2 is cut; its 1 processes live on" in second


@needs_hosts
def test_nothing_happens_once_train_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with Hosts(3) as hosts:
        bystander = sleep(hosts, KILLED, 1000)
        assert wait_with([Fault("kill", 100)], sleep(hosts, LEARNER, 0), hosts, Show()) == 0
        assert bystander.poll() is None
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--kill-after", "-1"], "must be 0 or more"),
        (["--cut-after", "inf"], "must be 0 or more"),
        (["--kill-after", "1", "--cut-after", "1"], "not allowed with"),
        (["--actors", "0"], "0"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert reason in capsys.readouterr().err


def test_the_reason_is_said_where_it_cannot_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 1
    assert "no hosts can be made here: it needs" in capsys.readouterr().err


@needs_hosts
def test_a_run_on_three_hosts_ends_well(tmp_path: Path) -> None:
    for module in ("ray", "torch", "tyro"):
        pytest.importorskip(module, reason="needs the extra `cluster`")
    demo = [sys.executable, "-m", "replay_tutorial", "bench", "cluster-demo", "--actors", "2", "--"]
    options = ["--no-progress", "--total-steps", "1500", "--runs", str(tmp_path), "--final-episodes", "2"]
    result = subprocess.run(
        [*demo, *options], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "Ray is up on all of them" in result.stdout
    assert "train ended with exit status 0" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("the hosts are gone, with all that ran on them")
    (run,) = tmp_path.iterdir()
    assert (run / "learning_curve.png").is_file()
