"""Routes from explorers to a learner, behind one interface.

Explorers call `add` with a chunk of rows; the learner calls `step`, which samples a batch and updates its
priorities. The routes are our shared buffer, cpprb's, ours under a single lock (to show what the lock costs),
a `multiprocessing.Queue` and a `multiprocessing` manager. All processes run on one machine.
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
QUEUE_CHUNKS = 64  # maximum length of the queue
CHUNKS_PER_STEP = 16  # maximum number of chunks that the learner moves to its buffer before a step

Chunk = Mapping[str, Any]
context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)


def env_dict() -> dict[str, Any]:
    """Return the fields as an `env_dict`; a new one in every call, because cpprb modifies its argument."""
    return {name: {"shape": shape} for name, shape in FIELDS.items()}


def random_chunk(rng: np.random.Generator) -> dict[str, Any]:
    """Return random rows with priorities."""
    rows = {name: rng.random((CHUNK, shape), dtype=np.float32) for name, shape in FIELDS.items()}
    return rows | {"priorities": rng.exponential(size=CHUNK).astype(np.float32)}


class Route:
    """A route from explorers to a learner; the base class uses one buffer shared by all processes."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def add(self, chunk: Chunk) -> None:
        """Add a chunk; called by explorers."""
        self.buffer.add(**chunk)

    def step(self, priorities: FloatArray) -> None:
        """Sample a batch and update its priorities; called by the learner."""
        self.buffer.update_priorities(self.buffer.sample(BATCH)["indexes"], priorities)


class Locked:
    """A buffer whose calls hold a lock."""

    def __init__(self, buffer: Any, lock: Any) -> None:
        self.buffer, self.lock = buffer, lock

    def add(self, **chunk: Any) -> None:
        """Add rows under the lock."""
        with self.lock:
            self.buffer.add(**chunk)

    def sample(self, batch_size: int) -> dict[str, Any]:
        """Sample rows under the lock."""
        with self.lock:
            return self.buffer.sample(batch_size)

    def update_priorities(self, indexes: Any, priorities: Any) -> None:
        """Update priorities under the lock."""
        with self.lock:
            self.buffer.update_priorities(indexes, priorities)


class Queued(Route):
    """A private buffer of the learner; explorers send chunks through a queue."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self.owner = multiprocessing.current_process().pid
        self.chunks: Any = context.Queue(QUEUE_CHUNKS)

    def add(self, chunk: Chunk) -> None:
        """Put a chunk into the queue, or add it directly in the learner's process."""
        if multiprocessing.current_process().pid == self.owner:
            self.buffer.add(**chunk)
        else:
            self.chunks.put(chunk)

    def step(self, priorities: FloatArray) -> None:
        """Add up to `CHUNKS_PER_STEP` queued chunks, then sample and update."""
        for _ in range(CHUNKS_PER_STEP):
            try:
                self.buffer.add(**self.chunks.get_nowait())
            except queue.Empty:
                break
        super().step(priorities)


class Managed(Route):
    """A proxy of a buffer in a manager process, which serves each client in a separate thread."""

    def __init__(self, capacity: int) -> None:
        self.manager: Any = BufferManager(ctx=context)  # kept alive for the proxy
        self.manager.start()
        super().__init__(self.manager.buffer(capacity))


def single(capacity: int) -> PrioritizedReplayBuffer:
    """Return our single-process buffer."""
    return PrioritizedReplayBuffer(capacity, env_dict())


def shared(capacity: int, package: str = "replay_tutorial") -> Any:
    """Return the multi-process buffer of a package; ours and cpprb's have the same name."""
    return importlib.import_module(package).MPPrioritizedReplayBuffer(capacity, env_dict())


class BufferManager(BaseManager):
    """A manager that serves a buffer under a lock."""


def guarded(capacity: int) -> Locked:
    """Return our single-process buffer under a lock, for the threads of a manager."""
    return Locked(single(capacity), threading.Lock())


BufferManager.register("buffer", guarded)

ROUTES: dict[str, Callable[[int], Route]] = {
    OURS: lambda capacity: Route(shared(capacity)),
    "cpprb": lambda capacity: Route(shared(capacity, "cpprb")),
    "full lock": lambda capacity: Route(Locked(shared(capacity), context.Lock())),
    "Queue": lambda capacity: Queued(single(capacity)),
    "Manager": Managed,
}
