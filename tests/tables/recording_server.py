"""A server of dicts and lists: it holds writers to what a message says, and keeps items as plain values."""

from types import SimpleNamespace

import numpy as np

from replay_tutorial.buffers.fields import Fields
from replay_tutorial.tables.core.writer_state import UnknownWriter


class RecordingServer:
    def __init__(self, columns):
        self.fields = Fields(columns)
        self.items = []  # (table, priority, {part: values})
        self.messages = []
        self.writers = []
        self.room = None  # items that may still come in; None: any number

    def _open_writer(self):
        self.writers.append(SimpleNamespace(message=None, values={}, keep_from=0))
        return self.writers[-1]

    def _insert(self, writer, message, timeout=None):
        """Take in a message as `Server._insert` does; items beyond `room` time out."""
        self.messages.append(message)
        if any(new.priorities is not None and not (new.priorities >= 0).all() for new in message.items):
            raise ValueError("a priority that no table takes")
        if writer not in self.writers:
            raise UnknownWriter
        if message is not writer.message:
            self.begin(writer, message)
        items = [(new, i) for new in message.items for i in range(len(new.steps))]
        while len(writer.keys) < len(items):
            if self.room == 0:
                raise TimeoutError
            if self.room is not None:
                self.room -= 1
            self.items.append(self.item(writer, *items[len(writer.keys)]))
            writer.keys.append(len(self.items))
        writer.keep_from = message.keep_from
        for key in [key for key in writer.values if key[1] < message.keep_from]:
            del writer.values[key]
        return writer.keys

    def begin(self, writer, message):
        """Store the values."""
        assert message.keep_from >= writer.keep_from
        for column, first_step, values in message.slices:
            field = self.fields.fields[column]
            assert values.dtype == field.dtype and values.shape[1:] == field.shape and len(values)
            for i, value in enumerate(values):
                assert (column, first_step + i) not in writer.values, "a value that was sent before"
                assert first_step + i >= writer.keep_from, "a step that was to be named no more"
                writer.values[column, first_step + i] = value.copy()
        writer.message, writer.keys = message, []

    def item(self, writer, new, number):
        assert new.steps.dtype == np.int64
        steps = new.steps[number].tolist()
        parts = {}
        for name, column, length, squeezed in new.layout:
            values = [writer.values[column, step] for step in steps[:length]]
            del steps[:length]
            parts[name] = values[0] if squeezed else np.stack(values)
        assert not steps
        return new.table, None if new.priorities is None else new.priorities[number].item(), parts

    def _close_writer(self, writer):
        if writer in self.writers:
            self.writers.remove(writer)
