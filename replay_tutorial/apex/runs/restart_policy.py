"""The restart policy: restarts a role that was killed, until it fails too often in a row.

A process can be killed through no fault of the run, for example when memory runs out. But a process that dies
soon after every start would be restarted forever. So the pause before each restart doubles, and the run ends
after a number of failures in a row. A process that has run for a minute resets both the pause and the number.
"""

import time

from replay_tutorial.apex.runs.engine import ProcessDied

FIRST_PAUSE_SECONDS = 0.5  # before the first restart; doubled for each further one
DOUBLINGS = 7  # at most; the pause is then about a minute
STABLE_SECONDS = 60.0  # a process that has run this long resets pause and failures


class RestartPolicy:
    """Decides when one role is restarted.

    `max_failures` in a row end the run; if it is None, the first failure does.
    """

    def __init__(self, name: str, max_failures: int | None) -> None:
        self.name = name
        self.max_failures = max_failures
        self.starts = 0  # processes started so far
        self.due: float | None = None  # time.monotonic() of the next start; None while a process runs
        self.is_running = False  # whether the newest process has reported and has not ended
        self.restarts = 0  # restarted processes that have reported
        self._first_report = 0.0  # time of the newest process's first report
        self._short_runs = 0  # consecutive processes that ended early
        self._failures_in_a_row = 0  # those of them that count towards max_failures

    def record_start(self, is_pending: bool = False) -> None:
        """Record that a process starts now; if it is pending, its time counts from its first report."""
        self.due = None
        self.starts += 1
        if not is_pending:
            self.mark_running(self.starts - 1)

    def mark_running(self, restart_count: int) -> None:
        """Record a report of the process with this restart count; ignore older processes."""
        if restart_count == self.starts - 1 and self.due is None and not self.is_running:
            self.is_running, self._first_report = True, time.monotonic()
            self.restarts += restart_count > 0

    @property
    def is_healthy(self) -> bool:
        """Whether the newest process is running, and has run for a minute or follows no early failure."""
        return self.is_running and (self._short_runs == 0 or self._is_long())

    def restart_at_once(self) -> None:
        """Schedule a restart now without counting a failure, because the process's host died."""
        self.is_running, self.due = False, time.monotonic()

    def record_failure(self, cause: str, forgiven: bool = False) -> None:
        """Record that the process died, and schedule the next start, or raise ProcessDied: "{name} {cause}".

        If the failure is `forgiven`, the count of failures is reset instead of incremented, because other
        actors run well, so the host is probably at fault.
        """
        was_long, self.is_running = self._is_long(), False
        self._short_runs = 0 if was_long else self._short_runs + 1
        failures = self._failures_in_a_row = 0 if was_long or forgiven else self._failures_in_a_row + 1
        if self.max_failures is None or failures >= self.max_failures:
            raise ProcessDied(f"{self.name} {cause}{f', {failures} times in a row' if failures > 1 else ''}")
        doublings = min(DOUBLINGS, max(0, self._short_runs - 1))
        self.due = time.monotonic() + FIRST_PAUSE_SECONDS * 2**doublings

    def _is_long(self) -> bool:
        return self.is_running and time.monotonic() - self._first_report >= STABLE_SECONDS

    def is_due(self) -> bool:
        """Return whether the next process should be started now."""
        return self.due is not None and time.monotonic() >= self.due
