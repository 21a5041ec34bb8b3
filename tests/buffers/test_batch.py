"""A batch: a dict of arrays whose fields are attributes, nested where they were, and tensors on request."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from programs import run_python

from replay_tutorial import (
    Batch,
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    Mixture,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStep,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers.schemes import Geometric

FLAG: dict[str, Any] = {"dtype": bool}
FIELDS: dict[str, Any] = {
    "obs/image": {"shape": 3, "dtype": np.uint8},
    "obs/goal/0": {"shape": 2},
    "obs/goal/1": {},
    "reward": {},
    "next_obs": {"shape": 1025},  # a large field, gathered to an array of its own
    "terminated": FLAG,
}
SHARED = [MPReplayBuffer, MPPrioritizedReplayBuffer]
ONE_STEP = [ReplayBuffer, PrioritizedReplayBuffer, *SHARED]


def rows(count: int) -> dict[str, Any]:
    numbers = np.arange(count)
    return {
        "obs": {"image": numbers[:, None] + [0, 1, 2], "goal": (numbers[:, None] * [1, -1], numbers + 0.5)},
        "reward": numbers / 4,
        "next_obs": np.repeat(numbers[:, None], 1025, 1),
        "terminated": numbers % 2 == 1,
    }


def filled(kind: Any, **options: Any) -> Any:
    buffer = kind(8, FIELDS, **options)
    buffer.add(**rows(8))
    return buffer


@pytest.mark.parametrize("kind", ONE_STEP)
def test_every_result_is_a_batch(kind):
    buffer = filled(kind, seed=0)
    results = {
        "sample": buffer.sample(4),
        "by a scheme": buffer.sample(4, scheme=Geometric(0.5)),
        "rows": buffer[[1, 2]],
        "row": buffer[1],
        "epoch": next(iter(buffer.epoch(4))),
        "all": (buffer[:] | {"indexes": buffer.indexes}),
    }
    results["counted"] = filled(kind, count_samples=True).sample(4)
    results["mixture"] = Mixture({"all": (buffer, 1.0)}).sample(4)
    for name, batch in results.items():
        assert type(batch) is Batch, name
        assert type(batch.obs) is Batch, name
        assert batch.obs["goal"][1] is batch["obs/goal/1"], name


@pytest.mark.parametrize("kind", [ReplayBuffer, MPReplayBuffer])
def test_frames_are_in_a_batch(kind):
    fields = {"obs": {"shape": (2, 8, 8), "dtype": np.uint8}, "reward": {}}
    buffer = kind(8, fields, dedupe_next="obs", dedupe_frames="obs")
    stacks = np.arange(5 * 64, dtype=np.uint8).reshape(5, 1, 8, 8)
    stacks = np.concatenate([stacks[:-1], stacks[1:]], 1)
    buffer.add(obs=stacks[:-1], next_obs=stacks[1:], reward=np.arange(3))
    batch = buffer[:]
    assert type(batch) is type(buffer.sample(2)) is Batch
    assert (batch.next_obs == stacks[1:]).all() and batch.reward.tolist() == [0, 1, 2]


def test_the_batches_of_episodes_and_windows_are_batches():
    number = {}
    fields = {"obs": number, "next_obs": number, "reward": number, "terminated": FLAG}
    steps = {"obs": range(6), "next_obs": range(1, 7), "reward": range(6), "terminated": [False] * 5 + [True]}
    steps = {name: np.array(values) for name, values in steps.items()}
    window = NStepWindow(fields, 2, gamma=0.5)
    row = {name: values[:3] for name, values in steps.items()}
    assert type(window.add(**row)) is type(window.end_episode()) is Batch
    episodes = EpisodeReplayBuffer(20, fields)
    episodes.add(**steps)
    for batch in (episodes.sample(2), episodes.episodes(), episodes.get_episode(0), episodes[[0]]):
        assert type(batch) is Batch
    assert episodes.get_episode(0).obs.tolist() == [0, 1, 2, 3, 4, 5, 6]
    for time_major in (False, True):
        for options in ({}, {"n_step": NStep(2, gamma=0.5)}):
            sequences = SequenceReplayBuffer(20, fields, length=3, **options)
            sequences.add(**steps)
            windows = sequences.sample(2, time_major=time_major)
            assert type(windows) is Batch and windows.learn.shape == windows["reward"].shape


def test_relabelled_goals_are_in_a_batch_for_the_learner_and_for_the_reward_function():
    number, vector = {}, {"shape": 1}
    fields = {f"{prefix}obs/{part}": vector for prefix in ("", "next_") for part in ("goal", "achieved")}
    seen = []

    def reward(achieved, goal, steps):
        seen.append(type(steps.obs))
        return -np.abs(achieved - goal)[:, 0]

    buffer = HindsightReplayBuffer(
        20,
        {**fields, "reward": number, "terminated": FLAG},
        reward,
        lambda achieved, goal, steps: np.zeros(len(achieved), bool),
        relabel=1.0,
        goal="obs/goal",
        achieved_goal="obs/achieved",
    )
    for step in range(4):
        obs, after = ({"goal": [9.0], "achieved": [float(step + i)]} for i in (0, 1))
        buffer.add(obs=obs, next_obs=after, reward=-1, terminated=False)
    buffer.end_episode()
    batch = buffer.sample(3)
    assert type(batch) is Batch and set(seen) == {Batch}
    assert (batch.reward == -np.abs(batch.next_obs["achieved"] - batch.obs["goal"])[:, 0]).all()


def test_a_field_is_an_attribute_and_an_item():
    batch = filled(PrioritizedReplayBuffer, seed=0).sample(4)
    number = batch.obs["image"][:, 0].astype(np.float32)
    assert (batch.reward == number / 4).all() and batch.reward is batch["reward"]
    assert (batch.next_obs[:, 7] == number).all()
    assert batch.weights.tolist() == [1, 1, 1, 1] and batch.indexes.tolist() == number.tolist()
    goal, again = batch.obs["goal"], batch["obs"]["goal"]
    assert (goal["0"] == number[:, None] * [1, -1]).all() and (goal[1] == number + 0.5).all()
    assert [*goal] == [*again] == ["0", "1"] and goal[0] is again["0"] is batch["obs/goal/0"]


def test_a_batch_remains_a_flat_dict():
    batch = filled(ReplayBuffer, seed=0).sample(4)
    assert [*batch] == [*FIELDS] == [*batch.keys()] and len(batch) == 6
    assert dict(**batch) == dict(batch) and "obs" not in batch and batch.get("obs") is None
    ReplayBuffer(8, FIELDS).add(**batch)
    ReplayBuffer(8, FIELDS).add(obs=batch.obs, **{k: v for k, v in batch.items() if "obs/" not in k})


def test_fields_are_merged_into_a_new_batch_or_this_one():
    batch = Batch(a=1, b=2)
    merged = batch | {"b": 3, "c/d": 4}
    assert (type(merged), merged.b, merged.c, batch) == (Batch, 3, {"d": 4}, {"a": 1, "b": 2})
    batch |= {"c": 5}
    assert type(batch) is Batch and batch.c == 5
    batch.d = 6
    batch.a += 1
    assert batch == {"a": 2, "b": 2, "c": 5, "d": 6}


def test_the_name_of_a_method_is_reached_as_an_item():
    batch = Batch(items=1, keys=2)
    assert (batch["items"], batch["keys"], [*batch.items()]) == (1, 2, [("items", 1), ("keys", 2)])
    with pytest.raises(AttributeError, match=r"'items' is a method of a batch; set batch\['items'\] instead"):
        batch.items = 3


def test_a_missing_field_is_named_with_those_that_exist():
    batch = filled(ReplayBuffer).sample(1)
    for name in ("weights", "obs/imag", 3):
        with pytest.raises(KeyError, match=rf"no field '{name}'; its fields are \['obs/image', 'obs/goal/0'"):
            batch[name]
    with pytest.raises(AttributeError, match=r"no field 'weights'; its fields are \['obs/image'"):
        _ = batch.weights
    with pytest.raises(KeyError, match=r"no field '2'; its fields are \['0', '1'\]"):
        batch.obs["goal"][2]
    assert not hasattr(batch, "weights") and getattr(batch, "weights", None) is None
    assert {"obs", "reward", "items", "to_torch"} <= {*dir(batch)} and "obs/image" not in dir(batch)


def test_a_batch_is_copied_and_pickled():
    batch = filled(PrioritizedReplayBuffer).sample(4)
    for made in (
        copy.copy(batch),
        batch.copy(),
        copy.deepcopy(batch),
        *(pickle.loads(pickle.dumps(batch, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
    ):
        assert type(made) is Batch and [*made] == [*batch]
        assert all((made[name] == batch[name]).all() for name in batch)
        made.reward = None
        assert batch.reward is not None
    assert copy.copy(batch).reward is batch.reward and copy.deepcopy(batch).reward is not batch.reward


def test_the_text_of_a_batch_names_its_fields():
    batch = Batch(obs=np.zeros((2, 3), np.uint8), reward=np.zeros(2, np.float32), note="x", one=np.float64(1))
    assert repr(batch) == "<Batch: obs uint8[2, 3], reward float32[2], note str, one float64>"


def test_a_contiguous_batch_shares_no_block():
    batch = filled(PrioritizedReplayBuffer).sample(4)
    made = batch.contiguous()
    assert type(made) is Batch and all(array.flags.c_contiguous for array in made.values())
    assert all((made[name] == batch[name]).all() for name in batch)
    assert made.weights is batch.weights and made.next_obs is batch.next_obs  # contiguous already
    assert not batch.reward.flags.c_contiguous and not np.shares_memory(made.reward, batch.reward)
    row = filled(ReplayBuffer)[3].contiguous()
    assert row.reward.shape == () and row.reward == 0.75


def test_tensors_share_the_memory_of_the_arrays():
    torch = pytest.importorskip("torch")
    batch = filled(PrioritizedReplayBuffer).sample(4)
    tensors = batch.to_torch()
    assert type(tensors) is type(tensors.obs) is Batch and [*tensors] == [*batch]
    for name, tensor in tensors.items():
        assert isinstance(tensor, torch.Tensor) and tensor.data_ptr() == batch[name].ctypes.data, name
        assert tensor.numpy().dtype == batch[name].dtype and (tensor.numpy() == batch[name]).all(), name
    assert repr(tensors) == repr(batch)
    for same in (tensors.to_torch(), batch.to_torch("cpu"), batch.to_torch(torch.device("cpu"))):
        assert same.reward.data_ptr() == tensors.reward.data_ptr()
    contiguous = tensors.contiguous()
    assert contiguous.reward.is_contiguous() and torch.equal(contiguous.reward, tensors.reward)
    elsewhere = batch.to_torch("meta")
    assert {tensor.device.type for tensor in elsewhere.values()} == {"meta"}
    row = filled(ReplayBuffer)[3].to_torch()
    assert row.reward.shape == () and row.reward == 0.75 and row.obs["image"].tolist() == [3, 4, 5]


def test_every_dtype_that_pytorch_has_becomes_a_tensor_of_it():
    torch = pytest.importorskip("torch")
    names = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    names += ["float16", "float32", "float64", "complex64", "complex128"]
    buffer = ReplayBuffer(2, {name: {"shape": 2, "dtype": name} for name in names})
    buffer.add(**{name: [0, 1] for name in names})
    batch = buffer.sample(3)
    tensors = batch.to_torch()
    for name in names:
        assert tensors[name].dtype == getattr(torch, name) and tensors[name].tolist() == [[0, 1]] * 3
        assert tensors[name].data_ptr() == batch[name].ctypes.data


def test_a_dtype_that_pytorch_lacks_is_refused_with_the_name_of_the_field():
    pytest.importorskip("torch")
    buffer = ReplayBuffer(2, {"reward": {}, "wide": {"dtype": np.longdouble}})
    buffer.add(reward=1, wide=2)
    if buffer.field_specs["wide"][0] == np.float64:
        pytest.skip("long double is float64 here")
    with pytest.raises(TypeError, match=r"'wide' can't become a tensor: .*longdouble.*Declare the field"):
        buffer.sample(1).to_torch()


def test_pytorch_treats_a_batch_as_a_pytree():
    torch = pytest.importorskip("torch")
    batch = filled(PrioritizedReplayBuffer).sample(4).to_torch()
    doubled = torch.func.vmap(lambda row: row.obs["goal"][1] * 2 + row["reward"])(batch)
    assert torch.equal(doubled, batch.obs["goal"][1] * 2 + batch.reward)
    mapped = torch.utils._pytree.tree_map(lambda tensor: tensor[:1], batch)
    assert type(mapped) is Batch and mapped.reward.tolist() == batch.reward[:1].tolist()


JAX = """
import sys
import numpy as np
from replay_tutorial import Batch, PrioritizedReplayBuffer
buffer = PrioritizedReplayBuffer(8, {"obs/a": {"shape": 2}, "reward": {}})
buffer.add(obs={"a": np.arange(16).reshape(8, 2)}, reward=np.arange(8))
before = buffer.sample(4)
assert not {"jax", "torch"} & {*sys.modules}
import jax
batch = buffer.sample(4)
del batch["indexes"]
made = jax.jit(lambda batch: batch.obs["a"].sum(1) + batch["reward"])(batch)
assert (made == batch.obs["a"].sum(1) + batch.reward).all()
mapped = jax.tree.map(lambda array: array * 2, batch)
assert type(mapped) is Batch and (mapped.reward == 2 * batch.reward).all()
(path, _), *_ = jax.tree_util.tree_leaves_with_path(batch)
assert str(path[0]) == "['obs/a']"
shuffled = Batch({name: batch[name] for name in reversed(batch)})
assert jax.tree.structure(shuffled) == jax.tree.structure(batch)
gradient = jax.grad(lambda batch: (batch["reward"] ** 2).sum())(Batch(reward=np.ones(2, np.float32)))
assert type(gradient) is Batch and gradient.reward.tolist() == [2, 2]
"""


def test_jax_treats_a_batch_as_a_pytree_even_if_it_is_imported_after_the_first_batch():
    pytest.importorskip("jax")
    ran = run_python("-c", JAX)
    assert ran.returncode == 0, ran.stderr


def test_threads_that_create_the_first_batches_register_the_class_once():
    jax = pytest.importorskip("jax")
    from replay_tutorial.buffers.batch import KNOWN_TO_JAX

    KNOWN_TO_JAX.clear()
    start = threading.Barrier(4)

    def create(number):
        start.wait()
        return jax.tree.leaves(Batch(a=number))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(create, range(4))) == [[0], [1], [2], [3]]
    assert KNOWN_TO_JAX


def test_arrays_that_torch_can_not_share_are_copied_and_others_named():
    pytest.importorskip("torch")
    batch = Batch(
        obs=np.arange(6.0).reshape(2, 3)[:, ::-1], reward=np.arange(3, dtype=">i4"), id=np.arange(4)
    )
    tensors = batch.to_torch()
    assert tensors.obs.tolist() == [[2, 1, 0], [5, 4, 3]] and tensors.reward.tolist() == [0, 1, 2]
    batch.id[0] = 9
    assert tensors.id[0] == 9, "the others share their memory"
    for wrong in (None, "text", [[1], [1, 2]], Batch(a=np.ones(2))):
        with pytest.raises(TypeError, match="'inner' can't become a tensor"):
            Batch(inner=wrong).to_torch()
