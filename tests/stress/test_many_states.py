"""The largest configurations of the shared ring's model: no reachable state breaks an invariant."""

import pytest
from shared.test_ring_protocol import LARGE_CONFIGURATIONS, assert_invariants


@pytest.mark.parametrize("name", LARGE_CONFIGURATIONS)
def test_every_reachable_state_keeps_the_invariants(name):
    assert_invariants(LARGE_CONFIGURATIONS[name])
