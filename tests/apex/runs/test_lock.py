"""The lock of a run's folder: one process at a time, and a killed one lets go of it."""

import os
import subprocess
import sys

import pytest
from places import ROOT

from replay_tutorial.apex.runs.run_folder import RunInUse, lock_run

HOLDER = """
import multiprocessing, sys, time
from pathlib import Path
from replay_tutorial.apex.runs.run_folder import lock_run

def outlive_the_parent(ready):
    ready.send(True)
    multiprocessing.parent_process().join()
    time.sleep(5)

if __name__ == "__main__":
    from replay_tutorial.local.supervisor import start_context
    with lock_run(Path(sys.argv[1])):
        mine, theirs = start_context().Pipe()
        start_context().Process(target=outlive_the_parent, args=(theirs,), daemon=True).start()
        mine.recv()
        print("locked", flush=True)
        time.sleep(600)
"""


def test_second_process_is_refused_until_the_first_is_killed(tmp_path):
    script = tmp_path / "holder.py"
    script.write_text(HOLDER)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, script, tmp_path]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunInUse, match="another process"), lock_run(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    # A process that it has started lives on for a while.
    with lock_run(tmp_path):
        pass


def test_lock_ends_with_its_context(tmp_path):
    with lock_run(tmp_path), pytest.raises(RunInUse), lock_run(tmp_path):
        pass
    with pytest.raises(ArithmeticError), lock_run(tmp_path):
        raise ArithmeticError
    with lock_run(tmp_path):
        pass
