"""Powers, against the C library's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay_tutorial.buffers.priorities import MIN_NORMAL, masses_of, power

EXPONENTS = st.floats(0.0, 1.0, allow_subnormal=False)


@given(st.floats(MIN_NORMAL, 2.0**1020), EXPONENTS)
def test_power_is_that_of_the_c_library_to_thirteen_digits(x, y):
    assert power(x, y) == pytest.approx(math.pow(x, y), rel=1e-13)


@given(st.floats(1e-6, 1e6), EXPONENTS)
def test_power_of_a_usual_number_is_right_to_fourteen_digits(x, y):
    assert power(x, y) == pytest.approx(math.pow(x, y), rel=1e-14)


@pytest.mark.parametrize("y", [0.0, 1e-300, 0.4, 1.0])
def test_power_of_zero_is_zero_unless_the_exponent_is(y):
    assert power(0.0, y) == 0.0**y


@given(EXPONENTS)
def test_power_of_one_is_exactly_one(y):
    assert power(1.0, y) == 1.0


@given(st.floats(0.0, 2.0**1020))
def test_exponent_zero_gives_exactly_one(x):
    assert power(x, 0.0) == 1.0


@given(st.floats(0.0, MIN_NORMAL, exclude_min=True), EXPONENTS)
def test_least_numbers_keep_a_power_above_zero(x, y):
    assert power(x, y) == pytest.approx(math.pow(MIN_NORMAL, y), rel=1e-13) and power(x, y) > 0.0


@pytest.mark.parametrize("count", [1, 3, 4, 7, 8, 9, 64, 1000])
def test_a_number_has_the_same_power_alone_and_among_others(count):
    priorities = np.random.default_rng(count).exponential(size=count)
    masses = masses_of(priorities, 0.6, 0.01)
    assert masses.tolist() == [power(priority + 0.01, 0.6) for priority in priorities]
