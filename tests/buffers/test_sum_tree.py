"""The sum tree beside a running sum."""

import copy
import math
import pickle

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from oracles import CAPACITIES, find_by_running_sum, total_by_halves

from replay_tutorial.buffers.sum_tree import ROOT, SumTree, find_leaves, find_stratified, recompute_above


def tree_of(masses: list[float] | np.ndarray) -> SumTree:
    tree = SumTree(len(masses))
    tree.set(np.arange(len(masses)), np.asarray(masses, np.float64))
    return tree


def find(tree: SumTree, queries: list[float] | np.ndarray) -> np.ndarray:
    slots, masses = find_leaves(tree.sums, np.asarray(queries))
    assert np.array_equal(masses, tree.leaves[slots])
    return slots


def draw(tree: SumTree, batch_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return find_stratified(tree.sums, rng.random(batch_size))


def assert_parents_are_their_childrens(tree: SumTree) -> None:
    """A sum is its eight children's, halved three times, bit for bit; a minimum the least above 0."""
    parents = np.arange(7, len(tree.minima))
    children = 8 * (parents - 6)[:, np.newaxis] + np.arange(8)
    sums = [total_by_halves(masses) for masses in tree.sums[children].tolist()]
    np.testing.assert_array_equal(tree.sums[parents], sums)
    below = np.concatenate([tree.minima, tree.sums[len(tree.minima) :]])[children]
    smallest = np.where(below > 0, below, np.inf).min(axis=1)
    np.testing.assert_array_equal(tree.minima[parents], np.where(np.isinf(smallest), 0, smallest))
    leaves = tree.sums[len(tree.minima) :]
    assert np.array_equal(tree.leaves, leaves)
    assert tree.total == tree.sums[7]
    assert tree.minima[ROOT] == leaves[leaves > 0].min(initial=leaves.max())


@pytest.mark.parametrize("capacity", [1, 2, 7, 8, 9, 64, 65, 1000, 4096, 4097])
def test_leaves_are_the_smallest_power_of_eight_that_holds_the_capacity(capacity):
    tree = SumTree(capacity)
    assert tree.leaf_count == 8 ** max(1, math.ceil(math.log(capacity, 8) - 1e-9))
    assert len(tree.leaves) == tree.leaf_count >= capacity
    assert tree.sums.dtype == tree.minima.dtype == np.float64


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_eight_siblings_share_a_cache_line(capacity):
    trees = [SumTree(capacity)]
    trees += [pickle.loads(pickle.dumps(trees[0])) for _ in range(4)]
    trees += [copy.deepcopy(trees[0]) for _ in range(4)]
    for tree in trees:
        assert tree.sums[8:].ctypes.data % 64 == tree.minima[8:].ctypes.data % 64 == 0


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_slots_are_found_as_by_a_running_sum(capacity):
    rng = np.random.default_rng(capacity)
    for _ in range(20):
        masses = rng.integers(0, 5, capacity).astype(np.float64)  # integers: every sum is exact
        masses[rng.integers(capacity)] += 1
        tree = tree_of(masses)
        assert tree.total == masses.sum()
        queries = np.concatenate([rng.integers(0, 2 * tree.total, 50) / 2, rng.random(50) * tree.total])
        found = find(tree, queries)
        assert found.dtype == np.int64
        assert found.tolist() == [find_by_running_sum(masses.tolist(), query) for query in queries.tolist()]


@repeatable(500)
@given(
    capacity=st.sampled_from(CAPACITIES),
    spread=st.sampled_from([0, 1, 15, 300]),
    zeros=st.sampled_from([0.0, 0.5, 0.9]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_query_ever_finds_a_slot_without_mass_and_the_total_the_last_slot_with_mass(
    capacity, spread, zeros, seed
):
    rng = np.random.default_rng(seed)
    masses = 10.0 ** rng.uniform(-spread, spread, capacity) * (rng.random(capacity) >= zeros)
    some = rng.integers(capacity)
    masses[some] = 10.0 ** rng.uniform(-spread, spread)
    if rng.random() < 0.5:
        masses[some + 1 :] = 0
    if spread == 0:  # equal masses
        masses *= rng.choice([1.0, 0.1, 5e-324, 1e-300, 1e300])
    tree = tree_of(masses)
    edges = np.append(np.cumsum(masses), tree.total)
    queries = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf), 2 * edges])
    queries = np.concatenate([queries, rng.random(20) * tree.total, [0.0]])
    found = find(tree, queries)
    assert found.min() >= 0
    assert found.max() < capacity
    assert (masses[found] > 0).all()
    if spread == 0:
        assert (found[queries >= tree.total] == np.flatnonzero(masses)[-1]).all()
    order = np.argsort(queries, kind="stable")
    assert (np.diff(found[order]) >= 0).all(), "a greater query found an earlier slot"


@repeatable(200)
@given(
    capacity=st.sampled_from([*CAPACITIES, 9, 16]),
    spread=st.sampled_from([6, 300]),
    seed=st.integers(0, 2**32 - 1),
)
def test_parents_are_exactly_their_childrens_sum_after_every_set(capacity, spread, seed):
    """Of single leaves, some of them repeated, and of a run of leaves that are written directly."""
    rng = np.random.default_rng(seed)
    tree = SumTree(capacity)
    expected = np.zeros(tree.leaf_count)
    for _ in range(8):
        count = int(rng.choice([1, 2, 3, capacity, 2 * capacity, 64]))
        slots = rng.integers(0, capacity, count)
        if run := rng.random() < 0.3:
            slots = np.arange(rng.integers(capacity), capacity)[:count]
        masses = 10.0 ** rng.uniform(-spread, spread, len(slots)) * (rng.random(len(slots)) < 0.8)
        if rng.random() < 0.3:
            masses = rng.integers(0, 3, len(slots)).astype(np.float64)  # equal ones: minima do not change
        if run:
            tree.leaves[slots] = masses
            recompute_above(tree.sums, tree.minima, slots)
        else:
            tree.set(slots, masses)
        for slot, mass in zip(slots.tolist(), masses.tolist(), strict=True):
            expected[slot] = mass
        np.testing.assert_array_equal(tree.leaves, expected)
        assert_parents_are_their_childrens(tree)
        assert tree.total == total_by_halves(expected.tolist())


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_every_part_of_the_range_gives_one_draw(capacity):
    """Of the batch's equal parts, those wholly inside a slot's mass draw it, those that touch it may."""
    rng = np.random.default_rng(capacity)
    for batch_size in (1, 2, 5, 64):
        masses = rng.integers(0, 4, capacity).astype(np.float64)
        masses[-1] = 2.0
        tree = tree_of(masses)
        drawn, found = draw(tree, batch_size, rng)
        assert np.array_equal(found, tree.leaves[drawn])
        assert drawn.shape == (batch_size,)
        assert drawn.dtype == np.int64
        assert (np.diff(drawn) >= 0).all()
        edges = np.concatenate([[0.0], np.cumsum(masses)]) * batch_size / masses.sum()  # in parts
        inside = np.maximum(np.floor(edges[1:] + 1e-9) - np.ceil(edges[:-1] - 1e-9), 0)
        touching = np.where(masses > 0, np.ceil(edges[1:] - 1e-9) - np.floor(edges[:-1] + 1e-9), 0)
        counts = np.bincount(drawn, minlength=capacity)
        assert (counts >= inside - 1e-9).all()
        assert (counts <= touching).all()


@pytest.mark.parametrize("capacity", [0, -1])
def test_tree_of_no_slots_is_refused(capacity):
    with pytest.raises(ValueError, match=str(capacity)):
        SumTree(capacity)
