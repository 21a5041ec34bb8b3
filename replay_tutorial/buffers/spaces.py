"""Conversion of gymnasium spaces to fields.

Nested spaces are flattened like nested values (`fields.flatten`): names are joined by "/". Text, Sequence and
Graph spaces are not supported, because their values have no fixed size.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.cast import as_dtype
from replay_tutorial.buffers.fields import expand_groups, field_names

if TYPE_CHECKING:
    from gymnasium import Space


def fields_from_spaces(
    observation_space: "Space[Any]",
    action_space: "Space[Any]",
    *,
    float_dtype: npt.DTypeLike | None = np.float32,
) -> dict[str, dict[str, Any]]:
    """Return the fields of an environment's transitions, as the argument `fields` of a buffer.

    Each leaf of a nested space becomes a field whose name is joined by "/", such as `obs/image` or `obs/0`;
    `add` accepts the nested values. For a vector environment, pass its `single_observation_space` and
    `single_action_space`.

    Args:
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these.
        action_space: As for observation_space.
        float_dtype: dtype of all float fields, including the reward. The default is float32, because networks
            usually compute in float32 while many spaces are float64. None keeps the dtype of each space, with
            a float32 reward.

    Returns:
        A dict with `obs`, `action`, `reward`, `next_obs`, and the bool fields `terminated` and `truncated`.
        A field of a Discrete space has the dtype int64; other integer fields keep the dtype of their space.
        Scalars have the shape `()` and are sampled with shape `(batch,)`.

    Raises:
        TypeError: If a space is not supported, or float_dtype is not a float dtype.
        ValueError: If two spaces would have the same field name.

    Example:
        >>> import gymnasium
        >>> fields = fields_from_spaces(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2))
        >>> fields["obs"], fields["action"]
        ({'shape': (3,), 'dtype': dtype('float32')}, {'shape': (), 'dtype': dtype('int64')})
    """
    floats = as_dtype("float_dtype", np.float32 if float_dtype is None else float_dtype)
    if floats.kind != "f":
        raise TypeError(f"float_dtype must be a float dtype, such as np.float32, not {floats}.")
    flag = {"shape": (), "dtype": np.dtype(np.bool_)}
    described: list[tuple[str, dict[str, Any]]] = [
        *leaves("obs", observation_space),
        *leaves("action", action_space),
        ("reward", {"shape": (), "dtype": floats}),
        *leaves("next_obs", observation_space),
        *(("terminated", flag), ("truncated", flag)),
    ]
    fields: dict[str, dict[str, Any]] = {}
    for name, spec in described:
        if name in fields:
            raise ValueError(
                f"Two spaces would have the field name {name!r}; rename the key that contains '/'."
            )
        is_cast = float_dtype is not None and spec["dtype"].kind == "f"
        fields[name] = {**spec, "dtype": floats} if is_cast else dict(spec)
    return fields


def fields_of_environment(env: Any, dedupe_next: Any) -> dict[str, dict[str, Any]]:
    """Return the fields of an environment's transitions, without those that `dedupe_next` adds."""
    try:
        spaces = (
            (env.single_observation_space, env.single_action_space)
            if hasattr(env, "single_observation_space")  # a vector environment
            else (env.observation_space, env.action_space)
        )
    except AttributeError as error:
        raise TypeError(
            f"env must be an environment or vector environment of gymnasium, not {env!r:.60}."
        ) from error
    fields = fields_from_spaces(*spaces)
    for name in expand_groups(field_names(dedupe_next), fields):
        fields.pop(f"next_{name}", None)
    return fields


def leaves(name: str, space: "Space[Any]") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name, shape and dtype of each array in the values of a space."""
    from gymnasium import spaces  # imported here, because the buffers work without gymnasium

    parts: Any = space
    if isinstance(space, spaces.Dict):
        for key, part in parts.spaces.items():
            yield from leaves(f"{name}/{key}", part)
    elif isinstance(space, spaces.Tuple):
        for i, part in enumerate(parts.spaces):
            yield from leaves(f"{name}/{i}", part)
    elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        # PyTorch's `gather` requires int64
        dtype = np.int64 if isinstance(space, spaces.Discrete) else parts.dtype
        yield name, {"shape": parts.shape, "dtype": np.dtype(dtype)}
    elif not isinstance(space, spaces.Space):
        raise TypeError(
            f"{name!r} must be a gymnasium space, such as env.observation_space, not {space!r:.60}."
        )
    else:
        raise TypeError(
            f"{name!r} is a {type(space).__name__} space, which is not supported because its values have no "
            "fixed size. Use Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of them."
        )
