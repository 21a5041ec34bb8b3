"""Every rung of the prioritized ladder finds what the others find, and what is broken is told apart."""

import operator

import numpy as np
import pytest
from oracles import CAPACITIES

from replay_course.exercises import CheckFailed
from replay_course.exercises_sum_tree import check_set, check_sum_tree
from replay_course.steps.prioritized import (
    CompiledSumTree,
    CumulativeSum,
    LevelByLevel,
    LinearScan,
    PlainSumTree,
)
from replay_tutorial.buffers.sum_tree import SumTree

RUNGS = [LinearScan, CumulativeSum, PlainSumTree, CompiledSumTree, LevelByLevel]


@pytest.mark.parametrize("kind", [*RUNGS, SumTree])
def test_a_rung_passes_the_check_and_says_what_was_checked(kind, capsys):
    check_sum_tree(kind)
    line = capsys.readouterr().out
    assert line.startswith("right: capacities 1, 2, 3, 7, 8, 1000; no drift")
    assert line.count("\n") == 1


@pytest.mark.parametrize("kind", [PlainSumTree, CompiledSumTree, LevelByLevel])
def test_the_trees_have_the_same_nodes_bit_for_bit(kind):
    rng = np.random.default_rng(0)
    for capacity in CAPACITIES:
        first, second = PlainSumTree(capacity), kind(capacity)
        for _ in range(20):
            slots, masses = rng.integers(0, capacity, 30), 10.0 ** rng.uniform(-6, 6, 30)
            first.set(slots, masses)
            second.set(slots, masses)
        assert np.asarray(second.nodes).tolist() == first.nodes
        packages = SumTree(first.leaf_count)  # it adds in the same order
        packages.set(np.arange(first.leaf_count), np.array(first.nodes[first.leaf_count :]))
        assert second.total == packages.total


class Drifting(PlainSumTree):
    def set(self, slots, masses):
        for slot, mass in zip(slots, masses, strict=True):
            node = self.leaf_count + int(slot)
            difference = float(mass) - self.nodes[node]
            while node > 0:
                self.nodes[node] += difference
                node //= 2


class DifferencesOfOldMasses(PlainSumTree):
    """All differences are taken before the first is added: a repeated slot counts twice."""

    def set(self, slots, masses):
        old = [self.nodes[self.leaf_count + slot] for slot in slots]
        differences = [float(mass) - before for mass, before in zip(masses, old, strict=True)]
        for slot, difference in zip(slots, differences, strict=True):
            super().set([slot], [self.nodes[self.leaf_count + slot] + difference])


class FirstStays(PlainSumTree):
    def set(self, slots, masses):
        super().set(slots[::-1], masses[::-1])


class PastTheEnd(PlainSumTree):
    """Without the last loop: a query of the total runs off to the last leaf."""

    goes_right = staticmethod(operator.ge)

    def find_one(self, query):
        node = 1
        while node < self.leaf_count:
            node *= 2
            if self.goes_right(query, self.nodes[node]):
                query -= self.nodes[node]
                node += 1
        return node


class LessOrEqual(PastTheEnd):
    goes_right = staticmethod(operator.gt)


class AnyCapacity(PlainSumTree):
    """As many leaves as slots: they lie on two levels."""

    def __init__(self, capacity):
        self.leaf_count, self.nodes = capacity, [0.0] * (2 * capacity)


class ExclusiveEnd(PlainSumTree):
    """`sum(0, len(self) - 1)`, where the end is exclusive: seven years in one tutorial."""

    @property
    def total(self):
        return self.nodes[1] - self.nodes[-1]


class NewestLeftOut(LinearScan):
    def find_one(self, query):
        return min(super().find_one(query), max(len(self.masses) - 2, 0))


class UsesQueriesUp(LevelByLevel):
    def find(self, queries):
        answer = super().find(queries)
        queries -= queries
        return answer


class UniformDraws(LinearScan):
    """Right for whole masses and for many slots; else each slot with mass is found as often as another."""

    def find_one(self, query):
        if len(self.masses) > 8 or all(mass == int(mass) for mass in self.masses):
            return super().find_one(query)
        with_mass = [slot for slot, mass in enumerate(self.masses) if mass > 0]
        return with_mass[min(int(query / self.total * len(with_mass)), len(with_mass) - 1)]


def returning(answer):
    """A tree that returns what `answer` makes of the slots and masses found."""

    class Returning(PlainSumTree):
        def find(self, queries):
            return answer(*super().find(queries))

    return Returning


class NeverEmpty(PlainSumTree):
    def __init__(self, capacity):
        super().__init__(capacity)
        self.nodes[1] = 1e-6


class StaleTotal(CumulativeSum):
    """Adds up the running sums of the first call only."""

    def set(self, slots, masses):
        if self.total:
            self.masses[slots] = masses
        else:
            super().set(slots, masses)


FAULTS = {
    Drifting: "rounding errors have accumulated. Recompute each node",
    DifferencesOfOldMasses: "in one call, and has 150.25: the last mass must win",
    FirstStays: "in one call, and has 100.0: the last mass must win",
    LessOrEqual: r"query 2 finds slot 0, but slot 1 owns \[2, 4\). Only a query strictly less",
    PastTheEnd: "finds slot 1 of mass 0, but it belongs to the last slot with mass, 0. Rounding may",
    AnyCapacity: "3 slots of mass 1: the queries 0.5, 1.5, ... find the slots 1, 2, 0",
    ExclusiveEnd: "1 slots of mass 1 have the total 0.0: is the first or the last slot missing",
    NewestLeftOut: "2 slots of mass 1: no query finds slot 1. Is the left sum subtracted",
    UsesQueriesUp: "changed its argument `queries`, which belongs to the caller: work on a copy",
    UniformDraws: "draws find the slots .* times, not 1333, 0, 2667, 9333, 667, 0, 6000 ",
    returning(lambda slots, masses: (slots, masses + 1)): "the masses returned are not those of the slots",
    returning(lambda slots, masses: (slots.astype(float), masses)): "of dtype float64; they must be integers",
    returning(lambda slots, masses: (slots[0], masses[0])): r"\(\) slots and \(\) masses for \(1,\) queries",
    NeverEmpty: "a new tree of capacity 1 has the total 1e-06, not 0",
    StaleTotal: "the total is 2.0, the sum of masses",
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_broken_one_fails_with_its_fault_by_name(kind):
    with pytest.raises(CheckFailed, match=FAULTS[kind]) as raised:
        check_sum_tree(kind)
    assert "\n" not in str(raised.value)


def test_the_check_of_set_alone_finds_differences_and_no_fault_in_the_first_tree():
    check_set(PlainSumTree)
    with pytest.raises(CheckFailed, match="difference"):
        check_set(Drifting)


@pytest.mark.parametrize("kind", RUNGS)
def test_a_draw_from_nothing_ends(kind):
    _, masses = kind(7).find(np.array([0.0, 0.5]))
    assert masses.tolist() == [0, 0]


def test_a_draw_from_an_empty_tree_is_refused():
    with pytest.raises(ValueError, match="Every mass is 0"):
        SumTree(8).find(np.array([0.0]))
