"""The settings of n-step returns, and their check against the fields of a buffer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from replay_tutorial.buffers.fields import Fields, expand_groups, field_names
from replay_tutorial.buffers.rows import checked_at_least, checked_share

# If one of these is true, the step is the episode's last. The first one declared, `terminated` or `done`,
# says whether the step is terminal.
END_FIELDS = ("terminated", "done", "truncated")


class NStep(NamedTuple):
    """The argument `n_step` of a buffer whose fields have other names than the usual ones.

    Example:
        >>> n_step = NStep(3, gamma=0.97, reward=("reward", "cost"))

    Attributes:
        n: Number of rewards in a return, at least 1.
        gamma: The discount factor per step, in [0, 1], or the name of a field that contains the discount of
            each step. The `discount` of a row is then the product of the discounts of its steps, or 0 if the
            last one terminated. The field may itself be named `discount`.
        reward: Name or names of the fields that are summed. None means `reward`.
        next_fields: Name or names of the fields that are taken from the last of the n steps. The name of a
            nested observation, such as `next_obs` for `next_obs/image`, means all its fields. None means all
            fields whose names begin with `next_`.
    """

    n: int
    gamma: float | str = 0.99
    reward: str | Sequence[str] | None = None
    next_fields: str | Sequence[str] | None = None


class ParsedNStep(NamedTuple):
    """Settings that fit the fields of a buffer.

    Attributes:
        n: The number of rewards in a return.
        gamma: The discount factor per step, in [0, 1], or the name of the field that contains it.
        rewards: The fields that are summed.
        nexts: The fields taken from the last step. `terminated`, `truncated` and `done` always are.
    """

    n: int
    gamma: Any  # float or str
    rewards: tuple[str, ...]
    nexts: tuple[str, ...]


def as_settings(n_step: int | NStep, gamma: float | str | None) -> NStep:
    """Combine the arguments `n_step` and `gamma` of a buffer.

    Raises:
        TypeError: If n_step is neither an integer nor an `NStep`.
        ValueError: If n_step is below 1, or gamma is passed twice.
    """
    if isinstance(n_step, NStep):
        if gamma is not None:
            raise ValueError(f"gamma={gamma!r} is passed twice; n_step is {n_step}, which contains it.")
        return n_step._replace(n=checked_at_least("n_step", n_step.n, 1))
    return NStep(checked_at_least("n_step", n_step, 1), 0.99 if gamma is None else gamma)


def optional_settings(n_step: int | NStep | None, gamma: float | str | None) -> NStep | None:
    """As `as_settings`, or None without n_step; raise ValueError if only gamma is passed."""
    if n_step is not None:
        return as_settings(n_step, gamma)
    if gamma is not None:
        raise ValueError(f"gamma={gamma!r} is the discount factor of n_step; pass n_step, too.")
    return None


def parse_settings(settings: NStep, fields: Fields) -> ParsedNStep:
    """Check settings for a buffer with these fields, and list the names of the fields.

    Raises:
        ValueError: If a field is missing, or has the wrong dtype or shape.
    """
    gamma, declared = parse_gamma(settings.gamma, fields), list(fields.fields)
    if settings.reward is None and "reward" not in declared:
        raise ValueError(
            "n_step requires the field 'reward'. If the reward has another name, pass n_step=NStep(n, "
            f"reward=NAME), or reward=() to sum none. The fields are {declared}."
        )
    following = [name for name in declared if name.startswith("next_")]
    rewards, nexts = (
        expand_groups(field_names(default if names is None else names), declared)
        for names, default in ((settings.reward, "reward"), (settings.next_fields, following))
    )
    for name in (*rewards, *nexts):
        if name not in declared:
            raise ValueError(f"n_step: there is no field {name!r}; the fields are {declared}.")
    for name in rewards:
        if fields.fields[name].dtype.kind != "f":
            raise ValueError(
                f"n_step: {name!r} must have a float dtype, not {fields.fields[name].dtype}, because rewards "
                "are discounted."
            )
    check_end_fields("n_step", fields)
    if "discount" in declared and gamma != "discount":
        raise ValueError(
            "n_step adds the field 'discount' itself; remove it from the fields, or pass gamma=\"discount\" "
            "if it contains the discount of each step."
        )
    return ParsedNStep(settings.n, gamma, rewards, nexts)


def single_steps(fields: Fields) -> ParsedNStep:
    """Return the settings with which each step is a row of its own, unchanged."""
    check_end_fields("num_envs", fields)
    return ParsedNStep(1, 1.0, (), tuple(name for name in fields.fields if name.startswith("next_")))


def check_end_fields(option: str, fields: Fields) -> None:
    """Raise ValueError unless the fields say which steps end an episode, as an option requires."""
    for name in END_FIELDS:
        if name in fields.fields and fields.fields[name].shape not in ((), (1,)):
            raise ValueError(
                f"{option}: {name!r} must have the shape () or (1,), not {fields.fields[name].shape}."
            )
    if not {"terminated", "done"} & fields.fields.keys():
        raise ValueError(
            f"{option} requires the field 'terminated' or 'done'; without it, targets would bootstrap from "
            f"terminal states. The fields are {list(fields.fields)}. Declare "
            '"terminated": {"dtype": bool}, and store False if episodes never terminate.'
        )


def parse_gamma(gamma: Any, fields: Fields) -> float | str:
    """Check `gamma`: a number in [0, 1], or the name of a field that contains one per step."""
    if not isinstance(gamma, str):
        return checked_share("gamma", gamma)
    if gamma not in fields.fields:
        raise ValueError(
            "gamma must be a number, or the name of a field that contains the discount of each step; there "
            f"is no field {gamma!r}. The fields are {list(fields.fields)}."
        )
    field = fields.fields[gamma]
    if field.dtype.kind != "f" or field.shape not in ((), (1,)):
        raise ValueError(
            f"gamma: the field {gamma!r} must have a float dtype and the shape () or (1,), not {field.dtype} "
            f"and {field.shape}."
        )
    return gamma
