"""Kernels are compiled once each, at their first call, whatever happens meanwhile."""

import ast
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numba.core import event
from places import PACKAGE, modules_in

from replay_tutorial.buffers.runtime import jit, numba_internals
from replay_tutorial.buffers.runtime.jit import Floats, kernel
from replay_tutorial.buffers.runtime.kernel_cache import KernelFile, digest_of

ROOT = Path(__file__).parents[2]
SCALARS = {"None", "int", "float", "bool", "tuple", "np.uint64"}  # what kernels return that is no array


def new_kernels():
    """A kernel that calls another one, with a type that is not the declared one."""

    @kernel
    def halve(number: float) -> float:
        return number / 2

    @kernel
    def add_half(numbers: Floats, number: int) -> float:
        return numbers[0] + halve(number)

    return add_half, halve


def run(program, *arguments, **environment):
    """What a program of its own prints, to stdout and to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_importing_compiles_nothing(tmp_path):
    program = (
        "from replay_tutorial import *\n"
        "import replay_tutorial.tables\n"
        "from replay_tutorial.buffers.runtime.jit import kernels\n"
        "print(len(kernels), sum(len(kernel.signatures) for kernel in kernels))"
    )
    declared, compiled = run(program, NUMBA_CACHE_DIR=str(tmp_path))[0].split()
    assert int(declared) > 50 and compiled == "0"
    assert not list(tmp_path.iterdir())


def test_argument_of_another_type_is_an_error_also_at_the_first_call():
    add_half, halve = new_kernels()
    for _ in range(2):
        with pytest.raises(TypeError, match="No matching definition for argument type"):
            add_half(np.zeros(1, np.float32), 3)
        with pytest.raises(TypeError, match="not enough arguments"):
            add_half()
    assert add_half(np.ones(1), 3) == 2.5
    assert halve(3) == 1.5
    assert len(add_half.signatures) == len(halve.signatures) == 1


def test_kernel_that_another_one_calls_is_compiled_for_its_own_types(monkeypatch):
    without_cache(monkeypatch)
    add_half, halve = new_kernels()
    assert add_half(np.ones(1), 3) == 2.5
    assert [str(kind) for kind in halve.signatures[0]] == ["float64"]
    assert halve(0.5) == 0.25
    assert halve.py_func(3) == 1.5


class AtCompilation(event.Listener):
    """Does something when the first compilation starts."""

    def __init__(self, action):
        self.action = action

    def on_start(self, event):
        action, self.action = self.action, lambda: None
        action()

    def on_end(self, event):
        pass


def without_cache(monkeypatch):
    monkeypatch.setattr(KernelFile, "read", lambda self: None)


def test_ctrl_c_is_raised_when_the_kernel_is_compiled(monkeypatch):
    without_cache(monkeypatch)
    add_half, _ = new_kernels()
    interrupt = AtCompilation(lambda: signal.raise_signal(signal.SIGINT))
    with event.install_listener("numba:compile", interrupt), pytest.raises(KeyboardInterrupt):
        add_half(np.ones(1), 3)
    compilations = event.RecordingListener()
    with event.install_listener("numba:compile", compilations):
        assert add_half(np.ones(1), 3) == 2.5
    assert not compilations.buffer


def test_threads_that_call_at_once_compile_once(monkeypatch):
    without_cache(monkeypatch)
    add_half, _ = new_kernels()
    compilations, results, together = event.RecordingListener(), [], threading.Barrier(4)

    def call():
        together.wait()
        results.append(add_half(np.ones(1), 3))

    threads = [threading.Thread(target=call) for _ in range(4)]
    with event.install_listener("numba:compile", compilations):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [2.5] * 4
    starts = [each for _, each in compilations.buffer if each.is_start]
    assert len([each for each in starts if each.data["dispatcher"] is add_half]) == 1


FORK = """
import os, signal, threading
import numpy as np
from numba.core import event
from tests.buffers.test_jit import AtCompilation, new_kernels
from replay_tutorial.buffers.runtime.kernel_cache import KernelFile

KernelFile.read = lambda self: None
started = threading.Event()
event.register("numba:compile", AtCompilation(started.set))
first, other = new_kernels()[0], new_kernels()[0]
thread = threading.Thread(target=first, args=(np.ones(1), 3))
thread.start()
started.wait()
if child := os.fork():
    print(os.waitpid(child, 0)[1])
else:
    signal.alarm(600)
    os._exit(0 if other(np.ones(1), 3) == 2.5 else 1)
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_child_that_is_forked_during_a_compilation_can_compile():
    assert run(FORK)[0] == "0\n"


FORK_AT_IMPORT = """
import os, signal, sys, threading, time
import numpy as np
from replay_tutorial.buffers.runtime.jit import kernels
from replay_tutorial.buffers.sum_tree import first_leaf

class AtImport:
    def find_spec(self, name, path, target=None):
        if name.endswith(".kernel_cache"):  # imported by numba_internals
            started.set()
            forks.wait()
            time.sleep(0.1)

started, forks = threading.Event(), threading.Event()
sys.meta_path.insert(0, AtImport())
thread = threading.Thread(target=first_leaf, args=(np.zeros(16),))
thread.start()
started.wait()
os.register_at_fork(before=forks.set)
if child := os.fork():
    print(os.waitpid(child, 0)[1])
else:
    signal.alarm(60)
    os._exit(0 if first_leaf(np.zeros(16)) == 8 else 1)
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_child_that_is_forked_while_the_compiler_is_imported_can_compile():
    assert run(FORK_AT_IMPORT)[0] == "0\n"


def test_slow_compilation_is_logged_once(monkeypatch, caplog):
    without_cache(monkeypatch)
    monkeypatch.setitem(numba_internals.spent, "seconds", 0.0)
    monkeypatch.setattr(numba_internals, "logged", set())
    monkeypatch.setattr(numba_internals, "WARN_AFTER_SECONDS", 3600.0)
    new_kernels()[0](np.ones(1), 3)
    assert not caplog.records
    monkeypatch.setattr(numba_internals, "WARN_AFTER_SECONDS", 0.0)
    new_kernels()[0](np.ones(1), 3)
    new_kernels()[0](np.ones(1), 3)
    assert [record.getMessage() for record in caplog.records] == [numba_internals.COMPILING]


MANY_PROCESSES = """
import numpy as np
from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer
from replay_tutorial.buffers.runtime.jit import kernels

def compiled():
    return {kernel.py_func.__name__ for kernel in kernels if kernel.signatures}

rows = {"obs": np.ones((9, 2, 4)), "reward": np.ones(9)}
cases = [(MPReplayBuffer, {}), (MPReplayBuffer, {"dedupe_next": "obs"}), (MPPrioritizedReplayBuffer, {})]
for kind, options in cases:
    buffer = kind(64, {"obs": {"shape": (2, 4)}, "reward": {}}, **options)
    before = compiled()
    buffer.add(**rows, **({"next_obs": rows["obs"]} if options else {}))
    batch = buffer.sample(8)
    if kind is MPPrioritizedReplayBuffer:
        buffer.update_priorities(batch["indexes"], np.ones(8))
        buffer.add(**rows, priorities=np.ones(9))
    print(sorted(compiled() - before))
"""


def test_buffer_of_many_processes_is_compiled_before_there_are_any():
    assert run(MANY_PROCESSES)[0] == 3 * "[]\n"


def test_warm_up_compiles_every_kernel(capsys):
    from replay_tutorial.__main__ import main

    assert main(["warm-up"]) == 0
    told = capsys.readouterr().out
    files = [path for path in modules_in() if "\n@kernel\n" in path.read_text("utf-8")]
    compiled = {Path(each.py_func.__code__.co_filename) for each in jit.kernels if each.signatures}
    assert all(each.signatures for each in jit.kernels)
    ours = [each for each in jit.kernels if each.py_func.__module__.startswith("replay_tutorial.")]
    assert all(len(digest_of(each)) == 32 for each in ours), "the cache knows all that they use"
    assert compiled >= set(files)
    assert re.match(r"\d+ kernels are ready after \d+\.\d s, cached in\n", told)
    assert all(Path(line.strip()).is_dir() for line in told.splitlines()[1:])


def test_python_calls_no_kernel_that_returns_an_array():
    """Numba makes such an array by Python code, out of which Ctrl-C came as a SystemError."""
    functions = [
        node
        for path in modules_in(PACKAGE)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    decorators = [{ast.unparse(each) for each in function.decorator_list} for function in functions]
    returning, calls = set[str](), dict[str, str]()
    for function, decorated in zip(functions, decorators, strict=True):
        returns = ast.unparse(function.returns) if function.returns else ""
        if "kernel" in decorated and not set(re.findall(r"[\w.]+", returns)) <= SCALARS:
            returning.add(function.name)
        if not decorated & {"kernel", "jitable"}:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    calls[node.func.id] = function.name
    assert returning, "find_leaves, for example, which kernels call"
    assert {name: calls[name] for name in returning if name in calls} == {}
