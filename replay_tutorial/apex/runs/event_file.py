"""Records for TensorBoard: a file of events, each of them written at once.

TensorBoard's own writer has a thread, which prints a traceback if the disk is full, and keeps to itself which
file it could not write. Here one event holds all numbers of a record, and an error names the file.

Left out: everything but numbers.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# (TensorBoard has no annotations: nobody but this file sees them)

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from replay_tutorial.buffers.atomic_file import with_path

messages: Any = event_pb2  # made when it is imported: nobody can know beforehand what is in it
summaries: Any = summary_pb2


class EventFile:
    """One file of events; TensorBoard reads all those of a folder as one run.

    Args:
        folder: Of the run.
        first_step: Of a run that is resumed: what other files say of this step and later ones is forgotten.

    Raises:
        OSError: If it can't be written; so does `add`.
    """

    def __init__(self, folder: Path, first_step: int | None = None) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.file = (folder / name).open("ab", buffering=0)
        self._writer = RecordWriter(self.file)
        self._write(file_version="brain.Event:2")
        if first_step is not None:
            start = messages.SessionLog(status=messages.SessionLog.START)
            self._write(step=first_step, session_log=start)

    def add(self, step: int, values: Mapping[str, float | None]) -> None:
        """Write the numbers of a step, by their names; None is left out."""
        told = [
            summaries.Summary.Value(tag=name, simple_value=value)
            for name, value in values.items()
            if value is not None
        ]
        self._write(step=step, summary=summaries.Summary(value=told))

    def _write(self, **contents: Any) -> None:
        event = messages.Event(wall_time=time.time(), **contents)
        try:
            self._writer.write(event.SerializeToString())
        except OSError as error:
            self.file.close()
            raise with_path(error, Path(self.file.name)) from error
