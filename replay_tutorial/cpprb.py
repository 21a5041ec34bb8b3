"""The names, keyword arguments and defaults of cpprb, for programs that were written for it.

    from replay_tutorial.cpprb import PrioritizedReplayBuffer      # instead of `from cpprb import …`

Each class is the class of the same name in `replay_tutorial`, with the constructor and the methods of cpprb
11. A field without a shape has the shape 1, so that a sample of it has the shape (batch, 1). The page "Coming
from cpprb" lists what differs nevertheless. Files of the two classes are interchangeable.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers import archive, prioritized, uniform
from replay_tutorial.buffers.fields import Batch
from replay_tutorial.buffers.n_step.settings import NStep
from replay_tutorial.shared import mp_prioritized, mp_uniform

__all__ = ["MPPrioritizedReplayBuffer", "MPReplayBuffer", "PrioritizedReplayBuffer", "ReplayBuffer"]


def native_arguments(
    env_dict: Mapping[str, Mapping[str, Any]],
    *,
    next_of: str | Iterable[str] | None = None,
    stack_compress: str | Iterable[str] | Mapping[str, int] | None = None,
    default_dtype: npt.DTypeLike | None = None,
    Nstep: Mapping[str, Any] | Literal[False] | None = None,
    backend: Any = None,
    check_for_update: Any = None,
    ctx: Any = None,
    mmap_prefix: None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the arguments of the native class for those of cpprb.

    `backend`, `check_for_update` and `ctx` are ignored: every start method works, and updates of replaced
    rows are always dropped.
    """
    if mmap_prefix is not None:
        raise ValueError(
            "mmap_prefix is not supported. To store rows in a file, use MPReplayBuffer or "
            "MPPrioritizedReplayBuffer with path=..."
        )
    defaults = {"shape": 1, "dtype": np.float32 if default_dtype is None else default_dtype}
    fields: Any = env_dict
    if isinstance(fields, Mapping):
        fields = {
            name: {**defaults, **spec} if isinstance(spec, Mapping) else spec
            for name, spec in env_dict.items()
        }
    arguments: dict[str, Any] = {"fields": fields, **others}
    if next_of is not None:
        arguments["dedupe_next"] = next_of
    if stack_compress is not None:
        arguments["dedupe_frames"] = stack_compress
    if Nstep is not None and Nstep is not False:
        arguments["n_step"] = n_step_of(Nstep)
    return arguments


def n_step_of(settings: Mapping[str, Any]) -> NStep:
    """Return the settings of n-step returns for the argument `Nstep` of cpprb.

    "rew" is by default the field `rew`, and "next" all fields whose names begin with `next_`.
    """
    if not isinstance(settings, Mapping):
        raise TypeError(
            f'Nstep must be a dict such as {{"size": 3, "rew": "rew", "next": "next_obs"}}, not {settings!r}.'
        )
    if unknown := settings.keys() - {"size", "gamma", "rew", "next"}:
        raise ValueError(
            f"Nstep has unknown keys {sorted(map(str, unknown))}; it accepts 'size', 'gamma', 'rew' and "
            "'next'."
        )
    if "size" not in settings:
        raise ValueError("Nstep requires 'size', the number of rewards in a return.")
    reward = settings.get("rew")
    return NStep(
        settings["size"],
        settings.get("gamma", 0.99),
        "rew" if reward is None else reward,
        settings.get("next"),
    )


class CpprbMethods(uniform.ReplayBuffer):
    """The constructor and the methods of cpprb's buffers."""

    _renamed = MappingProxyType({})  # cpprb's keyword arguments are valid
    _episode_len: Callable[[], int]  # of `EpisodeLength`, or of a shared buffer

    def __init__(self, size: int, env_dict: Mapping[str, Mapping[str, Any]], **keywords: Any) -> None:
        """Create an empty buffer.

        Args:
            size: Maximum number of transitions.
            env_dict: Maps each field to a dict with `shape` (default 1) and `dtype` (default
                `default_dtype`).
            **keywords: cpprb's `next_of`, `stack_compress`, `default_dtype` (default float32), `Nstep`, and
                `backend`, `check_for_update` and `ctx`, which are ignored; `alpha` and `eps` of the
                prioritized buffers; and those of the native class, such as `seed`.

        Raises:
            TypeError: If an argument is unknown, or has the wrong type.
            ValueError: If a value is out of range or refers to a field that does not exist.
        """
        super().__init__(size, **native_arguments(env_dict, **keywords))

    def get_stored_size(self) -> int:
        """Return the number of stored transitions."""
        return len(self)

    def get_buffer_size(self) -> int:
        """Return the maximum number of stored transitions."""
        return self.capacity

    def get_next_index(self) -> int:
        """Return the index of the next row to be added; it isn't reset at the end of the ring."""
        return self.next_index

    def get_current_episode_len(self) -> int:
        """Return the number of transitions added since the last `on_episode_end` or `clear`."""
        return self._episode_len()

    def is_Nstep(self) -> bool:
        """Return whether the buffer stores n-step transitions."""
        return "discount" in self.field_specs

    def on_episode_end(self) -> None:
        """End the episode, and store the rows that are still pending in the n-step window."""
        self.end_episode()

    def get_all_transitions(self, shuffle: bool = False) -> Batch:
        """Return a copy of all stored rows, the oldest first or in random order."""
        return self._rows(self._rng.permutation(self.indexes) if shuffle else self.indexes)[0]


class EpisodeLength(CpprbMethods):
    """The length of the current episode, which cpprb counts; a shared buffer counts it in each process."""

    _episode_start = 0  # the number of steps that had been added

    def _steps_added(self) -> int:
        return self.next_index + (self._stages.pending_count if self._stages else 0)

    def _episode_len(self) -> int:
        return self._steps_added() - self._episode_start

    def _flush(self, environment: int | None) -> None:
        try:
            super()._flush(environment)
        finally:
            if environment is None:
                self._episode_start = self._steps_added()

    def _cleared(self) -> dict[str, Any]:
        return super()._cleared() | {"_episode_start": self.next_index}

    def _state(self) -> tuple[dict[str, Any], archive.Arrays]:
        counters, arrays = super()._state()
        return counters | {"episode_len": self._episode_len()}, arrays

    def _from_state(self, counters: dict[str, Any], reader: archive.Reader) -> Self:
        loaded = super()._from_state(counters, reader)
        length = archive.checked_count({"episode_len": 0} | counters, "episode_len")
        loaded._episode_start = loaded._steps_added() - length
        return loaded


class CpprbPriorities(CpprbMethods, prioritized.PrioritizedReplayBuffer):
    """The methods of cpprb's prioritized buffers."""

    def get_max_priority(self) -> float:
        """Return the priority of rows that are added without one."""
        return self.max_priority


class ReplayBuffer(EpisodeLength):
    """`replay_tutorial.ReplayBuffer` with cpprb's interface.

    Example:
        >>> buffer = ReplayBuffer(1000, {"obs": {"shape": 4}, "rew": {}}, seed=0)
        >>> buffer.add(obs=np.zeros(4), rew=0.5)
        0
        >>> buffer.sample(32)["rew"].shape, buffer.get_stored_size()
        ((32, 1), 1)
    """


class PrioritizedReplayBuffer(EpisodeLength, CpprbPriorities):
    """`replay_tutorial.PrioritizedReplayBuffer` with cpprb's interface."""


class MPReplayBuffer(CpprbMethods, mp_uniform.MPReplayBuffer):
    """`replay_tutorial.MPReplayBuffer` with cpprb's interface."""


class MPPrioritizedReplayBuffer(CpprbPriorities, mp_prioritized.MPPrioritizedReplayBuffer):
    """`replay_tutorial.MPPrioritizedReplayBuffer` with cpprb's interface."""
