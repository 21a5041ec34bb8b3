"""Values of PyTorch and JAX, and masked arrays, wherever a buffer takes an array."""

from typing import Any

import numpy as np
import pytest

from replay_tutorial import (
    EpisodeReplayBuffer,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    fields_from_spaces,
    laber,
    sequence_priorities,
)

NUMBER: dict[str, Any] = {}
FIELDS = {
    "obs": {"shape": 3},
    "reward": NUMBER,
    "next_obs": {"shape": 3},
    "terminated": {**NUMBER, "dtype": bool},
}
NUMBERS = [1.0, -2.5, 0.1484375]  # bfloat16 holds each
KINDS = [ReplayBuffer, MPReplayBuffer, EpisodeReplayBuffer]
PRIORITIZED = [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer]


def step(obs: Any, reward: Any = 0.0) -> dict[str, Any]:
    return {"obs": obs, "reward": reward, "next_obs": np.zeros(3), "terminated": True}


def numbers_only(torch: Any) -> dict[str, Any]:
    """Tensors whose numbers are `NUMBERS`, but which NumPy refuses to read."""
    plain = torch.tensor(NUMBERS)
    return {
        "bfloat16": plain.to(torch.bfloat16),
        "requires a gradient": plain.clone().requires_grad_(),
        "of a graph": plain.clone().requires_grad_() * 1.0,
        "bfloat16 of a graph": plain.clone().requires_grad_().to(torch.bfloat16),
        "float64 of a graph": plain.double().requires_grad_() * 1.0,
        "negative bit": torch._neg_view(-plain),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_stored_as_their_numbers(kind):
    torch = pytest.importorskip("torch")
    for name, tensor in numbers_only(torch).items():
        buffer = kind(8, FIELDS)
        buffer.add(**step(tensor, tensor[1]))
        batch = buffer.sample(1)
        assert (batch["obs"].tolist(), batch["reward"].tolist()) == ([NUMBERS], [NUMBERS[1]]), name
        assert tensor.requires_grad == ("gradient" in name or "graph" in name), "the caller's is unchanged"
    double = torch.tensor([1 / 3] * 3, dtype=torch.float64, requires_grad=True)
    exact = ReplayBuffer(2, {"obs": {"shape": 3, "dtype": np.float64}})
    exact.add(obs=double)
    assert exact.sample(1)["obs"].tolist() == [[1 / 3] * 3]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_without_numbers_are_refused_with_the_name_of_the_field(kind):
    torch = pytest.importorskip("torch")
    with_gradient = torch.ones((), requires_grad=True)
    for tensor in (torch.ones(3, device="meta"), torch.ones(3).to_sparse(), [with_gradient] * 3):
        buffer = kind(8, FIELDS)
        with pytest.raises(
            TypeError, match=r"'obs' can't be converted to an array: .*(no data|dense|detach)"
        ):
            buffer.add(**step(tensor))
        assert len(buffer) == 0


def test_a_window_of_n_steps_takes_the_numbers_of_a_tensor():
    torch = pytest.importorskip("torch")
    made = NStepWindow(FIELDS, 2, gamma=0.5)
    rows = made.add(**step(torch.tensor(NUMBERS, requires_grad=True), torch.tensor(2.0, requires_grad=True)))
    assert rows["obs"].tolist() == [NUMBERS] and rows["reward"].tolist() == [2.0]


def test_priorities_of_a_step_that_resets_an_environment_are_taken_from_a_tensor():
    torch = pytest.importorskip("torch")
    flag, number = {"dtype": bool}, {}
    fields = {"obs": number, "next_obs": number, "reward": number, "terminated": flag}
    buffer = EpisodeReplayBuffer(20, fields, num_envs=2, autoreset="next_step", alpha=1.0, eps=0.0)
    buffer.add_step(obs=[0, 0], next_obs=[1, 1], reward=[0, 0], terminated=[True, False], priorities=1)
    priorities = torch.tensor([3.0, 4.0])
    new = buffer.add_step(
        obs=[1, 1], next_obs=[0, 2], reward=[0, 0], terminated=[False, False], priorities=priorities
    )
    assert buffer.priorities[new].tolist() == [4.0]


@pytest.mark.parametrize("kind", PRIORITIZED)
def test_priorities_and_indexes_are_taken_from_tensors(kind):
    torch = pytest.importorskip("torch")
    for tensor in (
        torch.tensor([1.0, 4.0, 2.0], requires_grad=True) * 1.0,
        torch.tensor([1.0, 4.0, 2.0], dtype=torch.bfloat16, requires_grad=True),
    ):
        buffer = kind(8, {"obs": NUMBER}, alpha=1.0, eps=0.0)
        buffer.add(obs=np.zeros(3), priorities=tensor)
        assert buffer.total_mass == 7.0
        buffer.update_priorities(torch.arange(3), 2.0 * tensor)
        assert (buffer.total_mass, buffer.max_priority) == (14.0, 8.0)
        for arguments in ((torch.arange(3, device="meta"), tensor), (range(3), torch.ones(3, device="meta"))):
            with pytest.raises(TypeError, match=r"'(indexes|priorities)' can't be converted to an array"):
                buffer.update_priorities(*arguments)
        assert buffer.total_mass == 14.0
    rng = np.random.default_rng(0)
    assert (laber(tensor, 50, rng)[0] < 3).all()
    assert sequence_priorities(
        torch.ones(2, 3, requires_grad=True), torch.ones(2, 3, dtype=bool)
    ).tolist() == [1, 1]


def test_dtypes_of_pytorch_declare_those_of_numpy_of_the_same_name():
    torch = pytest.importorskip("torch")
    for name in (
        "float16",
        "float32",
        "float64",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "bool",
        "complex64",
    ):
        dtype = getattr(torch, name)
        for kind in (ReplayBuffer, MPReplayBuffer):
            assert kind(4, {"a": {"dtype": dtype}}).field_specs["a"][0] == np.dtype(name)
    for unknown in (torch.bfloat16, torch.float8_e5m2, "real", 5):
        with pytest.raises(TypeError, match=r"fields\['a'\]: the dtype must be"):
            ReplayBuffer(4, {"a": {"dtype": unknown}})
    spaces = pytest.importorskip("gymnasium").spaces
    box = spaces.Box(-1, 1, (2,))
    assert fields_from_spaces(box, box, float_dtype=torch.float16)["reward"]["dtype"] == np.float16
    with pytest.raises(TypeError, match=r"float_dtype: the dtype must be one that NumPy has.*not 'real'"):
        fields_from_spaces(box, box, float_dtype="real")


def test_bfloat16_of_jax_is_widened_and_not_declared():
    jnp = pytest.importorskip("jax.numpy")
    values = jnp.array(NUMBERS, jnp.bfloat16)
    for given in (values, np.asarray(values), values[np.newaxis]):
        for kind in KINDS:
            buffer = kind(8, FIELDS)
            buffer.add(**step(given, values[1]))
            assert buffer.sample(1)["obs"].tolist() == [NUMBERS]
    for unknown in (jnp.bfloat16, jnp.float8_e5m2):
        with pytest.raises(TypeError, match=r"fields\['obs'\]: the dtype must be .*, such as np.float32"):
            ReplayBuffer(8, {"obs": {"dtype": unknown}})
    for kind in PRIORITIZED:
        buffer = kind(8, {"obs": NUMBER}, alpha=1.0, eps=0.0)
        for priorities in (jnp.abs(values), np.asarray(jnp.abs(values))):
            buffer.add(obs=jnp.zeros(3, jnp.bfloat16), priorities=priorities)
            buffer.update_priorities(jnp.arange(3), priorities)
        assert buffer.max_priority == 2.5
    with pytest.raises(ValueError, match=r"'n' has the dtype int64, which can't hold -2.5"):
        ReplayBuffer(8, {"n": {"shape": 3, "dtype": np.int64}}).add(n=values)


@pytest.mark.parametrize("kind", KINDS)
def test_masked_elements_are_refused_with_the_remedy(kind):
    buffer = kind(8, FIELDS)
    hidden = np.ma.masked_array([1.0, 99.0, 3.0], [False, True, False])
    for wrong in (
        step(hidden),
        step(np.zeros(3), np.ma.masked),
        step(np.ma.masked_array([hidden.data], True)),
        step([hidden.data, hidden], np.ones(2)),
        step([[1.0, 2.0, 3.0], hidden], np.ones(2)),
        step(np.zeros((2, 3)), (np.ones(1), hidden[1:2])),
        step([[np.zeros(3)], [hidden]], np.ones(2)),
    ):
        with pytest.raises(ValueError, match=r"'(obs|reward)' has masked elements.*filled\(value\)"):
            buffer.add(**wrong)
    assert len(buffer) == 0
    buffer.add(**step(hidden.filled(2.0)))
    unmasked = np.ma.masked_array([1.0, 2.0, 3.0])
    buffer.add(**step(unmasked))
    buffer.add(**step([float(number) for number in unmasked]))
    assert (buffer.sample(8)["obs"] == [1.0, 2.0, 3.0]).all()


@pytest.mark.parametrize("kind", PRIORITIZED)
def test_masked_priorities_and_indexes_are_refused(kind):
    buffer = kind(8, {"obs": NUMBER})
    masked = np.ma.masked_array([0, 1, 2], [False, True, False])
    with pytest.raises(ValueError, match="'priorities' has masked elements"):
        buffer.add(obs=np.zeros(3), priorities=masked)
    with pytest.raises(ValueError, match="'priorities' has masked elements"):
        buffer.add(obs=np.zeros(3), priorities=[masked[:1], masked[1:2], masked[2:]])
    buffer.add(obs=np.zeros(3))
    for arguments in (([0, 1, 2], masked), (masked, np.ones(3)), ([0, 1, 2], [masked[1:2]] * 3)):
        with pytest.raises(ValueError, match="has masked elements"):
            buffer.update_priorities(*arguments)
