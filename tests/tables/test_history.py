"""The history of a writer beside a list of its steps."""

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from recording_server import RecordingServer

from replay_tutorial.tables.writing.writer import TrajectoryWriter

KEEP = 5
small = st.integers(-7, 7)
bounds = st.none() | small
indexes = (
    small
    | st.lists(small, max_size=4)
    | st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, 3, -1, -2]))
)


def writer_of(steps, keep=KEEP):
    writer = TrajectoryWriter(RecordingServer({"obs": {"shape": 2}, "action": {"dtype": np.int8}}), keep)
    for step in range(steps):
        writer.append({"obs": [step, -step], "action": step})
    return writer


def named_in_a_list(values, index):
    """What a list shows at an index, with strangers before its first value and after its last."""
    edge = [None] * 50
    longer = [*edge, *values, *edge]

    def moved(i):
        return i + 50 if i >= 0 else i - 50

    if isinstance(index, int):
        return [longer[moved(index)]]
    if isinstance(index, list):
        return [longer[moved(i)] for i in index]
    start, stop, stride = index.start, index.stop, index.step or 1
    edges = (50, -50) if stride > 0 else (-51, 49)
    start, stop = (edge if i is None else moved(i) for i, edge in zip((start, stop), edges, strict=True))
    return longer[start:stop:stride]


@repeatable(500)
@given(st.integers(0, 8), indexes)
def test_an_index_names_what_a_list_shows_or_nothing(steps, index):
    held = [None] * max(0, steps - KEEP) + list(range(max(0, steps - KEEP), steps))
    expected = named_in_a_list(held, index)
    column = writer_of(steps).history["action"]
    if not expected or None in expected:
        with pytest.raises(IndexError, match="'action'"):
            column[index]
    else:
        cells = column[index]
        assert np.atleast_1d(cells.numpy()).tolist() == expected
        assert cells.squeezed == (cells.numpy().ndim == 0) == isinstance(index, int)
        assert len(cells) == len(expected)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (slice(0, 3), [0, 1, 2]),  # Reverb: nothing, if there are exactly 3 steps
        ([-3, -1], [0, 2]),  # Reverb: 0 and 1
        (np.int64(-2), [1]),
        ((0, 2), [0, 2]),
    ],
)
def test_steps_that_reverb_gets_wrong_are_right(index, expected):
    assert np.atleast_1d(writer_of(3).history["action"][index].numpy()).tolist() == expected


def test_a_step_that_is_not_held_any_more_says_how_to_hold_it():
    history = writer_of(8).history
    assert history["action"][3].numpy() == 3
    assert list(history["action"].values) == list(history["action"].unsent) == [3, 4, 5, 6, 7]
    with pytest.raises(IndexError, match=r"no longer holds step 2 of 8.* newest 5.* num_keep_alive_refs"):
        history["action"][2]


def test_a_step_without_a_value_can_not_be_named_in_that_column():
    writer = writer_of(1)
    writer.append({"obs": [5, 5]})
    writer.append({"obs": [6, 6], "action": 6})
    with pytest.raises(IndexError, match="'action' has no value in step 1"):
        writer.history["action"][-2:]
    assert writer.history["action"][[0, 2]].numpy().tolist() == [0, 6]
    assert writer.history["obs"][:].numpy().tolist() == [[0, 0], [5, 5], [6, 6]]


def test_a_rare_column_expires_with_its_step_and_not_before():
    writer = writer_of(1, keep=3)
    for _ in range(2):
        writer.append({"obs": [1, 1]})
    assert writer.history["action"][0].numpy() == 0
    writer.append({"obs": [1, 1]})
    with pytest.raises(IndexError, match="no longer holds"):
        writer.history["action"][0]


@pytest.mark.parametrize("index", ["0", None, 1.0, slice(0.0, 1), np.array([0, 1]), ...])
def test_other_kinds_of_indexes_are_refused(index):
    with pytest.raises(TypeError):
        writer_of(3).history["action"][index]


def test_an_unknown_column_is_told_with_those_there_are():
    with pytest.raises(KeyError, match=r"'reward'.*'obs', 'action'"):
        writer_of(3).history["reward"]


def test_named_cells_are_values_only_as_long_as_they_are_held():
    writer = writer_of(2)
    cells = writer.history["obs"][:]
    copied = cells.numpy()
    copied[:] = 9
    assert cells.numpy().tolist() == [[0, 0], [1, -1]]
    writer.end_episode()
    with pytest.raises(IndexError):
        cells.numpy()
