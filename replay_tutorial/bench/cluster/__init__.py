"""Benchmarks and faults of a run on many hosts, all of them on one machine."""

# Before any import of Ray, which reads its settings then.
from replay_tutorial import cluster

__all__ = ["cluster"]
