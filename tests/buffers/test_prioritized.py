"""The prioritized buffer beside a dictionary of priorities and the formulas."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from histories import CONFIGURATIONS, History, configured, example_transitions, repeatable, snapshot
from hypothesis import given
from hypothesis import strategies as st
from oracles import CAPACITIES, PlainPriorities

from replay_tutorial import (
    EpisodeReplayBuffer,
    Mixture,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    PrioritizedReplayBuffer,
)

ENV_DICT: dict[str, dict[str, Any]] = {"action": {"dtype": np.int64}}
PRIORITIZED = [name for name in CONFIGURATIONS if name.startswith("prioritized")]


def buffer_of(
    priorities: Any, *, size: int | None = None, alpha: float = 1.0, eps: float = 0.0, **changes: Any
) -> Any:
    """A buffer that holds one row for each priority, `action` the index."""
    count = len(priorities)
    buffer = PrioritizedReplayBuffer(size or count, ENV_DICT, alpha=alpha, eps=eps, seed=0, **changes)
    buffer.add(action=np.arange(count), priorities=priorities)
    return buffer


@repeatable(400)
@given(
    seed=st.integers(0, 2**32 - 1),
    capacity=st.sampled_from(CAPACITIES[:-1]),
    alpha=st.sampled_from([0.0, 0.4, 0.6, 1.0]),
    eps=st.sampled_from([0.0, 1e-4, 0.3]),
)
def test_buffer_equals_a_dictionary_of_priorities_in_any_history(seed, capacity, alpha, eps):
    rng = np.random.default_rng(seed)
    buffer = PrioritizedReplayBuffer(capacity, ENV_DICT, alpha=alpha, eps=eps, seed=seed)
    oracle = PlainPriorities(capacity, alpha, eps)
    first = 0
    for _ in range(25):
        operation = rng.random()
        if operation < 0.4:
            count = int(rng.choice([1, 1, 2, 3, capacity, 2 * capacity + 1]))
            priorities: Any = random_priorities(rng, count)
            if rng.random() < 0.4:
                priorities = None
            assert buffer.add(action=np.arange(first, first + count), priorities=priorities) == first
            for i in range(count):
                oracle.give(first + i, None if priorities is None else priorities[i])
            first += count
        elif operation < 0.7 and first:
            count = int(rng.integers(0, 6))
            indexes = rng.integers(max(0, first - 2 * capacity), first, count)
            priorities = random_priorities(rng, count)
            buffer.update_priorities(indexes, priorities)
            oracle.update(indexes.tolist(), priorities.tolist())
        elif operation < 0.75:
            buffer.clear()
            oracle.clear()
        elif oracle.priorities and oracle.total() > 0:
            check_sample(buffer, oracle, rng)
        assert buffer.max_priority == oracle.max_priority
        assert buffer.stale_updates == oracle.stale_updates
        assert buffer.total_mass == pytest.approx(oracle.total(), rel=1e-12, abs=0.0)
        assert buffer.min_mass == pytest.approx(oracle.least(), rel=1e-12, abs=0.0)
        assert len(buffer) == len(oracle.priorities)


def random_priorities(rng: np.random.Generator, count: int) -> np.ndarray:
    priorities = 10.0 ** rng.uniform(-3, 3, count) * (rng.random(count) < 0.8)
    return rng.integers(0, 3, count).astype(np.float64) if rng.random() < 0.3 else priorities


def check_sample(
    buffer: PrioritizedReplayBuffer,
    oracle: PlainPriorities,
    rng: np.random.Generator,
    *,
    exact_act: bool = True,
) -> None:
    beta, normalize = float(rng.choice([0.0, rng.random(), 1.0])), str(rng.choice(["buffer", "batch"]))
    batch_size = int(rng.integers(1, 12))
    sample = buffer.sample(batch_size, beta=beta, normalize=normalize)
    indexes = sample["indexes"].tolist()
    assert sample["indexes"].dtype == np.int64
    if exact_act:
        assert sample["action"].tolist() == indexes
    assert all(oracle.mass(index) > 0 for index in indexes)
    slots = [index % oracle.capacity for index in indexes]
    assert slots == sorted(slots)
    among = indexes if normalize == "batch" else None
    weights = np.array([oracle.weight(index, beta, among) for index in indexes], np.float32)
    assert sample["weights"].dtype == np.float32 and sample["weights"].max() <= 1.0
    np.testing.assert_array_max_ulp(sample["weights"], weights, 1)
    # stratified: the i-th draw's share of the running sum meets the i-th part of the total
    in_slot_order = sorted(oracle.priorities, key=lambda index: index % oracle.capacity)
    edges = dict(
        zip(in_slot_order, np.cumsum([oracle.mass(index) for index in in_slot_order]).tolist(), strict=True)
    )
    total, slack = oracle.total(), 1e-9 * oracle.total()
    for i, index in enumerate(indexes):
        assert edges[index] >= i * total / batch_size - slack
        assert edges[index] - oracle.mass(index) <= (i + 1) * total / batch_size + slack


def test_max_priority_is_the_largest_that_any_row_was_given():
    buffer = PrioritizedReplayBuffer(3, ENV_DICT, alpha=1.0, eps=0.0)
    buffer.add(action=0, priorities=0.25)
    assert buffer.max_priority == 0.25, "1.0 holds only before the first priority"
    buffer.add(action=1)
    assert set(buffer.sample(50, beta=1.0)["weights"].tolist()) == {1.0}
    buffer.update_priorities([1], [7.5])
    assert buffer.max_priority == 7.5
    buffer.update_priorities([1], [0.5])
    assert buffer.max_priority == 7.5
    buffer.add(action=[2, 3, 4, 5], priorities=[9.5, 1, 1, 1])
    assert buffer.max_priority == 9.5, "also of a row that its own batch replaced"
    buffer.clear()
    assert buffer.max_priority == 1.0
    assert type(buffer.max_priority) is float


@pytest.mark.parametrize("n", [None, 1, 3])
@pytest.mark.parametrize("modes", ["plain", "dedupe_next+dedupe_frames"])
@repeatable(60)
@given(seed=st.integers(0, 2**32 - 1))
def test_masses_stay_with_their_rows_in_any_history(modes, n, seed):
    """Each transition carries its priority as a field, so a stored row says itself what its mass must be."""
    history = History(seed, modes, n, kind=PrioritizedReplayBuffer, field_of_priority="priority")
    updated: dict[int, float] = {}
    for _ in range(30):
        history.operate()
        if not len(history.buffer):
            continue
        oldest, following = history.oracle.oldest_index, history.oracle.next_index
        if history.rng.random() < 0.4:
            indexes = history.rng.integers(oldest, following, 3)
            priorities = random_priorities(history.rng, 3)
            history.buffer.update_priorities(indexes, priorities)
            updated.update(zip(indexes.tolist(), priorities.tolist(), strict=True))
        oracle = PlainPriorities(history.size, history.arguments["alpha"], history.arguments["eps"])
        for index, row in zip(range(oldest, following), history.oracle.rows, strict=True):
            oracle.give(index, updated.get(index, float(row["priority"])))
        if oracle.total() > 0:
            check_sample(history.buffer, oracle, history.rng, exact_act=False)


@pytest.mark.parametrize("one", [3, 3.5, np.float32(3), np.array(3.0), [3], np.ones((1, 1)), 0])
@pytest.mark.parametrize("buffer_type", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
def test_one_priority_is_that_of_every_row_of_the_call(buffer_type, one):
    p = float(np.squeeze(one))
    buffer = buffer_type(8, ENV_DICT, alpha=1.0, eps=0.0)
    buffer.add(action=np.arange(4), priorities=[5, 6, 7, 8])
    buffer.update_priorities(np.array([0, 1, 2]), one)  # as with `return 0` for a TD error
    assert buffer.total_mass == pytest.approx(3 * p + 8)
    buffer.add(action=np.arange(3), priorities=one)
    assert buffer.total_mass == pytest.approx(6 * p + 8)
    buffer.update_priorities([], one)
    assert buffer.total_mass == pytest.approx(6 * p + 8)


@pytest.mark.parametrize(
    "given",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], np.uint8),
        np.array([[1], [2], [3]], np.float32),
        np.array([1, 2, 3], ">f8"),
        np.array([9, 1, 9, 2, 9, 3])[1::2],
    ],
    ids=str,
)
def test_priorities_of_a_batch_may_be_anything_that_numpy_takes(given):
    buffer = PrioritizedReplayBuffer(8, ENV_DICT, alpha=1.0, eps=0.0)
    buffer.add(action=[0, 1, 2], priorities=given)
    for each in (buffer, buffer_of([5.0, 6.0, 7.0])):
        columns = (np.array([[0], [1], [2]], dtype) for dtype in ("i1", "u8", ">i4", "i8"))
        for indexes in (np.repeat(np.arange(3), 2)[::2], *columns):
            each.update_priorities(indexes, given)
        sample = each.sample(60, beta=1.0)
        np.testing.assert_allclose(sample["weights"], 1 / (sample["indexes"] + 1.0), rtol=1e-6)


@pytest.mark.parametrize("empty", [[], np.array([]), np.empty(0, np.int64), np.empty((0, 1), np.int32)])
def test_update_of_nothing_is_nothing(empty):
    for buffer in (buffer_of([1.0, 2.0]), PrioritizedReplayBuffer(4, ENV_DICT)):
        before = snapshot(buffer)
        buffer.update_priorities(empty, [])
        buffer.update_priorities(empty, np.empty((0, 1)))
        assert snapshot(buffer) == before


class TestRefused:
    """Bad input is refused before anything changes."""

    @pytest.mark.parametrize("name", PRIORITIZED)
    @pytest.mark.parametrize(
        ("priorities", "error"),
        [
            *((p, ValueError) for p in ([1, 2, math.nan], [1, -1e-9, 2], [1, 1, -math.inf])),
            *((p, ValueError) for p in ([1, 2], [], math.nan, np.array(math.inf), np.ones((3, 2)))),
            *((p, TypeError) for p in (["a", "b", "c"], [None, 1, 2], [1, 2, 1j], np.ones(3, object))),
            ([[1], [2, 3], [4]], (ValueError, TypeError)),
        ],
    )
    def test_priorities_that_are_none(self, name, priorities, error):
        buffer = configured(name, size=60, rows=20)
        buffer.sample(1)
        buffer.update_priorities(buffer.sample(5)["indexes"], np.full(5, 3.0))
        before = snapshot(buffer)
        with pytest.raises(error):
            buffer.add(**example_transitions(np.random.default_rng(0), 3, buffer), priorities=priorities)
        indexes = np.arange(3) + buffer.next_index - 5
        with pytest.raises(error):
            buffer.update_priorities(indexes, priorities)
        assert snapshot(buffer) == before

    @pytest.mark.parametrize("wrong", [None, "1", [0.4], np.array(0.4), 1j])
    def test_numbers_that_are_none_are_refused_by_name(self, wrong):
        for kind in (PrioritizedReplayBuffer, MPPrioritizedReplayBuffer):
            for name in ("alpha", "eps"):
                with pytest.raises(TypeError, match=f"{name} must be a number, not"):
                    kind(4, {"obs": {}}, **{name: wrong})
            buffer = kind(4, {"obs": {}})
            buffer.add(obs=1)
            for sampled in (buffer, Mixture({"one": (buffer, 1.0)})):
                with pytest.raises(TypeError, match="beta must be a number, not"):
                    sampled.sample(2, wrong)
        with pytest.raises(TypeError, match="frames_per_transition must be a number, not"):
            MPReplayBuffer(4, {"obs": {}}, frames_per_transition=wrong)

    @pytest.mark.parametrize("name", PRIORITIZED)
    def test_good_priorities_of_bad_rows_and_bad_priorities_of_good_ones(self, name):
        buffer = configured(name, size=60, rows=20)
        before = snapshot(buffer)
        batch = example_transitions(np.random.default_rng(0), 3, buffer)
        with pytest.raises(ValueError):
            buffer.add(**{**batch, "action": [0, 1, 0.5]}, priorities=[100, 100, 100])
        with pytest.raises(KeyError, match="Did you mean priorities="):
            buffer.add(**batch, priority=[100, 100, 100])
        assert snapshot(buffer) == before

    @pytest.mark.parametrize(
        ("indexes", "priorities", "error"),
        [
            *((indexes, 1, IndexError) for indexes in ([0, 5], [-1], [0, -(2**62)], [0, -(2**63) - 1])),
            *((np.array(indexes, np.uint64), 1, IndexError) for indexes in ([2**63 + 1], [0, 2**63])),
            *((indexes, 1, TypeError) for indexes in ([0.0], [True, False], ["0"], None)),
            *(([0, 1, 2], [1, 1], ValueError), ([0], [1, 2], ValueError), ([], [1, 2], ValueError)),
            *(([3, 4], p, ValueError) for p in ([1, math.nan], [math.inf, 1], -1.0)),
            ([3, 4], None, (TypeError, ValueError)),
            ([0, 1, 99], [7, 7, 7], IndexError),
        ],
    )
    def test_updates_of_rows_that_never_were_or_of_what_is_no_priority(self, indexes, priorities, error):
        buffer = buffer_of([1.0, 2.0, 1.0, 2.0, 1.0], size=3)
        before = snapshot(buffer)
        with pytest.raises(error):
            buffer.update_priorities(indexes, priorities)
        assert snapshot(buffer) == before
        assert buffer.stale_updates == 0

    @pytest.mark.parametrize(
        ("argument", "values"),
        [
            ("beta", [-0.1, 1.1, math.nan, math.inf, "1", None, 1j, [0.4]]),
            ("normalize", ["max", "", "Buffer", 1, True]),
        ],
    )
    def test_arguments_of_sample_out_of_range(self, argument, values):
        buffer = buffer_of([1.0, 2.0])
        buffer.sample(1)
        before = snapshot(buffer)
        for value in values:
            with pytest.raises((ValueError, TypeError)):
                buffer.sample(2, **{argument: value})
        with pytest.raises(ValueError, match=argument):
            buffer.sample(2, **{argument: values[0]})
        assert snapshot(buffer) == before

    @pytest.mark.parametrize(
        ("name", "values"),
        [("alpha", [-0.1, 1.1, math.nan, math.inf]), ("eps", [-1e-9, math.nan, math.inf, -math.inf])],
    )
    def test_alpha_or_eps_out_of_range(self, name, values):
        for value in values:
            with pytest.raises(ValueError, match=name):
                PrioritizedReplayBuffer(4, ENV_DICT, **{name: value})

    def test_buffer_in_which_nothing_has_mass(self):
        buffer = buffer_of([0.0, 0.0, 0.0])
        buffer.update_priorities([0], [0.0])
        with pytest.raises(ValueError, match="mass"):
            buffer.sample(1)
        before = pickle.dumps(buffer)
        with pytest.raises(ValueError, match="mass"):
            buffer.sample(3, beta=1.0)
        assert pickle.dumps(buffer) == before
        buffer.update_priorities([1], [1e-300])
        assert set(buffer.sample(9)["indexes"].tolist()) == {1}

    def test_masses_whose_total_would_overflow(self):
        buffer = PrioritizedReplayBuffer(1000, ENV_DICT, alpha=1.0, eps=0.0)
        buffer.add(action=np.arange(1000), priorities=np.full(1000, 1e300))
        assert len(buffer.sample(10)["action"]) == 10
        before = snapshot(buffer)
        with pytest.raises(ValueError):
            buffer.add(action=0, priorities=1.7e308)
        with pytest.raises(ValueError):
            buffer.update_priorities([5, 6], [1.7e308, 1.7e308])
        assert snapshot(buffer) == before

    @pytest.mark.parametrize("field", ["indexes", "weights", "priorities"])
    def test_fields_whose_names_are_taken(self, field):
        with pytest.raises(ValueError, match=field):
            PrioritizedReplayBuffer(4, {field: {}})


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer, EpisodeReplayBuffer])
def test_the_maximum_includes_priorities_of_a_repeated_index_that_a_later_one_replaces(kind):
    options = {"alpha": 0.6} if kind is EpisodeReplayBuffer else {}
    fields = {"obs": {}, "reward": {}, "next_obs": {}, "terminated": {"dtype": bool}}
    buffer = kind(20, fields, **options)
    index = buffer.add(obs=0, reward=0, next_obs=1, terminated=False)
    buffer.update_priorities([index, index], [9, 2])
    assert buffer.max_priority == 9 and buffer.priorities[[index]].tolist() == pytest.approx([2])
