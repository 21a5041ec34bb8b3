"""Samples of shared buffers in the caller's arrays, and large fields that come out on their own."""

from typing import Any

import numpy as np
import pytest

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer

FIRST, LAST, ODD = (4, 40, 42), (40, 42, 4), (4, 37, 41)
WAYS = [
    pytest.param(FIRST, {}, id="plain"),
    pytest.param(FIRST, {"next_of": "obs"}, id="next_of"),
    pytest.param(FIRST, {"next_of": "obs", "stack_compress": "obs"}, id="channel-first"),
    pytest.param(LAST, {"next_of": "obs", "stack_compress": "obs"}, id="channel-last"),
    pytest.param(ODD, {"next_of": "obs", "stack_compress": "obs"}, id="no whole words"),
]


def filled(kind: Any, shape: tuple[int, ...], options: dict[str, Any]) -> Any:
    picture = {"shape": shape, "dtype": np.uint8}
    env_dict = {"obs": picture, "act": {"shape": (), "dtype": np.int64}, "rew": {}, "next_obs": picture}
    buffer, rng = kind(20, env_dict, seed=3, **options), np.random.default_rng(0)
    seen = rng.integers(0, 256, (31, *shape), dtype=np.uint8)
    for i in range(30):
        buffer.add(obs=seen[i], act=i, rew=i / 2, next_obs=seen[i + 1])
    return buffer


@pytest.mark.parametrize("kind", [MPReplayBuffer, MPPrioritizedReplayBuffer])
@pytest.mark.parametrize(("shape", "options"), WAYS)
def test_the_callers_arrays_change_nothing_but_where_a_batch_lies(kind, shape, options):
    plain, other = filled(kind, shape, options), filled(kind, shape, options)
    first = plain.sample(7)
    other.sample(7)
    assert first["obs"].flags.c_contiguous and first["next_obs"].flags.c_contiguous
    for names in ([], ["obs"], list(first)):
        out = {name: np.zeros_like(np.ascontiguousarray(first[name])) for name in names}
        expected, batch = plain.sample(7), other.sample(7, out=out)
        assert set(batch) == set(expected)
        for name, column in expected.items():
            assert batch[name].tobytes() == column.tobytes(), name
            assert (batch[name] is out.get(name)) == (name in names)


@pytest.mark.parametrize("kind", [MPReplayBuffer, MPPrioritizedReplayBuffer])
def test_an_array_that_begins_between_two_words_is_filled_too(kind):
    plain, other = (filled(kind, FIRST, {"next_of": "obs", "stack_compress": "obs"}) for _ in range(2))
    memory = np.zeros(7 * 4 * 40 * 42 + 3, np.uint8)
    out = {"obs": memory[3:].reshape(7, *FIRST)}
    expected, batch = plain.sample(7), other.sample(7, out=out)
    assert batch["obs"] is out["obs"]
    np.testing.assert_array_equal(batch["obs"], expected["obs"])


@pytest.mark.parametrize("kind", [MPReplayBuffer, MPPrioritizedReplayBuffer])
def test_arrays_that_do_not_fit_are_refused_before_anything_is_drawn(kind):
    buffer = filled(kind, FIRST, {})
    state, sampled = repr(buffer._rng.bit_generator.state), buffer.statistics().rows_sampled
    for out, error in [
        ({"reward": np.zeros(7)}, KeyError),
        ({"rew": np.zeros((8, 1), np.float32)}, ValueError),
        (0, TypeError),
        ([], TypeError),
    ]:
        with pytest.raises(error):
            buffer.sample(7, out=out)
    assert repr(buffer._rng.bit_generator.state) == state
    assert buffer.statistics().rows_sampled == sampled
