"""What a run's processes have around their work: as many of torch's threads as they were told."""

import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import small_environments
import torch
from places import ROOT
from run_parts import parts
from small_environments import FAULTS

from replay_tutorial.agents.environments import CheckedEnvironment, make_environment
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.messages import Note
from replay_tutorial.apex.runs import run
from replay_tutorial.local import workers
from replay_tutorial.local.workers import NICENESS, act, evaluate, learn_and_save, run_worker


@pytest.fixture
def context(monkeypatch):
    """Of a run with three threads; nobody's signals and priority are changed."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "nice", lambda _: None, raising=False)
    context, _ = parts()
    return replace(context, config=replace(context.config, threads=3))


@pytest.fixture
def pipe():
    """The ends of a pipe, for the parent and the process."""
    return multiprocessing.Pipe(duplex=False)


def test_each_process_computes_in_the_threads_of_the_settings_and_the_evaluator_gives_way(
    context, pipe, monkeypatch
):
    counted, given = [], []

    def count(*_):
        counted.append((torch.get_num_threads(), [*given]))

    monkeypatch.setattr(os, "nice", given.append, raising=False)
    monkeypatch.setattr(workers, "learn", count)
    monkeypatch.setattr(workers, "evaluate_policies", count)
    monkeypatch.setattr(workers, "exit_when_stopped", lambda _: None)
    monkeypatch.setattr(workers.Actor, "run", count)
    folder = SimpleNamespace(path=None, save_policy=None)
    with run.torch_threads(1):
        for work, *arguments in [
            (learn_and_save, 0, None, None),
            (act, 0, np.random.SeedSequence(0)),
            (evaluate, folder, None, None, 0),
        ]:
            torch.set_num_threads(1)
            run_worker(pipe[1], context, work, *arguments)
    assert counted == [(3, []), (3, []), (3, [NICENESS] if sys.platform != "win32" else [])]


def test_messages_go_to_the_parent_and_so_does_a_failure(context, pipe):
    def fail(context, word):
        context.send_message(word)
        raise ArithmeticError("the pole is broken")

    with pytest.raises(SystemExit) as end:
        run_worker(pipe[1], context, fail, "a message")
    assert end.value.code == 1
    assert pipe[0].recv() == "a message"
    assert "ArithmeticError: the pole is broken" in pipe[0].recv().traceback


def test_environment_that_fails_is_a_failure_of_one_line(context, pipe):
    def fail(_):
        environment = make_environment("small_environments:Exit-v0")
        for _ in range(3):
            environment.reset()
            environment.step(0)
        environment.step(0)

    with pytest.raises(SystemExit) as end:
        run_worker(pipe[1], context, fail)
    assert end.value.code == 1
    assert re.fullmatch(FAULTS["exit"] + ".*", pipe[0].recv().traceback)


def test_step_that_hangs_is_reported_with_the_name_of_the_process(context, pipe):
    class Hanging(small_environments.Counting):
        def step(self, action):
            assert pipe[0].poll(600), "no report"
            return np.zeros(2), 0.0, False, False, {}

    def hang(context):
        CheckedEnvironment(Hanging(), "env").step(0)
        context.send_message("after the hang")

    context = replace(context, config=replace(context.config, slow_step_seconds=0.01))
    run_worker(pipe[1], context, hang)
    told = "step 1 of an episode of env has taken 0.01 s so far and may hang; still waiting for it"
    assert [pipe[0].recv(), pipe[0].recv()] == [Note(f"MainProcess: {told}"), "after the hang"]


def test_full_disk_is_a_failure_of_one_line(context, pipe):
    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device", "runs/a/policy.pt")

    with pytest.raises(SystemExit):
        run_worker(pipe[1], context, fail)
    assert pipe[0].recv().traceback == "[Errno 28] No space left on device: 'runs/a/policy.pt'"


class Enough(Exception):
    """Ends a run that has just begun."""


def test_run_in_one_process_computes_in_them_too_and_gives_them_back(monkeypatch):
    counted = []

    def begin(config, make_context):
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
from run_parts import parts
from replay_tutorial.local.workers import run_worker
ours, theirs = Pipe(duplex=False)
ours.close()
run_worker(theirs, parts()[0], lambda context: context.send_message("a message"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])},
    )
    assert (done.returncode, done.stderr) == (1, "")
