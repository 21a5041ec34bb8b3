"""Atomic operations lose nothing between processes, and keep the order they promise."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from places import ROOT
from shared_rows import POLL_SECONDS

from replay_tutorial.buffers.jit import kernel
from replay_tutorial.shared.atomics import (
    compare_and_swap,
    fence_acquire,
    fence_release,
    fetch_add,
    fetch_max,
    load_acquire,
    store_release,
)
from replay_tutorial.shared.memory import SharedArrays

PROCESSES, TURNS, ROUNDS = 4, 100_000, 5_000
ADDED, SWAPPED, GREATEST, READY, FLAG, PAYLOAD = 0, 8, 16, 24, 32, 40  # each on a cache line of its own

every_start_method = pytest.mark.parametrize(
    "start_method", [name for name in ("fork", "spawn") if name in multiprocessing.get_all_start_methods()]
)


@kernel("int64(int64[::1], int64, int64)")
def take_turns(words, process, turns):
    """Count up in three ways; gives how many times the count that was there before went back."""
    went_back, last = 0, -1
    for turn in range(turns):
        before = fetch_add(words, ADDED, 1)
        went_back += before <= last
        last = before
        fetch_max(words, GREATEST, turn * 1000 + process)
        while True:
            seen = load_acquire(words, SWAPPED)
            if compare_and_swap(words, SWAPPED, seen, seen + 1):
                break
    return went_back


@kernel("void(int64[::1], int64)")
def send(words, rounds):
    """Send numbers: the payload is stored plainly, the flag says that it is there. Waits for each to be fetched."""
    for number in range(1, rounds + 1):
        for word in range(8):
            words[PAYLOAD + word] = number
        store_release(words, FLAG, number)
        while load_acquire(words, FLAG) == number:
            pass


@kernel("int64(int64[::1], int64)")
def receive(words, rounds):
    """Fetch the numbers; gives how many words were not what the flag promised."""
    wrong = 0
    for number in range(1, rounds + 1):
        while load_acquire(words, FLAG) != number:
            pass
        for word in range(8):
            wrong += words[PAYLOAD + word] != number
        store_release(words, FLAG, -number)
    return wrong


@kernel("void(int64[::1], int64)")
def overwrite(words, rounds):
    """Write as the shared ring does: announce, fence, words, publish; nobody is waited for."""
    for number in range(1, rounds + 1):
        compare_and_swap(words, FLAG, 2 * number - 2, 2 * number - 1)
        fence_release()
        for word in range(8):
            words[PAYLOAD + word] = number
        store_release(words, FLAG, 2 * number)


@kernel("int64(int64[::1], int64, int64[::1])")
def watch(words, rounds, copy):
    """Read as the shared ring does, until the last number is there; gives the number of torn reads."""
    torn, flag = 0, 0
    while flag < 2 * rounds:
        flag = load_acquire(words, FLAG)
        for word in range(8):
            copy[word] = words[PAYLOAD + word]
        fence_acquire()
        if flag % 2 == 0 and load_acquire(words, FLAG) == flag:
            for word in range(8):
                torn += copy[word] != flag // 2
    return torn


@kernel("int64(int64[::1], int64)")
def fetch_add_one(words, place):
    """Add one."""
    return fetch_add(words, place, 1)


def work(arrays, job, number, together, answers):
    """Do one of the jobs in a child, once all are there."""
    words = arrays["words"]
    fetch_add_one(words, READY)
    while words[READY] < together:
        time.sleep(0.001)
    if job == "count":
        answers.put(take_turns(words, number, TURNS))
    elif job == "send":
        send(words, ROUNDS)
    elif job == "receive":
        answers.put(receive(words, ROUNDS))
    elif job == "overwrite":
        overwrite(words, ROUNDS * 100)
    else:
        answers.put(watch(words, ROUNDS * 100, np.empty(8, np.int64)))


def answers_of(start_method, jobs, count):
    """Run a child for each job; gives what `count` of them answered, and the words they shared."""
    context = multiprocessing.get_context(start_method)
    arrays = SharedArrays({"words": ((64,), np.dtype(np.int64))})
    answers = context.Queue()
    children = [
        context.Process(target=work, args=(arrays, job, number, len(jobs), answers), daemon=True)
        for number, job in enumerate(jobs)
    ]
    for child in children:
        child.start()
    try:
        told = [answers.get(timeout=POLL_SECONDS) for _ in range(count)]
        for child in children:
            child.join(POLL_SECONDS)
            assert child.exitcode == 0
    finally:
        for child in children:
            child.kill()
    return told, arrays["words"]


@every_start_method
def test_no_count_is_lost_between_processes(start_method):
    told, words = answers_of(start_method, ["count"] * PROCESSES, PROCESSES)
    assert told == [0] * PROCESSES
    assert words[ADDED] == words[SWAPPED] == PROCESSES * TURNS
    assert words[GREATEST] == (TURNS - 1) * 1000 + PROCESSES - 1


@every_start_method
def test_who_sees_the_flag_sees_the_payload(start_method):
    told, _ = answers_of(start_method, ["send", "receive"], 1)
    assert told == [0]


@every_start_method
def test_a_copy_between_two_equal_looks_is_whole(start_method):
    told, _ = answers_of(start_method, ["overwrite", "watch"], 1)
    assert told == [0]


@kernel("UniTuple(int64, 5)(int64[::1])")
def try_each(words):
    """Use each operation once, and give what it answers."""
    added = fetch_add(words, 1, -7)
    greatest = fetch_max(words, 2, -3)
    same = fetch_max(words, 2, -9)
    right = compare_and_swap(words, 3, 0, 2**62)
    wrong = compare_and_swap(words, 3, 0, 5)
    store_release(words, 4, 11)
    return added, greatest, same, 2 * right + wrong, load_acquire(words, 4)


def test_each_operation_answers_what_was_there_before():
    words = np.array([0, 5, -4, 0, 0, 0])
    assert try_each(words) == (5, -4, -3, 2, 11)
    assert words.tolist() == [0, -2, -3, 2**62, 11, 0]


PROGRAM = textwrap.dedent(
    """
    import sys

    import numba.core.event
    import numpy as np

    compiled = numba.core.event.RecordingListener()
    numba.core.event.register("numba:compile", compiled)

    from replay_tutorial.shared.protocol import reserve, swap
    from replay_tutorial.shared.proportional import raise_to

    counters = np.zeros(3, np.int64)
    assert reserve(counters, 0, 5) == 0 and counters[0] == 5
    assert swap(counters, 1, 0, 4) and not swap(counters, 1, 0, 5)
    raise_to(counters, 9)
    assert counters.tolist() == [9, 4, 0]
    print(len(compiled.buffer), "compiled")
    """
)


def test_kernels_with_atomics_are_loaded_from_the_disk(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    told = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=POLL_SECONDS,
        ).stdout
        for _ in range(2)
    ]
    assert not told[0].startswith("0 ")
    assert told[1] == "0 compiled\n"
