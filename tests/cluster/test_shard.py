"""One shard, called as the learner and the actors call it; no Ray."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from gymnasium.spaces import Box

from replay_tutorial import PrioritizedReplayBuffer
from replay_tutorial.agents.environments import Spaces, spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.shards import shard as shard_file
from replay_tutorial.cluster.shards.shard import Shard, ShardPart

CONFIG = replace(preset("CartPole-v1"), capacity=100, replay_start=10, seed=3)


@pytest.fixture(scope="module")
def spaces():
    return spaces_of("CartPole-v1")


def rows_of(first, count):
    """Rows that say which they are."""
    number = np.arange(first, first + count, dtype=np.float32)
    obs = np.repeat(number[:, np.newaxis], 4, axis=1)
    flags = np.zeros(count, bool)
    return {
        "obs": obs,
        "act": np.arange(first, first + count) % 2,
        "rew": number,
        "next_obs": obs + 1,
        "terminated": flags,
        "truncated": flags,
        "discount": number / 2,
    }


def chunk_of(spaces, first, priorities):
    priorities = np.asarray(priorities, np.float32)
    return read_only(ChunkFormat(CONFIG, spaces).pack(rows_of(first, len(priorities)), priorities))


def read_only(chunk):
    """As it comes out of another process."""
    for array in chunk:
        array.setflags(write=False)
    return chunk


def test_shard_draws_as_a_buffer_of_its_part_of_the_rows(spaces):
    assert Shard(ShardPart(CONFIG, spaces, 0, 3, 0)).buffer.get_buffer_size() == 34
    shard = Shard(ShardPart(CONFIG, spaces, 0, 4, 0))
    assert shard.buffer.get_buffer_size() == 25
    priorities = np.arange(1, 31)
    assert shard.add(chunk_of(spaces, 0, priorities)) == 30
    parcel = shard.sample(8, 3, 0.4)
    buffer = PrioritizedReplayBuffer(25, {"rew": {"shape": ()}}, alpha=CONFIG.alpha)
    buffer.add(rew=np.arange(30), priorities=priorities)
    assert (parcel.life, parcel.rows, len(parcel.records), parcel.images) == (0, 8, 24, {})
    assert parcel.totals == pytest.approx((buffer.total_mass, buffer.min_mass, 25, 30))
    assert set(parcel.records.dtype.names) == {*rows_of(0, 1), "indexes", "weights"}
    number = parcel.records["indexes"]
    assert (number >= 5).all()
    for name, column in rows_of(0, 30).items():
        assert parcel.records[name].tolist() == column[number].tolist()
    masses = (priorities + 1e-4) ** CONFIG.alpha
    np.testing.assert_allclose(parcel.records["weights"], (masses[5] / masses[number]) ** 0.4, rtol=1e-6)


def test_each_batch_of_a_parcel_is_stratified_on_its_own(spaces):
    shard = Shard(ShardPart(CONFIG, spaces, 0, 1, 0))
    shard.add(chunk_of(spaces, 0, np.ones(16)))
    parcel = shard.sample(16, 5, 0.4)
    assert parcel.records["indexes"].reshape(5, 16).tolist() == [list(range(16))] * 5


def test_shards_and_lives_draw_by_numbers_of_their_own(spaces):
    drawn = []
    for number, life in ((0, 0), (1, 0), (0, 1), (0, 0)):
        shard = Shard(ShardPart(CONFIG, spaces, number, 2, life))
        shard.add(chunk_of(spaces, 0, np.arange(1, 50)))
        drawn.append(shard.sample(20, 1, 0.4).records["indexes"].tolist())
    assert drawn[0] == drawn[3]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]


def test_shard_without_mass_or_asked_for_no_rows_tells_its_totals(spaces):
    shard = Shard(ShardPart(CONFIG, spaces, 0, 2, 5))
    for rows in (0, 8):
        parcel = shard.sample(rows, 2, 0.4)
        assert (parcel.life, len(parcel.records), parcel.totals) == (5, 0, (0.0, 0.0, 0, 0))
    shard.add(chunk_of(spaces, 0, np.ones(3)))
    parcel = shard.sample(0, 2, 0.4)
    assert (len(parcel.records), parcel.totals.stored, parcel.totals.next_index) == (0, 3, 3)


def test_priorities_for_another_life_or_a_replaced_row_are_dropped_and_counted(spaces):
    shard = Shard(ShardPart(CONFIG, spaces, 0, 1, 2))
    shard.add(chunk_of(spaces, 0, np.ones(103)))
    before = shard.buffer.total_mass
    indexes, priorities = np.array([1, 2, 50]), np.full(3, 9.0, np.float32)
    for life in (0, 1, 3):
        assert shard.update(life, indexes, priorities) == 3
    assert shard.buffer.total_mass == before
    assert shard.update(2, indexes, priorities) == 2
    assert shard.buffer.total_mass == pytest.approx(before - 1 + (9 + 1e-4) ** CONFIG.alpha, rel=1e-4)


def test_chunk_of_another_run_is_refused_before_anything_changes(spaces):
    shard = Shard(ShardPart(CONFIG, spaces, 0, 1, 0))
    chunk = chunk_of(spaces, 0, np.ones(3))
    with pytest.raises(ValueError, match="chunk"):
        shard.add(chunk._replace(records=np.zeros(3, [("obs", np.float32)])))
    assert len(shard.buffer) == 0


def test_images_travel_apart_from_the_small_fields(spaces):
    images = Box(0, 255, (4, 40, 30), np.uint8)
    spaces = Spaces(images, spaces.action, stacked=True)
    config = replace(CONFIG, capacity=60)
    frames = np.random.default_rng(0).integers(0, 256, (48, 40, 30), np.uint8)
    obs = np.stack([frames[i : i + 4] for i in range(40)])
    rows = {**rows_of(0, 40), "obs": obs, "next_obs": np.stack([frames[i + 1 : i + 5] for i in range(40)])}
    shard = Shard(ShardPart(config, spaces, 0, 1, 0))
    shard.add(read_only(ChunkFormat(config, spaces).pack(rows, np.ones(40, np.float32))))
    for batches in (1, 3):
        parcel = shard.sample(8, batches, 0.4)
        index = parcel.records["indexes"]
        assert set(parcel.images) == {"obs", "next_obs"}
        for name, images in parcel.images.items():
            assert np.array_equal(images, rows[name][index])
        assert parcel.records["rew"].tolist() == index.tolist()


def test_saved_shard_is_loaded_from_pieces_with_indexes_and_masses(spaces, monkeypatch):
    monkeypatch.setattr(shard_file, "PIECE_BYTES", 1000)
    first = Shard(ShardPart(CONFIG, spaces, 0, 1, 0))
    first.add(chunk_of(spaces, 0, np.arange(1, 131)))
    first.update(0, np.array([77]), np.array([500.0], np.float32))
    pieces = list(first.save())
    assert len(pieces) > 3
    assert max(map(len, pieces)) == 1000
    second = Shard(ShardPart(CONFIG, spaces, 0, 1, 4))
    for piece in [*pieces, b""]:
        second.load(piece)
    assert second.sample(0, 1, 0.4).totals == pytest.approx(first.sample(0, 1, 0.4).totals, rel=1e-12)
    assert second.sample(9, 2, 0.4).records.tobytes() == first.sample(9, 2, 0.4).records.tobytes()
    assert second.update(4, np.array([77]), np.ones(1, np.float32)) == 0
    assert second.update(0, np.array([77]), np.ones(1, np.float32)) == 1


def test_file_that_lacks_a_piece_is_refused(spaces):
    first, second = (Shard(ShardPart(CONFIG, spaces, 0, 1, life)) for life in (0, 1))
    first.add(chunk_of(spaces, 0, np.ones(50)))
    (whole,) = first.save()
    second.load(whole[:-100])
    with pytest.raises(ValueError, match="damaged"):
        second.load(b"")
    assert len(second.buffer) == 0
    for piece in (whole, b""):
        second.load(piece)
    assert len(second.buffer) == 50
