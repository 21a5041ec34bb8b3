"""A sample's arrays: which lie side by side, which on their own, which are the caller's; and threads."""

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
from replay_tutorial.buffers.gather import copy_in_threads

SHAPES = [(), (1,), (3,), (7, 3), (LARGE - 1,), (LARGE,), (LARGE + 3,), (4, 40, 41), (4, 84, 84)]
DTYPES = [np.uint8, bool, np.int16, np.float32, np.float64, np.complex128]
FIRST, LAST, ODD = (4, 40, 42), (40, 42, 4), (4, 37, 41)  # ODD: no whole number of words


def pictures(shape: tuple[int, ...] = ODD) -> dict[str, dict[str, Any]]:
    picture = {"shape": shape, "dtype": np.uint8}
    return {
        "obs": picture,
        "act": {"shape": (), "dtype": np.int64},
        "rew": {},
        "next_obs": picture,
        "done": {"shape": (), "dtype": bool},
    }


def values(
    rng: np.random.Generator, env_dict: dict[str, dict[str, Any]], count: int
) -> dict[str, np.ndarray]:
    made = {}
    for name, spec in env_dict.items():
        dtype, shape = spec.get("dtype", np.float32), (count, *shape_of(spec))
        made[name] = rng.integers(0, 2 if dtype is bool else 100, shape).astype(dtype)
    return made


def filled(kind: Any, shape: tuple[int, ...] = ODD, **options: Any) -> Any:
    buffer = kind(20, pictures(shape), seed=3, **options)
    buffer.add(**values(np.random.default_rng(0), buffer._fields.env_dict, 30))
    return buffer


@repeatable(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_of_any_fields_come_out_as_they_went_in(seed):
    rng = np.random.default_rng(seed)
    env_dict = {
        f"field{i}": {"shape": SHAPES[rng.integers(len(SHAPES))], "dtype": DTYPES[rng.integers(len(DTYPES))]}
        for i in range(rng.integers(1, 7))
    }
    size, count = int(rng.integers(1, 9)), int(rng.integers(1, 20))
    buffer, rows = ReplayBuffer(size, env_dict, seed=seed), values(rng, env_dict, count)
    buffer.add(**rows)
    everything = buffer.get_all_transitions()
    assert list(everything) == list(env_dict)
    for name, column in rows.items():
        assert everything[name].dtype == column.dtype
        assert everything[name].tobytes() == column[-size:].tobytes()
        assert everything[name].flags.aligned
        assert all(stride % column.itemsize == 0 for stride in everything[name].strides), "PyTorch wants it"
        if math.prod(column.shape[1:]) * column.itemsize >= LARGE:
            assert everything[name].flags.c_contiguous


def test_a_kept_reward_does_not_hold_the_pictures():
    batch = filled(ReplayBuffer).sample(20)
    pictures = batch["obs"].nbytes
    for name in ("act", "rew", "done"):
        owner = batch[name]
        while owner.base is not None:
            owner = owner.base
        assert owner.nbytes < pictures / 50
    assert batch["obs"].flags.c_contiguous and batch["next_obs"].flags.c_contiguous


def new_arrays(buffer: Any, batch_size: int, names: Any) -> dict[str, np.ndarray]:
    batch = buffer.sample(batch_size)
    return {name: np.zeros_like(np.ascontiguousarray(batch[name])) for name in names}


FRAMES = {"next_of": "obs", "stack_compress": "obs"}
KINDS: list[tuple[Any, dict[str, Any]]] = [
    (ReplayBuffer, {}),
    (PrioritizedReplayBuffer, {}),
    (ReplayBuffer, {"next_of": "obs"}),
    (PrioritizedReplayBuffer, FRAMES),
    (ReplayBuffer, {"Nstep": {"size": 2, "rew": "rew", "next": ()}}),
]
SHARED: list[tuple[Any, dict[str, Any]]] = [
    (kind, options)
    for kind in (MPReplayBuffer, MPPrioritizedReplayBuffer)
    for options in ({}, {"next_of": "obs"}, *({"shape": shape, **FRAMES} for shape in (FIRST, LAST, ODD)))
]


@pytest.mark.parametrize(
    ("kind", "options", "threads"),
    [
        *((*each, {"threads": threads}) for each in KINDS for threads in (1, 2, 3, 7, 50)),
        *((*each, {}) for each in SHARED),
    ],
)
def test_the_callers_arrays_and_threads_change_nothing_but_where_a_batch_lies(kind, options, threads):
    plain, other = filled(kind, **options), filled(kind, **options)
    first = plain.sample(7)
    names = list(first)
    other.sample(7)
    assert first["obs"].flags.c_contiguous and first["next_obs"].flags.c_contiguous
    for given_names in ([], names, names[:1], ["obs", "rew", names[-1]]):
        out = new_arrays(plain, 7, given_names)
        other.sample(7)
        expected, batch = plain.sample(7), other.sample(7, out=out, **threads)
        assert list(batch) == list(expected)
        for name, column in expected.items():
            assert batch[name].tobytes() == column.tobytes(), name
            assert batch[name].dtype == column.dtype
            assert (batch[name] is out.get(name)) == (name in given_names)


def other_memory(array: np.ndarray) -> np.ndarray:
    return np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("kind", [MPReplayBuffer, MPPrioritizedReplayBuffer])
def test_an_array_that_begins_between_two_words_is_filled_too(kind):
    plain, other = (filled(kind, FIRST, **FRAMES) for _ in range(2))
    memory = np.zeros(7 * math.prod(FIRST) + 3, np.uint8)
    out = {"obs": memory[3:].reshape(7, *FIRST)}
    expected, batch = plain.sample(7), other.sample(7, out=out)
    assert batch["obs"] is out["obs"]
    np.testing.assert_array_equal(batch["obs"], expected["obs"])


@pytest.mark.parametrize(("kind", "options"), [*KINDS, *SHARED[::5]])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda out: {**out, "reward": out["rew"]}, KeyError, "'reward'; the fields of a sample"),
        (lambda out: {**out, "rew": out["rew"].tolist()}, TypeError, "NumPy array, not list"),
        (lambda out: {**out, "rew": out["rew"][:6]}, ValueError, r"\(7, 1\), not float32 and \(6, 1\)"),
        (lambda out: {**out, "rew": out["rew"].ravel()}, ValueError, "shape"),
        (lambda out: {**out, "act": out["act"].astype(np.int32)}, ValueError, "int64"),
        (lambda out: {**out, "obs": other_memory(out["obs"])}, ValueError, "C-contiguous"),
        (lambda out: {**out, "obs": read_only(out["obs"])}, ValueError, "writable"),
        (lambda out: {**out, "next_obs": out["obs"]}, ValueError, "share memory"),
        (lambda out: {**out, "next_obs": out["obs"][:]}, ValueError, "share memory"),
        (lambda out: 0, TypeError, "out must be a dict of arrays"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_before_anything_changes(kind, options, change, error, words):
    buffer = filled(kind, **options)
    given = new_arrays(buffer, 7, ["obs", "act", "rew", "next_obs"])
    out = change(given)
    state = repr(buffer._rng.bit_generator.state)
    with pytest.raises(error, match=words):
        buffer.sample(7, out=out)
    assert repr(buffer._rng.bit_generator.state) == state
    assert not any(np.any(array) for array in given.values())


def test_what_goes_wrong_in_a_thread_is_raised():
    def fail(some):
        if some.start:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        copy_in_threads(fail, 10, 3)


@pytest.mark.parametrize(("threads", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_threads_that_are_no_number_of_threads_are_refused(threads, error):
    with pytest.raises(error):
        filled(ReplayBuffer).sample(3, threads=threads)


def test_every_kernel_releases_the_gil_so_that_threads_copy_side_by_side():
    modules = [
        importlib.import_module(f"replay_tutorial.{layer}.{path.stem}")
        for layer in ("buffers", "shared")
        for path in modules_in(PACKAGE / layer)
    ]
    kernels = {thing for module in modules for thing in vars(module).values() if hasattr(thing, "py_func")}
    assert "take_rows" in {kernel.__name__ for kernel in kernels}
    assert [kernel.__name__ for kernel in kernels if not kernel.targetoptions.get("nogil")] == []
