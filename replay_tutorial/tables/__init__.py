"""Named tables of trajectories, as Reverb has them, in one process with threads.

A *step* is stored once, in *cells*: one for each *column* that it has a value for. An *item* is a list of
cells under a *key* that is never used again. A *table* is a set of items, with two *selectors* (who is
sampled next, who is evicted next) and a limiter of how often its items are sampled. One `Server` holds the
tables and the cells; whoever writes hands it a `Message`.
"""

from replay_tutorial.tables import rate_limiters, selectors
from replay_tutorial.tables.cells import CapacityError
from replay_tutorial.tables.client import Client
from replay_tutorial.tables.dataset import TrajectoryDataset, as_torch
from replay_tutorial.tables.endpoint import Endpoint
from replay_tutorial.tables.hooks import Hook, InsertOnSample
from replay_tutorial.tables.message import UnknownWriter
from replay_tutorial.tables.patterns import Pattern, StepState, reference, td_error
from replay_tutorial.tables.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.remote_server import RemoteServer, ServerLost
from replay_tutorial.tables.sampled import (
    ItemInfo,
    Sample,
    SampledItem,
    SampleInfo,
    TableInfo,
    importance_weights,
)
from replay_tutorial.tables.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.structured_writer import StructuredWriter
from replay_tutorial.tables.table import Table
from replay_tutorial.tables.timesteps import TimestepDataset, Timesteps
from replay_tutorial.tables.waiting import Closed
from replay_tutorial.tables.writer import TrajectoryWriter

__all__ = [
    "CapacityError",
    "Client",
    "Closed",
    "Endpoint",
    "Fifo",
    "Hook",
    "InsertOnSample",
    "ItemInfo",
    "Lifo",
    "MaxHeap",
    "MinHeap",
    "MinSize",
    "Pattern",
    "Prioritized",
    "Queue",
    "RateLimiter",
    "RemoteServer",
    "Sample",
    "SampleInfo",
    "SampleToInsertRatio",
    "SampledItem",
    "Server",
    "ServerLost",
    "Stack",
    "StepState",
    "StructuredWriter",
    "Table",
    "TableInfo",
    "TimestepDataset",
    "Timesteps",
    "TrajectoryDataset",
    "TrajectoryWriter",
    "Uniform",
    "UnknownWriter",
    "as_torch",
    "importance_weights",
    "rate_limiters",
    "reference",
    "selectors",
    "td_error",
]
