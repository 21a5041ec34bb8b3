"""A check for uniform replay buffers: the versions in `steps/`, the package's, and the reader's own.

It adds distinguishable rows and compares the samples with a plain list. It shares no code with the buffers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from replay_tutorial.teaching.chi_square import fairness
from replay_tutorial.teaching.exercises import CheckFailed, expect

FIELDS: dict[str, Any] = {
    "obs": {"shape": (2,), "dtype": np.float32},
    "act": {"shape": (), "dtype": np.int64},
    "rew": {"shape": (), "dtype": np.float32},
    "next_obs": {"shape": (2,), "dtype": np.float32},
    "terminated": {"shape": (), "dtype": np.bool_},
}
CAPACITIES = (1, 2, 3, 7, 8, 1000)
DRAWS = 200  # expected draws of each row in the test for uniform sampling


def row(number: int) -> dict[str, Any]:
    """Return the row with this number, from which all its values are computed."""
    obs = np.array([number, -number], np.float32)
    return {"obs": obs, "act": number, "rew": number / 2, "next_obs": obs + 1, "terminated": number % 5 == 0}


def check_uniform(kind: Callable[..., Any]) -> None:
    """Check a uniform replay buffer and print what was checked.

    Args:
        kind: Class of the buffer. It is called as `kind(capacity, fields, seed=0)`, and its instances have
            `add(**transition)`, `sample(batch_size)` and `len()`.

    Raises:
        CheckFailed: If a sampled row is not one of the newest `capacity` rows or has a wrong value, if the
            rows are not sampled equally often or not independently, or if the buffer shares memory with the
            caller's arrays.
    """
    for capacity in CAPACITIES:
        buffer, added = kind(capacity, FIELDS, seed=0), 0
        for wanted in (1, capacity - 1, capacity, capacity + 1, 2 * capacity + 3):
            while added < wanted:
                added += 1
                buffer.add(**row(added))  # starts at row 1, because an empty slot looks like row 0
            where = f"capacity {capacity}, after {added} row{'s' * (added > 1)}"
            stored = min(added, capacity)
            expect(len(buffer) == stored, f"{where}: len() is {len(buffer)}, not {stored}")
            check_batch(buffer.sample(32), max(0, added - capacity) + 1, added, where)
        check_drawn(buffer, added - capacity + 1, added, f"capacity {capacity}, after {added} rows")
    check_copies(kind)
    print(f"right: capacities {', '.join(map(str, CAPACITIES))}, each with 1 to 2 * capacity + 3 rows")


def check_batch(batch: Any, oldest: int, newest: int, where: str) -> None:
    """Raise CheckFailed if a row of the batch is not one of `oldest` to `newest`, or has a wrong value."""
    if not isinstance(batch, Mapping) or not FIELDS.keys() <= batch.keys():
        names = list(batch) if isinstance(batch, Mapping) else batch
        raise CheckFailed(f"{where}: sample() must return a dict with the fields {list(FIELDS)}, not {names}")
    for name, field in FIELDS.items():
        shape = (32, *field["shape"])
        if batch[name].shape != shape or batch[name].dtype != field["dtype"]:
            raise CheckFailed(
                f"{where}: {name!r} is {batch[name].dtype}{batch[name].shape}, not "
                f"{np.dtype(field['dtype'])}{shape}"
            )
    for place, number in enumerate(batch["act"].tolist()):
        if number == 0:
            raise CheckFailed(
                f"{where}: sampled a row of zeros, although no such row was added: is its slot still empty?"
            )
        if not oldest <= number <= newest:
            raise CheckFailed(f"{where}: row {number} was sampled; the stored rows are {oldest} to {newest}")
        for name, value in row(number).items():
            if not np.array_equal(batch[name][place], np.asarray(value, FIELDS[name]["dtype"])):
                raise CheckFailed(
                    f"{where}: a sampled row has the 'act' of row {number}, but its {name!r} is "
                    f"{batch[name][place]}, not {value}. Do all fields come from the same slot?"
                )


def check_drawn(buffer: Any, oldest: int, newest: int, where: str) -> None:
    """Raise CheckFailed if the rows are not sampled equally often, or not independently of each other."""
    stored = newest - oldest + 1
    drawn = np.concatenate([buffer.sample(1000)["act"] for _ in range(-(-DRAWS * stored // 1000))])
    counts = np.bincount(drawn - oldest, minlength=stored)
    result = fairness(counts, np.ones(stored))
    if not result.is_fair:
        raise CheckFailed(
            f"{where}: row {oldest + result.worst} was sampled {counts[result.worst]:,} times in "
            f"{counts.sum():,} draws, but {counts.sum() / stored:,.0f} times are expected "
            f"(χ² = {result.chi_square:,.0f} with {result.freedom} degrees of freedom)"
        )
    # If the rows are drawn independently, all distances between consecutive ones are equally likely.
    distances = np.bincount(np.diff(drawn) % stored, minlength=stored)
    if stored > 1 and not fairness([distances[0], distances[1:].sum()], [1, stored - 1]).is_fair:
        raise CheckFailed(
            f"{where}: the same row was drawn twice running {distances[0]:,} times in {len(drawn):,} draws, "
            f"but {len(drawn) / stored:,.0f} times are expected; sample each row independently, with "
            "replacement"
        )
    result = fairness(distances, np.ones(stored))
    if not result.is_fair:
        raise CheckFailed(
            f"{where}: row i was followed by row i + {result.worst} {distances[result.worst]:,} times in "
            f"{len(drawn):,} draws, but {len(drawn) / stored:,.0f} times are expected; sample each row "
            "independently of the others"
        )


def check_copies(kind: Callable[..., Any]) -> None:
    """Raise CheckFailed if the buffer shares memory with an added array or a returned batch."""
    buffer, given = kind(4, FIELDS, seed=0), row(7)
    buffer.add(**given)
    given["obs"][:] = -1.0
    if buffer.sample(1)["obs"][0, 0] != 7.0:
        raise CheckFailed("a stored row changed when the caller wrote to the array that was added")
    buffer.sample(1)["obs"][:] = -1.0
    if buffer.sample(1)["obs"][0, 0] != 7.0:
        raise CheckFailed("a stored row changed when the caller wrote to a batch")
