"""Indexes over several lives of a shard, beside a list in which every row is written down."""

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st

from replay_tutorial.cluster.shards.shard_lives import ShardLives


@repeatable(200)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(0, 9), max_size=4)), min_size=1, max_size=6)
)
def test_every_row_that_was_named_has_a_number_of_its_own_that_leads_back_to_it(told):
    """`told` is, of each life, how many numbers it comes after the one before, and what it said at times."""
    lives, life, rows = ShardLives(), -1, {}  # number → life and index
    for step, next_indexes in told:
        life += step
        for next_index in next_indexes:
            lives.note(life, next_index)
            indexes = np.arange(next_index)
            for serial, index in zip(lives.serials(indexes).tolist(), indexes.tolist(), strict=True):
                assert rows.setdefault(serial, (life, index)) == (life, index)
                assert serial < lives.next_serial
    serials = np.array(sorted(rows), np.int64)
    back = {}
    for of_life, positions, indexes in lives.by_life(serials):
        for position, index in zip(positions.tolist(), indexes.tolist(), strict=True):
            assert serials[position] not in back
            back[int(serials[position])] = (of_life, index)
    assert back == rows


def test_rows_of_a_new_life_are_as_old_as_they_are():
    lives = ShardLives()
    lives.note(0, 1000)
    lives.note(1, 5)
    assert lives.next_serial - lives.serials(np.array([4, 0])) == pytest.approx([1, 5])


def test_numbers_go_as_far_as_int64():
    lives = ShardLives()
    most = 2**62
    lives.note(0, most)
    lives.note(2**40, most - 1)
    assert lives.serials(np.array([most - 2])).tolist() == [2**63 - 2]
    ((life, positions, indexes),) = lives.by_life(np.array([2**63 - 2]))
    assert (life, positions.tolist(), indexes.tolist()) == (2**40, [0], [most - 2])


def test_a_life_that_is_over_is_refused():
    lives = ShardLives()
    assert lives.life == -1
    lives.note(3, 7)
    with pytest.raises(ValueError, match="life 2 of a shard is over: it is in life 3"):
        lives.note(2, 9)
    assert (lives.life, lives.next_serial) == (3, 7)
