"""Atomic operations lose nothing between processes, and keep the order they promise."""

import multiprocessing
import time

import numpy as np
import pytest
from shared_rows import START_METHODS, answer, running

from replay_tutorial.buffers.runtime.jit import Integers, kernel
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
from replay_tutorial.shared.protocol import add_to_counter

PROCESSES, TURNS, ROUNDS = 4, 100_000, 500_000
ADDED, SWAPPED, MAX, READY, FLAG, PAYLOAD = 0, 8, 16, 24, 32, 40  # each on a cache line of its own

fork_and_spawn = pytest.mark.parametrize("start_method", START_METHODS[:2])


@kernel
def take_turns(words: Integers, process: int, turns: int) -> int:
    """Count up in three ways; return how many times the count that was there before went back."""
    went_back, last = 0, -1
    for turn in range(turns):
        before = fetch_add(words, ADDED, 1)
        went_back += before <= last
        last = before
        fetch_max(words, MAX, turn * 1000 + process)
        while True:
            seen = load_acquire(words, SWAPPED)
            if compare_and_swap(words, SWAPPED, seen, seen + 1):
                break
    return went_back


@kernel
def overwrite(words: Integers, rounds: int) -> None:
    """Write as the shared ring does: announce, fence, words, publish; nobody is waited for."""
    for number in range(1, rounds + 1):
        compare_and_swap(words, FLAG, 2 * number - 2, 2 * number - 1)
        fence_release()
        for word in range(8):
            words[PAYLOAD + word] = number
        store_release(words, FLAG, 2 * number)


@kernel
def watch(words: Integers, rounds: int, copy: Integers) -> int:
    """Read as the shared ring does, until the last number is there; return the number of torn reads."""
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


def work(arrays, job, number, together, answers):
    """Do one of the jobs in a child, once all are there."""
    words = arrays["words"]
    add_to_counter(words, READY, 1)
    while words[READY] < together:
        time.sleep(0.001)
    if job == "count":
        answers.put(take_turns(words, number, TURNS))
    elif job == "overwrite":
        overwrite(words, ROUNDS)
    else:
        answers.put(watch(words, ROUNDS, np.empty(8, np.int64)))


def answers_of(start_method, jobs, count):
    """Run a child for each job; return what `count` of them answered, and the words they shared."""
    context = multiprocessing.get_context(start_method)
    arrays = SharedArrays({"words": ((64,), np.dtype(np.int64))})
    answers = context.Queue()
    arguments = [(arrays, job, number, len(jobs), answers) for number, job in enumerate(jobs)]
    with running(context, work, arguments) as children:
        told = [answer(answers, children) for _ in range(count)]
    return told, arrays["words"]


@fork_and_spawn
def test_no_count_is_lost_between_processes(start_method):
    told, words = answers_of(start_method, ["count"] * PROCESSES, PROCESSES)
    assert told == [0] * PROCESSES
    assert words[ADDED] == words[SWAPPED] == PROCESSES * TURNS
    assert words[MAX] == (TURNS - 1) * 1000 + PROCESSES - 1


@fork_and_spawn
def test_a_copy_between_two_equal_looks_is_whole(start_method):
    told, _ = answers_of(start_method, ["overwrite", "watch"], 1)
    assert told == [0]


@kernel
def try_each(words: Integers) -> tuple[int, int, int, int, int]:
    """Use each operation once, and return what it answers."""
    added = fetch_add(words, 1, -7)
    maximum = fetch_max(words, 2, -3)
    same = fetch_max(words, 2, -9)
    right = compare_and_swap(words, 3, 0, 2**62)
    wrong = compare_and_swap(words, 3, 0, 5)
    store_release(words, 4, 11)
    return added, maximum, same, 2 * right + wrong, load_acquire(words, 4)


def test_each_operation_answers_what_was_there_before():
    words = np.array([0, 5, -4, 0, 0, 0])
    assert try_each(words) == (5, -4, -3, 2, 11)
    assert words.tolist() == [0, -2, -3, 2**62, 11, 0]
