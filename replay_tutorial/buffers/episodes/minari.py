"""Export of whole episodes from an `EpisodeReplayBuffer` to Minari datasets, and import into any buffer.

    obs of step t       ⇄  observations[t]        T + 1 observations for T steps, so the
    next_obs of step t  ⇄  observations[t + 1]    final observation of every episode is kept

`reward`, `terminated` and `truncated` are Minari's rewards, terminations and truncations; fields that Minari
doesn't define are arrays in its infos. Only `export_minari` imports Minari (extra `minari`).
"""

# pyright: reportPrivateUsage=false
# (a buffer's fields are not public)

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.base import BaseBuffer
from replay_tutorial.buffers.batch import Batch
from replay_tutorial.buffers.episodes.episode_replay import EpisodeReplayBuffer
from replay_tutorial.buffers.fields import flatten
from replay_tutorial.buffers.n_step.autoreset import TRANSITION
from replay_tutorial.buffers.rows import as_integers

# Minari's names, and the fields of `fields_from_spaces`; nested fields are named `obs/image` and so on.
OBSERVATIONS, ACTIONS = "obs", "action"


def export_minari(
    buffer: EpisodeReplayBuffer, dataset_id: str, *, episodes: npt.ArrayLike | None = None, **options: Any
) -> Any:
    """Write episodes to a new Minari dataset.

    The fields must have the names that `fields_from_spaces` uses: observations are the field `obs` or the
    fields `obs/…`, actions are `action` or `action/…`. If the last step of an episode is neither terminated
    nor truncated, because `end_episode` ended the episode, the step is exported as truncated.

    Args:
        buffer: The buffer; it is not changed.
        dataset_id: Name of the dataset, such as "cartpole/best-v0".
        episodes: Numbers of the episodes. None means all whole finished episodes.
        **options: Passed to `minari.create_dataset_from_buffers`: `env`, or `observation_space` and
            `action_space`, and descriptions. By default, images are stored without loss.

    Returns:
        The `MinariDataset`.

    Raises:
        ImportError: If Minari is not installed.
        IndexError: If an episode is not stored.
        KeyError: If the buffer has no observations, actions or rewards with these names.
        ValueError: If an episode is running or partly overwritten, there is no episode to export, or the
            dataset exists.
    """
    made = import_module("minari.data_collector").EpisodeBuffer
    exported = [made(**each) for each in to_minari(buffer, episodes)]
    create = import_module("minari").create_dataset_from_buffers
    return create(dataset_id, exported, **{"jpeg_encoding": False, **options})


def import_minari(buffer: BaseBuffer, dataset: Iterable[Any]) -> int:
    """Add the episodes of a Minari dataset to a buffer.

    A buffer of transitions gets all steps, and builds n-step rows from them if it has a window. In an
    `EpisodeReplayBuffer`, the episodes are distributed over the environments in turn. If an episode is longer
    than the buffer, or than the ring of its environment, only its last steps are stored. The running episodes
    of the buffer are ended first.

    Args:
        buffer: The buffer. Its fields must be in the dataset, with the names that `export_minari` expects;
            `next_obs` is the following observation, and `terminated` or else `done` the termination.
        dataset: A `MinariDataset`, or other episodes with the attributes of Minari's `EpisodeData`.

    Returns:
        The number of episodes that were added.

    Raises:
        KeyError: If a field of the buffer is not in the dataset.
        TypeError: If a value is not numeric, or `buffer` is not a buffer; a `Mixture` has no rows of its own.
        ValueError: If a shape or value doesn't match its field; the episodes before it have then been added.
            Or if, with autoreset="next_step", an environment has yet to be reset; nothing has then changed.
    """
    if not isinstance(buffer, BaseBuffer):
        raise TypeError(
            f"import_minari adds rows to a buffer, not to {buffer!r:.60}. Pass the buffer that should "
            "contain the rows, such as the offline buffer of a mixture."
        )
    target: Any = buffer
    environments = list(range(target._ring.environments)) if isinstance(buffer, EpisodeReplayBuffer) else []
    if environments and (waiting := np.flatnonzero(target._ring.arrays.rings["reset"] != TRANSITION)).size:
        raise ValueError(
            f"The episode of environment {waiting[0]} has ended, and its next step only resets it "
            '(autoreset="next_step"), which could not be recognized after an import. Add that step first, '
            "or import the episodes before the first step or into another buffer."
        )
    for arguments in [[number] for number in environments] or [[]]:
        target.end_episode(*arguments)
    count = 0
    for episode in dataset:
        arguments = [count % len(environments)] if environments else []
        target.add(*arguments, **from_minari(buffer, episode))
        target.end_episode(*arguments)
        if environments:
            target._ring.arrays.rings["reset"] = TRANSITION  # whatever the observation of the next step is
        count += 1
    return count


def to_minari(buffer: EpisodeReplayBuffer, episodes: npt.ArrayLike | None) -> list[dict[str, Any]]:
    """Return the arguments of Minari's `EpisodeBuffer` for each of the episodes, as for `export_minari`."""
    table = buffer.episodes()
    complete = table["episode"][table["finished"] & table["whole"]]
    numbers = complete if episodes is None else as_integers("episodes", episodes)
    if not len(numbers):
        raise ValueError("There is no whole finished episode to export.")
    exported = list[dict[str, Any]]()
    for number in numbers.tolist():
        stored = buffer.get_episode(number)
        if number not in complete:
            raise ValueError(
                f"Episode {number} is running or partly overwritten; only whole episodes can be exported."
            )
        del stored["indexes"]
        terminations = stored.pop(buffer._roles.terminated).reshape(-1) != 0
        truncations = stored.pop("truncated", np.zeros(len(terminations))).reshape(-1) != 0
        truncations[-1] |= not terminations[-1]
        exported.append(
            {
                "observations": nested(stored, OBSERVATIONS),
                "actions": nested(stored, ACTIONS),
                "rewards": nested(stored, buffer._layout["reward"]).reshape(-1),
                "terminations": terminations,
                "truncations": truncations,
                "infos": stored,
            }
        )
    return exported


def nested(fields: Batch, name: str) -> Any:
    """Remove a field and return it; return fields `name/…` as a dict, or as a tuple if they are numbered."""
    if name in fields:
        return fields.pop(name)
    inside = [key.removeprefix(f"{name}/") for key in fields if key.startswith(f"{name}/")]
    if not inside:
        raise KeyError(f"the buffer has no field {name!r} or '{name}/…', which Minari requires")
    parts = {
        part: nested(fields, f"{name}/{part}") for part in dict.fromkeys(key.split("/")[0] for key in inside)
    }
    return tuple(parts.values()) if [*parts] == [str(i) for i in range(len(parts))] else parts


def from_minari(buffer: BaseBuffer, episode: Any) -> Batch:
    """Return the steps of a Minari episode as arguments of `add`."""
    fields, steps, count = buffer._fields.fields, Batch(), len(episode.rewards)
    values: dict[str, Any] = {
        **dict(flatten(episode.infos or {})),
        **dict(flatten({OBSERVATIONS: episode.observations, ACTIONS: episode.actions})),
        buffer._layout.get("reward", "reward"): episode.rewards,
        "truncated": episode.truncations,
        "terminated" if "terminated" in fields else "done": episode.terminations,
    }
    for name in fields:
        before = name.removeprefix("next_")
        if (source := name if name in values else before) not in values:
            raise KeyError(f"the dataset has no {name!r}; it has {sorted(values)}")
        array = np.asarray(values[source])
        if source != name:
            steps[name] = array[1:]
        elif f"next_{name}" in fields or name.partition("/")[0] == OBSERVATIONS:
            steps[name] = array[:count]
        else:
            steps[name] = array[max(0, len(array) - count) :]  # infos also have an entry for the reset
    return steps
