"""Named tables of trajectories with Reverb's semantics, in this process or in a server process.

A *step* is stored once, in *cells*: one for each *column* in which it has a value. An *item* is a list of
cells with a unique *key* and a priority. A *table* is a set of items. Its two *selectors* decide what is
sampled and what is evicted; its *rate limiter* decides when inserts and samples have to wait. A `Server`
holds the tables and the cells.

`server` contains all operations, and `core` the parts of a server. `remote` gives other processes access to a
server, and `command` starts one. `writing`, `dataset` and `client` use a server in this process or in another
one.

Source: Reverb (Cassirer et al. 2021).
"""

from typing import TYPE_CHECKING, Any

from replay_tutorial.tables.client import Client
from replay_tutorial.tables.core import rate_limiters, selectors
from replay_tutorial.tables.core.cells import CapacityError
from replay_tutorial.tables.core.hooks import Hook, InsertOnSample
from replay_tutorial.tables.core.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.core.results import (
    ItemInfo,
    Sample,
    SampledItem,
    SampleInfo,
    TableInfo,
    importance_weights,
)
from replay_tutorial.tables.core.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Uniform
from replay_tutorial.tables.core.table import Table
from replay_tutorial.tables.core.waiting import Cancelled, Closed, ServerLost
from replay_tutorial.tables.core.writer_state import UnknownWriter
from replay_tutorial.tables.dataset import TimestepDataset, Timesteps, TrajectoryDataset, as_torch
from replay_tutorial.tables.server import Server
from replay_tutorial.tables.writing.patterns import Pattern, StepState, StructuredWriter, reference, td_error
from replay_tutorial.tables.writing.writer import TrajectoryWriter

if TYPE_CHECKING:
    from replay_tutorial.tables.remote.endpoint import Endpoint
    from replay_tutorial.tables.remote.handle import RemoteServer

__all__ = [
    "Cancelled",
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


def __getattr__(name: str) -> Any:
    """Import `Endpoint` and `RemoteServer` at first use, because only they need further packages."""
    if name not in ("Endpoint", "RemoteServer"):
        raise AttributeError(f"The module {__name__!r} has no attribute {name!r}.")
    try:
        from replay_tutorial.tables.remote import endpoint, handle
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} needs the package {error.name}: pip install 'replay_tutorial[tables]'."
        ) from None
    return endpoint.Endpoint if name == "Endpoint" else handle.RemoteServer
