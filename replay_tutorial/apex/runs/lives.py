"""Lives: a role that is killed is started again, until it has died too often in a row.

A process that is killed, for memory perhaps, says nothing of the run. But one that dies again and again at
its start would die forever. So the pause before the next life doubles each time, and the run ends when that
does not help. A long life makes a new beginning.
"""

import time

from replay_tutorial.apex.runs.watch import ProcessDied

FIRST_PAUSE_SECONDS = 0.5  # before the second life; twice as long each time
STABLE_SECONDS = 60.0  # whoever has lived so long has not died in a row with the one before


class Lives:
    """The lives of one role.

    Attributes:
        count: Lives begun so far; the number of the next one, from 0.
        due: When the next one is to begin, by `time.monotonic`; None while there is one.
    """

    def __init__(self, name: str, max_deaths: int | None) -> None:
        """Begin with none.

        Args:
            name: Of the role.
            max_deaths: Deaths in a row that end the run; None if the first one does.
        """
        self.name = name
        self.max_deaths = max_deaths
        self.count = 0
        self.due: float | None = None
        self._started = 0.0
        self._deaths_in_a_row = 0

    def begin(self) -> None:
        """Count a life that begins now."""
        self._started, self.due = time.monotonic(), None
        self.count += 1

    def end(self, cause: str) -> None:
        """Say when the next life begins.

        Args:
            cause: How this one ended: what follows the role's name in a sentence.

        Raises:
            ProcessDied: If there is none.
        """
        was_stable = time.monotonic() - self._started >= STABLE_SECONDS
        self._deaths_in_a_row = 0 if was_stable else self._deaths_in_a_row + 1
        deaths = self._deaths_in_a_row
        if self.max_deaths is None or deaths >= self.max_deaths:
            raise ProcessDied(f"{self.name} {cause}{f', {deaths} times in a row' if deaths > 1 else ''}")
        self.due = time.monotonic() + FIRST_PAUSE_SECONDS * 2 ** max(0, deaths - 1)

    def is_due(self) -> bool:
        """Return whether the next life is to begin."""
        return self.due is not None and time.monotonic() >= self.due
