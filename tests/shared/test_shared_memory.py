"""Shared memory leaves nothing behind, and a child loads the kernels that its parent has compiled."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import shared_rows
from places import ROOT
from shared_rows import (
    POLL_SECONDS,
    add_rows,
    assert_whole,
    every_buffer,
    every_start_method,
    in_child,
    row_fields,
    rows_of,
    shared_memory_in_use,
)

from replay_tutorial import MPPrioritizedReplayBuffer
from replay_tutorial.buffers.runtime.numba_internals import COMPILING
from replay_tutorial.shared.memory import CACHE_LINE, SharedArrays

impatience = shared_rows.impatience
PROGRAM_SECONDS = 1200  # a program that takes longer hangs

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_arrays_are_zero_apart_and_shaped_as_asked():
    specs = {"counters": ((3,), np.dtype(np.int64)), "rows": ((5, 7), np.dtype(np.uint8))}
    arrays = SharedArrays(specs)
    for name, (shape, dtype) in specs.items():
        assert arrays[name].shape == shape
        assert arrays[name].dtype == dtype
        assert not arrays[name].any()
    arrays["counters"][:] = -1
    assert not arrays["rows"].any()
    starts = [arrays[name].__array_interface__["data"][0] for name in specs]
    assert all(start % CACHE_LINE == 0 for start in starts)


@linux_only
@pytest.mark.parametrize("ending", ["close", "forget"])
@every_start_method
def test_memory_is_given_back_by_closing_or_forgetting_the_buffer(start_method, ending):
    context = multiprocessing.get_context(start_method)
    gc.collect()
    before = shared_memory_in_use()
    buffer = MPPrioritizedReplayBuffer(1000, row_fields())
    in_child(context, add_rows, buffer, 1, 0, 5)
    batch = buffer.sample(4)
    assert shared_memory_in_use() - before
    if ending == "close":
        buffer.close()
    else:
        del buffer
        gc.collect()
    assert not shared_memory_in_use() - before
    assert_whole(batch)


@every_buffer
def test_closed_buffer_says_so(buffer_class):
    with buffer_class(8, row_fields()) as buffer:
        buffer.add(**rows_of(1, 0, 8))
    buffer.close()
    calls = [
        lambda: buffer.add(**rows_of(1, 0, 1)),
        lambda: buffer.sample(1),
        lambda: buffer[:],
        lambda: len(buffer),
        buffer.clear,
    ]
    if buffer_class is MPPrioritizedReplayBuffer:
        calls += [lambda: buffer.update_priorities([0], [1.0]), lambda: buffer.max_priority]
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()


def add_and_close(buffer, answers):
    buffer.add(**rows_of(1, 0, 3))
    buffer.close()
    answers.put("closed")


@every_start_method
def test_closing_in_a_child_leaves_the_parents_buffer_as_it_is(start_method):
    context = multiprocessing.get_context(start_method)
    with MPPrioritizedReplayBuffer(8, row_fields()) as buffer:
        assert in_child(context, add_and_close, buffer) == "closed"
        assert_whole(buffer.sample(4))
        assert buffer.add(**rows_of(1, 3, 1)) == 3


PROGRAM = textwrap.dedent(
    """
    import multiprocessing
    import os
    import re
    import signal
    import sys
    from pathlib import Path

    import numba.core.event
    import numpy as np

    compiled = numba.core.event.RecordingListener()
    numba.core.event.register("numba:compile", compiled)

    import replay_tutorial


    def use(buffer, answers):
        buffer.add(obs=np.ones((10, 4)))
        batch = buffer.sample(4)
        if sys.argv[3] == "MPPrioritizedReplayBuffer":
            buffer.update_priorities(batch["indexes"], np.ones(4))
        answers.put(len(compiled.buffer))


    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        buffer = getattr(replay_tutorial, sys.argv[3])(100, {"obs": {"shape": 4}})
        answers = context.SimpleQueue()
        child = context.Process(target=use, args=(buffer, answers))
        child.start()
        print(answers.get())
        child.join()
        print(*set(re.findall(r"/dev/shm/\\S+", Path("/proc/self/maps").read_text())), flush=True)
        if sys.argv[2] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit(child.exitcode)
    """
)


def run_program(folder, start_method, ending, kind="MPPrioritizedReplayBuffer", **environment):
    """Run PROGRAM. It may have to compile every kernel first, so the test may take longer than others."""
    signal.alarm(PROGRAM_SECONDS + POLL_SECONDS)
    program = folder / "program.py"
    program.write_text(PROGRAM)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(program), start_method, ending, kind],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
    )


def names_left_by(finished):
    return [name for name in finished.stdout.splitlines()[1].split() if Path(name).exists()]


@linux_only
@every_start_method
def test_program_ends_without_a_warning_or_a_leak(tmp_path, start_method):
    finished = run_program(tmp_path, start_method, "normal")
    assert finished.stderr.replace(COMPILING + "\n", "") == "", "with a cold cache it may compile"
    assert finished.returncode == 0
    assert names_left_by(finished) == []


@linux_only
def test_killed_program_leaves_nothing_in_shared_memory(tmp_path):
    finished = run_program(tmp_path, "spawn", "killed")
    assert finished.returncode < 0
    until = time.monotonic() + POLL_SECONDS
    while names_left_by(finished) and time.monotonic() < until:
        time.sleep(0.05)  # multiprocessing's own tracker removes the lock's name
    assert names_left_by(finished) == []


@linux_only
def test_child_loads_what_its_parent_has_compiled(tmp_path):
    cache = tmp_path / "cache"
    cold = run_program(tmp_path, "spawn", "normal", "MPReplayBuffer", NUMBA_CACHE_DIR=str(cache))
    assert cold.returncode == 0, cold.stderr
    assert cold.stdout.splitlines()[0] == "0", "the child compiled"
    kernels = {file: file.stat().st_mtime_ns for file in cache.rglob("*.nb*")}
    assert kernels, "the parent left its kernels in the cache"
    warm = run_program(tmp_path, "spawn", "normal", "MPReplayBuffer", NUMBA_CACHE_DIR=str(cache))
    assert warm.stdout.splitlines()[0] == "0", "the child compiled"
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.nb*")} == kernels


@linux_only
def test_pickle_brings_shared_memory_to_an_unrelated_process_as_often_as_it_is_read():
    arrays = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
    program = "import pickle, sys; pickle.load(sys.stdin.buffer)['counters'][0] += 1"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", program], input=pickle.dumps(arrays), cwd=ROOT, check=True)
    assert arrays["counters"].tolist() == [2, 0]


def test_handle_of_windows_memory_that_is_gone_is_refused():
    """Such memory has a name, under which the system creates a new block once nobody has the old one."""
    arrays = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
    state = {name: value for name, value in vars(arrays).items() if name not in ("_block", "_arrays")}
    del arrays
    gc.collect()
    with pytest.raises(FileNotFoundError, match="has closed it or exited"):
        SharedArrays.__new__(SharedArrays).__setstate__(state | {"_handle": -1})


@linux_only
def test_pickle_of_shared_memory_that_is_gone_is_refused_also_when_its_number_is_used_again():
    gc.collect()  # or it would free lower numbers below
    arrays = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
    passed, handle = pickle.dumps(arrays), arrays._handle
    del arrays
    gc.collect()
    with pytest.raises(FileNotFoundError, match="has closed it or exited"):
        pickle.loads(passed)
    other = SharedArrays({"counters": ((2,), np.dtype(np.int64))})
    assert other._handle == handle
    with pytest.raises(FileNotFoundError, match="has closed it or exited"):
        pickle.loads(passed)
