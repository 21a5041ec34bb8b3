"""From gymnasium's spaces to fields, and their samples through a buffer."""

from typing import Any

import numpy as np
import pytest

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer, fields_from_spaces

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces

NESTED = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (4, 5), np.uint8),
        "inner": spaces.Dict({"speed": spaces.Box(-1, 1, (3,), np.float64), "gear": spaces.Discrete(5)}),
        "pair": spaces.Tuple([spaces.MultiBinary(4), spaces.MultiDiscrete([2, 3])]),
    }
)
SPACES: dict[str, tuple[Any, dict[str, tuple[tuple[int, ...], Any]]]] = {
    "Box": (spaces.Box(-1, 1, (3,)), {"": ((3,), np.float32)}),
    "Box of uint8": (spaces.Box(0, 255, (4, 84, 84), np.uint8), {"": ((4, 84, 84), np.uint8)}),
    "Box of shape ()": (spaces.Box(-1, 1, ()), {"": ((), np.float32)}),
    "Discrete": (spaces.Discrete(4), {"": ((), np.int64)}),
    "Discrete from -3": (spaces.Discrete(4, start=-3), {"": ((), np.int64)}),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 4, 5]), {"": ((3,), np.int64)}),
    "MultiDiscrete of a grid": (spaces.MultiDiscrete([[3, 4], [5, 6]]), {"": ((2, 2), np.int64)}),
    "MultiBinary": (spaces.MultiBinary(6), {"": ((6,), np.int8)}),
    "MultiBinary of a grid": (spaces.MultiBinary([2, 3]), {"": ((2, 3), np.int8)}),
    "Tuple": (
        spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
        {"/0": ((), np.int64), "/1": ((2,), np.float32)},
    ),
    "Dict": (
        NESTED,
        {
            "/image": ((4, 5), np.uint8),
            "/inner/speed": ((3,), np.float64),
            "/inner/gear": ((), np.int64),
            "/pair/0": ((4,), np.int8),
            "/pair/1": ((2,), np.int64),
        },
    ),
}


@pytest.mark.parametrize("float_dtype", [None, np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", SPACES)
def test_spaces_become_fields_whose_floats_have_the_dtype_asked_for(name, float_dtype):
    space, leaves = SPACES[name]
    fields = fields_from_spaces(space, spaces.Discrete(2), float_dtype=float_dtype)
    if float_dtype:
        floats = (np.float16, np.float32, np.float64)
        leaves = {leaf: (shape, float_dtype if d in floats else d) for leaf, (shape, d) in leaves.items()}
    expected = {
        **{f"obs{leaf}": spec for leaf, spec in leaves.items()},
        **{f"next_obs{leaf}": spec for leaf, spec in leaves.items()},
        "action": ((), np.int64),
        "reward": ((), float_dtype or np.float32),
        "terminated": ((), bool),
        "truncated": ((), bool),
    }
    assert {key: (spec["shape"], np.dtype(spec["dtype"])) for key, spec in fields.items()} == {
        key: (shape, np.dtype(dtype)) for key, (shape, dtype) in expected.items()
    }


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_values_of_a_space_go_in_as_they_are_and_come_out_flat(name, kind):
    space, leaves = SPACES[name]
    space.seed(0)
    buffer = kind(10, fields_from_spaces(space, space, float_dtype=None))
    for i in range(10):
        values = space.sample()
        buffer.add(obs=values, action=values, reward=i, next_obs=values, terminated=False, truncated=True)
    rows = buffer[:]
    space.seed(0)
    for i in range(10):
        flat = flatten(space.sample())
        assert set(flat) == set(leaves)
        for leaf, value in flat.items():
            for prefix in ("obs", "next_obs", "action"):
                np.testing.assert_array_equal(rows[prefix + leaf][i], value)


def test_batches_of_nested_values_go_in_as_they_are():
    vector_space = gymnasium.vector.utils.batch_space(NESTED, 6)
    vector_space.seed(0)
    observations, zeros = vector_space.sample(), np.zeros(6)
    buffer = ReplayBuffer(10, fields_from_spaces(NESTED, spaces.Discrete(2), float_dtype=None))
    others = dict.fromkeys(("action", "reward", "terminated", "truncated"), zeros)
    buffer.add(obs=observations, next_obs=observations, **others)
    rows = buffer[:]
    for leaf, value in flatten(observations).items():
        np.testing.assert_array_equal(rows[f"obs{leaf}"], value)


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {key: leaf for part in value for key, leaf in flatten(value[part], f"{name}/{part}").items()}
    if isinstance(value, tuple):
        return flatten({str(i): part for i, part in enumerate(value)}, name)
    return {name: value}


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(spaces.Discrete(3), None),
        spaces.OneOf([spaces.Discrete(3), spaces.Box(-1, 1, (2,))]),
    ],
    ids=lambda space: type(space).__name__,
)
def test_spaces_without_a_fixed_size_are_refused_by_name(space):
    kind = type(space).__name__
    box = spaces.Box(-1, 1, (2,))
    for observation_space, action_space in (
        (space, box),
        (box, space),
        (spaces.Dict({"a": box, "b": space}), box),
    ):
        with pytest.raises(TypeError, match=kind):
            fields_from_spaces(observation_space, action_space)


def test_what_is_no_space_is_refused():
    with pytest.raises(
        TypeError, match=r"'obs' must be a gymnasium space, such as env.observation_space, not 4"
    ):
        fields_from_spaces(4, spaces.Discrete(2))
    environment = gymnasium.make("CartPole-v1")
    with pytest.raises(TypeError, match=r"'action' must be a gymnasium space.*CartPole"):
        fields_from_spaces(environment.observation_space, environment)


def test_spaces_of_a_whole_vector_environment_are_told_by_the_first_step():
    envs = gymnasium.make_vec("CartPole-v1", 8)
    buffer = ReplayBuffer(10, fields_from_spaces(envs.observation_space, envs.action_space))
    obs, _ = envs.reset(seed=0)
    action = envs.action_space.sample()
    next_obs, reward, terminated, truncated, _ = envs.step(action)
    with pytest.raises(ValueError, match=r"'reward' contains 8, .* 1\. .* shapes are .* of one environment"):
        buffer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
        )
    envs.close()


def test_nested_fields_written_by_hand_are_told_their_names():
    nested = {"obs": {"user": {"shape": 3}, "hour": {}}}
    with pytest.raises(
        ValueError, match=r"unknown keys \['hour', 'user'\].*Declare nested fields as 'obs/hour'"
    ):
        ReplayBuffer(10, nested)
    with pytest.raises(ValueError, match=r"unknown keys \['dtyp'\]; it accepts 'shape' and 'dtype'\.$"):
        ReplayBuffer(10, {"obs": {"dtyp": "f4"}})
    ReplayBuffer(10, {"obs/hour": {}, "obs/user": {"shape": 3}}).add(obs={"hour": 1, "user": np.zeros(3)})


def test_floats_are_stored_as_networks_take_them_unless_another_dtype_is_asked_for():
    fields = fields_from_spaces(spaces.Box(-1, 1, (3,), np.float64), spaces.Discrete(2))
    assert np.dtype(fields["obs"]["dtype"]) == np.float32


@pytest.mark.parametrize("float_dtype", [np.int64, bool, "complex64"])
def test_floats_are_not_stored_as_something_else(float_dtype):
    with pytest.raises(TypeError, match=f"float dtype.*not {np.dtype(float_dtype)}"):
        fields_from_spaces(spaces.Discrete(2), spaces.Discrete(2), float_dtype=float_dtype)


def test_two_spaces_of_one_name_are_refused():
    """One of them was dropped without a word."""
    twice = spaces.Dict({"a/b": spaces.Box(0, 1, (2,)), "a": spaces.Dict({"b": spaces.Box(0, 1, (3,))})})
    with pytest.raises(ValueError, match="Two spaces would have the field name 'obs/a/b'"):
        fields_from_spaces(twice, spaces.Discrete(2))


def test_a_discrete_action_indexes_a_tensor_of_q_values():
    """PyTorch's `gather` requires int64, whatever the dtype of the space."""
    torch = pytest.importorskip("torch")
    actions = spaces.Discrete(3)
    actions.dtype = np.dtype(np.int32)  # newer versions of gymnasium accept dtype=
    buffer = ReplayBuffer(4, fields_from_spaces(spaces.Box(-1, 1, (2,)), actions))
    for action in range(3):
        flags = {"terminated": False, "truncated": False}
        buffer.add(obs=np.zeros(2), action=np.int32(action), reward=0, next_obs=np.zeros(2), **flags)
    batch = buffer.sample(8).to_torch()
    q = torch.tensor([[0.0, 10.0, 20.0]]).repeat(8, 1)
    assert q.gather(1, batch.action[:, None]).squeeze(1).tolist() == (10.0 * batch.action).tolist()
