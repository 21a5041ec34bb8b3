"""Patterns: items that a writer makes by itself after every step.

A pattern says which steps an item consists of, counted backwards from the newest one, into which table it
goes, and when. A transition of n steps is a pattern:

    step = reference(env_dict)
    parts = {"obs": step["obs"][-n - 1], "rew": step["rew"][-n - 1 : -1], "next_obs": step["obs"][-1]}
    Pattern("replay", parts)

After every `append` each pattern is looked at, in order. It makes an item if it has made none of this step so
far, if all its conditions hold, if there are enough steps, and if none of the values that it names was left
out. When the episode ends they are looked at once more. All items of a step travel in one message.

Left out: a language of conditions that could be sent elsewhere. A condition is a function.

Source: Reverb's StructuredWriter.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from replay_tutorial.buffers.fields import EnvDict
from replay_tutorial.tables.writing.history import SEVERAL, NamedCells, steps_named


class PastCells(NamedTuple):
    """Cells of one column, their steps counted backwards from the newest one.

    Attributes:
        column: The column's name.
        offsets: Which steps: -1 is the newest, -2 the one before.
        squeezed: Whether one step was named by an int, so that a sample has no axis of time.
    """

    column: str
    offsets: Sequence[int]
    squeezed: bool


@dataclass
class ReferenceColumn:
    """A column, by its name, whose steps are still to come."""

    name: str

    def __getitem__(self, index: Any) -> PastCells:
        """Name steps by an int below 0, or a slice or a list of such ints, as in a history."""
        # There is no first step to count from: to count forwards leads to 0 or above, or to no step.
        offsets = steps_named(index, first=1, end=0)
        if not offsets or max(offsets) >= 0:
            raise IndexError(
                f"{index!r} of {self.name!r} names no steps counted backwards from the newest: write [-1] "
                "for it, and [-4:] for the newest four."
            )
        return PastCells(self.name, offsets, squeezed=not isinstance(index, SEVERAL))


class Reference(dict[str, ReferenceColumn]):
    """The columns of a server, by name."""

    def __missing__(self, name: str) -> ReferenceColumn:
        raise KeyError(f"There is no column {name!r}; there are {list(self)}.")


def reference(env_dict: EnvDict) -> Reference:
    """Return something to name steps with that are still to come, by the columns of a server's `env_dict`.

    Example:
        >>> step = reference({"obs": {"shape": 4}, "act": {}})
        >>> step["obs"][-3:]
        PastCells(column='obs', offsets=range(-3, 0), squeezed=False)
    """
    return Reference((name, ReferenceColumn(name)) for name in env_dict)


class StepState(NamedTuple):
    """What a condition is told.

    Attributes:
        step_index: The newest step's number within the episode, counted from 0.
        steps_since_applied: Steps since the pattern's last item, the newest one included; before its first
            item, since the writer's first step. A new episode does not begin it anew.
        is_end_episode: Whether this is the look at the end of an episode.
        data: The values of the newest step, as they are stored, and read-only; without those that were left
            out, or are still to come in an open step.
    """

    step_index: int
    steps_since_applied: int
    is_end_episode: bool
    data: Mapping[str, Any]


Condition = Callable[[StepState], bool]
PriorityOf = Callable[[Mapping[str, NamedCells]], float]


def td_error(part: str, max_weight: float = 0.9) -> PriorityOf:
    """Return the priority of a sequence by its TD errors: η max|δ| + (1 − η) mean|δ|.

    Args:
        part: The part of the trajectory that holds them.
        max_weight: η, in [0, 1].

    Raises:
        ValueError: If max_weight is out of range.

    Source: Kapturowski et al. 2019, section 2.3.
    """
    if not 0.0 <= max_weight <= 1.0:
        raise ValueError(f"max_weight must lie in [0, 1], not {max_weight}.")

    def priority(trajectory: Mapping[str, NamedCells]) -> float:
        errors = np.abs(trajectory[part].numpy().astype(np.float64))
        return float(max_weight * errors.max() + (1.0 - max_weight) * errors.mean())

    return priority


class Pattern(NamedTuple):
    """Which items to make after a step.

    Attributes:
        table: Where they go.
        trajectory: Their parts, by name.
        when: Conditions that must all hold.
        priority: Their priority; or a function of an item's parts, such as `td_error("errors")`.
    """

    table: str
    trajectory: Mapping[str, PastCells]
    when: Sequence[Condition] = ()
    priority: float | PriorityOf | None = 1.0
