"""Chunks: the rows of one call, as one record array in which each frame is stored once.

A remote call has a fixed cost, plus a cost for each further array. So all fields of all rows are in one array
of records. An observation of stacked images shares most images with the previous row; each frame is sent
once, and rows refer to frames by number. An Atari row then takes 7.9 kB instead of 56.5 kB.

    rows, priorities ── pack ──▶ Chunk(records, frames) ── network ──▶ unpack ──▶ rows, priorities

Chunks aren't compressed, and a frame is sent again in the next chunk that needs it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.storage import frame_options, n_step_windows
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.images.frame_layout import FrameLayout, frame_layouts, with_numbers
from replay_tutorial.buffers.images.frame_search import empty_index, number_in_log

PRIORITIES = "priorities"  # the record field that contains the priorities
NO_FRAMES = np.empty((0, 0), np.uint8)


class Chunk(NamedTuple):
    """Rows on their way to the replay; read-only once received."""

    records: NDArray[np.void]  # [rows]: the fields of the rows, and the priorities
    frames: NDArray[np.uint8]  # [frames, bytes of a frame]; records refer to them by number

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.records.nbytes + self.frames.nbytes


class ChunkFormat:
    """Packs and unpacks the rows of a run; actor and gateway must use the same settings."""

    def __init__(self, config: Config, spaces: Spaces) -> None:
        fields = Fields(n_step_windows(config, spaces).fields)
        options = frame_options(spaces)
        layouts = frame_layouts(fields, **options) if options else []
        self.layout: FrameLayout | None = layouts[0] if layouts else None
        self._room: dict[str, NDArray[Any]] = {}  # reused for the observations of each chunk
        priorities = {PRIORITIES: {"dtype": np.float32}}
        self.dtype = Fields({**with_numbers(fields, layouts).specs, **priorities}).dtype

    def pack(self, rows: Mapping[str, NDArray[Any]], priorities: NDArray[np.float32]) -> Chunk:
        """Copy rows, field → array [rows, ...], and their priorities, float32[rows], into a chunk."""
        columns, frames = {**rows, PRIORITIES: priorities}, NO_FRAMES
        if self.layout is not None:
            numbers, frames = self._number(self.layout, rows)
            columns |= numbers
        records = np.empty(len(priorities), self.dtype)
        for name in records.dtype.names or ():
            records[name] = columns[name]
        return Chunk(records, frames)

    def unpack(self, chunk: Chunk) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
        """Return the rows and priorities of a chunk; images are valid until the next call.

        Raise ValueError if the chunk has another format, or refers to a frame that it doesn't contain.
        """
        records, frames = chunk
        if records.dtype != self.dtype or records.ndim != 1:
            raise ValueError(
                f"received records of {records.dtype}{records.shape}; expected a vector of {self.dtype}. "
                "Actors and learner must have the same settings."
            )
        rows = {name: records[name] for name in self.dtype.names or ()}
        priorities = rows.pop(PRIORITIES)
        if self.layout is not None:
            if frames.dtype != np.uint8 or frames.shape[1:] != (self.layout.frame_bytes,):
                raise ValueError(
                    f"received frames of {frames.dtype}{frames.shape[1:]}; those of "
                    f"{self.layout.field.name!r} are uint8({self.layout.frame_bytes},). Actors and learner "
                    "must have the same settings."
                )
            for name in self.layout.names:
                rows[name] = self._observations(self.layout, name, rows[name], frames)
        return rows, priorities

    def _number(
        self, layout: FrameLayout, rows: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.uint8]]:
        """Return the frame numbers of each observation, and the distinct frames."""
        observations, following = (layout.split(rows[name]) for name in layout.names)
        numbers = np.empty((len(observations), layout.frames_per_row), np.int64)
        log = np.empty((numbers.size, layout.frame_bytes), np.uint8)  # pages not written take no memory
        ends = np.zeros(2, np.int64)
        number_in_log((log, ends, len(log), *empty_index()), observations, following, 0, numbers)
        return layout.numbers_by_name(numbers), log[: ends[1]].copy()

    def _observations(
        self, layout: FrameLayout, name: str, numbers: NDArray[np.int64], frames: NDArray[np.uint8]
    ) -> NDArray[Any]:
        """Return observations assembled from their frames, [rows, ...]."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(frames):
            raise ValueError(
                f"rows refer to frames {numbers.min()} to {numbers.max()}, "
                f"but the chunk has {len(frames)} frames."
            )
        room = self._room.get(name)
        if room is None or len(room) < len(numbers):  # allocating for each chunk would dominate the cost
            room = self._room[name] = np.empty((len(numbers), *layout.field.shape), layout.field.dtype)
        observations = room[: len(numbers)]
        layout.take(frames, np.ascontiguousarray(numbers), observations)
        return observations
