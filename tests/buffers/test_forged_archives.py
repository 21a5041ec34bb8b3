"""Forged files with right checksums: refused before anything changes, or loaded and fit for work."""

import contextlib
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
import shared_rows
from forger import forgeries, packed, trial
from histories import configured, example_transitions
from shared_rows import row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer

impatience = shared_rows.impatience


def use(buffer, rows_from):
    """A little of everything that a buffer is for."""
    shared, prioritized = isinstance(buffer, MPReplayBuffer), hasattr(buffer, "update_priorities")
    buffer.end_episode()  # a forged step leads anywhere, and its window refuses others
    first = 0
    for count in (0, 1, 1, 2, 15, 40, 30, 1):
        if count:
            buffer.add(**rows_from(first, count))
        first += count
        there = len(next(iter(buffer[:].values())))
        # A killed writer may leave a slot without a row for a lap.
        assert len(buffer) - 20 * shared <= there <= len(buffer)
        assert not shared or min(buffer.statistics()) >= 0
        if there and not (prioritized and not masses_of(buffer).any()):
            # A forged mass may be so tiny that normalizing by the buffer is refused.
            sample = buffer.sample(200, **({"normalize": "batch"} if prioritized else {}))
            assert {len(column) for column in sample.values()} == {200}
            if prioritized:
                assert ((sample["weights"] >= 0) & (sample["weights"] <= 1)).all()  # 1e-200 is 0 in float32
                buffer.update_priorities(sample["indexes"][:2], np.ones(2))
    buffer.end_episode()
    assert 0 < len(buffer) <= buffer.capacity


def masses_of(buffer):
    return buffer._ring.masses if isinstance(buffer, MPReplayBuffer) else buffer._ring.leaves


@pytest.mark.parametrize("name", ["plain", "prioritized, n-step, both"])
def test_forged_file_is_refused_or_loads_and_works(name, tmp_path):
    whole, rng = tmp_path / "whole", np.random.default_rng(3)

    def use_it(buffer):
        use(buffer, lambda first, count: example_transitions(rng, count, buffer))

    configured(name, rows=30).save(whole)
    assert trial(whole, lambda: configured(name, rows=3), pickle.dumps, use_it) > 100


def test_two_members_at_the_same_byte_are_refused(tmp_path):
    """Python 3.13 warns of them when the first is opened, and reads on."""
    path = tmp_path / "forged"
    buffer = configured("plain", rows=30)
    buffer.save(path)
    content = bytearray(path.read_bytes())
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    content[second + 42 : second + 46] = bytes(4)  # the offset of its header in the file
    path.write_bytes(content)
    with pytest.raises(ValueError, match="begin at the same byte"):
        buffer.load(path)


def test_forged_file_takes_no_more_memory_than_the_buffer_and_the_file_have(tmp_path):
    """Bombs of every kind of compression among them, and arrays that only claim to be long."""
    whole = tmp_path / "whole"
    buffer = configured("prioritized, n-step, both", rows=30)
    buffer.save(whole)
    with zipfile.ZipFile(whole) as container:
        members = {name: container.read(name) for name in container.namelist()}
    zeros = members["rows.npy"] + bytes(30_000_000)
    bombs = [
        packed(members | {"rows.npy": zeros}, method)
        for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    ]
    spaces = members["state.json"] + b" " * 30_000_000
    bombs.append(packed(members | {"state.json": spaces}, zipfile.ZIP_DEFLATED))
    assert max(map(len, bombs)) < 500_000
    del zeros, spaces
    header = b"\x93NUMPY\x02\x00" + (30_000_000 - 12).to_bytes(4, "little")
    bombs.append(packed(members | {"rows.npy": header.ljust(30_000_000, b" ")}))
    forged = [content for label, content in forgeries(whole) if "20 MB" not in label][::20]
    path = tmp_path / "forged"
    for content in [*bombs, *forged]:
        path.write_bytes(content)
        tracemalloc.start()
        with contextlib.suppress(ValueError):
            buffer.load(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4_000_000, f"{peak:,} bytes for a file of {len(content):,}"


def seen(buffer):
    """Every byte of the shared block, and the handle's own."""
    return bytes(buffer._block._block), buffer._rng.bit_generator.state, buffer._episode_len()


def test_forged_file_of_a_shared_buffer_is_refused_or_loads_and_works(tmp_path):
    def fresh():
        return MPPrioritizedReplayBuffer(20, row_fields())

    def use_it(buffer):
        use(buffer, lambda first, count: rows_of(2, first, count))

    buffer = fresh()
    buffer.add(**rows_of(1, 0, 12))
    buffer.clear()
    for first in range(12, 45):
        buffer.add(**rows_of(1, first, 1))
    buffer.sample(5)
    buffer.update_priorities(np.arange(30, 40), np.linspace(0.1, 3.0, 10))
    buffer.save(tmp_path / "whole")
    assert trial(tmp_path / "whole", fresh, seen, use_it) > 100


def test_forged_frames_are_refused_or_load_and_work(tmp_path):
    def images(first, count):
        frames = np.arange(first, first + count + 4)[:, np.newaxis] + np.zeros(5)
        stacks = np.stack([frames[i : i + count + 1] for i in range(4)], axis=1) % 256
        return {"obs": stacks[:-1], "next_obs": stacks[1:]}

    def fresh():
        fields = {"obs": {"shape": (4, 5), "dtype": np.uint8}}
        return MPReplayBuffer(
            20, fields, dedupe_next="obs", dedupe_frames={"obs": 0}, frames_per_transition=4.0
        )

    buffer = fresh()
    for first in range(0, 45, 5):
        buffer.add(**images(first, 5))
    buffer.save(tmp_path / "whole")
    assert trial(tmp_path / "whole", fresh, seen, lambda buffer: use(buffer, images)) > 100
