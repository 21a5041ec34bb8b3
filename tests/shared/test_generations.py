"""Five generations of save and load: what was loaded is used, saved, and loaded again.

A fault that one save and load survive may show only in the next: what `load` sets is the next `save`'s input.
The oracle is, beside that of the history, the buffer of an equal history that is never saved.
`GENERATIONS=1000` tries that many histories (`EXPLORE=1`: others each time).
"""

import os
import zipfile

import numpy as np
import pytest
from histories import History, as_bytes, repeatable
from hypothesis import given
from hypothesis import strategies as st

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

SHARED = (MPReplayBuffer, MPPrioritizedReplayBuffer)
PRIORITIZED = (PrioritizedReplayBuffer, MPPrioritizedReplayBuffer)
MODES = ["plain", "dedupe_next", "dedupe_frames", "dedupe_next+dedupe_frames"]
FIVE = 5


class Line:
    """A history whose buffer is saved and loaded again and again, and its twin whose buffer is not."""

    def __init__(self, kind, modes, n, seed, folder, **options):
        self.rng, self.folder, self.kind, self.modes = np.random.default_rng(seed), folder, kind, modes
        options["field_of_priority"] = "priority" if kind in PRIORITIZED else None
        self.ours, self.twin = (History(seed, modes, n, kind=kind, **options) for _ in range(2))

    def use(self):
        """Do one thing to both."""
        for history in (self.ours, self.twin):
            history.operate()
        if len(self.twin.buffer) and self.rng.random() < 0.3:
            self.draw_and_update()

    def draw_and_update(self):
        buffers = self.ours.buffer, self.twin.buffer
        if self.kind in PRIORITIZED and buffers[1].total_mass == 0.0:
            return
        ours, twins = (buffer.sample(7) for buffer in buffers)
        assert as_bytes(ours) == as_bytes(twins)
        if self.kind in PRIORITIZED:
            indexes = ours["indexes"] - self.rng.integers(0, 2) * min(3, ours["indexes"].min())
            priorities = self.rng.random(7) * 5
            for buffer in buffers:
                buffer.update_priorities(indexes, priorities)

    def compare(self):
        self.ours.compare_sizes()
        self.ours.compare_rows()
        assert self.all_of(self.ours.buffer) == self.all_of(self.twin.buffer)

    def all_of(self, buffer):
        """All that a buffer shows beside its rows: its counts, and its next draw."""
        shown = [*buffer.statistics()[:5]] if self.kind in SHARED else []
        has_mass = len(buffer) > 0
        if self.kind in PRIORITIZED:
            shown += [buffer.max_priority, buffer.stale_updates, buffer.total_mass, buffer.min_mass]
            has_mass = buffer.total_mass > 0.0
        shown.append(as_bytes(buffer.sample(16)) if has_mass else None)
        return [*shown, str(buffer._rng.bit_generator.state)]

    def save_and_load(self):
        """The next generation, from a file."""
        self.ours.buffer.save(self.folder / "saved")
        if self.modes == "plain":  # a writer of frames that was loaded doesn't know those it wrote before
            self.twin.buffer.save(self.folder / "twin")
            with (
                zipfile.ZipFile(self.folder / "saved") as ours,
                zipfile.ZipFile(self.folder / "twin") as twins,
            ):
                assert ours.read("state.json") == twins.read("state.json")
        if self.kind in SHARED or self.rng.random() < 0.7:
            self.ours.buffer = self.ours.build(seed=99)
        self.ours.buffer.load(self.folder / "saved")  # of one process also into the buffer that wrote it

    def open_again(self):
        """The next generation, from the file that holds the shared memory."""
        path, buffer = self.folder / "block", self.ours.buffer
        rng, episode_len = buffer._rng, buffer._episode_len()
        if not path.exists():
            buffer.save(self.folder / "saved")
            buffer = self.ours.build(seed=99, path=path)
            buffer.load(self.folder / "saved")
        buffer.close()
        made = self.rng.random() < 0.5
        buffer = self.ours.build(seed=99, path=path) if made else self.kind.attach(path, seed=99)
        buffer._rng, own = rng, buffer._ring.handle_counts  # a handle's own, and in no file
        own[1] = own[0] - episode_len
        self.ours.buffer = buffer


def live(line, next_generation, rounds=8):
    for _ in range(FIVE):
        for _ in range(rounds):
            line.use()
        line.compare()
        next_generation()
        line.compare()


seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, *SHARED])
@repeatable(int(os.environ.get("GENERATIONS", "32")) // 4)
@given(seed=seeds, modes=st.sampled_from(MODES), n=st.sampled_from([None, 1, 2, 4]))
def test_a_buffer_saved_and_loaded_five_times_is_the_one_never_saved(kind, modes, n, seed, tmp_path_factory):
    line = Line(kind, modes, None if kind in SHARED else n, seed, tmp_path_factory.mktemp("line"))
    live(line, line.save_and_load)


@pytest.mark.parametrize("kind", SHARED)
@repeatable(int(os.environ.get("GENERATIONS", "32")) // 8)
@given(seed=seeds, modes=st.sampled_from(MODES))
def test_a_file_opened_or_attached_five_times_is_the_buffer_never_closed(kind, modes, seed, tmp_path_factory):
    line = Line(kind, modes, None, seed, tmp_path_factory.mktemp("line"))
    live(line, line.open_again)


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, *SHARED])
def test_every_option_outlives_five_generations_and_three_laps_of_each(kind, modes, tmp_path):
    for n in (None,) if kind in SHARED else (None, 3):
        line = Line(kind, modes, n, 1, tmp_path, size=20, shape=(4, 3, 2), disobedience=0.0)
        for _ in range(FIVE):
            for history in 3 * [line.ours, line.twin]:
                history.add(20, single=False)
            line.compare()
            line.save_and_load()
            line.compare()
            assert len(line.ours.buffer) == 20
