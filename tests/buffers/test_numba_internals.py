"""What `numba_internals.py` uses of Numba works as the package requires.

If a test fails after an update of Numba, that version has changed the named internal.
"""

import ast
import itertools
import re
import sys
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import pytest
from numba.core import config, event, serialize
from numba.core.bytecode import FunctionIdentity
from numba.core.compiler_lock import global_compiler_lock
from numba.misc import appdirs
from places import modules_in, name_of

from replay_tutorial.buffers.runtime import numba_internals

DECLARED = numba.float64(numba.float64)


def halve(number):
    return number / 2


def new_kernel(function=halve):
    """A function that Numba has not compiled, decorated as `kernel` does it."""
    return numba.njit(nogil=True, error_model="numpy")(function)


def compiled_kernel(function=halve):
    """The same, compiled for a declared type, and the result of the compilation."""
    kernel = new_kernel(function)
    type(kernel).compile(kernel, DECLARED)
    return kernel, kernel.overloads[DECLARED.args]


def test_compile_is_called_at_the_first_call_and_then_its_result():
    kernel, types = new_kernel(), []
    kernel.compile = lambda given: types.append(given) or (lambda number: f"called with {number}")
    assert kernel(3) == "called with 3"
    assert types == [(numba.int64,)]


def test_compile_is_called_for_a_kernel_that_another_one_calls():
    called, types = new_kernel(), []

    def compile_declared(given):
        types.append(given)
        type(called).compile(called, DECLARED)
        called.disable_compile()

    called.compile = compile_declared
    calling = new_kernel(lambda number: called(number) + 1)
    assert calling(3) == 2.5
    assert types == [(numba.int64,)]
    assert called.signatures == [DECLARED.args]


def test_disable_compile_makes_another_type_an_error():
    kernel, _ = compiled_kernel()
    kernel.disable_compile()
    assert kernel(3) == 1.5, "an integer is converted"
    with pytest.raises(TypeError, match="No matching definition"):
        kernel(np.zeros(1))
    with pytest.raises(numba.TypingError):
        new_kernel(lambda array: kernel(array))(np.zeros(1))


def test_kernel_that_was_turned_into_bytes_and_back_is_not_compiled():
    code = serialize.dumps(compiled_kernel()[1]._reduce())
    loaded = new_kernel()
    with event.install_listener("numba:compile", compilations := event.RecordingListener()):
        numba_internals.load(loaded, code)
        assert loaded(3) == 1.5
    assert not compilations.buffer
    assert new_kernel(lambda number: loaded(number) + 1)(3) == 2.5, "another kernel calls it"


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_has_dynamic_globals_if_the_machine_code_contains_an_address(count):
    numbers = np.ones(count)
    _, result = compiled_kernel(lambda number: number + numbers[0])
    assert result.library.has_dynamic_globals == (count > 1)


def test_magic_tuple_names_the_processor():
    processor = new_kernel().targetctx.codegen().magic_tuple()
    assert (config.CPU_NAME or llvmlite.binding.get_host_cpu_name()) in processor


def test_unique_ids_are_in_the_names_of_compiled_functions(monkeypatch):
    assert next(FunctionIdentity._unique_ids) > 1e6, "`numba_internals` starts at a random number"
    monkeypatch.setattr(FunctionIdentity, "_unique_ids", itertools.count(123456789))
    kernel, result = compiled_kernel()
    assert "123456789" in result.fndesc.mangled_name
    assert result.fndesc.mangled_name in kernel.inspect_llvm(DECLARED.args)


def test_global_compiler_lock_is_held_during_a_compilation():
    class IsLocked(event.Listener):
        def on_start(self, event):
            locked.append(global_compiler_lock.is_locked())

        on_end = on_start

    locked = []
    with event.install_listener("numba:compile", IsLocked()):
        compiled_kernel()
    assert locked == [True, True]
    assert not global_compiler_lock.is_locked()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_appdirs_know_the_cache_folder_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Path(appdirs.AppDirs("name", False).user_cache_dir) == tmp_path / "name"


def names_used(path):
    """The names of attributes and of what is imported from modules."""
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names | {each.name for node in nodes if isinstance(node, ast.ImportFrom) for each in node.names}


def test_only_numba_internals_uses_what_it_lists():
    list_of_names = "".join(re.findall(r"^- (.*?):", numba_internals.__doc__, re.MULTILINE))
    listed = {*re.findall(r"`(\w+)`", list_of_names)}
    assert len(listed) > 12
    here = Path(numba_internals.__file__)
    assert listed <= names_used(here)
    listed -= {"compile"}  # also a function of `re`
    assert [
        (path.name, names) for path in modules_in() if path != here if (names := listed & names_used(path))
    ] == [("jit.py", {"global_compiler_lock"})]  # held during a fork


def test_only_numba_internals_imports_internal_modules_of_numba():
    users = {}
    for path in modules_in():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("numba.", "llvmlite.")):
                users.setdefault(name_of(path), set()).update(
                    f"{node.module}.{each.name}" for each in node.names
                )
    del users["buffers/runtime/numba_internals.py"]
    # Numba's documentation describes cgutils
    lock = "numba.core.compiler_lock.global_compiler_lock"
    assert users == {"buffers/runtime/jit.py": {"numba.core.cgutils", lock}}
