"""A process is one owner and one updater, however many handles it has, and nobody when it has none."""

import copy
import gc
import multiprocessing
import os
import pickle
import sys
import threading
from multiprocessing.util import Finalize

import numpy as np
import pytest
import shared_rows
from interrupts import assert_free, interrupt_at
from shared_rows import (
    START_METHODS,
    add_rows,
    answer,
    assert_whole,
    every_start_method,
    in_child,
    row_fields,
    rows_of,
    running,
)

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer
from replay_tutorial.shared.protocol import (
    NEXT_INDEX,
    NOBODY,
    OWNER_COUNT,
    UPDATER_PROCESS,
    add_to_counter,
    held_stamp,
    owner_of,
)

impatience = shared_rows.impatience


def owners_of(ring):
    """How many names stand in a ring's table of owners."""
    return int(np.count_nonzero(ring.writers._table[NOBODY + 1 :]))


def test_handles_that_are_dropped_or_kept_use_up_one_number_of_a_process():
    buffer = MPReplayBuffer(8, row_fields())
    kept = []
    for i in range(OWNER_COUNT + 5):
        handle = copy.copy(buffer)
        handle.add(**rows_of(1, i, 1))
        if i % 20 == 0:
            kept.append(handle)
    assert owners_of(buffer._ring) == 1
    assert buffer.statistics()[5:7] == (1, 0), "one writer is alive, none is lost"
    context = multiprocessing.get_context("spawn")
    assert in_child(context, add_rows, buffer, 2, 0, 1) == OWNER_COUNT + 5
    ring = buffer._ring
    del buffer, handle, kept
    gc.collect()
    assert owners_of(ring) == 1, "the child's, which is dead; this ring is looked at, and its seat kept"


def test_number_is_given_back_with_the_last_handle_closed_or_dropped():
    keeper = MPReplayBuffer(8, row_fields(), dedupe_next="obs")  # it adds nothing
    for closed in range(3):
        handles = [copy.copy(keeper), pickle.loads(pickle.dumps(keeper))]
        for handle in handles:
            handle.add(**rows_of(1, 0, 1), next_obs=np.ones((1, 8)))
        rings = [keeper._ring, keeper._stages.rings[0].ring]
        assert [owners_of(ring) for ring in rings] == [1, 1]
        for _ in range(closed):
            assert [owners_of(ring) for ring in rings] == [1, 1], "a handle still writes under it"
            handles.pop(0).close()
        handles.clear()
        del handle
        gc.collect()
        assert [owners_of(ring) for ring in rings] == [0, 0]


def test_updater_whose_handle_is_dropped_makes_room_for_another_process():
    keeper = MPPrioritizedReplayBuffer(8, row_fields())
    handle = copy.copy(keeper)
    handle.add(**rows_of(1, 0, 8))
    handle.update_priorities([1], 2.0)
    assert keeper._ring.counters[UPDATER_PROCESS] != 0
    del handle
    gc.collect()
    assert keeper._ring.counters[UPDATER_PROCESS] == 0


def test_closing_a_handle_leaves_the_lease_to_one_that_has_updated_since():
    first = MPPrioritizedReplayBuffer(8, row_fields())
    first.add(**rows_of(1, 0, 8))
    second, third = copy.copy(first), copy.copy(first)
    assert second._episode_len() == 8
    third.add(**rows_of(1, 0, 8))  # so that the process stays registered
    for handle in (first, second):
        handle.update_priorities([1], 2.0)
    first.close()
    assert second._ring.counters[UPDATER_PROCESS] != 0
    counters = second._ring.counters
    second.close()
    assert counters[UPDATER_PROCESS] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_that_drops_its_parents_handles_takes_nothing_from_the_parent():
    buffer = MPPrioritizedReplayBuffer(8, row_fields())
    buffer.add(**rows_of(1, 0, 8))
    buffer.update_priorities([1], 2.0)
    words = buffer._ring.counters[UPDATER_PROCESS], owners_of(buffer._ring)
    assert in_child(multiprocessing.get_context("fork"), drop, [buffer]) == "dropped"
    assert (buffer._ring.counters[UPDATER_PROCESS], owners_of(buffer._ring)) == words
    assert_whole(buffer.sample(2))


def drop(handles, answers):
    handles.clear()
    gc.collect()
    answers.put("dropped")


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="needs fork and waitid")
def test_process_that_has_ended_and_was_not_waited_for_is_dead():
    buffer = MPReplayBuffer(8, row_fields())
    child = os.fork()
    if child == 0:
        buffer.add(**rows_of(1, 0, 1))
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert (len(buffer), *buffer.statistics()[5:7]) == (1, 0, 1)
    os.waitpid(child, 0)


def fail():
    raise ValueError("on purpose")


def kill_itself():
    os.kill(os.getpid(), 9)


ENDS = {
    "return": lambda: None,
    "sys.exit": lambda: sys.exit(3),
    "exception": fail,
    "os._exit": lambda: os._exit(0),
    "kill": kill_itself,
}


def add_and_end(buffer, end):
    buffer.add(**rows_of(1, 0, 1))
    ENDS[end]()


def add_while_exiting(buffer):
    Finalize(None, buffer.add, kwargs=rows_of(1, 0, 1), exitpriority=-1)


def add_and_add_while_exiting(buffer):
    add_while_exiting(buffer)
    buffer.add(**rows_of(1, 1, 1))


@pytest.mark.parametrize("target", [add_while_exiting, add_and_add_while_exiting])
def test_a_writer_that_adds_while_it_exits_is_not_lost(target):
    buffer = MPReplayBuffer(8, row_fields())
    child = multiprocessing.get_context(START_METHODS[0]).Process(target=target, args=(buffer,))
    child.start()
    child.join()
    assert (len(buffer), *buffer.statistics()[5:7]) == (1 + (target is not add_while_exiting), 0, 0)
    buffer.add(**rows_of(1, 2, 1))
    assert buffer.statistics()[5:7] == (1, 0)


@every_start_method
def test_only_killed_writers_are_lost(start_method):
    context = multiprocessing.get_context(start_method)
    buffer = MPReplayBuffer(8, row_fields())
    ends = list(ENDS) if start_method == START_METHODS[0] else ["return", "kill"]  # a start takes a second
    children = [context.Process(target=add_and_end, args=(buffer, end)) for end in ends]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert len(buffer) == len(ends)
    killed = {"os._exit", "kill"}.intersection(ends)  # os._exit skips what marks an exit, as a crash does
    assert buffer.statistics()[5:7] == (0, len(killed))


def test_threads_that_draw_through_two_handles_take_turns():
    first = MPPrioritizedReplayBuffer(8, row_fields())
    first.add(**rows_of(1, 0, 8))
    first.sample(1)  # takes the seat, which has the lock
    second, drawn = copy.copy(first), []
    thread = threading.Thread(target=lambda: drawn.append(second.sample(4)))
    with first._lease.registration.lock:
        thread.start()
        thread.join(0.3)
        assert thread.is_alive() and not drawn, "two threads draw at once"
    thread.join()
    assert_whole(drawn[0])


def test_handles_that_take_turns_know_of_each_others_priorities():
    first = MPPrioritizedReplayBuffer(8, row_fields(), eps=0.0, seed=1)
    first.add(**rows_of(1, 0, 8))
    second = copy.copy(first)
    for turn in range(8):
        one, other = (first, second) if turn % 2 else (second, first)
        one.update_priorities(np.arange(8), np.eye(8)[turn])
        assert set(other.sample(20)["indexes"].tolist()) == {turn}


def test_close_waits_for_the_update_that_another_thread_is_making():
    buffer = MPPrioritizedReplayBuffer(8, row_fields())
    lease, counters = buffer._lease, buffer._ring.counters
    closer, roles = threading.Thread(target=buffer.close), []

    def update():
        closer.start()
        closer.join(0.1)  # red if it ends; otherwise, it waits for this call
        roles.append(int(counters[UPDATER_PROCESS]))

    lease.hold(update, updates=True)
    closer.join()
    assert roles[0] != 0, "another process may update while this one does"
    assert counters[UPDATER_PROCESS] == 0


def test_interrupted_nested_call_leaves_the_lock_to_the_outer_one():
    lease = MPPrioritizedReplayBuffer(8, row_fields())._lease

    def nest(point):
        with pytest.raises(KeyboardInterrupt):
            interrupt_at((*point, 1), lambda: lease.hold(int))
        return 1

    for point in sorted(lease.hold(interrupt_at, None, lambda: lease.hold(int))):
        assert lease.hold(nest, point) == 1
        assert_free(lease.registration.lock)


def hold_slots(buffer, answers):
    """Die as the holder of slot 0, of the rows and of the frames."""
    number = buffer._ring.writers.writer_number()
    for ring in (buffer._ring, buffer._stages.rings[0].ring):
        ring.stamps[0] = held_stamp(add_to_counter(ring.counters, NEXT_INDEX, 1), number)
    answers.put(number)
    answers.close()
    answers.join_thread()
    os._exit(0)


def test_what_a_dead_process_held_is_freed_before_its_number_is_given_out():
    context = multiprocessing.get_context("spawn")
    buffer = MPReplayBuffer(8, row_fields(), dedupe_next="obs")
    answers = context.Queue()
    with running(context, hold_slots, [(buffer, answers)]) as processes:
        number = answer(answers, processes)
    table = buffer._ring.writers._table
    for free in np.flatnonzero(table == 0):
        if free != NOBODY:
            dead = 1 << 40 | os.getpid()  # of another birth
            table[free] = dead if free % 2 else -dead  # killed, or ended by itself
    assert buffer._ring.writers.writer_number() == number == 1
    held = [ring.stamps[0] for ring in (buffer._ring, buffer._stages.rings[0].ring)]
    assert [owner_of(stamp) for stamp in held] == [NOBODY, NOBODY]
    killed = OWNER_COUNT // 2  # 1, whose number was given out, and 3, 5, 7, ...
    assert buffer.statistics()[5:7] == (1, killed)
    buffer.add(**rows_of(1, 0, 8), next_obs=np.ones((8, 8)))
    assert len(buffer[:]["obs"]) == 8
