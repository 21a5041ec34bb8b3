"""A sample's arrays: which lie side by side, and which on their own."""

import importlib
import math
from typing import Any

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from oracles import shape_of
from places import PACKAGE, modules_in

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.fields import LARGE

SHAPES = [(), (1,), (3,), (7, 3), (LARGE - 1,), (LARGE,), (LARGE + 3,), (4, 40, 41), (4, 84, 84)]
DTYPES = [np.uint8, bool, np.int16, np.float32, np.float64, np.complex128]
FIRST, LAST, ODD = (4, 40, 42), (40, 42, 4), (4, 37, 41)  # ODD: no whole number of words


FRAMES = {"dedupe_next": "obs", "dedupe_frames": "obs"}


def pictures(shape: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    picture = {"shape": shape, "dtype": np.uint8}
    return {
        "obs": picture,
        "action": {"dtype": np.int64},
        "reward": {},
        "next_obs": picture,
        "done": {"dtype": bool},
    }


def values(rng: np.random.Generator, fields: dict[str, dict[str, Any]], count: int) -> dict[str, np.ndarray]:
    made = {}
    for name, spec in fields.items():
        dtype, shape = spec.get("dtype", np.float32), (count, *shape_of(spec))
        made[name] = rng.integers(0, 2 if dtype is bool else 100, shape).astype(dtype)
    return made


@repeatable(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_of_any_fields_come_out_as_they_went_in(seed):
    rng = np.random.default_rng(seed)
    fields = {
        f"field{i}": {"shape": SHAPES[rng.integers(len(SHAPES))], "dtype": DTYPES[rng.integers(len(DTYPES))]}
        for i in range(rng.integers(1, 7))
    }
    size, count = int(rng.integers(1, 9)), int(rng.integers(1, 20))
    buffer, rows = ReplayBuffer(size, fields, seed=seed), values(rng, fields, count)
    buffer.add(**rows)
    everything = buffer[:]
    assert list(everything) == list(fields)
    for name, column in rows.items():
        assert everything[name].dtype == column.dtype
        assert everything[name].tobytes() == column[-size:].tobytes()
        assert everything[name].flags.aligned
        assert all(stride % column.itemsize == 0 for stride in everything[name].strides), "PyTorch wants it"
        if math.prod(column.shape[1:]) * column.itemsize >= LARGE:
            assert everything[name].flags.c_contiguous


@pytest.mark.parametrize(
    ("kind", "shape", "options"),
    [
        (kind, shape, options)
        for kind in (ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer)
        for shape, options in ((ODD, {}), (ODD, {"dedupe_next": "obs"}), (FIRST, FRAMES), (LAST, FRAMES))
    ],
)
def test_pictures_are_contiguous_and_a_kept_reward_does_not_hold_them(kind, shape, options):
    buffer = kind(20, pictures(shape), seed=3, **options)
    buffer.add(**values(np.random.default_rng(0), pictures(shape), 20))
    batch = buffer.sample(20)
    assert list(batch)[:5] == list(pictures(shape))
    assert batch["obs"].flags.c_contiguous and batch["next_obs"].flags.c_contiguous
    for name in ("action", "reward", "done"):
        owner = batch[name]
        while owner.base is not None:
            owner = owner.base
        assert owner.nbytes < batch["obs"].nbytes / 50


def test_every_kernel_releases_the_gil_so_that_a_thread_can_sample_ahead():
    modules = [
        importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
        for layer in ("buffers", "shared")
        for path in modules_in(PACKAGE / layer)
    ]
    kernels = {thing for module in modules for thing in vars(module).values() if hasattr(thing, "py_func")}
    assert "take_rows" in {kernel.__name__ for kernel in kernels}
    assert [kernel.__name__ for kernel in kernels if not kernel.targetoptions.get("nogil")] == []


@pytest.mark.parametrize("kind", [ReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer])
def test_a_large_field_beside_frames_is_contiguous(kind):
    fields = {"obs": {"shape": 4}, "next_obs": {"shape": 4}, "depth": {"shape": (40, 40)}, "reward": {}}
    buffer = kind(20, fields, dedupe_next="obs", seed=3)
    rows = values(np.random.default_rng(0), fields, 20)
    buffer.add(**rows)
    for batch in (buffer.sample(20), buffer[:]):
        assert batch.depth.flags.c_contiguous
    assert np.array_equal(buffer[:].depth, rows["depth"])
