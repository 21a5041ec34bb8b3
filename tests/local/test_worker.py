"""What a run's processes have around their work: as many of torch's threads as they were told."""

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from test_apex_checkpoint import parts

from replay_tutorial.apex import actor, evaluator, learner
from replay_tutorial.apex.actor import ActorTask, run_actor
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.evaluator import EvaluatorTask, run_evaluator
from replay_tutorial.apex.learner import LearnerTask, run_learner
from replay_tutorial.apex.runs import run
from replay_tutorial.local.worker import NICENESS


@pytest.fixture
def common(monkeypatch):
    """Of a run with three threads; nobody's signals and priority are changed."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "nice", lambda _: None, raising=False)
    common, _ = parts()
    return replace(common, config=replace(common.config, threads=3))


def test_all_processes_compute_in_the_threads_that_the_settings_name(common, monkeypatch):
    counted = []

    def count(*_):
        counted.append(torch.get_num_threads())

    monkeypatch.setattr(learner, "learn", count)
    monkeypatch.setattr(evaluator, "judge", count)
    monkeypatch.setattr(actor.Actor, "__init__", lambda *_: None)
    monkeypatch.setattr(actor.Actor, "run", count)
    messages, _ = multiprocessing.Pipe()
    with run.torch_threads(1):
        for begin, task in [
            (run_learner, LearnerTask(common, 0, None, None, messages)),
            (run_evaluator, EvaluatorTask(common, None, None, None, 0, messages)),
            (run_actor, ActorTask(common, 0, None, messages)),
        ]:
            torch.set_num_threads(1)
            begin(task)
    assert counted == [3, 3, 3]


@pytest.mark.skipif(os.name != "posix", reason="priorities of POSIX")
def test_only_the_evaluator_gives_way(common, monkeypatch):
    given = []
    monkeypatch.setattr(os, "nice", given.append)
    monkeypatch.setattr(learner, "learn", lambda _: None)
    monkeypatch.setattr(evaluator, "judge", lambda _: None)
    messages, _ = multiprocessing.Pipe()
    run_learner(LearnerTask(common, 0, None, None, messages))
    assert given == []
    run_evaluator(EvaluatorTask(common, None, None, None, 0, messages))
    assert given == [NICENESS]


class Enough(Exception):
    """Ends a run that has just begun."""


def test_run_in_one_process_computes_in_them_too_and_gives_them_back(monkeypatch):
    counted = []

    def begin(config):
        counted.append(torch.get_num_threads())
        raise Enough

    monkeypatch.setattr(run, "new_setup", begin)
    before = torch.get_num_threads()
    with pytest.raises(Enough):
        run.train(Config(actors=0, threads=before + 1))
    assert counted == [before + 1]
    assert torch.get_num_threads() == before


def test_process_ends_without_a_word_when_nobody_is_left_to_hear_it():
    program = """
from multiprocessing import Pipe
from replay_tutorial.local.worker import run_worker
hear, tell = Pipe(duplex=False)
hear.close()
run_worker(lambda: tell.send("a message"), tell, 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "")
