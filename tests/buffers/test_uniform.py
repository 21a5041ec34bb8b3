"""The uniform buffer: its samples, its randomness, its copies, and what it refuses."""

import copy
import inspect
import math
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from histories import (
    CONFIGURATIONS,
    EXAMPLE_FIELDS,
    arrays_inside,
    as_bytes,
    behaviour,
    configured,
    random_operation,
    snapshot,
)

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

EVERY = pytest.mark.parametrize("name", CONFIGURATIONS)


@EVERY
def test_sample_has_the_shapes_and_dtypes_of_the_fields(name):
    buffer = configured(name, size=60, rows=30)
    sample = buffer.sample(5)
    expected = {**EXAMPLE_FIELDS, **({"discount": {}} if "n-step" in name else {})}
    extra = {"indexes", "weights"} if isinstance(buffer, PrioritizedReplayBuffer) else set()
    assert set(sample) == set(expected) | extra
    for field, spec in expected.items():
        shape = spec.get("shape", ())
        assert sample[field].shape == (5, *shape)
        assert sample[field].dtype == spec.get("dtype", np.float32)
        assert type(sample[field]) is np.ndarray


@EVERY
def test_sample_shares_no_memory_with_the_buffer(name):
    buffer = configured(name, size=60, rows=30)
    inside = list(arrays_inside(buffer))
    assert sum(array.nbytes for array in inside) > 12 * 8, "the buffer's arrays were not found"
    for batch in (buffer.sample(20), buffer[:], next(buffer.epoch(len(buffer)))):
        for column in batch.values():
            assert not any(np.may_share_memory(column, array) for array in inside)
            assert column.flags.writeable


@pytest.mark.parametrize(
    ("shape", "arguments"),
    [
        *[
            (shape, arguments)
            for shape in ((), (1,), (3,), (2, 3))
            for arguments in ({}, {"dedupe_next": "x"})
        ],
        *[(shape, {"dedupe_frames": {"x": 0}}) for shape in ((1,), (3,), (2, 3))],
    ],
)
def test_torch_takes_every_dtype_that_it_knows_without_a_copy(shape, arguments):
    torch = pytest.importorskip("torch")
    known = [np.bool_, np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64]
    known += [np.float16, np.float32, np.float64, np.complex64, np.complex128]
    for dtype in known:
        # a field of one byte before and after it, so that no alignment is a gift
        fields = {"a": {"dtype": np.int8}, "x": {"shape": shape, "dtype": dtype}, "z": {"dtype": bool}}
        if arguments.get("dedupe_next"):
            fields["next_x"] = dict(fields["x"])
        buffer = ReplayBuffer(5, fields, **arguments)
        values = np.ones((5, *shape), dtype)
        buffer.add(a=np.ones(5, np.int8), z=np.ones(5, bool), **{k: values for k in fields if "x" in k})
        for batch in (buffer.sample(3), buffer[:]):
            for column in batch.values():
                tensor = torch.from_numpy(column)
                assert tensor.data_ptr() == column.ctypes.data
                assert tuple(tensor.shape) == column.shape
                assert tensor.clone().numpy().tobytes() == column.tobytes()


@EVERY
def test_same_seed_draws_the_same_and_another_seed_does_not(name):
    first, second, other = (configured(name, size=60, seed=seed, rows=30) for seed in (3, 3, 4))
    assert as_bytes(first.sample(50)) == as_bytes(second.sample(50))
    assert as_bytes(next(first.epoch(len(first)))) == as_bytes(next(second.epoch(len(second))))
    assert as_bytes(first.sample(50)) != as_bytes(other.sample(50))


def test_unseeded_buffers_draw_differently():
    drawn = []
    for _ in range(2):
        buffer = ReplayBuffer(1000, {"x": {"dtype": np.int64}})
        buffer.add(x=np.arange(1000))
        drawn.append(buffer.sample(50)["x"].tolist())
    assert drawn[0] != drawn[1]


@EVERY
def test_global_randomness_is_neither_used_nor_disturbed(name):
    np.random.seed(7)
    random.seed(7)
    before = pickle.dumps((np.random.get_state(), random.getstate()))
    buffer = configured(name, size=60, rows=30)
    first = as_bytes(buffer.sample(20))
    next(buffer.epoch(len(buffer)))
    assert pickle.dumps((np.random.get_state(), random.getstate())) == before
    np.random.seed(8)
    assert as_bytes(configured(name, size=60, rows=30).sample(20)) == first


@EVERY
@pytest.mark.parametrize(
    "twin_of", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))], ids=["deepcopy", "pickle"]
)
def test_copies_live_the_same_life_and_are_independent(name, twin_of):
    buffer = configured(name, rows=40)
    twin = twin_of(buffer)
    assert behaviour(twin) == behaviour(buffer)
    before = snapshot(buffer)
    mine, theirs = list(arrays_inside(buffer)), list(arrays_inside(twin))
    memory = [(a, b) for a in mine for b in theirs if a.nbytes and b.nbytes and np.may_share_memory(a, b)]
    assert all(not a.flags.writeable for a, _ in memory)
    rng = np.random.default_rng(0)
    for _ in range(50):
        random_operation(twin, rng)
    assert snapshot(buffer) == before, "what the copy did changed the original"
    again = twin_of(buffer)
    first, second = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(100):
        assert random_operation(buffer, first) == random_operation(again, second)
    assert behaviour(again) == behaviour(buffer)


@pytest.mark.parametrize("batch_size", [1, 7, 1000, np.int32(5), np.uint8(5), np.int64(5)])
def test_batch_may_be_greater_than_the_buffer_and_its_size_any_integer(batch_size):
    for name in CONFIGURATIONS:
        assert len(configured(name, rows=5).sample(batch_size)["action"]) == batch_size


@EVERY
@pytest.mark.parametrize(
    ("batch_size", "error"),
    [
        *((number, ValueError) for number in (0, -1, np.int64(-5))),
        *((number, TypeError) for number in (2.5, "3", None, [3], math.nan)),
    ],
)
def test_batch_size_that_makes_no_sense_is_refused(name, batch_size, error):
    buffer = configured(name, size=60, rows=20)
    buffer.sample(1)
    before = snapshot(buffer)
    with pytest.raises(error):
        buffer.sample(batch_size)
    assert snapshot(buffer) == before


@EVERY
def test_sample_of_an_empty_buffer_is_refused(name):
    buffer = configured(name)
    before = snapshot(buffer)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    assert snapshot(buffer) == before
    buffer = configured(name, size=60, rows=20)
    buffer.clear()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)


EVERY_KIND = [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer]


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_arguments_of_a_wrong_type_are_named_by_the_error(kind, tmp_path):
    """Python's own words name neither the argument nor what it must be."""
    buffer = kind(8, {"obs": {}})
    buffer.add(obs=0)
    refused: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: buffer.sample(3.0), TypeError, r"batch_size must be an integer, not 3\.0"),
        (lambda: buffer.sample(True), TypeError, "batch_size must be an integer, not True"),
        (lambda: buffer.load(5), TypeError, "must be a string or a path, not 5"),
        (lambda: buffer.save(5), TypeError, "must be a string or a path, not 5"),
        (lambda: kind(8, {"obs": {}}, dedupe_next=[5]), TypeError, "must be a string, not 5"),
        (lambda: kind(8, {"obs": {}}, dedupe_next=5), TypeError, "must be a string, not 5"),
        (lambda: kind(8, {"obs": {}}, dedupe_frames=5), TypeError, "must be a string, not 5"),
        (lambda: kind(8, {"obs": {"shape": 2.5}}), TypeError, r"\['shape'\] must be an integer, not 2\.5"),
        (lambda: kind(8, {"obs": {}}).load(tmp_path / "no"), FileNotFoundError, "No such file"),
    ]
    for call, error, match in refused:
        with pytest.raises(error, match=match):
            call()


def test_calls_have_the_names_and_defaults_of_the_documentation():
    sample = inspect.signature(PrioritizedReplayBuffer.sample).parameters
    assert list(sample)[1:3] == ["batch_size", "beta"]
    assert sample["beta"].default == 0.4
    assert sample["normalize"].default is None, "by the buffer, unless there is a scheme"
    constructor = inspect.signature(PrioritizedReplayBuffer.__init__).parameters
    assert (constructor["alpha"].default, constructor["eps"].default) == (0.6, 1e-4)
    for kind in (ReplayBuffer, PrioritizedReplayBuffer):
        parameters: Any = inspect.signature(kind.__init__).parameters
        assert list(parameters)[1:3] == ["capacity", "fields"]
        for keyword in ("dedupe_next", "dedupe_frames", "n_step", "gamma", "autoreset", "seed"):
            assert parameters[keyword].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters[keyword].default is None
        assert parameters["num_envs"].default == 1


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_unknown_arguments_are_refused(kind):
    name, fields = kind.__name__, {"obs": {}}
    for keyword in ("nstep", "compress", *(["alpha"] if "Prioritized" not in name else [])):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'"):
            kind(2, fields, **{keyword: 0.6})
    with pytest.raises(TypeError, match="positional"):
        kind(2, fields, "obs")
    if name.startswith("MP"):
        for keyword in ("n_step", "num_envs", "autoreset"):
            with pytest.raises(TypeError, match=rf"^{name} has no argument '{keyword}'.*NStepWindow"):
                kind(2, fields, **{keyword: 3})


# In a process of its own: memory that has been used before may be resident already.
TOUCHED = """
from pathlib import Path
import numpy as np
from replay_tutorial import MPReplayBuffer, ReplayBuffer

def resident():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))

options = {options}
picture = {{"shape": (4, 40, 40), "dtype": np.uint8}}
fields = {{"obs": picture, "reward": {{}}}} | ({{}} if options else {{"next_obs": picture}})
small, buffer = ({kind}(capacity, fields, **options) for capacity in (16, 10_000))
seen = np.random.default_rng(0).integers(0, 256, (11, 4, 40, 40), np.uint8)
for each in (small, buffer):  # what is loaded at a first call is no page of the buffer
    for i in range(10):
        each.add(obs=seen[i], reward=i, next_obs=seen[i + 1])
small.touch_pages(), small[:]
before, everything = resident(), buffer[:]
buffer.touch_pages()
for name, column in buffer[:].items():
    np.testing.assert_array_equal(column, everything[name])
print((resident() - before) / buffer.nbytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is resident")
@pytest.mark.parametrize(
    "options", [{}, {"dedupe_next": "obs", "dedupe_frames": "obs"}], ids=["plain", "frames"]
)
@pytest.mark.parametrize("kind", ["ReplayBuffer", "MPReplayBuffer"])
def test_pages_are_handed_out_when_they_are_asked_for_and_keep_what_they_hold(kind, options):
    command = [sys.executable, "-c", TOUCHED.format(kind=kind, options=options)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert 0.7 < float(result.stdout) < 1.3
