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
from typing import Any, Protocol

import numpy as np

from replay_tutorial.bench.peers.peer import OURS
from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
from replay_tutorial.measuring.timing import FloatArray
from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer

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


class Route(Protocol):
    """How rows come from explorers to a learner."""

    def add(self, chunk: Chunk) -> None:
        """Hand a chunk over; called by explorers."""
        ...

    def step(self, priorities: FloatArray) -> None:
        """Sample a batch and update its priorities; called by the learner."""
        ...


class Shared:
    """A buffer that all processes use directly: ours, or another of the same calls."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def add(self, chunk: Chunk) -> None:
        self.buffer.add(**chunk)

    def step(self, priorities: FloatArray) -> None:
        self.buffer.update_priorities(self.buffer.sample(BATCH)["indexes"], priorities)


class Locked(Shared):
    """The same under one full lock around every call."""

    def __init__(self, buffer: Any) -> None:
        super().__init__(buffer)
        self.lock = context.Lock()

    def add(self, chunk: Chunk) -> None:
        with self.lock:
            self.buffer.add(**chunk)

    def step(self, priorities: FloatArray) -> None:
        with self.lock:
            indexes = self.buffer.sample(BATCH)["indexes"]
        with self.lock:
            self.buffer.update_priorities(indexes, priorities)


class Queued(Shared):
    """The learner's own buffer; chunks reach it by a queue."""

    def __init__(self, capacity: int) -> None:
        super().__init__(PrioritizedReplayBuffer(capacity, env_dict()))
        self.owner = multiprocessing.current_process().pid
        self.chunks: Any = context.Queue(QUEUE_CHUNKS)

    def add(self, chunk: Chunk) -> None:
        if multiprocessing.current_process().pid == self.owner:
            self.buffer.add(**chunk)
        else:
            self.chunks.put(chunk)

    def step(self, priorities: FloatArray) -> None:
        for _ in range(CHUNKS_PER_STEP):
            try:
                self.buffer.add(**self.chunks.get_nowait())
            except queue.Empty:
                break
        super().step(priorities)


class GuardedBuffer:
    """The buffer in the manager's process, which serves each client in a thread of its own."""

    def __init__(self, capacity: int) -> None:
        self.buffer = PrioritizedReplayBuffer(capacity, env_dict())
        self.lock = threading.Lock()

    def add(self, **chunk: Any) -> None:
        """Do as the buffer does, one call at a time."""
        with self.lock:
            self.buffer.add(**chunk)

    def sample(self, batch_size: int) -> dict[str, Any]:
        """Do as the buffer does, one call at a time."""
        with self.lock:
            return self.buffer.sample(batch_size)

    def update_priorities(self, indexes: Any, priorities: Any) -> None:
        """Do as the buffer does, one call at a time."""
        with self.lock:
            self.buffer.update_priorities(indexes, priorities)


class Managed(Shared):
    """A proxy, and the manager that must live as long."""

    def __init__(self, manager: Any, proxy: Any) -> None:
        super().__init__(proxy)
        self.manager = manager


class BufferManager(BaseManager):
    """Serves a guarded buffer."""


BufferManager.register("GuardedBuffer", GuardedBuffer)


def ours(capacity: int) -> Route:
    """Return our shared buffer."""
    return Shared(MPPrioritizedReplayBuffer(capacity, env_dict()))


def cpprb(capacity: int) -> Route:
    """Return cpprb's shared buffer."""
    return Shared(importlib.import_module("cpprb").MPPrioritizedReplayBuffer(capacity, env_dict()))


def locked(capacity: int) -> Route:
    """Return our shared buffer, under one full lock."""
    return Locked(MPPrioritizedReplayBuffer(capacity, env_dict()))


def queued(capacity: int) -> Route:
    """Return a queue into our single-process buffer."""
    return Queued(capacity)


def managed(capacity: int) -> Route:
    """Return a manager's proxy of our single-process buffer."""
    manager: Any = BufferManager(ctx=context)
    manager.start()
    return Managed(manager, manager.GuardedBuffer(capacity))


ROUTES: dict[str, Callable[[int], Route]] = {
    OURS: ours,
    "cpprb": cpprb,
    "full lock": locked,
    "Queue": queued,
    "Manager": managed,
}
