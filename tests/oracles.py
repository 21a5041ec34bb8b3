"""Slow and obvious versions of all that the buffers do: what the fast ones are checked against.

Lists, dictionaries and definitions, one transition at a time; no code is shared with the package.
`PlainBuffer` keeps its rows in a list, and takes n-step returns from the episode's whole history;
`PlainPriorities` keeps a dictionary from index to priority and draws by a running sum.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Row = dict[str, np.ndarray]
CAPACITIES = [1, 2, 3, 7, 8, 1000]


class PlainBuffer:
    """A list of rows of which the last `size` are kept.

    Args:
        size: how many rows stay.
        fields: shape (default (), a scalar) and dtype (default float32) of each field, `next_*` fields
            spelled out.
        n_step: None, or the settings of the returns.
    """

    def __init__(self, size: int, fields: Mapping[str, Mapping[str, Any]], n_step: Any = None):
        self.size = size
        self.specs = {
            name: (shape_of(spec), np.dtype(spec.get("dtype", np.float32))) for name, spec in fields.items()
        }
        self.n_step = n_step
        self.rows: list[Row] = []  # oldest first
        self.next_index = 0
        self.episode_len = 0
        self.episode: list[Row] = []  # every step of the episode so far: never trimmed, that is the point
        self.emitted = 0  # windows of `episode` that are rows already

    @property
    def oldest_index(self) -> int:
        return self.next_index - len(self.rows)

    def add(self, batch: Mapping[str, np.ndarray], count: int) -> int | None:
        """Add `count` transitions, batch[name][i] the i-th; return the index of the first row added."""
        before = self.next_index
        for i in range(count):
            step = {
                name: np.array(batch[name][i], dtype=dtype).reshape(shape)
                for name, (shape, dtype) in self.specs.items()
            }
            self.episode_len += 1
            if self.n_step is None:
                self._store(step)
            else:
                self.episode.append(step)
                self._emit(ended=ends_episode(step))
        return before if self.next_index > before else None

    def end_episode(self) -> None:
        if self.n_step is not None:
            self._emit(ended=True)
        self.episode_len = 0

    def leads_elsewhere(self, batch: Mapping[str, np.ndarray]) -> bool:
        """Whether the newest step that waits in the window does not lead to the beginning of a batch."""
        waits = self.n_step is not None and self.emitted < len(self.episode)
        return waits and not np.array_equal(self.episode[-1]["next_obs"], batch["obs"][0])

    def clear(self) -> None:
        self.rows, self.episode, self.emitted, self.episode_len = [], [], 0, 0

    def all_transitions(self) -> dict[str, np.ndarray]:
        """Every row, oldest first, as one array a field."""
        return columns(self.rows, self.output_specs())

    def output_specs(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        if self.n_step is None:
            return dict(self.specs)
        shape, dtype = self.specs[rewards_of(self.n_step)[0]]
        if self.n_step.gamma == "discount":
            shape, dtype = self.specs["discount"]
        return {**self.specs, "discount": ((1,) * len(shape), dtype)}

    def _emit(self, *, ended: bool) -> None:
        """Store the windows that are whole: n steps long, or as long as the ended episode lets them be."""
        assert self.n_step is not None
        n = self.n_step.n
        while self.emitted < len(self.episode) and (ended or self.emitted + n <= len(self.episode)):
            self._store(n_step_row(self.episode, self.emitted, self.n_step))
            self.emitted += 1
        if ended:
            self.episode, self.emitted = [], 0

    def _store(self, row: Row) -> None:
        self.rows.append(row)
        self.rows = self.rows[-self.size :]
        self.next_index += 1


def n_step_row(episode: Sequence[Row], start: int, n_step: Any) -> Row:
    """The row that starts at step `start`: by definition, in float64.

    R = Σ_{i<k} γ^i r_{start+i}; discount = γ^k, or 0 where the episode terminated; k ≤ n steps were there.
    Where each step has its γ, the powers are products.
    """
    gamma = n_step.gamma
    window = episode[start : start + n_step.n]
    powers = (
        [gamma**i for i in range(len(window) + 1)]
        if not isinstance(gamma, str)
        else [math.prod(float(step[gamma].item()) for step in window[:i]) for i in range(len(window) + 1)]
    )
    row = dict(window[0])
    for name in rewards_of(n_step):
        powers_and_rewards = [(powers[i], step[name].astype(np.float64)) for i, step in enumerate(window)]
        row[name] = np.asarray(
            sum(power * reward for power, reward in powers_and_rewards), window[0][name].dtype
        )
    nexts = [name for name in row if name.startswith("next_")]
    for name in nexts if n_step.next_fields is None else names(n_step.next_fields):
        row[name] = window[-1][name]
    for name in ("terminated", "truncated", "done"):
        if name in row:
            row[name] = window[-1][name]
    reward = window[0][rewards_of(n_step)[0]]
    value = 0.0 if terminates(window[-1]) else powers[-1]
    like = row[gamma] if gamma == "discount" else reward
    row["discount"] = np.full((1,) * like.ndim, value, like.dtype)
    return row


def ends_episode(step: Row) -> bool:
    return any(bool(step[name].any()) for name in ("terminated", "truncated", "done") if name in step)


def terminates(step: Row) -> bool:
    """Whether there is nothing to bootstrap from: `terminated` says it, or `done` where it is missing."""
    for name in ("terminated", "done"):
        if name in step:
            return bool(step[name].any())
    return False


class PlainPriorities:
    """A dictionary from index to priority, and the formulas of prioritized replay."""

    def __init__(self, capacity: int, alpha: float, eps: float):
        self.capacity, self.alpha, self.eps = capacity, alpha, eps
        self.priorities: dict[int, float] = {}
        self.highest: float | None = None  # of those given to any row
        self.stale_updates = 0

    @property
    def max_priority(self) -> float:
        return 1.0 if self.highest is None else self.highest

    def give(self, index: int, priority: float | None) -> None:
        """Give row `index` a priority, or the highest so far; it replaces the row `capacity` before it."""
        priority = self.max_priority if priority is None else float(priority)
        self.priorities[index] = priority
        self.priorities.pop(index - self.capacity, None)
        self.highest = priority if self.highest is None else max(self.highest, priority)

    def update(self, indexes: Sequence[int], priorities: Sequence[float]) -> None:
        for index, priority in zip(indexes, priorities, strict=True):
            if index in self.priorities:
                self.give(index, priority)
            else:
                self.stale_updates += 1

    def clear(self) -> None:
        self.priorities, self.highest = {}, None

    def mass(self, index: int) -> float:
        return (self.priorities[index] + self.eps) ** self.alpha

    def total(self) -> float:
        return math.fsum(self.mass(index) for index in self.priorities)

    def least(self) -> float:
        """The least mass above 0; 0 if there is none."""
        return min((mass for mass in map(self.mass, self.priorities) if mass > 0), default=0.0)

    def probability(self, index: int) -> float:
        """P(i) = p_i^α / Σ_k p_k^α   (Schaul et al. 2016, eq. 1)"""
        return self.mass(index) / self.total()

    def draw(self, query: float) -> int:
        """The index whose share of the running sum, in slot order, holds `query`."""
        running = 0.0
        for index in sorted(self.priorities, key=lambda index: index % self.capacity):
            running += self.mass(index)
            if query < running:
                return index
        raise AssertionError(f"{query} is not below the total {running}")

    def weight(self, index: int, beta: float, among: Sequence[int] | None = None) -> float:
        """(N P(i))^-β over the greatest such weight, of the stored rows or those given.

        = (least mass / mass_i)^β, because N and the total cancel out.
        """
        masses = [self.mass(other) for other in (self.priorities if among is None else among)]
        return (min(mass for mass in masses if mass > 0) / self.mass(index)) ** beta


def find_by_running_sum(masses: Sequence[float], query: float) -> int:
    """The first slot whose running sum exceeds `query`, or the last one of positive mass."""
    running, found = 0.0, -1
    for slot, mass in enumerate(masses):
        running += mass
        if mass > 0:
            found = slot
            if query < running:
                return slot
    return found


def total_by_halves(masses: Sequence[float]) -> float:
    """Sum 2^k numbers as a binary tree does: (left half) + (right half); equal to its root bit for bit."""
    if len(masses) == 1:
        return float(masses[0])
    half = len(masses) // 2
    return total_by_halves(masses[:half]) + total_by_halves(masses[half:])


def columns(
    rows: Sequence[Row], specs: Mapping[str, tuple[tuple[int, ...], np.dtype]]
) -> dict[str, np.ndarray]:
    return {
        name: np.array([row[name] for row in rows], dtype=dtype).reshape(len(rows), *shape)
        for name, (shape, dtype) in specs.items()
    }


def assert_same_columns(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """The same fields, shapes, dtypes and bits."""
    assert set(actual) == set(expected)
    for name, column in expected.items():
        assert actual[name].dtype == column.dtype, name
        assert actual[name].shape == column.shape, name
        if actual[name].tobytes() != column.tobytes():
            np.testing.assert_array_equal(actual[name], column, err_msg=f"field {name}")
            raise AssertionError(f"field {name}: equal values of different bits")


def assert_rows_among(sample: Mapping[str, np.ndarray], stored: Mapping[str, np.ndarray]) -> None:
    """Each row of the sample is, whole, one of the stored rows."""
    known = set(row_bytes(stored))
    assert set(sample) == set(stored)
    for row in row_bytes(sample):
        assert row in known


def row_bytes(fields: Mapping[str, np.ndarray]) -> list[bytes]:
    order = sorted(fields)
    return [b"|".join(fields[name][i].tobytes() for name in order) for i in range(len(fields[order[0]]))]


def shape_of(spec: Mapping[str, Any]) -> tuple[int, ...]:
    shape = spec.get("shape", ())
    return (shape,) if isinstance(shape, int) else tuple(shape)


def rewards_of(n_step: Any) -> list[str]:
    return ["reward"] if n_step.reward is None else names(n_step.reward)


def names(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
