"""The calls that the buffers of cpprb and ours have in common."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Row, rows
from benchmarks.conformance.world import Step


class Rows(Buffer):
    """A buffer with one row per step.

    `fields` returns the fields of a step, and `discount` the factor of the next observation's value for each
    row of a batch. `parts` are further arguments of the buffer's `sample`.
    """

    def __init__(
        self, buffer: Any, fields: Callable[[Step], Any], discount: Callable[[Any], Any], **parts: Any
    ) -> None:
        self.buffer, self.fields, self.discount, self.parts = buffer, fields, discount, parts

    def add(self, tick: Sequence[Step]) -> None:
        """Add the steps one by one."""
        for step in tick:
            self.add_fields(step, self.fields(step))

    def add_fields(self, step: Step, fields: Any) -> None:
        """Add one row."""
        self.buffer.add(**fields)
        if step.ended:
            end = getattr(self.buffer, "end_episode", None) or self.buffer.on_episode_end
            end()

    def sample(self, count: int) -> list[Row]:
        """Sample rows, with their indexes, weights and goals."""
        batch = self.buffer.sample(count, **self.parts)
        named = {"handle": batch.get("indexes"), "weight": batch.get("weights"), "goal": batch.get("goal")}
        return rows(batch["obs"], batch["next_obs"], batch["rew"], self.discount(batch), **named)

    def update(self, handles: Sequence[int], priorities: Sequence[float]) -> None:
        """Update priorities by index."""
        self.buffer.update_priorities(handles, priorities)


class Stacks(Rows):
    """Stacks of frames along the last axis; the first frame of an episode fills its first stack."""

    def add(self, tick: Sequence[Step]) -> None:
        """Add a step with the stacks before and after it."""
        (step,) = tick
        if step.step == 0:
            self.stack = np.stack([step.obs] * self.parts["frames"], axis=1)
        following = np.concatenate([self.stack[:, 1:], np.reshape(step.next_obs, (3, 1))], axis=1)
        self.add_fields(step, self.fields(step) | {"obs": self.stack, "next_obs": following})
        self.stack = following

    def sample(self, count: int) -> list[Row]:
        """Sample rows; the frames of a stack follow each other, the oldest first."""
        batch = self.buffer.sample(count)
        stacks = [batch[name].transpose(0, 2, 1).reshape(count, -1) for name in ("obs", "next_obs")]
        return rows(stacks[0], stacks[1], batch["rew"], self.discount(batch))
