"""The supervisor: no death goes unnoticed, whoever else holds the pipe of the dead."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import connection, forkserver
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest
from places import ROOT
from run_parts import parts

from replay_tutorial.apex.context import InitialCounters
from replay_tutorial.apex.runs import restart_policy
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.local import supervisor as supervisor_module
from replay_tutorial.local.local_engine import roles
from replay_tutorial.local.supervisor import Role, Supervisor

POLL_SECONDS = 240  # seconds that a process may take to start on a busy machine


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (3,)


def work(_):
    """Never gets as far as this."""


@pytest.fixture
def deadly_role():
    """A role whose process dies before it has taken over its end of the pipe."""
    held = []

    def start(restart_count, messages):
        if os.name == "posix":  # on Windows we hold another end anyway until the process takes it over
            held.append(Connection(os.dup(messages.fileno()), readable=False))
        return work, ((Deadly(), messages),)

    yield Role("actor 0", start)
    for end in held:
        end.close()


def receive_until(supervisor, is_over=lambda: False):
    deadline = time.monotonic() + POLL_SECONDS
    while not is_over() and time.monotonic() < deadline:
        supervisor.receive(0.1)


def test_process_that_dies_before_it_has_its_pipe_is_noticed(deadly_role):
    with (
        pytest.raises(ProcessDied, match="actor 0 ended with exit code 3"),
        Supervisor([deadly_role], lambda _: None) as supervisor,
    ):
        receive_until(supervisor)
    assert multiprocessing.active_children() == []


def test_process_that_dies_so_after_the_stop_is_not_waited_for(deadly_role):
    with Supervisor([deadly_role], lambda _: None) as supervisor:
        supervisor.stop()
        receive_until(supervisor, lambda: not supervisor.is_working("actor 0"))
        assert not supervisor.is_working("actor 0")


def test_wait_that_ctrl_c_interrupts_on_windows_is_no_error(monkeypatch):
    """There, the handler sets its flag and returns, and then the wait raises."""

    def interrupted(*_):
        raise InterruptedError("Interrupted function call")

    monkeypatch.setattr(supervisor_module, "wait", interrupted)
    assert Supervisor([], lambda _: None).receive(0.1) == []


def role(name, work, max_failures=None):
    return Role(name, lambda restart_count, messages: (work, (messages,)), max_failures)


def fail_at_once(_):
    """Die without a word."""
    os._exit(3)


@pytest.mark.parametrize(("max_failures", "starts"), [(None, 1), (1, 4), (3, 4)])
def test_only_actors_are_replaced_however_long_they_lived(monkeypatch, max_failures, starts):
    """Every process here counts as stable at once, as one does that has lived for a minute."""
    monkeypatch.setattr(restart_policy, "STABLE_SECONDS", 0.0)
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE_SECONDS", 0.01)
    with Supervisor([role("learner", fail_at_once, max_failures)], lambda _: None) as supervisor:
        policy = supervisor.workers[0].restart_policy
        dies = pytest.raises(ProcessDied, match="learner ended with exit code 3")
        with dies if max_failures is None else nullcontext():
            receive_until(supervisor, lambda: policy.starts == 4)
        assert policy.starts == starts


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only there a server starts processes")


def work_on(_):
    """Live as long as the server takes to be killed."""
    time.sleep(10)


def test_of_a_runs_roles_only_actors_may_die():
    context, _ = parts()
    config = replace(context.config, actors=2, restart_limit=7)
    setup = SimpleNamespace(context=replace(context, config=config))
    may_die = {role.name: role.max_failures for role in roles(setup)}
    assert may_die == {"learner": None, "actor 0": 7, "actor 1": 7, "evaluator": None}


def test_actors_of_a_run_resumed_twice_at_one_update_do_not_repeat_their_episodes():
    """Before the first update, or interrupted again before the next one: the policy is the same."""
    context, _ = parts()
    context = replace(context, config=replace(context.config, actors=1))

    def seed_at(steps):
        counters = InitialCounters(update=0, steps=steps)
        setup = SimpleNamespace(context=context, seeds=RunSeeds(context.config), initial_counters=counters)
        _, (*_, seed) = roles(setup)[1].start(0, None)
        return seed.generate_state(4).tolist()

    assert seed_at(0) == seed_at(0)
    assert len({*map(str, (seed_at(0), seed_at(300), seed_at(600)))}) == 3


@linux_only
def test_server_that_is_killed_while_it_starts_a_process_is_told(monkeypatch):
    def start(restart_count, messages):
        os.kill(server, signal.SIGSTOP)  # so that it is sure not to be faster
        return work_on, (messages,)

    def of_a_dead_server(read):
        """The server has been asked for a process, and has not answered yet."""

        def kill_and_read(*arguments):
            os.kill(server, signal.SIGKILL)
            return read(*arguments)

        return kill_and_read

    # The first answer: from Python 3.14 on the two prove to each other that they have a key.
    answer = (connection, "answer_challenge") if sys.version_info >= (3, 14) else (forkserver, "read_signed")
    monkeypatch.setattr(*answer, of_a_dead_server(getattr(*answer)))

    supervisor_module.start_context()
    forkserver.ensure_running()
    server = forkserver._forkserver._forkserver_pid
    with (
        pytest.raises(
            ProcessDied, match=r"learner could not be started \((EOF|ConnectionReset)Error.*server"
        ),
        Supervisor([Role("learner", start)], lambda _: None),
    ):
        pass
    assert multiprocessing.active_children() == []
    os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)  # or the next test might find it still dying


@linux_only
def test_processes_whose_server_was_killed_are_lost_and_that_is_told():
    with (
        pytest.raises(ProcessDied, match=r"learner is lost: its fork server was killed"),
        Supervisor([role("learner", work_on)], lambda _: None) as supervisor,
    ):
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        receive_until(supervisor)


KILLED = """
import os, signal, sys, time
from pathlib import Path
from replay_tutorial.local.supervisor import Role, Supervisor
if __name__ == "__main__":
    with Supervisor([Role("actor 0", lambda restart_count, messages: (time.sleep, (0,)))], lambda _: None):
        Path(sys.argv[1]).write_text(str(len(list(Path(os.environ["TMPDIR"]).glob("pymp-*")))))
        os.kill(os.getpid(), signal.SIGKILL)
"""


@linux_only
def test_killed_parent_leaves_no_temporary_files(tmp_path):
    count = tmp_path / "count"
    subprocess.run(
        [sys.executable, "-c", KILLED, str(count)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        check=False,
        timeout=POLL_SECONDS,
    )
    assert int(count.read_text()) > 0, "there is one while the parent lives"
    deadline = time.monotonic() + POLL_SECONDS
    while time.monotonic() < deadline and list(tmp_path.glob("pymp-*")):
        time.sleep(0.1)
    assert not list(tmp_path.glob("pymp-*"))


def speak(messages):
    """Say something, and die."""
    messages.send("the last word")
    os._exit(3)


def test_what_was_said_before_a_death_is_not_lost():
    with Supervisor([role("actor 0", speak, 5), role("learner", fail_at_once)], lambda _: None) as supervisor:
        for worker in supervisor.workers:
            worker.process.join(POLL_SECONDS)
        assert supervisor.receive(0.1) == ["the last word"]
        with pytest.raises(ProcessDied, match="learner ended with exit code 3"):
            supervisor.receive(0.1)
