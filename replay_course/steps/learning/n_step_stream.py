"""N-step returns from a stream: each step completes the rows whose window it fills.

Improvement over the list: the stream holds only the steps whose window isn't complete, fewer than n, so that
it can run while an agent acts. Every row is returned by the call that completes it:

    step      0  1  2  3  4 (end)      n = 3: step 2 completes row 0, step 3 completes row 1,
    rows      –  –  0  1  2, 3, 4      and the last step completes row 2 and the tails, rows 3 and 4

Remaining problem: one environment, and a Python object for each step. The package's `NStepWindow` keeps the
windows of several environments apart, and stores steps as bytes.

Source: Sutton and Barto 2018, section 7.1; Horgan et al. 2018, section 3.1; Hessel et al. 2018 (n = 3).
"""

from collections import deque

from replay_course.steps.learning.n_step_list import Row, Step, fold


class NStepStream:
    """N-step rows of one environment, one step at a time."""

    def __init__(self, n: int, gamma: float) -> None:
        """Start without steps.

        Args:
            n: Maximum number of steps of a row; at least 1.
            gamma: Discount per step.
        """
        self.n, self.gamma = n, gamma
        self.pending: deque[Step] = deque()  # steps without a row, oldest first; between calls, fewer than n

    def add(self, step: Step) -> list[Row]:
        """Add the next step; return the rows that it completes, oldest first.

        Example:
            >>> stream = NStepStream(n=2, gamma=0.5)
            >>> stream.add(Step(obs=0, action=0, reward=1.0, next_obs=1))
            []
            >>> last = Step(obs=1, action=0, reward=1.0, next_obs=2, terminated=True)
            >>> [row.reward for row in stream.add(last)]
            [1.5, 1.0]
        """
        self.pending.append(step)
        ended = step.terminated or step.truncated
        rows: list[Row] = []
        while self.pending and (ended or len(self.pending) == self.n):
            rows.append(fold(self.pending, self.gamma))
            self.pending.popleft()
        return rows
