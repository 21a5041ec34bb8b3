"""Selectors beside lists: who is next, with what probability, after any sequence of changes."""

import math
from typing import Any

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from naive_tables import NaiveItem, distribution, kind_of
from scipy.stats import chisquare

from replay_tutorial.tables.core.selectors import Fifo, Lifo, MaxHeap, MinHeap, Prioritized, Selector, Uniform

SELECTORS: dict[str, Selector] = {
    "uniform": Uniform(),
    "fifo": Fifo(),
    "lifo": Lifo(),
    "least": MinHeap(),
    "greatest": MaxHeap(),
    "prioritized 0": Prioritized(0.0),
    "prioritized 0.6": Prioritized(0.6),
    "prioritized 1": Prioritized(1.0),
    "prioritized 3": Prioritized(3.0),
}
SLOTS = 7
PRIORITIES = [0.0, 0.5, 1.0, 2.0]


changes = st.lists(
    st.tuples(st.sampled_from("iiiud"), st.integers(0, SLOTS - 1), st.sampled_from(PRIORITIES)), max_size=30
)


@pytest.mark.parametrize("name", SELECTORS)
@given(changes=changes)
@repeatable(150)
def test_after_any_changes_the_probabilities_are_those_of_the_definition(name: str, changes: Any) -> None:
    selection, items = SELECTORS[name].for_slots(SLOTS), dict[int, NaiveItem]()
    rng = np.random.default_rng(0)
    for clock, (kind, slot, priority) in enumerate(changes):
        if kind == "i" and slot not in items:
            selection.insert(slot, priority)
            items[slot] = NaiveItem(slot, priority, {}, [], clock, clock)
        elif kind == "u" and slot in items:
            # a slot twice in one update: it is changed twice, and is the last one touched
            selection.update(np.array([slot, slot]), np.array([9.0, priority]))
            items[slot].priority, items[slot].touched = priority, clock
        elif kind == "d" and slot in items:
            selection.delete(slot)
            del items[slot]
        if not items:
            continue
        expected = distribution([*items.values()], kind_of(SELECTORS[name]))
        slots = np.array([*items])
        assert selection.probabilities(slots) == pytest.approx([*expected.values()], abs=1e-12)
        drawn = selection.select(4, rng)
        assert drawn.probabilities == pytest.approx([expected[s] for s in drawn.slots.tolist()], abs=1e-12)
        assert (drawn.probabilities > 0).all()
        positive = min(p for p in expected.values() if p > 0)
        assert drawn.least_probability == pytest.approx(positive, abs=1e-12)
        again = SELECTORS[name].for_slots(SLOTS)
        for slot in selection.in_order().tolist():
            again.insert(slot, items[slot].priority)
        assert again.in_order().tolist() == selection.in_order().tolist()
        assert again.probabilities(slots).tolist() == selection.probabilities(slots).tolist()
        theirs, ours = np.random.default_rng(7), np.random.default_rng(7)
        assert again.select(8, theirs).slots.tolist() == selection.select(8, ours).slots.tolist()


@pytest.mark.parametrize("name", ["uniform", "prioritized 0", "prioritized 0.6", "prioritized 3"])
def test_draws_follow_the_reported_probabilities(name: str) -> None:
    """A chi-square test at 1e-3; a wrong distribution of these sizes falls below 1e-20."""
    selection, rng = SELECTORS[name].for_slots(40), np.random.default_rng(3)
    for slot in range(40):
        selection.insert(slot, 0.1 + slot % 7)
    for slot in range(0, 40, 3):
        selection.delete(slot)
    slots = np.array([slot for slot in range(40) if slot % 3])
    drawn = np.concatenate([selection.select(500, rng).slots for _ in range(100)])
    counts = np.bincount(drawn, minlength=40)
    expected = selection.probabilities(slots)
    assert expected.sum() == pytest.approx(1.0, abs=1e-12)
    assert counts[slots].sum() == 50_000
    assert chisquare(counts[slots], 50_000 * expected).pvalue > 1e-3


def test_draws_are_independent_of_each_other() -> None:
    """Stratified draws would never hit one half twice; of two independent ones, half do (5 sigma)."""
    selection, rng = Prioritized(1.0).for_slots(2), np.random.default_rng(1)
    selection.insert(0, 1.0)
    selection.insert(1, 1.0)
    pairs = [selection.select(2, rng).slots.tolist() for _ in range(2_000)]
    assert abs(sum(a == b for a, b in pairs) - 1_000) < 5 * math.sqrt(500)


@pytest.mark.parametrize("exponent", [-0.1, math.nan, math.inf])
def test_an_exponent_out_of_range_is_refused(exponent: float) -> None:
    with pytest.raises(ValueError, match="exponent"):
        Prioritized(exponent)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.5, 40.0])
def test_the_highest_priority_does_not_overflow_the_total(exponent: float) -> None:
    selection = Prioritized(exponent).for_slots(9)
    for slot in range(9):
        selection.insert(slot, selection.high)
    assert selection.probabilities(np.arange(9)) == pytest.approx([1 / 9] * 9)
