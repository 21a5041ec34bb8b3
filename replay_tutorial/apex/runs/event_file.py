"""TensorBoard event files, written without buffering.

TensorBoard's own writer uses a thread that prints a traceback if the disk is full, and doesn't report which
file it could not write. Here, one event holds all values of a record, and errors name the file. Only scalars
are supported, and one chart that shows several of them.
"""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false
# (TensorBoard has no annotations, and only this file uses it; its messages are generated at import)

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar.metadata import CONFIG_SUMMARY_TAG, create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from replay_tutorial.buffers.runtime.atomic_file import with_path


class EventFile:
    """One event file; TensorBoard shows all event files of a folder as one run.

    In a resumed run, TensorBoard discards the values of earlier files from `first_step` on. If the file can't
    be written, the constructor and the methods raise OSError.
    """

    def __init__(self, folder: Path, first_step: int | None = None) -> None:
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self.file = (folder / name).open("ab", buffering=0)
        self._writer = RecordWriter(self.file)
        self._write(file_version="brain.Event:2")
        if first_step is not None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(step=first_step, session_log=start)

    def add(self, step: int, values: Mapping[str, float | None]) -> None:
        """Write a step's values, keyed by name; None values are omitted."""
        known = {name: value for name, value in values.items() if value is not None}
        scalars = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in known.items()]
        self._write(step=step, summary=summary_pb2.Summary(value=scalars))

    def set_chart(self, title: str, names: Sequence[str]) -> None:
        """Show several scalars in one chart on TensorBoard's tab Custom Scalars; call it at most once.

        The chart contains the scalars whose names begin with one of `names`, which are regular expressions.
        """
        lines = layout_pb2.MultilineChartContent(tag=names)
        category = layout_pb2.Category(title=title, chart=[layout_pb2.Chart(title=title, multiline=lines)])
        layout = layout_pb2.Layout(category=[category]).SerializeToString()
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[layout])
        value = {"tag": CONFIG_SUMMARY_TAG, "metadata": create_summary_metadata(), "tensor": tensor}
        self._write(summary=summary_pb2.Summary(value=[summary_pb2.Summary.Value(**value)]))

    def _write(self, **contents: Any) -> None:
        event: Any = event_pb2.Event(wall_time=time.time(), **contents)
        try:
            self._writer.write(event.SerializeToString())
        except OSError as error:
            self.file.close()
            raise with_path(error, Path(self.file.name)) from error
