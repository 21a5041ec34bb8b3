"""Messages: all that the roles of a run tell the parent.

They hold numbers and text only: rows and parameters have ways of their own.
"""

from typing import NamedTuple

from replay_tutorial.agents.evaluation import Evaluation

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}  # of priorities, weights and ages in a record


class Episodes(NamedTuple):
    """From an actor: the episodes that ended since its last message."""

    returns: list[float]
    lengths: list[int]
    # updates that the learner has made since those that the actor plays with
    parameters_age: int


class Progress(NamedTuple):
    """From the learner, every `record_interval` updates: how learning goes."""

    step: int  # environment steps of all actors
    update: int
    values: dict[str, float]  # by the columns of progress.csv, see `recorder`


class EvaluationReport(NamedTuple):
    """From the evaluator: what a policy's episodes returned."""

    step: int  # environment steps when it was evaluated
    update: int  # that made its parameters
    evaluation: Evaluation  # of the first round
    confirmation: Evaluation | None  # of the second round; None if the policy isn't the best so far
    solved: bool
    is_tie: bool = False  # whether the best policy so far had the same mean


class Saved(NamedTuple):
    """From the learner: a checkpoint is on the disk, or why it isn't."""

    step: int
    error: str | None


class Note(NamedTuple):
    """From any role: a line for the reader."""

    text: str


class Cluster(NamedTuple):
    """From an engine of many machines, now and then: who is there."""

    hosts: int
    actors: int  # that play: heard in their newest process, which is not known to have ended
    rows_lost: int  # so far, sent by actors and never answered


class Failure(NamedTuple):
    """The last message of a process whose Python code failed."""

    traceback: str  # or a line, where that says it all
    resumable: bool = True  # False: a file is damaged that the run would go on from again


Message = Episodes | Progress | EvaluationReport | Saved | Note | Cluster | Failure
