"""Timing measures in turns, and numbers are shown with three digits."""

import gc
import itertools
from collections import Counter

import pytest

from replay_course import number_tables, timing


def test_workloads_take_turns_and_everybody_comes_after_everybody(monkeypatch):
    monkeypatch.setattr(timing, "calls_that_fill", lambda work, slot_seconds: 1)

    def order_of(rounds):
        order: list[str] = []
        workloads = {name: (lambda name=name: order.append(name)) for name in "abc"}
        seconds = timing.measure(workloads, rounds=rounds)
        assert {name: times.shape for name, times in seconds.items()} == dict.fromkeys("abc", (rounds,))
        return ["".join(order[start : start + 3]) for start in range(0, 3 * rounds, 3)]

    order = order_of(40)
    assert all(set(turn) == set("abc") for turn in order), "each once a round"
    after = Counter(pair for turn in order for pair in itertools.pairwise(turn))
    assert len(after) == 6 and min(after.values()) >= 5
    assert order_of(40) == order, "and the same in every run"


def test_nothing_is_collected_while_work_is_measured_after_its_warm_up():
    seen = []
    timing.measure({"work": lambda: seen.append(gc.isenabled())}, rounds=1, slot_seconds=1e-9)
    assert len(seen) > 1 and not seen[-1] and gc.isenabled()
    with pytest.raises(ValueError, match="at least 1, got 0"):
        timing.measure({}, rounds=0)


def test_slot_is_filled_with_as_many_calls_as_fit():
    fast = timing.calls_that_fill(lambda: None, 0.002)
    slow = timing.calls_that_fill(lambda: sum(range(2000)), 0.002)
    assert fast > 10 * slow >= 10


@pytest.mark.parametrize(
    ("value", "text"),
    [(9.996, "10.0"), (99.96, "100"), (0.99996, "1.00"), (-9.996, "-10.0"), (0.0, "0.0000")],
)
def test_figure_that_is_rounded_up_to_one_more_digit_has_one_decimal_less(value, text):
    assert number_tables.three_digits(value) == text
