"""What may be added, what is made of it, and what is refused before anything changes."""

import ast
import copy
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest
from histories import CONFIGURATIONS, configured, example_transitions, snapshot

from replay_tutorial import (
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStep,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from replay_tutorial.buffers import rows
from replay_tutorial.buffers.fields import Fields

INTEGER_DTYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOAT_DTYPES = [np.float16, np.float32, np.float64, np.longdouble]
COMPLEX_DTYPES = [np.complex64, np.complex128, np.clongdouble]
DTYPES = [np.bool_, *INTEGER_DTYPES, *FLOAT_DTYPES, *COMPLEX_DTYPES]


def stored(value: Any, dtype: Any = np.float32, shape: Any = (), size: int = 8) -> np.ndarray:
    """Add one value to a new buffer of one field and look at what it holds."""
    buffer = ReplayBuffer(size, {"x": {"shape": shape, "dtype": dtype}})
    buffer.add(x=value)
    return buffer[:]["x"]


def extremes(dtype: Any) -> np.ndarray:
    if np.dtype(dtype).kind == "b":
        return np.array([False, True, True, False])
    if np.dtype(dtype).kind in "iu":
        return np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 1], dtype)
    info = np.finfo(dtype)
    values = np.array([info.min, info.max, info.tiny, np.nan, np.inf, -np.inf, -0.0], info.dtype)
    if np.dtype(dtype).kind == "f":
        return values
    pairs = np.empty(len(values), dtype)
    pairs.real, pairs.imag = values, values[::-1]
    return pairs


def bits(array: np.ndarray) -> Any:
    """An array's bytes; for the longest floats, whose unused bytes hold anything, their text."""
    longest = array.dtype in (np.longdouble, np.clongdouble)
    return [str(value) for value in array.ravel()] if longest else array.tobytes()


class TestDeclaration:
    """The description of a transition."""

    def test_a_field_is_a_float32_scalar_unless_told(self):
        buffer = ReplayBuffer(4, {"a": {}, "b": {"shape": 3}, "c": {"dtype": np.int8}})
        buffer.add(a=1, b=[1, 2, 3], c=4)
        sample = buffer.sample(6)
        assert {name: (column.shape, column.dtype) for name, column in sample.items()} == {
            "a": ((6,), np.dtype(np.float32)),
            "b": ((6, 3), np.dtype(np.float32)),
            "c": ((6,), np.dtype(np.int8)),
        }

    @pytest.mark.parametrize(
        "shape", [(), (2, 3, 4), (1, 1), (84, 84, 3), [2, 3], np.array([2, 3]), 1, 5, np.int64(5)]
    )
    def test_shape_may_be_a_number_or_several_or_none(self, shape):
        expected = tuple(np.atleast_1d(shape).astype(int).tolist())
        values = np.arange(2 * np.prod(expected, dtype=int)).reshape(2, *expected)
        column = stored(values, np.float32, shape)
        assert column.shape == (2, *expected)
        np.testing.assert_array_equal(column, values)

    @pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
    def test_callers_dict_is_not_changed(self, kind):
        inner = {"shape": [2, 2], "dtype": "uint8"}
        fields = {"obs": inner, "reward": {}, "done": {}}
        n_step = NStep(2)
        buffer = kind(4, fields, dedupe_next="obs", dedupe_frames={"obs": 0}, n_step=n_step)
        buffer.add(obs=np.zeros((2, 2)), reward=1, next_obs=np.zeros((2, 2)), done=0)
        assert fields == {"obs": {"shape": [2, 2], "dtype": "uint8"}, "reward": {}, "done": {}}
        assert fields["obs"] is inner

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_dtypes_come_back_bit_for_bit(self, dtype):
        values = extremes(dtype)
        for shape in ((), (1,), (2, 3)):
            batch = np.broadcast_to(values.reshape(-1, *([1] * len(shape))), (len(values), *shape)).copy()
            column = stored(batch, dtype, shape)
            assert column.dtype == dtype
            assert bits(column) == bits(batch)
            one_by_one = ReplayBuffer(8, {"x": {"shape": shape, "dtype": dtype}})
            for value in batch:
                one_by_one.add(x=value)
            assert bits(one_by_one[:]["x"]) == bits(batch)

    @pytest.mark.parametrize(
        "fields",
        [
            *({"x": spec} for spec in (3, None, np.float32, {"shap": 3}, {"shape": 3, "add_shape": 1})),
            *({"x": {"shape": s}} for s in (0, -1, (2, -3), (0,), (3, 0), 2.5, (2, 1.5), "3", None)),
            *({"x": {"dtype": d}} for d in (object, str, "U5", "S3", "M8[s]", "m8[s]", [("a", "f4")])),
            *({3: {}}, {"": {}}),
        ],
    )
    def test_fields_of_no_name_numbers_or_size_are_refused(self, fields):
        with pytest.raises((TypeError, ValueError)):
            ReplayBuffer(4, fields)

    @pytest.mark.parametrize("name", ["self", "cls", "batch_size", "rows", "größe", "a b", "0", "/", "a/b/c"])
    @pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
    def test_fields_may_have_any_name(self, kind, name):
        buffer = kind(4, {name: {}, "b": {}})
        buffer.add(**{name: 5, "b": 6})
        assert buffer.sample(1)[name].tolist() == [5]


KEPT: dict[Any, list[Any]] = {
    np.float16: [65504, np.nan],
    np.float32: [0.1, 1e-300, 2**63, True, np.inf],
    np.float64: [2**53 + 1],
    np.int8: [-128.0],
    np.uint8: [255.0],
    np.int64: [3.0, 2.0**62, -(2.0**63), 2**63 - 1],
    np.uint64: [2**64 - 1],
    np.bool_: [1.0],
    np.complex64: [3, np.nan],
}
LOST: dict[Any, list[Any]] = {
    np.uint8: [300, -1],
    np.uint64: [-1, 2.0**64],
    np.int8: [128, -129, -0.5],
    np.int32: [np.inf],
    np.int64: [0.5, 1e-300, 2**63, 2.0**63, -(2.0**63) * 1.1, 1e300, np.nan],
    np.bool_: [np.nan, 2, 0.5, 1j],
    np.float16: [70_000, 2**63],
    np.float32: [1e300, 1e39],
    np.float64: [1 + 2j],
    np.complex64: [1e300 + 0j, 1e300, 1e300j],
}


def pairs(values_of: dict[Any, list[Any]]) -> list[tuple[Any, Any]]:
    return [(value, dtype) for dtype, values in values_of.items() for value in values]


class Arraylike:
    """What JAX hands out: an object that is no array but becomes one."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.array.view()
        array.flags.writeable = False
        return array if dtype is None else array.astype(dtype)


class TestValues:
    """The ways in which one transition, or a batch of them, may be given."""

    VALUES = np.arange(12).reshape(2, 2, 3)

    @pytest.mark.parametrize(
        "given",
        [
            VALUES,
            VALUES.astype(np.float64),
            VALUES.tolist(),
            tuple(VALUES),
            np.asfortranarray(VALUES),
            np.repeat(VALUES, 2, axis=2)[:, :, ::2],
            VALUES[::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1],
            VALUES.astype(">i8"),
            VALUES.astype(">f4"),
            VALUES.astype(np.float16),
            VALUES.astype(np.longdouble),
            VALUES.astype(np.uint8).view(np.memmap),
            Arraylike(VALUES),
            Arraylike(VALUES.astype(np.uint8)),
            memoryview(VALUES),
            [[Arraylike(row) for row in rows] for rows in VALUES],
        ],
        ids=lambda given: type(given).__name__,
    )
    @pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
    def test_anything_that_numpy_makes_numbers_of_may_be_added(self, given, dtype):
        if isinstance(given, tuple):
            given = list(given)  # tuples are nested fields, as in gymnasium
        column = stored(given, dtype, (2, 3))
        assert column.dtype == dtype
        np.testing.assert_array_equal(column, self.VALUES)

    def test_torch_tensors_may_be_added(self):
        torch = pytest.importorskip("torch")
        for dtype in (torch.float32, torch.uint8, torch.int64, torch.float64, torch.float16):
            np.testing.assert_array_equal(
                stored(torch.from_numpy(self.VALUES).to(dtype), shape=(2, 3)), self.VALUES
            )
        np.testing.assert_array_equal(stored(torch.tensor(3.0)), [3.0])
        assert stored(torch.tensor(True), bool).tolist() == [True]

    @pytest.mark.parametrize(
        ("shape", "given"),
        [
            *(((), given) for given in (5, [5], [5, 6])),
            *(((1,), given) for given in (5, [5], [[5]], [5, 6], [[5], [6]])),
            *(((2,), given) for given in ([5, 6], [[5, 6]], [[5, 6], [7, 8]])),
            ((1, 1), [[[5]], [[6]]]),
        ],
    )
    def test_one_transition_or_a_batch_is_told_by_its_shape(self, shape, given):
        for as_given in (given, np.array(given), np.array(given, np.float32)):
            assert stored(as_given, shape=shape).tolist() == np.reshape(given, (-1, *shape)).tolist()

    def test_nested_dicts_and_tuples_feed_fields_named_with_a_slash(self):
        fields = {"obs/image": {"shape": 2}, "obs/goal/x": {}, "action/0": {}, "action/1": {}}
        buffer = ReplayBuffer(8, fields)
        buffer.add(obs={"image": [1, 2], "goal": {"x": 3}}, action=(4, 5))
        buffer.add(obs={"image": [[1, 2], [3, 4]], "goal": {"x": [3, 4]}}, action=([4, 5], [5, 6]))
        buffer.add(**{"obs/image": [9, 9], "obs/goal/x": 9, "action/0": 9, "action/1": 9})
        buffer.add(**{"obs/image": [9, 9], "obs": {"goal/x": 9}, "action": {"0": 9, "1": 9}})
        rows = buffer[:]
        assert rows["obs/image"].tolist() == [[1, 2], [1, 2], [3, 4], [9, 9], [9, 9]]
        assert rows["obs/goal/x"].tolist() == [3, 3, 4, 9, 9]
        assert rows["action/0"].tolist() == [4, 4, 5, 9, 9]
        assert rows["action/1"].tolist() == [5, 5, 6, 9, 9]

    def test_tuple_for_a_field_that_exists_is_its_value(self):
        assert stored((1, 2, 3), shape=3).tolist() == [[1, 2, 3]]
        assert stored(((1, 2, 3), (4, 5, 6)), shape=3).tolist() == [[1, 2, 3], [4, 5, 6]]

    @pytest.mark.parametrize(("value", "dtype"), pairs(KEPT))
    def test_values_that_fit_are_taken_and_rounding_is_fine(self, value, dtype):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for given in (value, np.array(value), [value], [value, value]):
                np.testing.assert_array_equal(stored(given, dtype), np.full(np.size(given), dtype(value)))


class TestRefused:
    """Whatever can't be stored is refused before anything changes."""

    @pytest.mark.parametrize(("value", "dtype"), pairs(LOST))
    @pytest.mark.parametrize("shape", [(), (1,), (2, 2)])
    def test_value_that_the_dtype_cannot_hold(self, value, dtype, shape):
        buffer = ReplayBuffer(4, {"y": {}, "x": {"shape": shape, "dtype": dtype}})
        buffer.add(x=np.ones(shape), y=1)
        before = snapshot(buffer)
        whole = np.zeros((3, *shape), np.asarray(value).dtype)
        whole.reshape(-1)[-1] = value
        one = np.full(shape, value)
        for given in (one, one.tolist(), *([value] if shape in ((), (1,)) else [])):
            with pytest.raises(ValueError, match=r"'x' has the dtype .* can't hold"):
                buffer.add(x=given, y=1)
        for given in (whole, whole.tolist()):
            with pytest.raises(ValueError, match=r"'x' has the dtype .* can't hold"):
                buffer.add(x=given, y=[1, 2, 3])
        assert snapshot(buffer) == before

    @pytest.mark.skipif(
        np.finfo(np.longdouble).max <= np.finfo(np.float64).max, reason="longdouble is float64 here"
    )
    def test_longdouble_beyond_float64(self):
        with pytest.raises(ValueError, match="'x'"):
            stored(np.longdouble("1e4000"), np.float64)

    @pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**400])
    @pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint8, bool])
    def test_integer_that_no_dtype_holds(self, value, dtype):
        for given in (value, [value], [0, value]):
            with pytest.raises((ValueError, TypeError, OverflowError), match="'x'"):
                stored(given, dtype)

    @pytest.mark.parametrize("name", CONFIGURATIONS)
    @pytest.mark.parametrize("single", [True, False])
    @pytest.mark.parametrize(
        ("field", "value", "error"),
        [
            *(("obs", 300.0, ValueError), ("obs", np.nan, ValueError), ("obs", object(), TypeError)),
            *(
                ("action", 0.5, ValueError),
                ("action", "five", TypeError),
                ("action", np.datetime64(1, "D"), TypeError),
            ),
            *(("reward", 1e300, ValueError), ("reward", 1 + 2j, ValueError)),
            *(("reward", b"5", TypeError), ("reward", None, TypeError)),
            *(("next_obs", 0.5, ValueError), ("terminated", 2.0, ValueError)),
        ],
    )
    def test_bad_value_in_the_last_transition(self, name, single, field, value, error):
        buffer = configured(name, size=60, rows=17)
        before = snapshot(buffer)
        batch: dict[str, Any] = example_transitions(np.random.default_rng(0), 1 if single else 20, buffer)
        column = batch[field].astype(np.asarray(value).dtype)
        column[(-1,) * column.ndim] = value
        batch[field] = column
        if single:
            batch = {field: column[0] for field, column in batch.items()}
        with pytest.raises(error):
            buffer.add(**batch)
        assert snapshot(buffer) == before

    @pytest.mark.parametrize("name", CONFIGURATIONS)
    @pytest.mark.parametrize(
        ("change", "error"),
        [
            (lambda batch: {**batch, "obs": batch["obs"][:, :1]}, ValueError),
            (lambda batch: {**batch, "obs": batch["obs"].reshape(5, 6)}, ValueError),
            (lambda batch: {**batch, "obs": batch["obs"][None]}, ValueError),
            (lambda batch: {**batch, "action": batch["action"][:, None]}, ValueError),
            (lambda batch: {**batch, "reward": np.ones((5, 2))}, ValueError),
            (lambda batch: {**batch, "obs": 1}, ValueError),
            (lambda batch: {**batch, "reward": 1.0}, ValueError),
            (lambda batch: {**batch, "reward": batch["reward"][:4]}, ValueError),
            (lambda batch: {**batch, "next_obs": batch["next_obs"][0]}, ValueError),
            (lambda batch: {field: column[:0] for field, column in batch.items()}, ValueError),
            (lambda batch: {**batch, "action": []}, ValueError),
            (lambda batch: {**batch, "reward": [[1.0], [1.0, 2.0], *[[1.0]] * 3]}, (ValueError, TypeError)),
            (lambda batch: {**batch, "reward": np.array([1, 2, 3, 4, "5"], object)}, TypeError),
            (lambda batch: {**batch, "reward": {"a": 1}}, (KeyError, TypeError)),
            (lambda batch: {**batch, "obs": {}}, (KeyError, TypeError)),
            (lambda batch: {k: v for k, v in batch.items() if k != "obs"}, KeyError),
            (lambda batch: {**batch, "rew": batch["reward"]}, KeyError),
            (lambda batch: {"observation" if k == "obs" else k: v for k, v in batch.items()}, KeyError),
            (lambda batch: {}, KeyError),
        ],
    )
    def test_batch_that_does_not_fit(self, name, change: Callable[[Any], Any], error):
        buffer = configured(name, size=60, rows=17)
        before = snapshot(buffer)
        batch = example_transitions(np.random.default_rng(0), 5, buffer)
        with pytest.raises(error):
            buffer.add(**change(batch))
        assert snapshot(buffer) == before
        assert buffer.add(**batch) is not None, "the buffer does not work on after a refusal"

    def test_message_names_the_fault_and_all_the_fields(self):
        buffer = ReplayBuffer(4, {"obs": {}, "action": {}, "reward": {}})
        with pytest.raises(KeyError, match=r"(?s)rew.*obs.*action.*reward"):
            buffer.add(obs=1, action=1, rew=1)
        with pytest.raises(KeyError, match="reward"):
            buffer.add(obs=1, action=1)
        with pytest.raises(ValueError, match=r"(?s)reward.*\(3, 7\)"):
            buffer.add(obs=1, action=1, reward=np.zeros((3, 7)))
        with pytest.raises(ValueError, match="300"):
            ReplayBuffer(4, {"obs": {"dtype": np.uint8}}).add(obs=[1, 300])

    def test_n_step_rows_for_a_buffer_that_was_declared_without_discount(self):
        for number in ({}, {"shape": (1,)}):
            fields = {"reward": number, "terminated": number}
            window = NStepWindow(fields, 2)
            rows = window.add(reward=np.ones(3), terminated=np.arange(3) == 2)
            for kind in (ReplayBuffer, PrioritizedReplayBuffer):
                with pytest.raises(
                    KeyError, match=r"discount.*NStepWindow.*fields.*fields_from_spaces"
                ) as refused:
                    kind(4, fields).add(**rows)
                advice = re.search(r'"discount": ({.*?})', str(refused.value))
                as_it_says = kind(4, fields | {"discount": ast.literal_eval(advice[1])})
                for buffer in (as_it_says, kind(4, window.fields)):
                    buffer.add(**rows)
                    batch = buffer.sample(5)
                    # A target of (5, 5) out of (5,) and (5, 1) would be no error in any framework.
                    assert (batch["reward"] + batch["discount"]).shape == (5, *number.get("shape", ()))
                    stored = buffer[:]["discount"]
                    np.testing.assert_array_equal(stored, rows["discount"])
        with pytest.raises(KeyError) as told:
            ReplayBuffer(4, {"reward": {}, "discount": {}}).add(reward=1, discount=1, rewards=1)
        assert "NStepWindow" not in str(told.value)

    def test_priorities_of_a_uniform_buffer(self):
        with pytest.raises(KeyError, match="priorities"):
            ReplayBuffer(4, {"obs": {}}).add(obs=1, priorities=1)


FLOATS_AND_OTHERS: dict[str, dict[str, Any]] = {
    "obs": {"shape": (2, 3)},
    "action": {"dtype": np.int64},
    "reward": {"dtype": np.float64},
    "spin": {"dtype": np.complex64},
    "half": {"dtype": np.float16},
}
KINDS = (ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer)
FINITE: dict[str, Any] = {kind.__name__: partial(kind, 8, FLOATS_AND_OTHERS) for kind in KINDS}
FINITE["images"] = partial(MPReplayBuffer, 8, FLOATS_AND_OTHERS, dedupe_next="obs")


def finite_values(buffer: Any, count: int | None = None) -> dict[str, Any]:
    one = {"obs": np.full((2, 3), 1e38), "action": 1, "reward": 1e308, "spin": 1e38 + 1e38j, "half": 6e4}
    if "next_obs" in str(buffer):
        one["next_obs"] = one["obs"]
    return one if count is None else {name: np.array([value] * count) for name, value in one.items()}


@pytest.mark.parametrize("name", FINITE)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("count", [None, 1, 3])
def test_nan_and_infinity_are_refused_if_that_is_asked_for(name, bad, count):
    checked, plain = FINITE[name](check_finite=True), FINITE[name]()
    for field in ("obs", "reward", "spin", "half"):
        values = finite_values(checked, count)
        values[field] = np.array(values[field], np.complex128 if field == "spin" else np.float64)
        values[field].flat[-1] = complex(1, bad) if field == "spin" else bad
        with pytest.raises(ValueError, match=f"'{field}' contains -?(nan|inf), which check_finite"):
            checked.add(**values)
        with pytest.raises(ValueError, match=f"'{field}' contains"):
            checked.add(**{**values, field: values[field].tolist()})
        assert len(checked) == checked.next_index == 0
        plain.add(**values)  # by default they are values like others
    checked.add(**finite_values(checked, count))
    assert len(checked) == (count or 1)


@pytest.mark.parametrize("name", FINITE)
def test_copies_attached_and_loaded_buffers_check_what_the_first_one_does(name, tmp_path):
    buffer = FINITE[name](check_finite=True)
    buffer.add(**finite_values(buffer))
    bad = {**finite_values(FINITE[name]()), "reward": np.nan}
    buffer.save(tmp_path / "saved")
    loaded = FINITE[name](check_finite=True)
    loaded.load(tmp_path / "saved")
    with pytest.raises(ValueError, match="check_finite is True in the file and False here"):
        FINITE[name]().load(tmp_path / "saved")
    others = [loaded, pickle.loads(pickle.dumps(buffer))]
    if isinstance(buffer, MPReplayBuffer):
        others.append(type(buffer).attach(buffer.address) if sys.platform == "linux" else copy.copy(buffer))
        others += [FINITE[name](check_finite=True, path=tmp_path / "file") for _ in range(2)]
        others.append(type(buffer).attach(tmp_path / "file"))
        with pytest.raises(ValueError, match="file"):
            FINITE[name](path=tmp_path / "file")
    for other in others:
        with pytest.raises(ValueError, match="check_finite"):
            other.add(**bad)


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_python_looks_at_no_single_one_of_many_indexes(dtype):
    def opcodes(count):
        """The steps of Python's interpreter in which `count` indexes are checked."""
        steps = 0

        def step(frame, event, _):
            nonlocal steps
            frame.f_trace_opcodes = True
            steps += event == "opcode"
            return step if frame.f_code.co_filename == rows.__file__ else None

        indexes, before = np.arange(count, dtype=dtype), sys.gettrace()
        sys.settrace(step)
        try:
            rows.as_integers("indexes", indexes)
        finally:
            sys.settrace(before)
        return steps

    assert opcodes(100) < opcodes(2) + 98


class RaisesKeyError:
    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise KeyError("gone")


def test_key_error_of_a_value_is_raised():
    with pytest.raises(KeyError, match="gone"):
        Fields({"obs": {"shape": 2}}).to_columns({"obs": RaisesKeyError()})


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_that_lacks_its_last_field_is_refused_after_a_whole_one(count):
    fields, batch = Fields({"obs": {"shape": 2}, "done": {}}), {"obs": np.zeros((count, 2))}
    fields.to_columns(batch | {"done": np.ones(count)})
    with pytest.raises(KeyError, match=r"missing \['done'\]"):
        fields.to_columns(batch)
