"""Messages: all that the processes of a run tell the parent.

Each goes through a pipe of its own process, or, in a run without other processes, straight to the recorder. They hold
numbers and text only: rows and weights go through shared memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

from replay_tutorial.agents.evaluation import Evaluation

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}  # of priorities, weights and ages in a record


class Episodes(NamedTuple):
    """From an actor: the episodes that have ended since it last said so."""

    returns: list[float]
    lengths: list[int]
    weights_age: (
        int  # updates that the learner has made since it published the weights that the actor plays with
    )


class Progress(NamedTuple):
    """From the learner, every so many updates: how learning goes."""

    step: int  # environment steps of all actors
    update: int
    values: dict[str, float]  # by the columns of progress.csv, see `record`


class EvaluationReport(NamedTuple):
    """From the evaluator: what a policy brought."""

    step: int  # environment steps when its weights were taken
    update: int  # the update that had made them
    evaluation: Evaluation  # of the first round
    confirmation: Evaluation | None  # of the second round; None if the policy isn't the best so far
    solved: bool


class Saved(NamedTuple):
    """From the learner: a checkpoint is on the disk, or why it isn't."""

    step: int
    error: str | None


class Note(NamedTuple):
    """From anybody: a line for the reader."""

    text: str


@dataclass(frozen=True)
class Failure:
    """The last words of a process whose Python code failed."""

    traceback: str


Message = Episodes | Progress | EvaluationReport | Saved | Note | Failure
