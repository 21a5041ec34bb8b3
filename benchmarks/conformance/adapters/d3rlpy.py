"""d3rlpy: steps are appended one by one; `clip_episode` ends an episode, and takes no final observation."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotOffered, Row, ids, rows
from benchmarks.conformance.world import LENGTHS, Id, Step

dataset: Any = import_module("d3rlpy.dataset")
constants: Any = import_module("d3rlpy.constants")
logger: Any = import_module("d3rlpy.logging").LOG
PLACE = (3,)
AT_TRUNCATIONS = "n_step_truncated", "n_step_tails", "stored_once_truncated", "next_stack_truncated"
NO_LAST_STEP = "takes no final observation: the last step of a truncated episode is not a row"


class _Rows(Buffer):
    """A buffer of the steps of one environment; those of episodes of one step are only added with `short`."""

    def __init__(self, capacity: int, gamma: float = 1.0, length: int = 0, short: bool = False, **parts: Any):
        frames = (1, *PLACE) if "writer_preprocessor" in parts else PLACE
        self.gamma, self.length, self.short, self.framed = gamma, length, short, len(frames) > 1
        number = dataset.Signature(dtype=[np.dtype(np.float32)], shape=[(1,)])
        self.buffer = dataset.ReplayBuffer(
            dataset.FIFOBuffer(capacity),
            observation_signature=dataset.Signature(dtype=[np.dtype(np.float32)], shape=[frames]),
            action_signature=number,
            reward_signature=number,
            action_space=constants.ActionSpace.CONTINUOUS,
            action_size=1,
            **parts,
        )

    def add(self, tick: Sequence[Step]) -> None:
        (step,) = tick
        if self.short or LENGTHS[step.environment, step.episode] > 1:
            obs = np.array([step.obs] if self.framed else step.obs, np.float32)
            self.buffer.append(obs, np.zeros(1, np.float32), step.reward)
            if step.ended:
                self.buffer.clip_episode(step.terminated)

    def sample(self, count: int) -> list[Row]:
        if self.buffer.transition_count == 0:
            return []
        batch = self.buffer.sample_transition_batch(count)
        obs, following = (part.reshape(count, -1) for part in (batch.observations, batch.next_observations))
        return rows(obs, following, batch.rewards, self.gamma**batch.intervals * (1 - batch.terminals))

    def windows(self, count: int) -> list[list[Id]]:
        batch = self.buffer.sample_trajectory_batch(count, self.length)
        return [ids(obs[mask > 0]) for obs, mask in zip(batch.observations, batch.masks, strict=True)]


class _Environments(Buffer):
    """A buffer for each environment, whose windows are padded in front and masked."""

    def __init__(self, buffers: list[_Rows]) -> None:
        self.buffers = buffers

    def add(self, tick: Sequence[Step]) -> None:
        for buffer, step in zip(self.buffers, tick, strict=True):
            buffer.add([step])

    def windows(self, count: int) -> list[list[Id]]:
        return [window for buffer in self.buffers for window in buffer.windows(count)]


class _D3rlpy(Library):
    """Takuma Seno's library."""

    distributions = ("d3rlpy", "torch")
    without = dict.fromkeys(AT_TRUNCATIONS, NO_LAST_STEP)

    def uniform(self, capacity: int, environments: int = 1) -> Buffer:
        raise NotOffered("stores each observation once, so that the newest step is not a row yet")

    def stored_once(self, capacity: int, truncation: bool) -> Buffer:
        return _Rows(capacity, short=True)

    def n_step(self, capacity: int, n: int, gamma: float, environments: int = 1) -> Buffer:
        if environments > 1:
            raise NotOffered("a buffer contains the steps of one environment")
        return _Rows(capacity, gamma, transition_picker=dataset.MultiStepTransitionPicker(n, gamma))

    def stacked(self, capacity: int, frames: int) -> Buffer:
        picker, writer = dataset.FrameStackTransitionPicker(frames), dataset.LastFrameWriterPreprocess()
        return _Rows(capacity, transition_picker=picker, writer_preprocessor=writer)

    def sequences(self, capacity: int, length: int, environments: int, padded: bool) -> Buffer:
        if not padded:
            raise NotOffered("every window is padded at the beginning of an episode")
        return _Environments([_Rows(capacity, length=length) for _ in range(environments)])


def ignore(*_: Any, **_values: Any) -> None:
    """Log nothing."""


logger.info = ignore  # it logs every new buffer
library = _D3rlpy()
