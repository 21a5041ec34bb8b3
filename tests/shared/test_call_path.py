"""A call of the shared sampler can be followed: through few files, and kernels with few arguments."""

import importlib
import inspect

import numpy as np
import pytest
from call_path import follow
from places import PACKAGE, modules_in

from replay_tutorial import MPPrioritizedReplayBuffer

MAX_FILES, MAX_ARGUMENTS = 8, 8
SHARED, BUFFERS = ({path.stem for path in modules_in(PACKAGE / name)} for name in ("shared", "buffers"))


@pytest.fixture
def buffer():
    """A buffer whose tree is made and whose kernels have run."""
    buffer = MPPrioritizedReplayBuffer(64, {"obs": {"shape": 4}, "rew": {}}, seed=0)
    buffer.add(obs=np.zeros((10, 4)), rew=np.zeros(10))
    buffer.update_priorities(buffer.sample(8)["indexes"], np.ones(8))
    return buffer


def test_a_sample_goes_through_eight_files_at_most(buffer):
    path = follow(lambda: buffer.sample(8))
    assert "shared/sampler.py:draw_rows" in path.functions and "buffers/rows.py:copy_row" in path.functions
    assert len(path.files) <= MAX_FILES, path.files


def test_an_update_goes_through_eight_files_at_most(buffer):
    indexes = buffer.sample(8)["indexes"]
    path = follow(lambda: buffer.update_priorities(indexes, np.ones(8)))
    assert "shared/sampler.py:update_rows" in path.functions
    assert len(path.files) <= MAX_FILES, path.files


@pytest.mark.parametrize("name", sorted(SHARED - {"__init__"}))
def test_no_kernel_takes_more_than_eight_arguments(name):
    things = vars(importlib.import_module(f"replay_tutorial.shared.{name}")).values()
    kernels = [thing.py_func for thing in things if hasattr(thing, "py_func")]
    counts = {kernel.__name__: len(inspect.signature(kernel).parameters) for kernel in kernels}
    assert max(counts.values(), default=0) <= MAX_ARGUMENTS, counts


def test_no_file_is_called_like_one_for_a_single_process():
    both = SHARED & BUFFERS
    assert both == {"__init__"}, "a tab or a traceback must tell them apart"
