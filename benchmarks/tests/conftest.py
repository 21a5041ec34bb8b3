"""What the tests of the lab share, as in tests/: one thread, no screen, no folders left in /tmp."""

import os
import signal
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def log_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the log folders that SB3 writes for each model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SB3_LOGDIR", str(tmp_path_factory.getbasetemp() / "sb3"))
        yield
