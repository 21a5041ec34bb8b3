"""What all tests share: pictures are drawn without a screen, and Ctrl-C interrupts them wherever they run."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
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


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch with one thread: two spin while they wait for each other, endlessly on a busy machine."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
