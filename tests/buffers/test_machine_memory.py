"""Buffers that are larger than the memory of this machine, or than its free memory."""

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from replay_tutorial import EpisodeReplayBuffer, NStep, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.rows import CHECKED_FROM, check_memory
from replay_tutorial.buffers.runtime.machine_memory import free_memory, total_memory

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
IMAGE: dict[str, Any] = {"shape": (512, 512, 4), "dtype": np.uint8}  # 1 MiB
ROW = {"obs": IMAGE, "reward": {}, "terminated": {"dtype": bool}}
KINDS: dict[str, Any] = {
    "uniform": (ReplayBuffer, ROW, {}),
    "prioritized": (PrioritizedReplayBuffer, ROW, {}),
    "n-step": (ReplayBuffer, ROW, {"n_step": NStep(2)}),
    "frames": (ReplayBuffer, ROW, {"dedupe_next": "obs"}),
    "episodes": (EpisodeReplayBuffer, {**ROW, "next_obs": IMAGE}, {}),
}


@linux_only
def test_cached_pages_of_a_container_are_free_memory(tmp_path):
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text(
        "anon 300000\nfile 600000\nshmem 50000\ninactive_file 500000\nactive_file 50000\n"
    )
    assert free_memory(tmp_path) == 100_000 + 550_000
    assert total_memory(tmp_path) == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert total_memory(tmp_path) == total_memory(tmp_path / "none")
    everything = free_memory(tmp_path)
    assert everything is not None and everything > 650_000


@linux_only
def test_the_memory_is_unknown_without_proc(tmp_path):
    assert total_memory(meminfo=tmp_path / "none") is None
    assert free_memory(meminfo=tmp_path / "none") is None


@linux_only
@pytest.mark.parametrize("name", KINDS)
def test_buffer_larger_than_the_machine_is_refused_with_both_sizes_and_the_remedy(name):
    (kind, fields, options), total = KINDS[name], total_memory()
    assert total is not None
    told = rf"takes [\d,.]+ GB when it is full, but this machine has {total / 1e9:,.1f} GB.*path="
    for factor in (1.1, 1e6):  # the second is more than an address space
        with pytest.raises(MemoryError, match=told):
            kind(int(factor * total) >> 20, fields, **options)


@linux_only
@pytest.mark.parametrize("name", [name for name in KINDS if name != "frames"])
def test_buffer_larger_than_the_free_memory_is_constructed_with_a_warning_of_both_sizes(name):
    (kind, fields, options), total, free = KINDS[name], total_memory(), free_memory()
    assert total is not None and free is not None and free < total, "the system itself needs some"
    told = r"takes [\d,.]+ GB when it is full, but [\d,.]+ GB of memory are free.*path="

    class Derived(kind):
        def __init__(self, *arguments):
            super().__init__(*arguments, **options)

    for make in (partial(kind, **options), Derived):
        with pytest.warns(UserWarning, match=told) as warned:
            buffer = make((total + free) // 2 >> 20, fields)
        assert len(buffer) == 0
        assert [warning.filename for warning in warned] == [__file__], "the line of the user's program"


def test_buffer_that_fits_is_constructed_without_a_word():
    for kind, fields, options in KINDS.values():
        kind(100, fields, **options)  # a warning would be an error
    check_memory(CHECKED_FROM)
