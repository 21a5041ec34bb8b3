"""Five generations of save and load: what was loaded is used, saved, and loaded again.

A fault that one save and load survive may show only in the next: what `load` sets is the next `save`'s input.
The oracle is a buffer with the same arguments and calls that is never saved. `GENERATIONS=1000` tries that
many configurations (`EXPLORE=1`: others each time).
"""

import os
import zipfile

import numpy as np
import pytest
from histories import Stream, as_bytes, repeatable
from hypothesis import given
from hypothesis import strategies as st

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

SHARED, PRIORITIZED = (
    (MPReplayBuffer, MPPrioritizedReplayBuffer),
    (PrioritizedReplayBuffer, MPPrioritizedReplayBuffer),
)
MODES = {
    "plain": {},
    "next_of": {"next_of": "obs"},
    "stack_compress": {"stack_compress": ["obs", "next_obs"]},
    "both": {"next_of": "obs", "stack_compress": "obs"},
}
FIVE = 5


class Line:
    """A buffer that is saved and loaded again and again, and its twin that is not."""

    def __init__(self, kind, size, mode, shape, dtype, n, alpha, eps, seed, folder):
        self.rng, self.folder, self.kind, self.mode = np.random.default_rng(seed), folder, kind, mode
        self.fields = {"obs": {"shape": shape, "dtype": dtype}, "rew": {"shape": (), "dtype": np.float64}}
        self.fields |= {"next_obs": self.fields["obs"], "terminated": {"shape": (), "dtype": bool}}
        self.size, self.options = size, dict(MODES[mode])
        if n is not None:
            self.options["Nstep"] = {"size": n, "rew": "rew", "gamma": 0.5, "next": "next_obs"}
        if kind in PRIORITIZED:
            self.options |= {"alpha": alpha, "eps": eps}
        if kind in SHARED and mode != "plain":
            # No row must lose a frame, for a loaded buffer begins without the memory of what it wrote.
            self.options["frames_per_transition"] = 12.0
        axis = 0 if shape[0] < shape[-1] else len(shape) - 1
        self.stream = Stream(self.rng, shape, dtype, axis, letters=int(self.rng.choice([2, 200])))
        self.next_reward = 1
        self.buffer, self.twin = self.build(seed), self.build(seed)

    def build(self, seed, **options):
        return self.kind(self.size, self.fields, seed=seed, **self.options, **options)

    def both(self, call):
        return call(self.buffer), call(self.twin)

    def steps(self, count):
        steps = []
        for i in range(count):
            obs, next_obs = self.stream.step()
            terminated = i == count - 1 and self.rng.random() < 0.2
            steps.append((obs, next_obs, self.next_reward, terminated))
            self.next_reward += 1
            if terminated:
                self.stream.reset()
        names = ("obs", "next_obs", "rew", "terminated")
        return {name: np.array(column) for name, column in zip(names, zip(*steps, strict=True), strict=True)}

    def use(self):
        """Do one thing to both."""
        choice = self.rng.random()
        if choice < 0.6:
            count = int(self.rng.choice([1, 2, 5, self.size, 2 * self.size + 3]))
            given = self.steps(count)
            if self.kind in PRIORITIZED and self.rng.random() < 0.5:
                given["priorities"] = self.rng.random(count) * 3
            single = {name: column[0] for name, column in given.items()}
            given = single if count == 1 and self.rng.random() < 0.5 else given
            ours, twins = self.both(lambda buffer: buffer.add(**given))
            assert ours == twins
        elif choice < 0.7:
            self.both(lambda buffer: buffer.on_episode_end())
            self.stream.reset()
        elif choice < 0.8:
            for _ in range(int(self.rng.integers(1, 3))):
                self.both(lambda buffer: buffer.clear())
            self.stream.reset()
        elif len(self.twin):
            ours, twins = self.both(lambda buffer: buffer.sample(7))
            assert as_bytes(ours) == as_bytes(twins)
            if self.kind in PRIORITIZED:
                indexes = ours["indexes"] - self.rng.integers(0, 2) * min(3, ours["indexes"].min())
                priorities = self.rng.random(7) * 5
                self.both(lambda buffer: buffer.update_priorities(indexes, priorities))

    def compare(self):
        ours, twins = self.both(self.all_of)
        assert ours == twins

    def all_of(self, buffer):
        """All that a buffer shows: sizes, counts, every row, and its next draw."""
        shown = [len(buffer), buffer.get_next_index(), buffer.get_current_episode_len()]
        rows = buffer.get_all_transitions()
        assert len(buffer) == len(rows["rew"])
        if self.kind in SHARED:
            shown += buffer.statistics()[:5]
        if self.kind in PRIORITIZED:
            shown += [buffer.get_max_priority(), buffer.stale_updates, buffer.total_mass, buffer.min_mass]
        shown += [as_bytes(rows), as_bytes(buffer.sample(16)) if len(buffer) else None]
        return [*shown, str(buffer._rng.bit_generator.state)]

    def save_and_load(self):
        """The next generation, from a file."""
        self.buffer.save(self.folder / "saved")
        if self.mode == "plain":  # a writer of frames that was loaded doesn't know those it wrote before
            self.twin.save(self.folder / "twin")
            with (
                zipfile.ZipFile(self.folder / "saved") as ours,
                zipfile.ZipFile(self.folder / "twin") as twins,
            ):
                assert ours.read("state.json") == twins.read("state.json")
        if self.kind in SHARED or self.rng.random() < 0.7:
            self.buffer = self.build(seed=99)
        self.buffer.load(self.folder / "saved")  # of one process also into the buffer that wrote it

    def open_again(self):
        """The next generation, from the file that holds the shared memory."""
        path = self.folder / "block"
        rng, episode_len = self.buffer._rng, self.buffer.get_current_episode_len()
        if not path.exists():
            self.buffer.save(self.folder / "saved")
            self.buffer = self.build(seed=99, path=path)
            self.buffer.load(self.folder / "saved")
        self.buffer.close()
        made = self.rng.random() < 0.5
        self.buffer = self.build(seed=99, path=path) if made else self.kind.attach(path, seed=99)
        self.buffer._rng, own = rng, self.buffer._ring.handle_counts  # a handle's own, and in no file
        own[1] = own[0] - episode_len


def live(line, next_generation, rounds=8):
    for _ in range(FIVE):
        for _ in range(rounds):
            line.use()
        line.compare()
        next_generation()
        line.compare()


CONFIGURATION = {
    "size": st.sampled_from([1, 2, 3, 7, 20, 60]),
    "mode": st.sampled_from(list(MODES)),
    "shape": st.sampled_from([(2, 3), (3, 2), (3,), (4, 3, 2)]),
    "dtype": st.sampled_from([np.uint8, np.float32, np.float64]),
    "alpha": st.sampled_from([0.0, 0.6, 1.0]),
    "eps": st.sampled_from([1e-4, 0.5]),
    "seed": st.integers(0, 2**32 - 1),
}


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, *SHARED])
@repeatable(int(os.environ.get("GENERATIONS", "32")) // 4)
@given(n=st.sampled_from([None, 1, 2, 4]), **CONFIGURATION)
def test_a_buffer_saved_and_loaded_five_times_is_the_one_never_saved(kind, n, tmp_path_factory, **options):
    line = Line(kind, n=None if kind in SHARED else n, folder=tmp_path_factory.mktemp("line"), **options)
    live(line, line.save_and_load)


@pytest.mark.parametrize("kind", SHARED)
@repeatable(int(os.environ.get("GENERATIONS", "32")) // 8)
@given(**CONFIGURATION)
def test_a_file_opened_or_attached_five_times_is_the_buffer_never_closed(kind, tmp_path_factory, **options):
    line = Line(kind, n=None, folder=tmp_path_factory.mktemp("line"), **options)
    live(line, line.open_again)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, *SHARED])
def test_every_option_outlives_five_generations_and_three_laps_of_each(kind, mode, tmp_path):
    for n in (None,) if kind in SHARED else (None, 3):
        line = Line(kind, 20, mode, (4, 3, 2), np.uint8, n, 0.6, 1e-4, 1, tmp_path)
        for _ in range(FIVE):
            for _ in range(3):
                rows = line.steps(20)
                line.both(lambda buffer, rows=rows: buffer.add(**rows))
            line.compare()
            line.save_and_load()
            line.compare()
            assert len(line.buffer) == 20
