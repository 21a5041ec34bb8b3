"""From gymnasium's spaces to fields: what an environment shows and takes, as an `env_dict`.

Nested spaces, and the nested values that lie in them, become flat by the same rule: names joined by "/".

Left out: Text, Sequence and Graph, whose values have no fixed size.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gymnasium import Space


def fields_from_spaces(
    observation_space: "Space[Any]",
    action_space: "Space[Any]",
    *,
    float_dtype: npt.DTypeLike | None = np.float32,
) -> dict[str, dict[str, Any]]:
    """Describe the transitions of an environment.

    Nested spaces become fields of their own, their names joined by "/": `obs/image`, `obs/0`. `add` takes the
    nested values as they are. For a vector environment give its `single_observation_space` and
    `single_action_space`.

    Args:
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these.
        action_space: Likewise.
        float_dtype: What floats are stored as, the reward's too: networks are float32, and many spaces
            float64. None keeps each space's own dtype, and a float32 reward.

    Returns:
        An env_dict with `obs`, `act`, `rew`, `next_obs`, `terminated` and `truncated` (bool). Integers keep
        the dtype of their space. Numbers have the shape `()` and sample as `(batch,)`.

    Raises:
        TypeError: If a space is of another kind, or float_dtype is no dtype of floats.
        ValueError: If two spaces get one name.

    Example:
        >>> import gymnasium
        >>> fields = fields_from_spaces(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2))
        >>> fields["obs"], fields["act"]
        ({'shape': (3,), 'dtype': dtype('float32')}, {'shape': (), 'dtype': dtype('int64')})
    """
    floats = np.dtype(np.float32 if float_dtype is None else float_dtype)
    if floats.kind != "f":
        raise TypeError(f"float_dtype must be a dtype of floats, such as np.float32, not {floats}.")
    flag = {"shape": (), "dtype": np.dtype(np.bool_)}
    described: list[tuple[str, dict[str, Any]]] = [
        *leaves("obs", observation_space),
        *leaves("act", action_space),
        ("rew", {"shape": (), "dtype": floats}),
        *leaves("next_obs", observation_space),
        *(("terminated", flag), ("truncated", flag)),
    ]
    fields: dict[str, dict[str, Any]] = {}
    for name, spec in described:
        if name in fields:
            raise ValueError(
                f"Two spaces would be the field {name!r}: rename the key with the '/' that one of them has."
            )
        is_cast = float_dtype is not None and spec["dtype"].kind == "f"
        fields[name] = {**spec, "dtype": floats} if is_cast else dict(spec)
    return fields


def leaves(name: str, space: "Space[Any]") -> Iterator[tuple[str, dict[str, Any]]]:
    """Walk a space: for each array in its values, a name, and its shape and dtype."""
    from gymnasium import spaces  # here, because the buffers themselves do not need gymnasium

    parts: Any = space
    if isinstance(space, spaces.Dict):
        for key, part in parts.spaces.items():
            yield from leaves(f"{name}/{key}", part)
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(parts.spaces):
            yield from leaves(f"{name}/{i}", part)
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        yield name, {"shape": parts.shape, "dtype": np.dtype(parts.dtype)}
    elif not isinstance(space, spaces.Space):
        raise TypeError(
            f"{name!r} is described by a space, such as env.observation_space, not {space!r:.60}."
        )
    else:
        raise TypeError(
            f"{name!r} is a {type(space).__name__} space, whose values have no fixed size; "
            "only Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of them can be stored."
        )


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk nested dicts and tuples; names are joined by "/", a tuple's are its positions.

    Example:
        >>> dict(flatten({"obs": {"image": 1, "goal": (2, 3)}, "rew": 4}))
        {'obs/image': 1, 'obs/goal/0': 2, 'obs/goal/1': 3, 'rew': 4}
    """
    for name, value in values.items():
        parts: Any = value
        if isinstance(value, tuple):
            parts = {str(i): part for i, part in enumerate(parts)}
        if isinstance(parts, Mapping):
            yield from flatten(cast(Mapping[str, Any], parts), f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", parts
