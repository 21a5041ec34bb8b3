"""Reverb: one item per row, inserted with priority 1; windows are items of a `TrajectoryWriter`."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotChecked, NotOffered, Row, ids, rows
from benchmarks.conformance.world import Id, Step

reverb: Any = import_module("reverb")
TABLE = "table"


class _Rows(Buffer):
    """A server with one table, and its client. Weights are 1 / probability, as β is 1."""

    def __init__(self, capacity: int, sampler: Any) -> None:
        limiter, remover = reverb.rate_limiters.MinSize(1), reverb.selectors.Fifo()
        table = reverb.Table(TABLE, sampler, remover, capacity, limiter)
        self.server = reverb.Server([table])
        self.client = reverb.Client(f"localhost:{self.server.port}")

    def add(self, tick: Sequence[Step]) -> None:
        for step in tick:
            numbers = np.array([step.reward, step.terminated], np.float32)
            self.client.insert([np.array(step.obs), np.array(step.next_obs), numbers], {TABLE: 1.0})

    def sample(self, count: int) -> list[Row]:
        drawn = [sample[0] for sample in self.client.sample(TABLE, count)]
        obs, following, numbers = (np.stack([item.data[i] for item in drawn]) for i in range(3))
        handle = np.array([item.info.key for item in drawn], np.uint64)
        weight = np.array([1 / item.info.probability for item in drawn])
        return rows(obs, following, numbers[:, 0], 1 - numbers[:, 1], handle=handle, weight=weight)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        self.client.mutate_priorities(TABLE, updates=dict(zip(handles, priorities, strict=True)))


class _Windows(_Rows):
    """A table of windows, with a writer for each environment."""

    def __init__(self, capacity: int, length: int, environments: int) -> None:
        super().__init__(capacity, reverb.selectors.Uniform())
        self.length = length
        self.writers = [self.client.trajectory_writer(length) for _ in range(environments)]

    def add(self, tick: Sequence[Step]) -> None:
        for step, writer in zip(tick, self.writers, strict=True):
            writer.append({"obs": np.array(step.obs)})
            if step.step + 1 >= self.length:
                writer.create_item(TABLE, 1.0, {"obs": writer.history["obs"][-self.length :]})
            if step.ended:
                writer.end_episode()
            writer.flush()

    def windows(self, count: int) -> list[list[Id]]:
        drawn = self.client.sample(TABLE, count, emit_timesteps=False)
        return [ids(sample.data[0]) for sample in drawn]


class _Reverb(Library):
    """DeepMind's server of experience."""

    distributions = ("dm-reverb",)

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        return _Rows(capacity, reverb.selectors.Uniform())

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        raise NotOffered("items can share observations, but the caller composes every item")

    def stacked(self, capacity: int, frames: int) -> Buffer:
        raise NotOffered("items can share frames, but the caller composes every item")

    def prioritized(self, capacity: int, alpha: float) -> Buffer:
        return _Rows(capacity, reverb.selectors.Prioritized(alpha))

    def initialized(self, capacity: int) -> Buffer:
        raise NotOffered("the caller passes the priority of every item")

    def protected(self, capacity: int) -> Buffer:
        return self.prioritized(capacity, 1.0)

    def across_processes(self, capacity: int) -> Buffer:
        raise NotChecked("a process that runs a server can't be forked")

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        if padded:
            raise NotOffered("items are not padded")
        return _Windows(capacity, length, environments)

    def restored(self, buffer: Buffer, folder: str) -> Buffer:
        raise NotChecked(
            "draws of a checkpoint can't be compared, because a table's random state can't be set"
        )


library = _Reverb()
