"""Windows for a recurrent network: stored states, a burn-in, and a second mask.

Improvement over windows of episodes: each step also stores the recurrent state of the actor before the step.
A window begins `burn_in` steps earlier. The learner starts with the state that is stored with the first real
step, and unrolls the burn-in only to update this state; `learn` is true for the steps after it:

    index     4   5   6   7   8   9        burn_in = 2, length = 3: the window that starts at index 6, the
    first     0   5   5   5   5   9        second step of its episode; it begins with the state of index 5
    window    –   5   6   7   8
    valid     0   1   1   1   1
    learn     0   0   1   1   1

Remaining problem: one environment, windows that start at every step, and uniform sampling. The package's
`SequenceReplayBuffer` has a ring for each environment and a priority for each window.

Source: Kapturowski et al. 2019 (R2D2), section 3.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


class WindowsWithState:
    """The newest steps of one environment, sampled as windows with a burn-in and a stored state."""

    def __init__(
        self, capacity: int, fields: Mapping[str, Any], length: int, burn_in: int, seed: int = 0
    ) -> None:
        """Allocate memory for `capacity` rows; `fields` includes `state`, and `length` excludes burn-in."""
        self.capacity, self.length, self.burn_in = capacity, length, burn_in
        record = np.dtype([(name, field["dtype"], field.get("shape", ())) for name, field in fields.items()])
        self.rows = np.zeros(capacity, record)
        self.firsts = np.zeros(capacity, np.int64)  # index of the first step of the row's episode
        self.names = list(fields)
        self.added = self.first = 0  # number of steps added; first index of the running episode
        self.rng = np.random.default_rng(seed)

    def add(self, *, ends: bool, **step: Any) -> None:
        """Add one step; `ends` is whether it is the last step of its episode."""
        slot = self.added % self.capacity
        self.rows[slot] = tuple([step[name] for name in self.names])
        self.firsts[slot] = self.first
        self.added += 1
        if ends:
            self.first = self.added

    def sample(self, batch_size: int) -> dict[str, np.ndarray]:
        """Sample windows of burn_in + length entries, with one state per window, and both masks."""
        oldest = max(self.added - self.capacity, 0)
        starts = self.rng.integers(oldest, self.added, batch_size)
        times = np.arange(-self.burn_in, self.length)  # relative to the first step to learn from
        indexes = starts[:, np.newaxis] + times
        firsts = self.firsts[indexes % self.capacity]
        is_stored = (indexes >= oldest) & (indexes < self.added)
        valid = (firsts == firsts[:, self.burn_in, np.newaxis]) & is_stored
        batch = self.rows.take(indexes % self.capacity)
        batch[~valid] = 0
        sample = {name: batch[name] for name in self.names}
        first_real = valid.argmax(axis=1)  # int64[batch_size]
        sample["state"] = sample["state"][np.arange(batch_size), first_real]
        return sample | {"valid": valid, "learn": valid & (times >= 0)}
