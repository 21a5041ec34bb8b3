"""Processes are killed after each step of the protocol: nothing hangs, is torn, or is lost for good."""

import multiprocessing
import os
import signal
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import shared_rows
import steps
from checked_rows import CheckedRows, Faults
from scipy import stats
from shared_rows import POLL_SECONDS, in_child
from storm import WatchedBuffer
from victim import wait_until

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer
from replay_tutorial.shared import protocol, sampler

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
KILLS = 5 if steps.FORKS else 1  # a spawned process takes seconds to start

impatience = shared_rows.impatience


@contextmanager
def killed_at_the_end(target, *arguments):
    """Runs a process that never ends by itself."""
    process = steps.CONTEXT.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    ("buffer_class", "step"), [(each, step) for each in steps.CLASSES for step in steps.steps_of(each)]
)
def test_buffer_outlives_a_kill_after_each_step(buffer_class, step):
    outcome = steps.kill_at(buffer_class, step, kills=KILLS, seed=1)
    assert (outcome.kills, outcome.faults) == (KILLS, [])


def publish_and_copy(stamps, rows, masses, new_rows, new_masses, first_index, start, owner):
    """A writer that publishes its rows before it copies them."""
    for i in range(start, len(new_rows)):
        slot = (first_index + i) % len(stamps)
        protocol.store_release(stamps, slot, protocol.published_stamp(first_index + i))
        protocol.copy_row(rows, slot, new_rows, i)
        masses[slot] = new_masses[i]
    return len(new_rows)


@needs_fork
def test_kills_would_show_a_writer_that_publishes_too_early(monkeypatch):
    monkeypatch.setattr(protocol, "write_rows", SimpleNamespace(py_func=publish_and_copy))
    outcome = steps.kill_at(MPReplayBuffer, "half of the row copied", kills=20, seed=1)
    assert "Faults(torn=" in outcome.faults[0] or "held slots" in outcome.faults[0]


def put_the_index_before_the_mass(updated_indexes, updated_masses, slot, index, mass):
    """An updater that says whose mass it is before it is there."""
    sampler.store_release(updated_indexes, slot, 0)
    sampler.store_release(updated_indexes, slot, index + 1)
    updated_masses[slot] = mass


@needs_fork
def test_kills_would_show_an_updater_that_leaves_a_mass_to_the_wrong_row(monkeypatch):
    monkeypatch.setattr(sampler, "write_back", put_the_index_before_the_mass)
    outcome = steps.kill_at(MPPrioritizedReplayBuffer, "index restored", kills=20, seed=1)
    assert "masses" in outcome.faults[0]


def leave_a_child_while_sampling(buffer, answers):
    buffer.sample(4)
    parent = os.getpid()
    buffer._lease.registration.lock.acquire()  # as a thread does that draws while another one forks
    if os.fork() == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(POLL_SECONDS)  # nobody else ends an orphan that hangs
        while os.getppid() == parent:
            time.sleep(0.001)
        answers.put(len(buffer.sample(4)["indexes"]))
        answers.close()
        answers.join_thread()
        os._exit(0)


@needs_fork
def test_forked_child_of_a_dead_sampler_does_not_wait_for_its_lock():
    rows = CheckedRows(row_bytes=40)
    buffer = WatchedBuffer(8, rows.fields)
    buffer.add(**rows.make(1, 0, 8), priorities=np.ones(8))
    assert in_child(multiprocessing.get_context("fork"), leave_a_child_while_sampling, buffer) == 4


GROUP_PRIORITIES = np.array([1.0, 2.0, 3.0, 5.0, 8.0])


def write_groups(buffer, rows, writer):
    """Adds rows whose priority follows from their number, so that the whole buffer's shares stay the same."""
    first = 0
    while True:
        number = np.arange(first, first + 20) + 1
        buffer.add(**rows.make(writer, first, 20), priorities=GROUP_PRIORITIES[number % 5])
        first += 20


def test_draws_follow_the_masses_while_writers_replace_the_rows():
    rows = CheckedRows(row_bytes=40)
    buffer = WatchedBuffer(2000, rows.fields, alpha=1.0, eps=0.0, seed=4)
    number = np.arange(2000) + 1
    buffer.add(**rows.make(1, 0, 2000), priorities=GROUP_PRIORITIES[number % 5])
    with killed_at_the_end(write_groups, buffer, rows, 2), killed_at_the_end(write_groups, buffer, rows, 3):
        assert wait_until(lambda: buffer.next_index > 4000, POLL_SECONDS)
        # A batch of one is drawn from the whole total: independent draws, as the test supposes.
        batches = [buffer.sample(1) for _ in range(10_000)]
        while buffer.next_index < 21 * 2000:  # the system may not have let the writers work meanwhile
            batches.append(buffer.sample(1))
    drawn = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    assert rows.check(drawn) == Faults(0, 0)
    observed = np.bincount(drawn["number"][:, 0] % 5, minlength=5)
    expected = GROUP_PRIORITIES / GROUP_PRIORITIES.sum() * len(batches)
    assert stats.chisquare(observed, expected).pvalue > 1e-6  # no seed fixes which rows are there
