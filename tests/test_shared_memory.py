"""Shared memory leaves nothing behind, and a child loads the kernels that its parent has compiled."""

import multiprocessing
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import shared_rows
from shared_rows import (
    PATIENCE,
    add_rows,
    assert_whole,
    every_buffer,
    every_start_method,
    in_child,
    row_fields,
)

impatience = shared_rows.impatience
ROOT = Path(__file__).parents[1]


def shared_memory_files():
    """Names of the shared memory files that this process has mapped (Linux)."""
    maps = Path("/proc/self/maps").read_text()
    return {Path(name) for name in re.findall(r"(/dev/shm/\S+)", maps)}


needs_dev_shm = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm on this system")


@needs_dev_shm
@every_start_method
@every_buffer
def test_close_leaves_nothing_in_shared_memory(buffer_class, start_method):
    context = multiprocessing.get_context(start_method)
    before = shared_memory_files()
    buffer = buffer_class(1000, row_fields(), ctx=context)
    in_child(context, add_rows, buffer, 1, 0, 5)
    assert_whole(buffer.sample(4))
    made = shared_memory_files() - before
    buffer.close()
    assert [name for name in made if name.exists()] == []
    buffer.close()


@every_buffer
def test_closed_buffer_says_so(buffer_class):
    buffer = buffer_class(8, row_fields())
    buffer.add(**rows_of(1, 0, 8))
    buffer.close()
    with pytest.raises((ValueError, RuntimeError), match="closed"):
        buffer.add(**rows_of(1, 0, 1))
    with pytest.raises((ValueError, RuntimeError), match="closed"):
        buffer.sample(1)


PROGRAM = textwrap.dedent(
    """
    import multiprocessing
    import re
    import sys
    from pathlib import Path

    import numba.core.event
    import numpy as np

    from replay_tutorial import MPPrioritizedReplayBuffer


    def use(buffer, answers):
        with numba.core.event.install_recorder("numba:compile") as compiled:
            buffer.add(obs=np.ones((10, 4)))
            batch = buffer.sample(4)
            buffer.update_priorities(batch["indexes"], np.ones(4))
        answers.put(len(compiled.buffer))


    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        buffer = MPPrioritizedReplayBuffer(100, {"obs": {"shape": 4}}, ctx=context)
        answers = context.SimpleQueue()
        child = context.Process(target=use, args=(buffer, answers))
        child.start()
        print(answers.get())
        child.join()
        print(*set(re.findall(r"/dev/shm/\\S+", Path("/proc/self/maps").read_text())))
        if sys.argv[2] == "close":
            buffer.close()
        sys.exit(child.exitcode)
    """
)


def run_program(folder, start_method, ending, **environment):
    program = folder / "program.py"
    program.write_text(PROGRAM)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(program), start_method, ending],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@needs_dev_shm
@pytest.mark.parametrize("ending", ["close", "forget to close"])
@every_start_method
def test_program_ends_without_a_warning_or_a_leak(tmp_path, start_method, ending):
    finished = run_program(tmp_path, start_method, ending)
    assert finished.stderr == ""
    assert finished.returncode == 0
    names = finished.stdout.splitlines()[1].split()
    assert [name for name in names if Path(name).exists()] == []


@needs_dev_shm
def test_spawned_child_loads_the_kernels_and_compiles_none(tmp_path):
    cache = tmp_path / "cache"
    first = run_program(tmp_path, "spawn", "close", NUMBA_CACHE_DIR=str(cache))
    assert first.returncode == 0, first.stderr
    before = {file: file.stat().st_mtime_ns for file in cache.rglob("*") if file.is_file()}
    assert before, "the first run left its kernels in the cache"
    second = run_program(tmp_path, "spawn", "close", NUMBA_CACHE_DIR=str(cache))
    assert second.stdout.splitlines()[0] == "0", "the child compiled"
    after = {file: file.stat().st_mtime_ns for file in cache.rglob("*") if file.is_file()}
    assert after == before
