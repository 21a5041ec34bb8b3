"""The supervisor: no death goes unnoticed, whoever else holds the pipe of the dead."""

import multiprocessing
import os
import time
from multiprocessing.connection import Connection

import pytest

from replay_tutorial.local.supervisor import ProcessDied, Role, Supervisor

POLL_SECONDS = 60  # seconds that a process may take to start on a busy machine


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

    def start(life, messages):
        if os.name == "posix":  # on Windows we hold another end anyway until the process takes it over
            held.append(Connection(os.dup(messages.fileno()), readable=False))
        return work, (Deadly(), messages)

    yield Role("actor 0", start)
    for end in held:
        end.close()


def test_process_that_dies_before_it_has_its_pipe_is_noticed(deadly_role):
    with (
        pytest.raises(ProcessDied, match="actor 0 ended with exit code 3"),
        Supervisor([deadly_role], lambda: None) as supervisor,
    ):
        deadline = time.monotonic() + POLL_SECONDS
        while time.monotonic() < deadline:
            supervisor.hear(0.1)
    assert multiprocessing.active_children() == []


def test_process_that_dies_so_after_the_stop_is_not_waited_for(deadly_role):
    with Supervisor([deadly_role], lambda: None) as supervisor:
        supervisor.stop()
        deadline = time.monotonic() + POLL_SECONDS
        while supervisor.is_working("actor 0") and time.monotonic() < deadline:
            supervisor.hear(0.1)
        assert not supervisor.is_working("actor 0")
