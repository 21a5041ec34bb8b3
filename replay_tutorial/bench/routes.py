"""Routes by which rows come from explorers to a learner, made alike so that they can be measured alike.

Explorers call `add` with a chunk of rows, the learner calls `step`, which samples a batch and gives it new
priorities. Ours and cpprb are used as they are; the same shared ring under one full lock shows what the
lock costs; a queue and a manager's proxy are what the standard library has.

Left out: routes that cross machines.
"""

import importlib
import multiprocessing
import queue
import threading
from collections.abc import Callable, Mapping
from multiprocessing.managers import BaseManager
from typing import Any

import numpy as np

from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
from replay_tutorial.measuring.timing import FloatArray

# field → shape; float32, 44 bytes per row
FIELDS = {"obs": 4, "act": 1, "rew": 1, "next_obs": 4, "done": 1}
CHUNK, BATCH = 100, 64
QUEUE_CHUNKS = 64  # that may wait in the queue
CHUNKS_PER_STEP = 16  # that the learner takes out of it before a step, at most

Chunk = Mapping[str, Any]
context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)


def env_dict() -> dict[str, Any]:
    """Return the fields; new on every call, because cpprb writes into its argument."""
    return {name: {"shape": shape} for name, shape in FIELDS.items()}


def random_chunk(rng: np.random.Generator, count: int = CHUNK) -> dict[str, Any]:
    """Draw rows with their priorities."""
    rows = {name: rng.random((count, shape), dtype=np.float32) for name, shape in FIELDS.items()}
    return rows | {"priorities": rng.exponential(size=count).astype(np.float32)}


class Route:
    """How rows come from explorers to a learner: here by a buffer that all processes use directly."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def add(self, chunk: Chunk) -> None:
        """Hand a chunk over; called by explorers."""
        self.buffer.add(**chunk)

    def step(self, priorities: FloatArray) -> None:
        """Sample a batch and update its priorities; called by the learner."""
        self.buffer.update_priorities(self.buffer.sample(BATCH)["indexes"], priorities)


class Locked:
    """A buffer whose calls wait for one lock."""

    def __init__(self, buffer: Any, lock: Any) -> None:
        self.buffer, self.lock = buffer, lock

    def add(self, **chunk: Any) -> None:
        """Add rows as the only caller."""
        with self.lock:
            self.buffer.add(**chunk)

    def sample(self, batch_size: int) -> dict[str, Any]:
        """Draw rows as the only caller."""
        with self.lock:
            return self.buffer.sample(batch_size)

    def update_priorities(self, indexes: Any, priorities: Any) -> None:
        """Set priorities as the only caller."""
        with self.lock:
            self.buffer.update_priorities(indexes, priorities)


class Queued(Route):
    """The learner's own buffer; chunks reach it by a queue."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self.owner = multiprocessing.current_process().pid
        self.chunks: Any = context.Queue(QUEUE_CHUNKS)

    def add(self, chunk: Chunk) -> None:
        """Put a chunk into the queue; the learner itself fills its buffer."""
        if multiprocessing.current_process().pid == self.owner:
            self.buffer.add(**chunk)
        else:
            self.chunks.put(chunk)

    def step(self, priorities: FloatArray) -> None:
        """Take the chunks that wait, then sample and update."""
        for _ in range(CHUNKS_PER_STEP):
            try:
                self.buffer.add(**self.chunks.get_nowait())
            except queue.Empty:
                break
        super().step(priorities)


class Managed(Route):
    """A proxy of a buffer in a manager's process, which serves each client in a thread of its own."""

    def __init__(self, capacity: int) -> None:
        self.manager: Any = BufferManager(ctx=context)  # lives as long as the proxy
        self.manager.start()
        super().__init__(self.manager.buffer(capacity))


def single(capacity: int) -> PrioritizedReplayBuffer:
    """Return our buffer of one process."""
    return PrioritizedReplayBuffer(capacity, env_dict())


def shared(capacity: int, package: str = "replay_tutorial") -> Any:
    """Return a package's buffer of many processes, which has the same name in cpprb as in ours."""
    return importlib.import_module(package).MPPrioritizedReplayBuffer(capacity, env_dict())


class BufferManager(BaseManager):
    """Serves a buffer under a lock."""


def guarded(capacity: int) -> Locked:
    """Return our buffer of one process for the threads of a manager."""
    return Locked(single(capacity), threading.Lock())


BufferManager.register("buffer", guarded)

ROUTES: dict[str, Callable[[int], Route]] = {
    OURS: lambda capacity: Route(shared(capacity)),
    "cpprb": lambda capacity: Route(shared(capacity, "cpprb")),
    "full lock": lambda capacity: Route(Locked(shared(capacity), context.Lock())),
    "Queue": lambda capacity: Queued(single(capacity)),
    "Manager": Managed,
}
