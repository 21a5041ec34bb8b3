"""Rows on a device: batches are those of the same buffer in host memory, and no row is copied twice.

The device is PyTorch's CPU, and a GPU where there is one. So far there was none.
"""

import pickle
from typing import Any

import numpy as np
import pytest
from histories import CONFIGURATIONS, EXAMPLE_FIELDS, History, configured, random_operation, repeatable
from hypothesis import given
from hypothesis import strategies as st

from replay_tutorial import Batch, PrioritizedReplayBuffer

torch = pytest.importorskip("torch")
from tensor_storage import OnDevice, PrioritizedOnDevice, viewed

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
EACH_DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=no_gpu)])


class AsArrays(OnDevice):
    """Returns arrays, which the tests of the other storages compare."""

    def _copy(self, rows: Any, others: Any) -> Batch:
        batch = super()._copy(rows, others)
        return Batch({name: tensor.contiguous().numpy(force=True) for name, tensor in batch.items()})


class PrioritizedAsArrays(AsArrays, PrioritizedOnDevice):
    """The same with priorities."""


@pytest.mark.parametrize("kind", [AsArrays, PrioritizedAsArrays])
@pytest.mark.parametrize("n", [None, 3])
@pytest.mark.parametrize("modes", ["plain", "dedupe_next", "dedupe_frames", "dedupe_next+dedupe_frames"])
@repeatable(6)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_are_those_of_the_oracle_in_any_history(kind, n, modes, seed, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    History(seed, modes, n, kind=kind).run(40, folder)


@EACH_DEVICE
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_batches_are_those_of_the_same_buffer_in_host_memory(name, device, monkeypatch):
    """Also the draws, the weights and the order of the fields."""
    kind, arguments = CONFIGURATIONS[name]
    buffer = configured(name)
    other = PrioritizedAsArrays if kind is PrioritizedReplayBuffer else AsArrays
    monkeypatch.setattr(other, "device", device)
    twin = other(buffer.capacity, EXAMPLE_FIELDS, seed=0, **arguments)
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(300):
        assert random_operation(twin, second) == random_operation(buffer, first)
    assert list(twin.sample(3)) == list(buffer.sample(3))


@EACH_DEVICE
def test_each_row_and_frame_is_copied_to_the_device_once(device):
    kind, arguments = CONFIGURATIONS["prioritized, n-step, both"]
    assert kind is PrioritizedReplayBuffer
    buffer = PrioritizedOnDevice(50, EXAMPLE_FIELDS, seed=0, **arguments)
    buffer.device = device
    rng, stack = np.random.default_rng(0), np.zeros((2, 3), np.uint8)
    for number in range(200):
        after = np.concatenate([stack[1:], rng.integers(0, 256, (1, 3), np.uint8)])
        buffer.add(obs=stack, action=number, reward=1.0, next_obs=after, terminated=False)
        stack = after
        if len(buffer) and number % 7 == 0:
            batch = buffer.sample(20)
            assert {tensor.device.type for tensor in batch.values()} == {device}
            assert (batch.obs[:, 1] != batch.obs[:, 0]).any()
            buffer.update_priorities(batch.indexes, batch.reward)
    buffer.sample(1)
    (log,) = buffer._stages.frames.logs
    assert buffer._copies["rows"].rows_copied == buffer.next_index == 198
    assert buffer._copies["obs"].rows_copied == log.frames_added < 210


@EACH_DEVICE
def test_a_loop_with_prefetching_resumes_exactly(device, tmp_path):
    buffer, host = PrioritizedOnDevice(60, EXAMPLE_FIELDS, seed=1), configured("prioritized", size=60, seed=1)
    loaded = PrioritizedOnDevice(60, EXAMPLE_FIELDS)
    rows = {
        name: np.zeros((40, *spec.get("shape", ())), spec.get("dtype", np.float32))
        for name, spec in EXAMPLE_FIELDS.items()
    } | {"action": np.arange(40)}
    for each in (buffer, loaded):
        each.device = device
    for each in (buffer, host):
        each.add(**rows)
    loops = [each.batches(8, device=device, prefetch=2) for each in (buffer, host)]
    for number in range(10):
        drawn = [next(each) for each in loops]
        assert drawn[0].action.tolist() == drawn[1].action.tolist() == drawn[0].indexes.tolist()
        for each, batch in zip((buffer, host), drawn, strict=True):
            each.update_priorities(batch.indexes, batch.action + number)
    buffer.save(tmp_path / "file")
    loaded.load(tmp_path / "file")
    resumed = loaded.batches(8, device=device, prefetch=2)
    for _ in range(5):
        assert (
            next(resumed).action.tolist() == next(loops[0]).action.tolist() == next(loops[1]).action.tolist()
        )
    sent = pickle.loads(pickle.dumps(loaded))
    assert sent.sample(8).action.tolist() == loaded.sample(8).action.tolist()


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.uint16, np.int32, np.float16, np.complex128])
def test_every_dtype_is_a_view_of_the_gathered_rows(dtype):
    fields: Any = {"a": {"dtype": np.int8}, "x": {"shape": (2, 3), "dtype": dtype}, "z": {"dtype": bool}}
    buffer, values = OnDevice(5, fields, seed=0), np.arange(30).reshape(5, 2, 3).astype(dtype)
    buffer.add(a=np.arange(5), x=values, z=np.ones(5))
    batch = buffer.sample(20)
    assert (batch.x.numpy() == values[batch.a]).all() and batch.z.all()
    memory = {tensor.untyped_storage().data_ptr() for tensor in batch.values()}
    assert len(memory) == 1, "a field was copied again"
    assert viewed(torch.zeros(2, 8, dtype=torch.uint8), np.dtype(np.int64), ()).shape == (2,)
