"""Values of other dtypes, in every shape that `add` takes, beside NumPy's own conversion."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from replay_tutorial import MPReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.cast import round_floats, to_bytes

FIELDS = {
    "obs": {"shape": 3},
    "action": {"dtype": np.int64},
    "reward": {},
    "image": {"shape": (2, 2), "dtype": np.uint8},
}
LARGEST = float(np.finfo(np.float32).max)
floats = st.floats(-LARGEST, LARGEST) | st.sampled_from(
    [np.nan, np.inf, -np.inf, -0.0, 1e-45, 1e-300, LARGEST]
)


@given(values=arrays.arrays(np.float64, st.integers(0, 40), elements=st.floats()))
def test_kernel_rounds_as_numpy_does_and_tells_what_became_infinite(values):
    rounded = np.empty(len(values), np.float32)
    lost = round_floats(values, rounded)
    with np.errstate(all="ignore"):
        expected = values.astype(np.float32)
    np.testing.assert_array_equal(rounded, expected)
    np.testing.assert_array_equal(np.signbit(rounded), np.signbit(expected))
    assert lost == bool(np.any(np.isinf(expected) & np.isfinite(values)))


@given(
    values=arrays.arrays(
        np.float32, st.integers(0, 80), elements=st.integers(-1, 256).map(float) | st.floats(width=32)
    )
)
def test_kernel_of_pictures_tells_what_is_no_byte(values):
    stored = np.empty(len(values), np.uint8)
    lost = to_bytes(values, stored)
    assert lost != all(value in range(256) for value in values.tolist())
    for byte, value in zip(stored.tolist(), values.tolist(), strict=True):
        if value in range(256):
            assert byte == value
        elif not 0 <= value <= 255:
            assert byte == 0


def strided(array):
    return np.repeat(array, 2, axis=-1)[..., ::2]


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "as it is": lambda array: array,
    "list": lambda array: array.tolist(),
    "strided": lambda array: strided(array) if array.ndim else array,
    "frozen": frozen,
    "Fortran": np.asfortranarray,
    "other byte order": lambda array: array.astype(array.dtype.newbyteorder()),
    "float64": lambda array: array.astype(np.float64),
    "float32": lambda array: array.astype(np.float32),
}
forms = st.sampled_from(list(FORMS))


@st.composite
def rows(draw):
    """Arguments of one `add`, and what it must store."""
    count = draw(st.integers(0, 3))  # 0: one transition, without an axis of rows
    lead = (count,) if count else ()
    columns = {
        "obs": draw(arrays.arrays(np.float64, (*lead, 3), elements=floats)),
        "action": draw(arrays.arrays(np.int64, lead, elements=st.integers(-1000, 1000))),
        "reward": draw(arrays.arrays(np.float64, lead, elements=floats)),
        "image": draw(arrays.arrays(np.int64, (*lead, 2, 2), elements=st.integers(0, 255))),
    }
    asked = {name: FORMS[draw(forms)](np.asarray(column)) for name, column in columns.items()}
    with np.errstate(all="ignore"):
        expected = {
            "obs": columns["obs"].astype(np.float32).reshape(-1, 3),
            "action": columns["action"].reshape(-1),
            "reward": columns["reward"].astype(np.float32).reshape(-1),
            "image": columns["image"].astype(np.uint8).reshape(-1, 2, 2),
        }
    return asked, expected


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer])
@given(calls=st.lists(rows(), min_size=1, max_size=6))
def test_every_form_of_input_is_stored_as_numpy_converts_it(kind, calls):
    buffer = kind(32, FIELDS)
    for asked, _ in calls:
        buffer.add(**asked)
    stored = buffer[:]
    for name in FIELDS:
        np.testing.assert_array_equal(stored[name], np.concatenate([expected[name] for _, expected in calls]))


@pytest.mark.parametrize("kind", [ReplayBuffer, MPReplayBuffer])
def test_pictures_that_were_pickled_are_not_copied_on_their_way_in(kind):
    """Unpickled arrays have dtypes of their own, equal to NumPy's but not the same object."""
    buffer = kind(64, {"image": {"shape": (84, 84), "dtype": np.uint8}, "reward": {}})
    rows = {"image": np.ones((32, 84, 84), np.uint8), "reward": np.ones(32)}
    assert pickle.loads(pickle.dumps(rows))["image"].dtype is not rows["image"].dtype

    def peak(rows):
        buffer.add(**rows)
        tracemalloc.start()
        buffer.add(**rows)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    plain = peak(rows)
    assert peak(pickle.loads(pickle.dumps(rows))) < plain + rows["image"].nbytes / 2


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_an_unpickled_buffer_takes_arrays_as_fast_as_before(kind):
    """Equal dtypes are recognised at once only if they are the same object, NumPy's own."""
    buffer = pickle.loads(pickle.dumps(kind(4, {**FIELDS, "wide": {"dtype": ">f8"}})))
    rows = {name: np.zeros(field.shape, field.dtype.type) for name, field in buffer._fields.fields.items()}
    assert [rows[name].dtype is field.dtype for name, field in buffer._fields.fields.items()] == [True] * 5
    _, columns = buffer._fields.to_columns(rows)
    assert all(column is given for column, given in zip(columns, rows.values(), strict=True))
