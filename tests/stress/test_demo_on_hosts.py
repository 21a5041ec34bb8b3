"""The demonstration: a run on three hosts, and what happens to one of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from cluster_demo import CUT, KILLED, LEARNER, Fault, Show, wait_with
from hosts import Hosts, why_not
from places import ROOT

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"hosts: {why_not()}")

PYTHON = [sys.executable, "-I", "-S", "-c"]


def test_faults_happen_while_train_runs_and_nothing_after_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    with Hosts(3) as hosts:
        killed, cut = (hosts.run(host, [*PYTHON, "import time; time.sleep(1000)"]) for host in (KILLED, CUT))
        train = hosts.run(LEARNER, [*PYTHON, "input()"], stdin=subprocess.PIPE)

        class ShowTwo(Show):
            """Lets `train` end when both faults have happened."""

            def __call__(self, text: str) -> None:
                super().__call__(text)
                if "cable" in text:
                    train.communicate(b"\n")

        assert wait_with([Fault("kill", 0.1), Fault("cut", 0.2)], train, hosts, {}, ShowTwo()) == 0
        assert killed.wait() == -9
        assert cut.poll() is None
    first, second = capsys.readouterr().out.splitlines()
    assert "host 1 is killed: 1 processes" in first
    assert "the cable of host 2 is cut; its 1 processes live on" in second


def test_train_is_called_on_three_hosts_with_ray_and_nothing_is_left() -> None:
    for module in ("ray", "torch", "tyro"):
        pytest.importorskip(module, reason="needs the extra `cluster`")
    # Asked for help, train ends at once; whole runs on such hosts are those of `cluster_faults.py`.
    demo = [sys.executable, str(ROOT / "tests/stress/cluster_demo.py"), "--actors", "2", "--", "--help"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(demo, cwd=ROOT, **pipes) as process:
        said, complaints = process.communicate(timeout=600)
    assert process.returncode == 0, complaints
    assert "Ray is up on all of them" in said
    assert "train CartPole-v1 --cluster=10.99.0.1:6379 --actors=2 --help" in said
    assert "usage: python -m replay_tutorial train" in said
    *_, ended, gone = said.splitlines()
    assert "train ended with exit status 0" in ended
    assert "the hosts are gone" in gone
    assert not list(Path("/tmp").glob(f"host_{process.pid}_*"))
