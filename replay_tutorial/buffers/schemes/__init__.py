"""Schemes: other distributions than a buffer's own, and mixtures of several buffers."""

from replay_tutorial.buffers.schemes.rank_based import RankBased
from replay_tutorial.buffers.schemes.scheme import (
    Combined,
    Distribution,
    Drawn,
    Geometric,
    Proportional,
    Reverse,
    Scheme,
    StoredRows,
    Uniform,
    check_scheme,
)

__all__ = [
    "Combined",
    "Distribution",
    "Drawn",
    "Geometric",
    "Proportional",
    "RankBased",
    "Reverse",
    "Scheme",
    "StoredRows",
    "Uniform",
    "check_scheme",
]
