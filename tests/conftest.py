"""What all tests share: pictures are drawn without a screen, and Ctrl-C interrupts them wherever they run."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from programs import Result, run_python, warm_interpreter

# PyTorch reads it when it is imported, here and in the processes that tests start. Two threads are slower for
# networks this small: they spin while they wait for each other, endlessly on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ["REPLAY_COURSE"] = ""  # a check that accepts an answer stores nothing in somebody's my_replay/
# In the background of a script it is ignored, and so it would be in the programs that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# No test fails by being late: on a busy machine an example may take any time, and so may making one.
# Nor by chance: every run tries the same examples, unless EXPLORE asks for others.
settings.register_profile(
    "patient",
    deadline=None,
    derandomize="EXPLORE" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")

# Tests share one fork server, so it imports what those of training runs need: PyTorch takes long.
if sys.platform == "linux":
    forkserver.set_forkserver_preload(["replay_tutorial.local.fork_server", "replay_tutorial.local.workers"])

# Processes that import jsonschema, among them Ray's, start in a third of the time.
QUICK = str(Path(__file__).parent / "quick")
sys.path.insert(0, QUICK)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [QUICK, os.environ.get("PYTHONPATH")]))

# The files that take longest begin first, so that no process is left with one of them at the end.
LONGEST = (
    "cluster/test_on_ray.py",
    "site/test_in_a_browser.py",
    "apex/runs/test_run.py",
    "recipes/test_recipes.py",
    "recipes/test_programs.py",
    "chapters/test_answers.py",
    "local/test_serial.py",
    "shared/test_interrupted_calls.py",
    "steps/test_shared_steps.py",
    "test_project.py",
    "shared/test_shared_memory.py",
    "shared/test_ring_protocol.py",
    "test_main.py",
    "steps/test_apex_processes.py",
    "buffers/test_archive.py",
    "buffers/test_kernel_cache.py",
    "shared/test_shared_files.py",
    "shared/test_shared.py",
    "test_articles.py",
    "shared/test_writer_crash.py",
    "recipes/test_programs_2.py",
    "buffers/test_frames.py",
    "chapters/test_chapters.py",
    "buffers/test_forged_archives.py",
)


def pytest_configure() -> None:
    """Refuse a name in LONGEST that has no file: it would have no effect."""
    if missing := [name for name in LONGEST if not (Path(__file__).parent / name).exists()]:
        raise pytest.UsageError(f"LONGEST in {__file__} lists files that don't exist: {', '.join(missing)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by file: the longest files first, and the others in their own order."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Keep what exists out of garbage collections: visiting the libraries takes 0.3 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SB3 writes a log folder for each model; keep them out of /tmp, where they would remain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.getbasetemp() / "sb3"))
        yield


@pytest.fixture(scope="session")
def run_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Result]]:
    """Runs a program: a script and its arguments. Tests of the start of an interpreter use `run_python`."""
    if sys.platform != "linux":
        yield run_python
        return
    with warm_interpreter(tmp_path_factory.mktemp("programs")) as run:
        yield run
