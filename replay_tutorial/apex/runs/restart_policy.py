"""Lives: a role that is killed is started again, until it has died too often in a row.

A process that is killed, for memory perhaps, says nothing of the run. But one that dies again and again at
its start would die forever. So the pause before the next life doubles each time, and the run ends when that
does not help. A long life makes a new beginning.
"""

import time

from replay_tutorial.apex.runs.engine import ProcessDied

FIRST_PAUSE_SECONDS = 0.5  # before the second life; twice as long each time
DOUBLINGS = 7  # at most: a minute
STABLE_SECONDS = 60.0  # whoever has lived so long has not died in a row with the one before


class RestartPolicy:
    """The lives of one role.

    Attributes:
        count: Lives begun so far; the number of the next one, from 0.
        due: When the next one is to begin, by `time.monotonic`; None while there is one.
        plays: Whether the newest one has been heard, and has not ended.
        restarts: Lives after the first one that have been heard.
    """

    def __init__(self, name: str, max_failures: int | None) -> None:
        """Begin with none.

        Args:
            name: Of the role.
            max_failures: Deaths in a row that end the run; None if the first one does.
        """
        self.name = name
        self.max_failures = max_failures
        self.starts = 0
        self.due: float | None = None
        self.is_running = False
        self.restarts = 0
        self._heard = 0.0  # when, for the first time
        self._short_lives = 0  # in a row
        self._deaths_in_a_row = 0  # those of them that count

    def record_start(self, is_pending: bool = False) -> None:
        """Count a life that begins now; one that `waits` for its place lasts only from when it is heard."""
        self.due = None
        self.starts += 1
        if not is_pending:
            self.mark_running(self.starts - 1)

    def mark_running(self, restart_count: int) -> None:
        """Note that a life has been heard; after a cut cable it may be an old one."""
        if restart_count == self.starts - 1 and self.due is None and not self.is_running:
            self.is_running, self._heard = True, time.monotonic()
            self.restarts += restart_count > 0

    @property
    def is_healthy(self) -> bool:
        """Whether the role plays, and this life is a long one or had no short one before it."""
        return self.is_running and (self._short_lives == 0 or self._is_long())

    def restart_at_once(self) -> None:
        """End this life without counting it: its host has died. The next one begins at once."""
        self.is_running, self.due = False, time.monotonic()

    def record_failure(self, cause: str, forgiven: bool = False) -> None:
        """End this life; say when the next one begins.

        Args:
            cause: How this one ended: what follows the role's name in a sentence.
            spared: Whether the run goes on all the same, since others do well: the fault is of a place then.

        Raises:
            ProcessDied: If there is none.
        """
        was_long, self.is_running = self._is_long(), False
        self._short_lives = 0 if was_long else self._short_lives + 1
        deaths = self._deaths_in_a_row = 0 if was_long or forgiven else self._deaths_in_a_row + 1
        if self.max_failures is None or deaths >= self.max_failures:
            raise ProcessDied(f"{self.name} {cause}{f', {deaths} times in a row' if deaths > 1 else ''}")
        doublings = min(DOUBLINGS, max(0, self._short_lives - 1))
        self.due = time.monotonic() + FIRST_PAUSE_SECONDS * 2**doublings

    def _is_long(self) -> bool:
        return self.is_running and time.monotonic() - self._heard >= STABLE_SECONDS

    def is_due(self) -> bool:
        """Return whether the next life is to begin."""
        return self.due is not None and time.monotonic() >= self.due
