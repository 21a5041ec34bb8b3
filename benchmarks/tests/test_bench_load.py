"""The benchmark of many clients: each side writes and samples, and ratios have the right direction."""

import sys
from contextlib import ExitStack

import numpy as np
import pytest

from benchmarks import load
from benchmarks.measuring.namespaces import TwoHosts
from benchmarks.peers.buffer import NotMeasurable

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes can't be waited for")


@pytest.fixture
def one_process_of_each_kind(monkeypatch):
    monkeypatch.setattr(load, "PROCESSES", 1)


@pytest.mark.parametrize("name", [load.PORT, load.REVERB])
def test_a_side_writes_and_samples(name, one_process_of_each_kind):
    with ExitStack() as stack:
        try:
            side = load.start_side(stack, name, None, 0.0, 0)
        except NotMeasurable as error:
            pytest.skip(str(error))
        figures = side.figures(0.3)
    assert figures.keys() == load.FIGURES.keys()
    assert all(value > 0 for value in figures.values())


def test_a_delayed_network_limits_a_client_that_writes(one_process_of_each_kind):
    with ExitStack() as stack:
        try:
            hosts = stack.enter_context(TwoHosts())
        except (RuntimeError, OSError) as error:
            pytest.skip(str(error))
        side = load.start_side(stack, load.PORT, hosts, 0.05, 0)
        figures = side.figures(1.0)
    assert 0 < figures["write"] <= 20 / 0.1 + 20, "20 items in a round trip"
    assert 0 < figures["sample"] <= load.NETWORK_PREFETCH * load.LOAD_BATCH / 0.1 * 1.2


def test_ratio_is_above_1_where_ours_is_better():
    ours = {name: np.array([20.0 if more else 2.0]) for name, (_, _, more) in load.FIGURES.items()}
    theirs = {name: np.array([2.0 if more else 20.0]) for name, (_, _, more) in load.FIGURES.items()}
    lines, record = load.lines_of({load.PORT: ours, load.REVERB: theirs})
    better = [
        figure["times_better"][load.PORT].median for name, figure in record.items() if name != "processors"
    ]
    assert better == pytest.approx([10.0] * (len(load.FIGURES) - 1))
    assert len(lines) == 2 + len(load.FIGURES)
    assert not load.lines_of({load.PORT: ours})[1]["write"]["times_better"]
