"""What all tests share: who runs beside whom, and pictures and environments are drawn without a screen."""

import os

import pytest
from places import ROOT

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

# `make test` has two workers. What starts processes, counts what is left in shared memory or takes times is
# done by one of them, one after the other; of the rest a file's tests stay together, with what they share.
START_PROCESSES = {"shared", "local", "apex", "bench", "recipes", "test_main.py", "test_articles.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say which tests one worker does."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        place = item.path.relative_to(ROOT / "tests")
        alone = place.parts[0] in START_PROCESSES or "shared" in place.name
        group = "processes" if alone else "site" if place.parts[0] == "site" else place.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
