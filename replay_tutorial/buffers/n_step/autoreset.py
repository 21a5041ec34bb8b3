"""Autoreset: find the steps of an environment that only reset it, and leave them out.

A vector environment starts the next episode by itself. In gymnasium's default mode, NEXT_STEP, it does so in
the step after the end of an episode. This step ignores the action and returns no reward, so it is not a
transition:

    obs        s2   s3   f1 | s0   s1          f1: the final observation of the first episode
    next_obs   s3   f1   s0 | s1   s2
    ended      0    1    0    0    0
                         └── only resets: its row would lead from one episode to the next

Source: the documentation of `gymnasium.vector.AutoresetMode`.

Built in chapter 02, *Episodes and n-step returns*.
"""

import copy
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.runtime.jit import Flags, Integers
from replay_tutorial.buffers.runtime.user_warning import warn_user

Resets = npt.NDArray[np.integer[Any]]  # [environments]

# What the next step of an environment is: a transition; a reset; or either, because the caller may have reset
# the environment in the meantime.
TRANSITION, RESET, EITHER = 0, 1, 2

# The accepted modes, and the values of gymnasium's AutoresetMode, which isn't imported.
MODES = {"next_step": "NextStep", "same_step": "SameStep", "disabled": "Disabled"}

ENDS_BEFORE_WARNING = 10
NEXT_STEP_WARNING = (
    f"After {ENDS_BEFORE_WARNING} ends of episodes, the next step began with the final observation, and had"
    ' no reward. In the autoreset mode of gymnasium\'s vector environments, "next_step", such a step only '
    'resets its environment; it is stored as a transition. Pass autoreset=envs.metadata["autoreset_mode"], '
    'or autoreset="disabled" if the episodes do begin where the last one ended.'
)
SAME_STEP_WARNING = (
    f"After {ENDS_BEFORE_WARNING} ends of episodes, the next step began with the next observation of the "
    'step that had ended the episode. In the autoreset mode "same_step", envs.step returns the first '
    "observation of the next episode there. Pass next_obs=replay_tutorial.with_final_obs(next_obs, infos), "
    'or autoreset="disabled" if the episodes do begin where the last one ended.'
)


class NotConsecutive(ValueError):
    """A step does not continue the pending steps of its environment."""


def resets_at_next_step(autoreset: str | Enum | None) -> bool:
    """Return whether the argument `autoreset` is "next_step"; raise ValueError if it is not a mode.

    None, the default, means "disabled".
    """
    return mode_of(autoreset) == "next_step"


def mode_of(autoreset: str | Enum | None) -> str | None:
    """Return the argument `autoreset` as a key of `MODES`, or None; raise ValueError if it is not a mode."""
    if autoreset is None:
        return None
    mode = autoreset.value if isinstance(autoreset, Enum) else autoreset
    for name, value in MODES.items():
        if mode in (name, value):
            return name
    raise ValueError(
        f"autoreset must be one of {list(MODES)}, or gymnasium's AutoresetMode, not {autoreset!r}. The mode "
        'of a vector environment is envs.metadata["autoreset_mode"].'
    )


class ResetWatch:
    """Warns once if environments don't start their episodes as `autoreset` says.

    - None: in the mode "next_step", the step after an end begins with the final observation, leads elsewhere
      and has no reward. In the other modes, it usually begins with another observation, which ends the watch.
      A task that ends where it began is no evidence, so the final observation must differ from the first one.
    - "same_step": if the caller forgets `with_final_obs`, the step after an end begins with the observation
      that was passed as the final one. After a terminated step, this does no harm, because its target doesn't
      use the next observation.

    With 8 environments, `add_step` takes 1 to 2 µs longer (of 14 and 23 µs) until the first end.
    """

    @classmethod
    def for_mode(cls, autoreset: str | Enum | None, environments: int) -> "ResetWatch | None":
        """Return the watch for this argument; None if there is nothing to watch."""
        mode = mode_of(autoreset)
        return cls(environments, mode == "same_step") if mode in (None, "same_step") else None

    def __init__(self, environments: int, same_step: bool) -> None:
        self._environments = environments
        self._same_step = same_step
        self._firsts: dict[int, bytes] = {}  # the first observation of each environment
        self._finals: dict[int, bytes] = {}  # the final observation, until the next step
        self._count = 0
        self._has_warned = False

    def episode_ended(self, environment: int) -> None:
        """Note that the caller has ended an episode, and may have reset the environment."""
        self._finals.pop(environment, None)

    def see(
        self, environments: Integers, ends: Flags, step: Callable[[int], tuple[bytes, bytes, bool, bool]]
    ) -> "ResetWatch | None":
        """Return the watch after new steps; None if it is over.

        It is over once it has warned, or a step after an end was not the kind that it looks for. This watch
        doesn't change, so that a step which is interrupted and added again is seen once. `step(i)` returns
        obs and next_obs as bytes, whether there is a reward, and whether the step terminates.
        """
        if self._has_warned:
            return None
        if not self._finals and len(self._firsts) == self._environments and not np.count_nonzero(ends):
            return self
        seen = copy.copy(self)
        firsts, finals = seen._firsts, seen._finals = self._firsts.copy(), self._finals.copy()
        for i, environment in enumerate(environments.tolist()):
            final = finals.pop(environment, None)
            if final is None and environment in firsts and not ends[i]:
                continue
            obs, next_obs, is_rewarded, terminates = step(i)
            first = firsts.setdefault(environment, obs)
            if final is not None and (obs != final or (is_rewarded and not self._same_step)):
                return None
            seen._count += final not in (None, next_obs) and (self._same_step or final != first)
            if seen._count == ENDS_BEFORE_WARNING:
                self._has_warned = True  # before the warning, which a filter may turn into an error
                warn_user(SAME_STEP_WARNING if self._same_step else NEXT_STEP_WARNING)
                return None
            if ends[i] and not (self._same_step and terminates):
                finals[environment] = next_obs
        return seen


def with_final_obs(next_obs: Any, infos: Mapping[str, Any]) -> Any:
    """Return the true next observations of a step, in the mode "same_step".

    In this mode, the step that ends an episode returns the first observation of the next one, and its final
    observation in `infos["final_obs"]`. In the other modes, nothing is replaced.

    Args:
        next_obs: The observations that `envs.step` returned, which are not changed: an array of shape
            (environments, …), or nested dicts and tuples of such arrays.
        infos: The infos that `envs.step` returned.

    Returns:
        `next_obs` itself if no episode has ended, otherwise a copy with the final observations.

    Example:
        >>> infos = {"final_obs": [None, np.array([9.0])], "_final_obs": np.array([False, True])}
        >>> with_final_obs(np.array([[1.0], [0.0]]), infos).tolist()
        [[1.0], [9.0]]
    """
    ended = infos.get("_final_obs")
    if ended is None:
        return next_obs
    environments = np.flatnonzero(ended)
    return replaced(next_obs, environments, [infos["final_obs"][i] for i in environments])


def replaced(observations: Any, environments: Integers, others: list[Any]) -> Any:
    """Return a copy of nested observations, with others in some environments."""
    parts: Any = observations
    if isinstance(observations, Mapping):
        return {name: replaced(part, environments, [o[name] for o in others]) for name, part in parts.items()}
    if isinstance(observations, tuple):
        return tuple(replaced(part, environments, [o[i] for o in others]) for i, part in enumerate(parts))
    copies = np.array(observations)
    copies[environments] = others
    return copies


def find_resets(
    resets: Resets, environments: Integers, ends: Flags, continues: Callable[[int], bool]
) -> tuple[Integers, Resets]:
    """Find the steps that only reset their environment.

    Args:
        resets: What the next step of each environment is.
        environments: The environment of each step, int64[n].
        ends: Whether each step ends its episode, bool[n].
        continues: Returns whether the observations of a step are the next observations of the step before it.

    Returns:
        The positions of the other steps, and the new `resets`.

    Raises:
        NotConsecutive: If a step that must reset its environment doesn't begin with the final observation.
    """
    kept, resets = np.ones(len(ends), np.bool_), resets.copy()
    for i, environment in enumerate(environments.tolist()):
        expected = resets[environment]
        if expected != TRANSITION and continues(i):
            kept[i], resets[environment] = False, TRANSITION
        elif expected == RESET:
            raise NotConsecutive(
                f'With autoreset="next_step", this step of environment {environment} only resets it, but its '
                "observation is not the final one of the episode. If the environment starts the next episode "
                'in another way, pass autoreset="same_step" or "disabled". If you have reset it yourself, '
                f"call end_episode({environment})."
            )
        else:
            resets[environment] = RESET if ends[i] else TRANSITION
    return np.flatnonzero(kept), resets


def episode_ended(resets: Resets, environment: int) -> Resets:
    """Return `resets` after the caller has ended the episode of an environment."""
    changed = resets.copy()
    if changed[environment] == RESET:
        changed[environment] = EITHER
    return changed
