"""What the learner's host holds of the replay if the rows lie in shards: how many there are."""

import numpy as np

from replay_tutorial.cluster.gateway import Report
from replay_tutorial.shared.limiter import SamplesPerInsert
from replay_tutorial.shared.memory import SharedArrays
from replay_tutorial.shared.protocol import swap

LIFE_SHIFT = 40  # the bits of a number of rows


class RowsElsewhere:
    """The replay on the learner's host if the rows lie in shards: what counts them, but no rows.

    Args:
        limiter: Of the run.
        actors: How many report what shards have stored.
    """

    def __init__(self, limiter: SamplesPerInsert, actors: int) -> None:
        self.limiter = limiter
        # Of each actor, its life and the rows of that, in one number: one swap counts them, once.
        self._counted = SharedArrays({"actors": ((actors,), np.dtype(np.int64))})

    def count(self, report: Report) -> None:
        """Count the rows that a report is the first to name, whichever gateway it comes to, and when."""
        counted, life = self._counted["actors"], report.life << LIFE_SHIFT
        while (known := int(counted[report.actor])) < life + report.rows_stored:
            if swap(counted, report.actor, known, life + report.rows_stored):
                self.limiter.inserted(life + report.rows_stored - max(known, life))
