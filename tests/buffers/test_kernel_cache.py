"""Compiled kernels are cached on disk: never outdated, never damaged, and used wherever they can be read."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba.core import config, event
from places import PACKAGE, ROOT
from programs import run_python

from replay_tutorial.__main__ import main
from replay_tutorial.buffers.runtime import jit, kernel_cache, numba_internals
from replay_tutorial.buffers.runtime.atomic_file import open_locked
from replay_tutorial.buffers.runtime.jit import Floats, jitable, kernel
from replay_tutorial.buffers.runtime.kernel_cache import VERSIONS_KEPT, UnknownContentError, digest_of

# What a program with kernels prints, and edits that each change one of these numbers.
CALLS = """
import numpy as np
from replay_tutorial.buffers.sum_tree import first_leaf, min_of_eight, recompute_sums
from replay_tutorial.shared.protocol import add_to_counter

sums, counters = np.arange(24.0), np.array([5])
recompute_sums(sums, np.array([8], np.uint64))
add_to_counter(counters, 0, 3)
print(sums[8], counters[0], min_of_eight(np.arange(9.0, 1.0, -1.0), 0), first_leaf(np.zeros(8)))
"""
KERNEL = ("buffers/sum_tree.py", "return (sums[node] + ", "return 1000.0 + (sums[node] + ")
INTRINSIC = ("shared/atomics.py", 'read_modify_write("add")', 'read_modify_write("sub")')
CONSTANT = ("buffers/sum_tree.py", "CHILDREN = 8", "CHILDREN = 4")
JITABLE = ("buffers/sum_tree.py", "(node - SIX) << THREE", "(node - SIX) << TWO")


def copy_package(folder: Path) -> Path:
    """Copy the sources with which the kernels are compiled."""
    for layer in ("buffers", "shared"):
        source = PACKAGE / layer
        shutil.copytree(source, folder / PACKAGE.name / layer, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PACKAGE / "__init__.py", folder / PACKAGE.name)
    return folder


def run_calls(folder: Path, cache: Path) -> tuple[str, set[str]]:
    """Run `CALLS` with a copy of the package; return its output, and the names of all files in the cache."""
    done = run_python("-c", CALLS, cwd=folder, environment={"PYTHONPATH": "", "NUMBA_CACHE_DIR": str(cache)})
    assert done.returncode == 0, done.stderr
    return done.stdout, {path.name for path in cache.rglob("*.nbc")}


def test_edit_of_kernel_intrinsic_constant_or_small_function_is_seen_at_the_next_start(tmp_path):
    """Even if the edited clone shares a cache with the original one, which is not disturbed."""
    first, second, cache = tmp_path / "first", tmp_path / "second", tmp_path / "cache"
    for clone in (first, second):
        copy_package(clone)
    for name, old, new in (KERNEL, INTRINSIC, CONSTANT, JITABLE):
        path = second / PACKAGE.name / name
        text = path.read_text("utf-8")
        assert text.count(old) == 1
        path.write_text(text.replace(old, new), "utf-8")
    before, names = run_calls(first, cache)
    after, more = run_calls(second, cache)
    assert before == "156.0 8 2.0 7\n"
    assert after == "2092.0 2 6.0 4\n"
    assert more > names
    assert run_calls(first, cache) == (before, more), "nothing is compiled again"


class Pair(NamedTuple):
    one: int
    two: int


class Other(NamedTuple):
    two: int
    one: int


Other.__qualname__ = Pair.__qualname__
HERE = sys.modules[__name__]
CONSTANT_OF_THIS_MODULE = 1.0


def make_kernel(
    shift: int = 1,
    table: Any = (1, 2),
    pair: type = Pair,
    number: Any = int,
    start: int = 0,
    text: str = "a",
    module: str = __name__,
) -> Any:
    """Return a kernel that depends on each of the arguments, and on `CONSTANT_OF_THIS_MODULE`."""

    def add_shift(x):
        return x + shift

    add_shift.__module__ = module  # a cached kernel imports the modules of all functions that it calls

    @jitable
    def add_constant(x, start=start):
        return add_shift(x) + start + HERE.CONSTANT_OF_THIS_MODULE

    @kernel
    def called(x: number) -> float:
        return add_constant(x) + table[0] + len(text)

    @kernel
    def calling(pair: pair) -> float:
        return called(pair.one) + np.floor(0.5)

    del jit.kernels[-2:]  # `warm-up` would compile them
    return calling


ARRAY, TURNED = np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2)
CHANGES = {
    "shift": [2],
    "table": [(1, 3), [1, 2], ARRAY, TURNED, ARRAY * 1.0, frozenset("abc"), {"a": 1}, slice(1), slice(2)],
    "pair": [Other],
    "number": [float, "Floats"],
    "start": [1, 0.0, True],
    "text": ["b"],
    "module": ["moved"],
}


def test_digest_depends_on_all_that_a_kernel_is_compiled_from(monkeypatch):
    digests = [digest_of(make_kernel())]
    assert digest_of(make_kernel()) == digests[0]
    changes = [{name: value} for name, values in CHANGES.items() for value in values]
    digests += [digest_of(make_kernel(**change)) for change in changes]
    digests.append(digest_of(make_kernel(), "another version of Numba"))
    monkeypatch.setattr(HERE, "CONSTANT_OF_THIS_MODULE", 2.0)
    digests.append(digest_of(make_kernel()))
    assert len(set(digests)) == len(digests)


def test_digests_are_the_same_in_every_process():
    program = (
        "from tests.buffers.test_kernel_cache import digest_of, make_kernel\n"
        "print(digest_of(make_kernel(table=frozenset('abc'))))"
    )
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    done = [
        run_python("-c", program, environment={"PYTHONPATH": path, "PYTHONHASHSEED": seed}) for seed in "12"
    ]
    assert done[0].stdout == done[1].stdout != "", done[0].stderr


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty folder as the cache; no kernel has been compiled, and nothing logged."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba_internals, "logged", set())
    monkeypatch.setattr(kernel_cache, "used", folders := set())
    monkeypatch.setattr(numba_internals, "used", folders)
    monkeypatch.setitem(numba_internals.spent, "seconds", 0.0)
    monkeypatch.setattr(jit, "kernels", [])
    return tmp_path / PACKAGE.name


def new_kernel() -> Any:
    """Return a kernel that has not been compiled in this process."""

    @kernel
    def halve(number: float) -> float:
        return number / 2

    return halve


def is_loaded(halve: Any) -> bool:
    """Call the kernel; return whether it was in the cache."""
    with event.install_listener("numba:compile", compilations := event.RecordingListener()):
        assert halve(3) == 1.5
    return not compilations.buffer


def test_damaged_file_is_compiled_again(cache):
    assert not is_loaded(new_kernel())
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:3], whole[:-1], bytes(len(whole)), whole[:200] + b"\0" + whole[201:]):
        file.write_bytes(damaged)
        assert not is_loaded(new_kernel()), "it was compiled"
        assert is_loaded(new_kernel()), "and written again"
    assert list(cache.iterdir()) == [file]


def test_old_versions_of_a_kernel_are_deleted(cache):
    for number in range(VERSIONS_KEPT + 3):

        @kernel
        def version() -> int:
            return number  # noqa: B023 - Numba compiles it as a constant

        assert version() == number
    assert not is_loaded(new_kernel())
    assert len(list(cache.glob("*version-*"))) == VERSIONS_KEPT


def test_files_that_other_processes_are_writing_are_not_deleted(cache):
    assert not is_loaded(new_kernel())
    (file,) = cache.iterdir()
    file.write_bytes(b"")
    unfinished = [cache / f".{file.name}.{number}-1.part" for number in range(10, 11 + VERSIONS_KEPT)]
    with ExitStack() as writers:
        for each in unfinished:
            writers.enter_context(open_locked(each))
        assert not is_loaded(new_kernel())
        assert sorted(cache.iterdir()) == [*unfinished, file]


@contextmanager
def without_permission_to_write(folder: Path) -> Iterator[None]:
    """Make a folder read-only, also for root, who may write everywhere."""
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="a folder can't be made read-only on Windows")
def test_cache_that_can_only_be_read_is_used(cache, monkeypatch, caplog):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own can be read by root only
        Path(folder).chmod(0o755)
        monkeypatch.setattr(config, "CACHE_DIR", folder)
        assert not is_loaded(new_kernel())
        with without_permission_to_write(Path(folder, PACKAGE.name)):
            assert is_loaded(new_kernel())
    assert not caplog.records


@pytest.mark.skipif(sys.platform == "win32", reason="there is no limit of the size of files")
def test_full_disk_does_not_fail_a_call_and_leaves_no_file(cache, caplog):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        assert not is_loaded(new_kernel())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (record,) = caplog.records
    assert f"File too large: {str(cache)!r}" in record.getMessage()
    assert not list(cache.iterdir())
    assert not is_loaded(new_kernel())
    assert is_loaded(new_kernel())


@pytest.mark.skipif(sys.platform == "win32", reason="Windows tells the user's folder without HOME")
def test_without_a_home_no_folder_is_made_in_the_current_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as if the system did not know the user
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert numba_internals.cache_folders(__file__) == [Path(__file__).parent / "__pycache__"]
    assert numba_internals.cache_folders("<string>") == []


def test_program_that_has_no_folder_for_kernels_says_so_once(cache, monkeypatch, caplog, capsys):
    cache.write_text("a file where the folder should be")
    monkeypatch.setattr(numba_internals, "WARN_AFTER_SECONDS", 0.0)
    for _ in range(3):
        assert not is_loaded(new_kernel())
    new_kernel()
    monkeypatch.setattr("replay_tutorial.__main__.KERNEL_LAYERS", ())
    assert main(["warm-up"]) == 1
    assert "4 kernels are ready" in (told := capsys.readouterr().out) and "but they are not cached" in told
    (record,) = caplog.records
    assert "Set NUMBA_CACHE_DIR to a writable folder" in record.getMessage()


def test_kernel_that_can_not_be_cached_is_compiled_in_each_process(cache, caplog):
    space = {"kernel": kernel}
    exec("@kernel\ndef one() -> int:\n    return 1", space)  # noqa: S102 - a function without a module
    assert space["one"]() == 1
    assert "one was defined outside a module" in caplog.text
    assert not cache.exists()

    @kernel
    def two(cells: Floats) -> float:
        return cells[0]

    two.py_func.__defaults__ = (object(),)
    with pytest.raises(UnknownContentError, match=r"two uses <object object"):
        digest_of(two)


CHILDREN = """
from multiprocessing import get_context
from tests.buffers.test_kernel_cache import is_loaded, new_kernel

def call(together):
    together.wait(600)
    assert new_kernel()(3) == 1.5

context = get_context("fork")
together = context.Barrier(4)
children = [context.Process(target=call, args=(together,)) for _ in range(4)]
for child in children:
    child.start()
for child in children:
    child.join()
print([child.exitcode for child in children], is_loaded(new_kernel()))
"""


def run_children(folder: Path) -> tuple[str, str]:
    """Run `CHILDREN` with a folder for the cache; return its output and its errors."""
    path = f"{ROOT}{os.pathsep}{ROOT / 'tests'}"
    done = run_python("-c", CHILDREN, environment={"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder)})
    return done.stdout, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_four_processes_at_an_empty_cache_compile_and_leave_one_file(tmp_path):
    output, errors = run_children(tmp_path)
    assert output == f"{[0] * 4} True\n", errors  # which may say that kernels are being compiled
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_children_do_not_repeat_that_there_is_no_folder_for_kernels(tmp_path):
    (tmp_path / PACKAGE.name).touch()
    output, errors = run_children(tmp_path)
    assert output == f"{[0] * 4} False\n", errors
    assert len(errors.splitlines()) == 1 and "Set NUMBA_CACHE_DIR to a writable folder" in errors
