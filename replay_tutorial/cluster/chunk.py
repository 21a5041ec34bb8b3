"""Chunks: rows as they travel, in one record array, with every frame once.

A remote call costs the same whether it carries one array or none, and more for each further array. So the
fields of all rows lie side by side in one array of records. An observation of images is mostly the images of
the row before it; here, too, each is sent once and rows hold numbers: 7.9 kB for a row of Atari, not 56.5.

    rows, priorities ── pack ──▶ Chunk(records, frames) ── network ──▶ unpack ──▶ rows, priorities

Left out: compression; a frame that an earlier chunk has brought.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.storage import frame_options, n_step_windows
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.frame_layout import FrameLayout, frame_layouts, with_numbers
from replay_tutorial.buffers.frame_search import empty_index, number_in_log

PRIORITIES = "priorities"  # the field of a record that holds them
NO_FRAMES = np.empty((0, 0), np.uint8)


class Chunk(NamedTuple):
    """Some rows on their way; what arrives is read-only."""

    records: NDArray[np.void]  # [rows], the fields of the rows, and their priorities
    frames: NDArray[np.uint8]  # [frames, bytes of a frame], named by numbers in the records

    @property
    def nbytes(self) -> int:
        """Bytes on the wire, apart from the call's own."""
        return self.records.nbytes + self.frames.nbytes


class ChunkFormat:
    """Packs and unpacks the rows of a run; both ends make one from the same settings.

    Args:
        config: Of the run.
        spaces: Of its environment.
    """

    def __init__(self, config: Config, spaces: Spaces) -> None:
        fields = Fields(n_step_windows(config, spaces).env_dict)
        options = frame_options(spaces)
        layouts = frame_layouts(fields, **options) if options else []
        self.layout: FrameLayout | None = layouts[0] if layouts else None
        self._room: dict[str, NDArray[Any]] = {}  # for the observations of a chunk
        priorities = {PRIORITIES: {"shape": (), "dtype": np.float32}}
        self.dtype = Fields({**with_numbers(fields, layouts).env_dict, **priorities}).dtype

    def pack(self, rows: Mapping[str, NDArray[Any]], priorities: NDArray[np.float32]) -> Chunk:
        """Copy rows, field → [rows, ...], and their first priorities, float32[rows], into a chunk."""
        columns, frames = {**rows, PRIORITIES: priorities}, NO_FRAMES
        if self.layout is not None:
            numbers, frames = self._number(self.layout, rows)
            columns |= numbers
        records = np.empty(len(priorities), self.dtype)
        for name in records.dtype.names or ():
            records[name] = columns[name]
        return Chunk(records, frames)

    def unpack(self, chunk: Chunk) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
        """Return what was packed. Images are valid until the next call: their memory is used again.

        Raises:
            ValueError: If the chunk is of another run's format, or names a frame that it doesn't have.
        """
        records, frames = chunk
        if records.dtype != self.dtype or records.ndim != 1:
            raise ValueError(
                f"a chunk of {records.dtype}{records.shape} came; rows here are {self.dtype}: both ends need "
                "the settings of one run."
            )
        rows = {name: records[name] for name in self.dtype.names or ()}
        priorities = rows.pop(PRIORITIES)
        if self.layout is not None:
            if frames.dtype != np.uint8 or frames.shape[1:] != (self.layout.frame_bytes,):
                raise ValueError(
                    f"frames of {frames.dtype}{frames.shape[1:]} came; one of {self.layout.field.name!r} "
                    f"is uint8({self.layout.frame_bytes},): both ends need the settings of one run."
                )
            for name in self.layout.names:
                rows[name] = self._observations(self.layout, name, rows[name], frames)
        return rows, priorities

    def _number(
        self, layout: FrameLayout, rows: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.uint8]]:
        """Return the numbers of each observation's frames, and the frames."""
        observations, following = (layout.split(rows[name]) for name in layout.names)
        numbers = np.empty((len(observations), layout.frames_per_row), np.int64)
        log = np.empty((numbers.size, layout.frame_bytes), np.uint8)  # pages not written cost nothing
        ends = np.zeros(2, np.int64)
        number_in_log((log, ends, len(log), *empty_index()), observations, following, 0, numbers)
        return layout.numbers_by_name(numbers), log[: ends[1]].copy()

    def _observations(
        self, layout: FrameLayout, name: str, numbers: NDArray[np.int64], frames: NDArray[np.uint8]
    ) -> NDArray[Any]:
        """Put observations together, [rows, ...]."""
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(frames):
            raise ValueError(f"a row names frame {numbers.max()} or {numbers.min()} of {len(frames)}.")
        room = self._room.get(name)
        if room is None or len(room) < len(numbers):  # new pages for each chunk would cost more than the rest
            room = self._room[name] = np.empty((len(numbers), *layout.field.shape), layout.field.dtype)
        observations = room[: len(numbers)]
        layout.take(frames, np.ascontiguousarray(numbers), observations)
        return observations
