"""Save and load of the multi-process buffers: all of it comes back, or a refused file changes nothing."""

import zipfile

import numpy as np
import pytest
import shared_rows
from histories import as_bytes
from shared_rows import every_buffer, row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer

impatience = shared_rows.impatience


def filled(buffer_class, rows):
    """A buffer with a history: rows, draws, updates of some priorities."""
    buffer = buffer_class(50, row_fields(), seed=1)
    for first in range(0, rows, 7):
        buffer.add(**rows_of(1, first, min(7, rows - first)))
        if buffer_class is MPPrioritizedReplayBuffer and first % 3 == 0:
            indexes = buffer.sample(5)["indexes"]
            buffer.update_priorities(indexes, np.linspace(0.1, 3.0, 5))
    return buffer


def everything(buffer):
    """All that a buffer tells, its next draws among it."""
    told = [*buffer.statistics()[:5], len(buffer), buffer.next_index, buffer._episode_len()]
    if isinstance(buffer, MPPrioritizedReplayBuffer):
        told.append(buffer.max_priority)
    return told, as_bytes(buffer[:]), as_bytes(buffer.sample(100))


@every_buffer
def test_load_refuses_a_buffer_that_is_in_use_and_leaves_it_as_it_was(buffer_class, tmp_path):
    buffer = filled(buffer_class, 30)
    buffer.save(tmp_path / "buffer")
    other, before = filled(buffer_class, 12), filled(buffer_class, 12)
    with pytest.raises(ValueError, match="12 rows have been added to this one"):
        other.load(tmp_path / "buffer")
    assert everything(other) == everything(before)


@every_buffer
def test_an_index_that_does_not_fit_its_slot_is_refused(buffer_class, tmp_path):
    path, forged = tmp_path / "buffer", tmp_path / "forged"
    filled(buffer_class, 30).save(path)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "indexes.npy":
                data = data[:-8] + np.int64(3).tobytes()  # slot 29 can't hold the index 3
            new.writestr(name, data)
    fresh = buffer_class(50, row_fields())
    with pytest.raises(ValueError, match="does not fit its slot"):
        fresh.load(forged)
    assert fresh.next_index == 0
