"""Save and load of the multi-process buffers: all of it comes back, also from a ring that others write to."""

import multiprocessing
import time
import zipfile

import numpy as np
import pytest
import shared_rows
from shared_rows import assert_whole, every_buffer, row_fields, rows_of, running

from replay_tutorial import MPPrioritizedReplayBuffer

impatience = shared_rows.impatience


def filled(buffer_class, rows, size=50, seed=1):
    """A buffer with a history: rows, draws, updates of some priorities."""
    buffer = buffer_class(size, row_fields(), seed=seed)
    for first in range(0, rows, 7):
        buffer.add(**rows_of(1, first, min(7, rows - first)))
        if buffer_class is MPPrioritizedReplayBuffer and first % 3 == 0:
            indexes = buffer.sample(5)["indexes"]
            buffer.update_priorities(indexes, np.linspace(0.1, 3.0, 5))
    return buffer


def add_when_allowed(allowed, stop, buffer, writer):
    first = 0
    while allowed.acquire() and not stop.is_set():
        buffer.add(**rows_of(writer, first, 13))
        first += 13


def everything(buffer):
    """All that a buffer tells, its next draws among it."""
    counts = buffer.statistics()._replace(rows_per_second=0, writers_alive=0, writers_lost=0)
    told = [counts, len(buffer), buffer.get_next_index(), buffer.get_current_episode_len()]
    if isinstance(buffer, MPPrioritizedReplayBuffer):
        told.append(buffer.get_max_priority())
    batches = [buffer.get_all_transitions()]
    if len(buffer):
        batches += [buffer.sample(20) for _ in range(5)]
    return told, [{name: array.tolist() for name, array in batch.items()} for batch in batches]


@every_buffer
def test_a_buffer_that_others_write_to_is_saved_without_a_torn_row(buffer_class, tmp_path):
    context = multiprocessing.get_context("spawn")
    buffer = buffer_class(3000, row_fields(), seed=1)
    stop, allowed, added = context.Event(), context.Semaphore(0), 0

    def let_add(chunks):
        """Let the writers add so many chunks from now on: few enough that no snapshot is lapped."""
        nonlocal added
        while buffer.get_next_index() < added:
            time.sleep(0.001)  # they may not have made use of the last leave
        added += 13 * chunks
        for _ in range(chunks):
            allowed.release()

    with running(context, add_when_allowed, [(allowed, stop, buffer, writer) for writer in (1, 2)]):
        let_add(231)
        assert buffer.wait_for(3000, timeout=shared_rows.POLL_SECONDS)
        kept = [3000]
        while len(kept) < 20 or min(kept) == 3000:  # until they wrote while it was saved
            let_add(100)
            buffer.save(tmp_path / "buffer")
            loaded = buffer_class(3000, row_fields())
            loaded.load(tmp_path / "buffer")
            rows = loaded.get_all_transitions()
            assert_whole(rows)
            assert_whole(loaded.sample(100))
            kept.append(len(rows["obs"]))
        stop.set()
        for _ in range(2):
            allowed.release()  # they wake, and see it
    assert min(kept) >= 1700, kept


@every_buffer
def test_load_refuses_a_buffer_that_is_in_use_and_leaves_it_as_it_was(buffer_class, tmp_path):
    buffer = filled(buffer_class, 30)
    buffer.save(tmp_path / "buffer")
    other = filled(buffer_class, 12)
    before = filled(buffer_class, 12)
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
    assert fresh.get_next_index() == 0


def sample_until(stop, buffer, answers):
    buffer.add(**rows_of(1, 0, 1))
    buffer.sample(1)
    answers.put("sampled")
    stop.wait()


@every_buffer
def test_load_beside_another_sampler_says_so_and_does_not_blame_the_file(buffer_class, tmp_path):
    filled(buffer_class, 30).save(tmp_path / "buffer")
    context = multiprocessing.get_context("spawn")
    buffer, stop, answers = buffer_class(50, row_fields()), context.Event(), context.Queue()
    with running(context, sample_until, [(stop, buffer, answers)]):
        assert answers.get(timeout=shared_rows.POLL_SECONDS) == "sampled"
        with pytest.raises(RuntimeError, match="is this buffer's sampler"):
            buffer.load(tmp_path / "buffer")
        stop.set()
