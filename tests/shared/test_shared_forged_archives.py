"""Forged files with right checksums, and the buffers that many processes share."""

import numpy as np
import shared_rows
from forger import trial
from shared_rows import row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer

impatience = shared_rows.impatience


def seen(buffer):
    """Every byte of the shared block, and the handle's own."""
    return bytes(buffer._block._block), buffer._rng.bit_generator.state, buffer.get_current_episode_len()


def has_mass(buffer):
    return type(buffer) is MPReplayBuffer or bool(buffer._ring.masses.any())


def use_rows(buffer, rows_of):
    for first, count in ((0, 0), (0, 1), (1, 2), (3, 15), (18, 40), (58, 30), (88, 1)):
        if count:
            buffer.add(**rows_of(first, count))
        there = len(next(iter(buffer.get_all_transitions().values())))
        # A killed writer may leave a slot without a row for a lap.
        assert len(buffer) - 20 <= there <= len(buffer)
        assert min(buffer.statistics()) >= 0
        if there and has_mass(buffer):
            sample = buffer.sample(200)
            assert {len(column) for column in sample.values()} == {200}
            if isinstance(buffer, MPPrioritizedReplayBuffer):
                assert ((sample["weights"] >= 0) & (sample["weights"] <= 1)).all()
                buffer.update_priorities(sample["indexes"][:2], np.ones(2))
    assert len(buffer)


def test_forged_file_is_refused_or_loads_and_works(tmp_path):
    def fresh():
        return MPPrioritizedReplayBuffer(20, row_fields())

    def use(buffer):
        use_rows(buffer, lambda first, count: rows_of(2, first, count))

    buffer = fresh()
    buffer.add(**rows_of(1, 0, 12))
    buffer.clear()
    for first in range(12, 45):
        buffer.add(**rows_of(1, first, 1))
    buffer.sample(5)
    buffer.update_priorities(np.arange(30, 40), np.linspace(0.1, 3.0, 10))
    buffer.save(tmp_path / "whole")
    assert trial(tmp_path / "whole", fresh, seen, use) > 200


def test_forged_frames_are_refused_or_load_and_work(tmp_path):
    def images(first, count):
        frames = np.arange(first, first + count + 4)[:, np.newaxis] + np.zeros(5)
        stacks = np.stack([frames[i : i + count + 1] for i in range(4)], axis=1) % 256
        return {"obs": stacks[:-1], "next_obs": stacks[1:]}

    def fresh():
        fields = {"obs": {"shape": (4, 5), "dtype": np.uint8}}
        return MPReplayBuffer(20, fields, next_of="obs", stack_compress="obs", frames_per_transition=4.0)

    buffer = fresh()
    for first in range(0, 45, 5):
        buffer.add(**images(first, 5))
    buffer.save(tmp_path / "whole")
    assert trial(tmp_path / "whole", fresh, seen, lambda buffer: use_rows(buffer, images)) > 200
