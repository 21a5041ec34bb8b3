"""The options of a cluster: on the command line, in a run's folder, and without Ray."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from places import ROOT

from replay_tutorial import __main__
from replay_tutorial.apex.runs import run as run_module
from replay_tutorial.cluster import command
from replay_tutorial.cluster.options import ClusterOptions, split_options


def test_options_are_split_from_the_settings():
    arguments = ["CartPole-v1", "--cluster", "auto", "--seed", "1", "--gateways=2"]
    assert split_options("train", arguments) == (ClusterOptions("auto", 2), ["CartPole-v1", "--seed", "1"])
    assert split_options("train", ["--seed", "1"]) == (None, ["--seed", "1"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--gateways", "2"], "--gateways requires a cluster: add --cluster ADDRESS"),
        (["--cpus-per-actor", "0.5"], "--cpus-per-actor requires a cluster"),
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
    monkeypatch.setattr(command, "make_engine", lambda options: taken.append(options))
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


def test_options_are_listed_by_resume_and_mentioned_by_train_which_does_not_import_ray(capsys):
    with pytest.raises(SystemExit, match="0"):
        __main__.resume(["--help"])
    listed = capsys.readouterr().out
    assert all(option in listed for option in ("--cluster ADDRESS", "--gateways", "--cpus-per-actor"))
    program = """
import sys
from replay_tutorial.__main__ import main
try:
    main(['train', '--help'])
finally:
    print('ray' in sys.modules)
"""
    command_line = [sys.executable, "-c", program]
    done = subprocess.run(command_line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "--cluster" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"
