"""Sampling schemes in shared memory: rows that are being written, are gone or never came are replaced.

A writer that dies between reserving indexes and writing its rows is imitated by reserving them only, and one
that dies within a row by the stamp that it leaves. χ² tests with fixed seeds fail by chance less than once in
a million.
"""

import threading
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from shared_rows import assert_whole, row_fields, rows_of

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.schemes import Combined, Geometric, Proportional, RankBased, Reverse, Uniform
from replay_tutorial.shared.protocol import NEXT_INDEX, add_to_counter, held_stamp

LEAST = 1e-6
ACT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}
SCHEMES = [
    Uniform,
    Proportional,
    lambda: Geometric(5),
    lambda: Geometric(5, num_envs=3),
    lambda: Combined(2),
    lambda: Combined(1, Geometric(4)),
    lambda: Reverse(4),
    RankBased,
]
BY_MASS = (Proportional, RankBased)  # require priorities
PAIRS = [(MPReplayBuffer, ReplayBuffer), (MPPrioritizedReplayBuffer, PrioritizedReplayBuffer)]


def fill(buffer: Any, rows: int) -> Any:
    """Add rows, a few at a time; `action` is the index."""
    for first in range(buffer.next_index, rows, 7):
        buffer.add(action=np.arange(first, min(first + 7, rows)))
    return buffer


@pytest.mark.parametrize("make", SCHEMES)
@pytest.mark.parametrize(("shared", "single"), PAIRS)
def test_shared_buffer_draws_by_a_scheme_what_a_buffer_of_one_process_draws(shared, single, make):
    if single is ReplayBuffer and make in BY_MASS:
        with pytest.raises(ValueError, match="requires priorities"):
            fill(shared(11, ACT), 11).sample(2, scheme=make())
        return
    for rows in (6, 11, 60):
        one, other = fill(shared(11, ACT, seed=3), rows), fill(single(11, ACT, seed=3), rows)
        schemes = make(), make()
        if single is PrioritizedReplayBuffer:
            stored = np.arange(max(0, rows - 11), rows)
            one.update_priorities(stored, 1.0 + stored)
            other.update_priorities(stored, 1.0 + stored)
        for _ in range(6):
            batch, expected = one.sample(8, scheme=schemes[0]), other.sample(8, scheme=schemes[1])
            assert batch.keys() == expected.keys()
            for name, column in expected.items():
                np.testing.assert_allclose(batch[name], column, rtol=1e-6, err_msg=name)
        assert one.statistics().rows_sampled == 48 and one.statistics().rows_rejected == 0


def with_gaps(shared: Any) -> tuple[Any, list[int]]:
    """A ring of 20 slots in which rows were reserved but not written, or are being written; and its rows."""
    buffer = fill(shared(20, ACT, seed=3), 47)
    ring = buffer._ring
    add_to_counter(ring.counters, NEXT_INDEX, 3)  # rows 47 to 49, in slots 7 to 9: the rows 27 to 29 stay
    fill(buffer, 60)
    add_to_counter(ring.counters, NEXT_INDEX, 2)  # rows 60 and 61, in slots 0 and 1: the rows 40 and 41 stay
    for index in (44, 55):  # a writer was killed while it copied over them
        ring.stamps[index % 20] = held_stamp(index + 20, 77)
    return buffer, [row for row in range(42, 60) if row not in (44, 47, 48, 49, 55)]


@pytest.mark.parametrize("shared", [MPReplayBuffer, MPPrioritizedReplayBuffer])
@pytest.mark.parametrize("make", [Uniform, lambda: Geometric(6)])
def test_rows_that_never_came_are_left_out_and_all_others_keep_their_shares(shared, make):
    buffer, there = with_gaps(shared)
    indexes = np.concatenate([buffer.sample(50, scheme=make())["action"] for _ in range(200)])
    assert set(indexes.tolist()) == set(there)
    statistics = buffer.statistics()
    assert statistics.rows_sampled == 10_000 and statistics.rows_rejected > 500
    shares = np.array([1.0 if make is Uniform else 2.0 ** (row / 6) for row in there])
    counts = [np.count_nonzero(indexes == row) for row in there]
    assert chisquare(counts, shares / shares.sum() * len(indexes)).pvalue > LEAST


@pytest.mark.parametrize("shared", [MPReplayBuffer, MPPrioritizedReplayBuffer])
def test_newest_rows_are_those_that_are_complete(shared):
    buffer, there = with_gaps(shared)
    for _ in range(20):
        assert buffer.sample(4, scheme=Combined(3))["action"][:3].tolist() == [57, 58, 59]
        sample = buffer.sample(7, scheme=Combined(6))  # 55 is one of them, and replaced
        assert (sample["action"] == sample["indexes"]).all() and set(sample["action"].tolist()) <= set(there)
        assert sample["action"][[0, 2, 3, 4, 5]].tolist() == [54, 56, 57, 58, 59]
    walk = Reverse(2)
    first = buffer.sample(5, scheme=walk)["action"].tolist()  # 55 is replaced
    assert first[:2] + first[3:] == [59, 57, 53, 51] and first[2] in there
    assert set(np.concatenate([buffer.sample(12, scheme=walk)["action"] for _ in range(5)])) <= set(there)


@pytest.mark.parametrize("make", SCHEMES)
def test_writer_that_reserved_a_whole_lap_and_died_leaves_the_rows_before_it(make):
    buffer = fill(MPPrioritizedReplayBuffer(9, ACT, seed=0), 25)
    add_to_counter(buffer._ring.counters, NEXT_INDEX, 31)
    scheme = make()
    drawn = {int(row) for _ in range(300) for row in buffer.sample(6, scheme=scheme)["action"]}
    assert drawn <= set(range(16, 25)) and {23, 24} <= drawn
    fill(buffer, 100)
    assert set(buffer.sample(6, scheme=scheme)["action"].tolist()) <= set(range(91, 100))


def test_rows_without_their_frames_are_replaced():
    fields = {"obs": {"dtype": np.int64}, **ACT}
    buffer = MPReplayBuffer(2000, fields, dedupe_next="obs", frames_per_transition=1.0, seed=0)
    rows = np.arange(4000)  # of two frames each, so that the older ones lack theirs
    with pytest.warns(UserWarning) as caught:
        buffer.add(obs=2 * rows, next_obs=2 * rows + 1, action=rows)
    assert "2,000 transitions added 4,000 frames, so they take 16 bytes" in str(caught[0].message)
    there = buffer[:]["action"]
    assert f"about {2000 - len(there)} of the transitions have lost frames" in str(caught[1].message)
    for scheme in (Uniform(), Combined(2), Geometric(1000), Reverse(90)):
        for _ in range(10):
            sample = buffer.sample(64, scheme=scheme)
            assert (sample["indexes"] == sample["action"]).all() and (sample["action"] >= there[0]).all()
            assert (sample["obs"] == 2 * sample["action"]).all()
            assert (sample["next_obs"] == 2 * sample["action"] + 1).all()
    assert buffer.statistics().rows_rejected > 0


@pytest.mark.parametrize("shared", [MPReplayBuffer, MPPrioritizedReplayBuffer])
def test_rows_are_whole_and_the_newest_are_there_while_a_thread_overwrites_the_ring(shared):
    buffer, stop = shared(64, row_fields(), seed=0), threading.Event()
    buffer.add(**rows_of(0, 0, 64))
    schemes = [make() for make in SCHEMES if shared is MPPrioritizedReplayBuffer or make not in BY_MASS]
    written = [64]  # next_index also counts rows that are reserved and not written yet

    def write() -> None:
        while not stop.is_set():
            written[0] = buffer.add(**rows_of(0, buffer.next_index, 3)) + 3

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for i in range(150):
            finished, before = written[0], buffer.next_index
            batch = buffer.sample(16, scheme=schemes[i % len(schemes)])
            assert_whole(batch)
            assert (batch["indexes"] == batch["number"] - 1).all()
            assert (batch["indexes"] >= before - 64 - 3).all()
            if isinstance(schemes[i % len(schemes)], Combined):
                assert batch["indexes"].max() >= finished - 1
    finally:
        stop.set()
        writer.join()


# By rank: the ranks include every row that is published, and every update.


def probabilities_by_index(buffer):
    """P(row) of every row; the segment of each is longer than the distance of two draws."""
    sample = buffer.sample(1000, scheme=RankBased())
    return dict(zip(sample["indexes"].tolist(), sample["probabilities"].tolist(), strict=True))


@pytest.mark.parametrize("capacity", [1, 7, 40])
def test_probabilities_are_those_of_the_single_process_buffer(capacity):
    rng = np.random.default_rng(capacity)
    buffers = [
        kind(capacity, row_fields(), alpha=0.5, eps=0.0, seed=0)
        for kind in (MPPrioritizedReplayBuffer, PrioritizedReplayBuffer)
    ]
    first = 0
    for turn in range(40):
        count = int(rng.integers(1, 2 * capacity + 2))
        priorities = np.exp(rng.normal(scale=3.0, size=count)) * (rng.random(count) < 0.9) + (turn == 0)
        if turn == 30:
            for buffer in buffers:
                buffer.clear()
        if turn % 3 == 0:
            for buffer in buffers:
                assert buffer.add(**rows_of(1, first, count), priorities=priorities) == first
            first += count
        else:
            indexes = rng.integers(max(0, first - 2 * capacity), first, count)
            for buffer in buffers:
                buffer.update_priorities(indexes, priorities)
        if buffers[1].total_mass > 0.0:
            shared, single = map(probabilities_by_index, buffers)
            assert shared == pytest.approx(single, rel=1e-12)
