"""What the tests of the multi-process buffers share: rows that show a fault, and processes that can't hang.

Every row carries its writer, its number and a checksum over the rest, so a row that was torn, never written
or taken twice gives itself away.
"""

import os
import queue
import re
import signal
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer

START_METHODS = ["fork", "spawn", "forkserver"] if os.name == "posix" else ["spawn"]
BUFFERS = [MPReplayBuffer, MPPrioritizedReplayBuffer]
WIDTH = 8
POLL_SECONDS = 900  # seconds that a test may take on a busy machine; one that takes longer hangs
SIGNIFICANCE = 1e-4  # of a chi-square test with a fixed seed: one in ten thousand seeds is unlucky

every_start_method = pytest.mark.parametrize("start_method", START_METHODS)
every_buffer = pytest.mark.parametrize("buffer_class", BUFFERS)


def row_fields(width=WIDTH):
    return {
        "obs": {"shape": width},
        "writer": {"dtype": np.int64},
        "number": {"dtype": np.int64},
        "checksum": {"dtype": np.float64},
    }


def rows_of(writer, first, count, width=WIDTH):
    """Rows `first` to `first + count` of a writer; numbers begin at 1 and obs is never 0."""
    number = np.arange(first, first + count) + 1
    obs = ((number[:, np.newaxis] * 7 + np.arange(width) + writer) % 1000 + 1).astype(np.float32)
    return {
        "obs": obs,
        "writer": np.full(count, writer),
        "number": number,
        "checksum": checksum(obs, writer, number),
    }


def checksum(obs, writer, number):
    return obs.sum(axis=1, dtype=np.float64) + 1e6 * writer + 1e8 * number


def assert_whole(batch):
    width = batch["obs"].shape[1]
    assert batch["number"].min() >= 1, "a row that nobody wrote"
    right = (
        batch["number"][:, np.newaxis] * 7 + np.arange(width) + batch["writer"][:, np.newaxis]
    ) % 1000 + 1
    assert np.array_equal(batch["obs"], right), "a torn row"
    assert np.array_equal(batch["checksum"], checksum(batch["obs"], batch["writer"], batch["number"]))


@pytest.fixture(autouse=True)
def impatience():
    """Ends a test that hangs, by a signal: a lock that nobody gives back can't be waited for."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def give_up(*_):
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(POLL_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@contextmanager
def running(context, target, arguments):
    """Runs `target(*arguments[k])` in processes; at the end all must have left with status 0."""
    processes = [context.Process(target=target, args=each, daemon=True) for each in arguments]
    for process in processes:
        process.start()
    try:
        yield processes
        for process in processes:
            process.join(POLL_SECONDS)
        assert [process.exitcode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
            process.join()


def answer(answers, processes):
    """The next answer of the processes; if one of them dies instead, that is told at once."""
    deadline = time.monotonic() + POLL_SECONDS
    while time.monotonic() < deadline:
        try:
            return answers.get(timeout=0.2)
        except queue.Empty:
            assert all(process.exitcode in (None, 0) for process in processes), (
                "a process died without an answer"
            )
    raise TimeoutError(f"no answer in {POLL_SECONDS} seconds")


def in_child(context, target, *arguments):
    """Runs `target(*arguments, answers)` in a process and returns what it put into `answers`."""
    answers = context.Queue()
    with running(context, target, [(*arguments, answers)]) as processes:
        return answer(answers, processes)


def add_rows(buffer, writer, first, count, answers):
    """Adds rows; the answer is the index of the first."""
    answers.put(buffer.add(**rows_of(writer, first, count)))


def shared_memory_in_use():
    """Inodes of the shared memory that this process has mapped or opened; none where /proc is missing."""
    if sys.platform != "linux":
        return set()
    maps = Path("/proc/self/maps").read_text()
    inodes = {int(inode) for inode in re.findall(r" (\d+) +/memfd:replay_tutorial", maps)}
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if "memfd:replay_tutorial" in os.readlink(handle):
                inodes.add(handle.stat().st_ino)
    return inodes
