"""A terminal is closed while a cluster of this machine alone runs: Ray outlives it until its driver ends."""

import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="needs the extra `cluster`")

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


def test_what_a_local_cluster_started_outlives_a_closed_terminal_until_its_driver_ends() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HANG_UP], start_new_session=True, **pipes) as driver:
        said, error = driver.communicate(timeout=300)
    assert said.split("\n")[:2] == ["heard", "True set()"], error
