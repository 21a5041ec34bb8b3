"""Messages that the roles of a run send to the parent.

They contain numbers and text only; rows and parameters use other channels.
"""

from typing import NamedTuple

from replay_tutorial.agents.evaluation import Evaluation

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}  # quantiles of priorities, weights and ages in a record


class Episodes(NamedTuple):
    """From an actor: the episodes that ended since its last message."""

    returns: list[float]
    lengths: list[int]
    environments: list[int]  # numbers in the run; the exploration schedule has one entry for each
    # updates that the learner has made since it published the actor's parameters
    parameters_age: int


class Progress(NamedTuple):
    """From the learner, every `record_interval` updates: its metrics."""

    step: int  # environment steps of all actors
    update: int
    values: dict[str, float]  # column of progress.csv → value, see `recorder`


class EvaluationReport(NamedTuple):
    """From the evaluator: the returns of a policy."""

    step: int  # environment steps when the policy was evaluated
    update: int  # the update that produced the policy's parameters
    evaluation: Evaluation  # the first round
    confirmation: Evaluation | None  # the second round; None if the policy isn't the best so far
    solved: bool
    is_tie: bool = False  # whether the best policy so far had the same mean


class Saved(NamedTuple):
    """From the learner: a checkpoint was written, or an error prevented it."""

    step: int
    error: str | None


class Note(NamedTuple):
    """From any role: a line to print."""

    text: str


class Cluster(NamedTuple):
    """The state of the cluster; sent by the cluster engine about once per second."""

    hosts: int
    actors: int  # whose newest process has reported and is not known to have ended
    rows_lost: int  # in total, sent by actors and never acknowledged


class Failure(NamedTuple):
    """The last message of a process whose Python code raised an exception."""

    traceback: str  # or one line, if a traceback would add nothing
    resumable: bool = True  # False if the file to resume from is damaged


Message = Episodes | Progress | EvaluationReport | Saved | Note | Cluster | Failure
