"""N-step transitions beside their definition, taken from each episode's whole history."""

import copy
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from histories import History, as_bytes, repeatable, snapshot
from hypothesis import given
from hypothesis import strategies as st
from oracles import PlainBuffer, assert_same_columns, columns

from replay_tutorial import (
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    MPReplayBuffer,
    NStep,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers import stages

FIELDS: dict[str, dict[str, Any]] = {
    "obs": {"dtype": np.int64},
    "action": {"dtype": np.int64},
    "reward": {},
    "next_obs": {"dtype": np.int64},
    "terminated": {"dtype": bool},
    "truncated": {"dtype": bool},
}


def n_step(n: int, gamma: Any = 0.5, **changes: Any) -> NStep:
    return NStep(n, gamma, **{"next_fields": "next_obs", **changes})


def buffer_of(n: int, fields: Any = FIELDS, **changes: Any) -> ReplayBuffer:
    return ReplayBuffer(1000, fields, n_step=n_step(n, **changes))


def step(t: int, *, reward: float = 1.0, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
    return {
        "obs": t,
        "action": t,
        "reward": reward,
        "next_obs": t + 1,
        "terminated": terminated,
        "truncated": truncated,
    }


@pytest.mark.parametrize("n", [1, 2, 3, 5, 50])
@repeatable(150)
@given(seed=st.integers(0, 2**32 - 1), operations=st.integers(1, 40))
def test_n_step_rows_equal_their_definition_in_any_history(n, seed, operations):
    History(seed, "plain", n).run(operations)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.99, 1.0])
@pytest.mark.parametrize("n", [1, 3, 20])
def test_returns_and_discounts_agree_with_float64_to_rounding(n, gamma, dtype):
    fields = {**FIELDS, "reward": {"shape": (2,), "dtype": dtype}}
    settings = n_step(n, gamma)
    buffer, oracle = ReplayBuffer(1000, fields, n_step=settings), PlainBuffer(1000, fields, settings)
    rng = np.random.default_rng(n)
    batch = {
        **{name: np.arange(300) + (name == "next_obs") for name in ("obs", "action", "next_obs")},
        "reward": (10 * rng.standard_normal((300, 2))).astype(dtype),
        "terminated": rng.random(300) < 0.05,
        "truncated": rng.random(300) < 0.05,
    }
    buffer.add(**batch)
    oracle.add(batch, 300)
    rows, expected = buffer[:], oracle.all_transitions()
    # sums of float64, rounded once to the field's dtype: no more than the last digit may differ
    for name in ("reward", "discount"):
        assert rows[name].dtype == expected[name].dtype == dtype
        np.testing.assert_allclose(rows.pop(name), expected.pop(name), rtol=np.finfo(dtype).eps, atol=1e-13)
    assert_same_columns(rows, expected)


def test_gamma_is_0_99_unless_told():
    buffer = ReplayBuffer(9, FIELDS, n_step=2)
    buffer.add(**step(0))
    buffer.add(**step(1))
    rows = buffer[:]
    assert rows["reward"].tolist() == [np.float32(1.99)]
    assert rows["discount"].tolist() == [np.float32(0.99**2)]


@pytest.mark.parametrize("by", ["field", "call"])
def test_truncation_flushes_the_tail_and_bootstraps_from_the_last_observation(by):
    buffer = buffer_of(4)
    for t in range(3):
        buffer.add(**step(t, truncated=by == "field" and t == 2))
    assert len(buffer) == (3 if by == "field" else 0)
    buffer.end_episode()
    buffer.end_episode()
    buffer.add(**step(100, terminated=True))
    rows = buffer[:]
    assert rows["reward"].tolist() == [1.75, 1.5, 1.0, 1.0]
    assert rows["next_obs"].tolist() == [3, 3, 3, 101]
    assert rows["discount"].tolist() == [0.125, 0.25, 0.5, 0.0]


@pytest.mark.parametrize("at_once", [1, 5, 30])
def test_window_without_a_reward_moves_the_other_fields_alike(at_once):
    fields = {name: spec for name, spec in FIELDS.items() if name != "reward"}
    full, without = buffer_of(7), buffer_of(7, fields, reward=())
    for first in range(0, 30, at_once):
        steps = [step(t, terminated=t % 11 == 10) for t in range(first, first + at_once)]
        batch = {name: np.array([values[name] for values in steps]) for name in FIELDS}
        full.add(**batch)
        without.add(**{name: batch[name] for name in fields})
    rows = full[:]
    del rows["reward"]
    assert_same_columns(without[:], rows)


@pytest.mark.parametrize(
    ("reward", "shape", "dtype"),
    [
        ({}, (), np.float32),
        ({"shape": 1}, (1,), np.float32),
        ({"shape": (3,), "dtype": np.float64}, (1,), np.float64),
        ({"shape": (3, 3)}, (1, 1), np.float32),
        ({"dtype": np.float16}, (), np.float16),
    ],
)
def test_discount_has_the_rewards_dtype_and_the_shape_of_a_number(reward, shape, dtype):
    buffer = buffer_of(1, {**FIELDS, "reward": reward})
    buffer.add(**{**step(0), "reward": np.zeros(reward.get("shape", ()))})
    discount = buffer.sample(5)["discount"]
    assert discount.shape == (5, *shape)
    assert discount.dtype == dtype


@pytest.mark.parametrize(
    "make", [lambda d, s: ReplayBuffer(9, d, n_step=s), NStepWindow], ids=["buffer", "NStepWindow"]
)
@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        *((n, FIELDS) for n in (0, -1, 2.5, "3", True, {"size": 3, "gamma": 0.99}, (3, 0.99))),
        *((n_step(n), FIELDS) for n in (0, -1, 2.5, "3", True)),  # pyright: ignore[reportArgumentType]
        *((n_step(2, gamma), FIELDS) for gamma in (1.01, -0.1, math.nan)),
        *((n_step(2, next_fields=names), FIELDS) for names in ("next_observation", ["next_obs", "nothing"])),
        (n_step(2, reward="rew"), FIELDS),
        *((n_step(2), {**FIELDS, "reward": {"dtype": dtype}}) for dtype in (np.int64, bool)),
        (n_step(2), {**FIELDS, "discount": {}}),
        *(
            (n_step(3), {"obs": {}, "reward": {}, "next_obs": {}, name: {}})
            for name in ("truncated", "dones")
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, settings, fields):
    no_end = "n_step requires the field 'terminated' or 'done'" if "terminated" not in fields else None
    with pytest.raises((ValueError, KeyError, TypeError), match=no_end):
        make(fields, settings)


@pytest.mark.parametrize("make", [ReplayBuffer, PrioritizedReplayBuffer])
def test_a_number_and_gamma_are_enough_for_the_usual_fields(make):
    short, full = make(99, FIELDS, n_step=3, gamma=0.5), buffer_of(3)
    for t in range(9):
        short.add(**step(t, terminated=t == 6))
        full.add(**step(t, terminated=t == 6))
    assert_same_columns(short[:], full[:])


def test_rewards_of_another_name_are_not_forgotten():
    fields = {"obs": {}, "rew": {}, "done": {}}
    with pytest.raises(ValueError, match=r"the field 'reward'.*n_step=NStep\(n, reward=NAME\).*'rew'"):
        ReplayBuffer(9, fields, n_step=2)
    for names, stored in (("rew", [2, 1]), (["rew"], [2, 1]), ((), [1, 1])):
        buffer = ReplayBuffer(9, fields, n_step=NStep(2, gamma=1.0, reward=names))
        buffer.add(obs=[0, 1], rew=[1, 1], done=[0, 1])
        assert buffer[:]["rew"].tolist() == stored


@pytest.mark.parametrize(
    "make", [lambda **options: ReplayBuffer(9, FIELDS, **options), partial(NStepWindow, FIELDS)]
)
def test_gamma_is_passed_once(make):
    with pytest.raises(ValueError, match=r"gamma=0\.5 is passed twice; n_step is NStep\(n=3, gamma=0\.99"):
        make(n_step=NStep(3), gamma=0.5)
    make(n_step=NStep(3, gamma=0.5))


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
@pytest.mark.parametrize("options", [{}, {"num_envs": 2}, {"dedupe_next": "obs"}])
def test_gamma_alone_is_refused(kind, options):
    with pytest.raises(ValueError, match=r"gamma=0\.9 is the discount factor of n_step; pass n_step"):
        kind(9, {"obs": {}, "reward": {}, "terminated": {}}, gamma=0.9, **options)


def test_errors_of_n_step_name_the_value():
    for wrong, error, message in (
        ("3", TypeError, "n_step must be an integer, not '3'"),
        (True, TypeError, "n_step must be an integer, not True"),
        (NStep(0), ValueError, "n_step must be at least 1, not 0"),
        ({"size": 3}, TypeError, "n_step must be an integer, not {'size': 3}"),
    ):
        with pytest.raises(error, match=message):
            ReplayBuffer(9, FIELDS, n_step=wrong)  # pyright: ignore[reportArgumentType]


def test_a_next_observation_stays_one_step_on_if_that_is_said():
    buffer = buffer_of(2, next_fields=())
    buffer.add(**step(0))
    buffer.add(**step(1))
    assert buffer[:]["next_obs"].tolist() == [1]


@pytest.mark.parametrize(
    ("gamma", "error", "message"),
    [
        (np.array([0.9, 0.9]), TypeError, "gamma must be a number, not array"),
        (None, TypeError, "gamma must be a number, not None"),
        ("0.99", ValueError, "gamma must be a number, or the name.*no field '0.99'"),
        ("action", ValueError, r"'action' must have a float dtype and the shape \(\) or \(1,\), not int64"),
        (1.5, ValueError, r"gamma must be in \[0, 1\], not 1.5"),
    ],
)
def test_gamma_that_is_no_discount_is_refused_by_name(gamma, error, message):
    for make in (buffer_of, lambda n, gamma: NStepWindow(FIELDS, n_step(n, gamma))):
        with pytest.raises(error, match=message):
            make(2, gamma=gamma)


def per_step_fields(name, shape=()):
    return {**FIELDS, "reward": {"shape": shape}, name: {"shape": shape, "dtype": np.float64}}


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("name", ["discount", "gamma_of_option"])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_discounts_of_each_step_are_multiplied(n, name, shape):
    """R = r_0 + d_0 r_1 + d_0 d_1 r_2, and the row's discount is d_0 d_1 d_2."""
    fields, settings = per_step_fields(name, shape), n_step(n, gamma=name)
    buffer, window = PrioritizedReplayBuffer(1000, fields, n_step=settings), NStepWindow(fields, settings)
    oracle, returned, rng = PlainBuffer(1000, fields, settings), [], np.random.default_rng(n)
    for first in range(0, 200, 25):
        batch = {
            key: np.arange(first, first + 25) + (key == "next_obs") for key in ("obs", "action", "next_obs")
        }
        batch |= {"reward": rng.integers(-9, 9, (25, *shape)), "terminated": rng.random(25) < 0.05}
        batch |= {name: rng.integers(0, 5, (25, *shape)) / 4, "truncated": rng.random(25) < 0.1}
        buffer.add(**batch)
        oracle.add(batch, 25)
        returned.append(window.add(**batch))
    assert_same_columns(buffer[:], oracle.all_transitions())
    rows = {key: np.concatenate([each[key] for each in returned if each]) for key in window.fields}
    assert_same_columns(rows, oracle.all_transitions())


def test_pending_discounts_survive_save_and_restore(tmp_path):
    fields, settings = per_step_fields("discount"), n_step(3, gamma="discount")
    buffer, loaded = (ReplayBuffer(9, fields, n_step=settings) for _ in range(2))
    window, restored = (NStepWindow(fields, settings) for _ in range(2))
    for t, discount in enumerate((0.5, 0.25)):
        buffer.add(**step(t), discount=discount)
        window.add(**step(t), discount=discount)
    buffer.save(tmp_path / "saved")
    loaded.load(tmp_path / "saved")
    restored.restore(window.state())
    loaded.add(**step(2), discount=0.5)
    for rows in (loaded[:], restored.add(**step(2), discount=0.5)):
        assert (rows["reward"].tolist(), rows["discount"].tolist()) == ([1.625], [0.0625])


@pytest.mark.parametrize("wrong", [1.5, -0.1, np.nan])
def test_a_discount_that_is_none_is_refused_and_changes_nothing(wrong):
    buffer = ReplayBuffer(9, per_step_fields("discount"), n_step=n_step(2, gamma="discount"))
    buffer.add(**step(0), discount=0.5)
    before = snapshot(buffer)
    with pytest.raises(ValueError, match=r"'discount' is the discount of a step; it must be in \[0, 1\]"):
        buffer.add(**step(1), discount=wrong)
    assert snapshot(buffer) == before


def test_buffers_of_episodes_refuse_discounts_of_each_step():
    fields, settings = {**per_step_fields("d"), "goal": FIELDS["obs"]}, NStep(3, gamma="d")
    message = r"must be a number in a buffer of episodes, not the field 'd'"
    with pytest.raises(TypeError, match=message):
        SequenceReplayBuffer(99, fields, 4, n_step=settings)
    with pytest.raises(TypeError, match=message):
        HindsightReplayBuffer(99, fields, max, max, goal="goal", achieved_goal="obs", n_step=settings)


NESTED: dict[str, Any] = {
    **{f"{prefix}obs/{part}": {"shape": 2} for prefix in ("", "next_") for part in ("image", "goal/0")},
    "reward": {},
    "terminated": {"dtype": bool},
}


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer])
def test_the_name_of_a_nested_observation_means_all_its_fields(kind):
    stored = {name: spec for name, spec in NESTED.items() if not name.startswith("next_")}
    group, each = kind(9, stored, dedupe_next="obs"), kind(9, stored, dedupe_next=["obs/image", "obs/goal/0"])
    assert group.field_specs == each.field_specs and "next_obs/goal/0" in group.field_specs
    with pytest.raises(ValueError, match="no field 'ob'"):
        kind(9, stored, dedupe_next="ob")


def test_the_next_observation_of_n_steps_may_be_nested():
    buffer = ReplayBuffer(9, NESTED, n_step=n_step(2))
    for t in range(3):
        obs, following = ({"image": [i, i], "goal": ([i, 9],)} for i in (t, t + 1))
        buffer.add(obs=obs, reward=1, next_obs=following, terminated=False)
    rows = buffer[:]
    assert rows["next_obs/image"][:, 0].tolist() == rows["next_obs/goal/0"][:, 0].tolist() == [2, 3]


KINDS_OF_WINDOWS: dict[str, Any] = {
    "plain": ReplayBuffer,
    "prioritized": PrioritizedReplayBuffer,
    "frames": lambda *given, **options: ReplayBuffer(*given, dedupe_next="obs", **options),
    "NStepWindow": lambda _, fields, **options: NStepWindow(fields, **options),
}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS_OF_WINDOWS)
@pytest.mark.parametrize("check_finite", [False, True])
def test_a_return_that_the_dtype_cannot_hold_is_refused_and_changes_nothing(kind, dtype, check_finite):
    """A buffer that refused steps goes on as its twin, which was not asked to take them."""
    fields = {**FIELDS, "reward": {"shape": (2,), "dtype": dtype}}
    made, twin = (
        KINDS_OF_WINDOWS[kind](900, fields, n_step=n_step(3, 1.0), check_finite=check_finite)
        for _ in range(2)
    )

    def steps(first, stop, rewards):
        batch = {name: np.arange(first, stop) for name in FIELDS} | {"reward": rewards}
        flags = {name: np.zeros(stop - first, bool) for name in ("terminated", "truncated")}
        return batch | flags | {"next_obs": batch["obs"] + 1}

    large, rewards = 0.45 * float(np.finfo(dtype).max), np.zeros((1200, 2))  # two fit, three don't
    rewards[:2] = 1, large
    for buffer in (made, twin):
        for t in range(2):
            buffer.add(**steps(t, t + 1, rewards[t : t + 1]))
    message = rf"n-step return .* of 'reward' is too large for its dtype, {np.dtype(dtype)}"
    with pytest.raises(ValueError, match=message):
        made.add(**steps(2, 3, rewards[1:2]))
    late = rewards[2:].copy()  # refused only far behind the steps that frames store at once
    late[-3:] = 1, large
    with pytest.raises(ValueError, match=message):
        made.add(**steps(2, 1200, late))
    for buffer in (made, twin):
        if kind != "NStepWindow":
            assert (len(buffer), buffer._stages.pending_count) == (0, 2)
    after = np.zeros((30, 2))
    if not check_finite:
        after[20] = 0, np.inf  # a valid reward
    rows = [buffer.add(**steps(2, 32, after)) for buffer in (made, twin)]
    if kind != "NStepWindow":
        rows = [buffer[:] for buffer in (made, twin)]
    assert_same_columns(*rows)


@pytest.mark.parametrize("kind", KINDS_OF_WINDOWS)
def test_a_window_can_be_used_after_its_last_returns_did_not_fit(kind):
    fields = {**FIELDS, "reward": {"dtype": np.float16}}
    made = KINDS_OF_WINDOWS[kind](900, fields, n_step=n_step(9, 1.0), check_finite=True)
    for t in range(3):
        made.add(**step(t, reward=3e4))
    told = r"return 90000 of 'reward' is too large for its dtype, float16.* The 3 pending steps .* discarded"
    with pytest.raises(ValueError, match=told):
        made.end_episode()
    assert made.end_episode() is None
    rows = made.add(**step(70, terminated=True))
    if kind != "NStepWindow":
        assert rows == 0
        rows = made[:]
    assert rows["obs"].tolist() == [70]


def test_the_largest_number_of_a_dtype_is_not_an_overflow():
    for dtype in (np.float16, np.float32, np.float64):
        buffer = ReplayBuffer(9, {**FIELDS, "reward": {"dtype": dtype}}, n_step=n_step(2, 1.0))
        largest = np.finfo(dtype).max
        buffer.add(**step(0, reward=largest))
        buffer.add(**step(1, reward=largest * np.finfo(dtype).eps / 8))  # rounds to the largest number
        assert buffer[:]["reward"].tolist() == [largest]


def test_caller_gives_no_discount():
    with pytest.raises(KeyError, match="discount"):
        buffer_of(2).add(**step(0), discount=1.0)
    with pytest.raises(KeyError, match="discount"):
        NStepWindow(FIELDS, n_step(2)).add(**step(0), discount=1.0)


class TestNStep:
    """The class of its own, for actors."""

    @pytest.mark.parametrize("n", [1, 3, 7, 50])
    @repeatable(60)
    @given(seed=st.integers(0, 2**32 - 1))
    def test_each_environment_has_a_window_of_its_own_in_any_history(self, n, seed):
        """Batches of one environment, ends of its episodes, and one step of each."""
        rng = np.random.default_rng(seed)
        environments = int(rng.integers(1, 6))
        fields = {**FIELDS, "reward": {"shape": (2,)}, "bonus": {"dtype": np.float64}}
        fields["next_goal"] = {"shape": (2,), "dtype": np.int8}
        settings = n_step(n, reward=["reward", "bonus"], next_fields=["next_obs", "next_goal"])
        window = NStepWindow(fields, settings, num_envs=environments)
        oracles = [PlainBuffer(10**6, fields, settings) for _ in range(environments)]
        returned = []
        for _ in range(60):
            before = [len(oracle.rows) for oracle in oracles]
            operation, environment = rng.random(), int(rng.integers(environments))
            if operation < 0.05:
                rows = window.end_episode(environment)
                oracles[environment].end_episode()
            else:
                of_all = operation < 0.6
                count = environments if of_all else int(rng.integers(1, 4))
                steps = {name: rng.integers(0, 99, count) for name in ("obs", "action", "next_obs", "bonus")}
                steps |= {name: rng.integers(-9, 9, (count, 2)) for name in ("reward", "next_goal")}
                steps |= {name: rng.random(count) < 0.1 for name in ("terminated", "truncated")}
                added = {environment: steps}
                if of_all:
                    added = {
                        e: {name: column[e, None] for name, column in steps.items()}
                        for e in range(environments)
                    }
                else:
                    steps["obs"][1:] = steps["next_obs"][:-1]
                for e, some in added.items():
                    if oracles[e].episode and rng.random() < 0.95:
                        some["obs"][0] = oracles[e].episode[-1]["next_obs"]
                wrong = [e for e, some in added.items() if oracles[e].leads_elsewhere(some)]
                if wrong:
                    where = f"in environment {wrong[0]}.*" * (environments > 1)
                    with pytest.raises(ValueError, match=f"{where}end_episode"):
                        window.add_step(**steps) if of_all else window.add(environment, **steps)
                    continue
                rows = window.add_step(**steps) if of_all else window.add(environment, **steps)
                for e, some in added.items():
                    oracles[e].add(some, len(some["obs"]))
                for column in steps.values():
                    column[...] = 77  # what the caller does with the arrays afterwards must not matter
            whole = [
                row for oracle, first in zip(oracles, before, strict=True) for row in oracle.rows[first:]
            ]
            assert (rows is None) == (not whole)
            if rows is not None:
                assert_same_columns(rows, columns(whole, oracles[0].output_specs()))
                returned.append((rows, as_bytes(rows)))
        assert all(as_bytes(rows) == kept for rows, kept in returned), "rows that were returned have changed"

    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda w, steps: w.add_step(**{**steps, "obs": np.arange(3)}), ValueError, "same number"),
            (lambda w, steps: w.add_step(**{**steps, "obs": np.full(4, 0.5)}), ValueError, "0.5"),
            (
                lambda w, steps: w.add_step(**{name: column[:3] for name, column in steps.items()}),
                *(ValueError, "4 steps, one of each environment, not 3"),
            ),
            (lambda w, _: w.add(**{**step(2), "reward": "x"}), TypeError, "'reward' must be numeric"),
            (lambda w, _: w.add(**{**step(2), "obs": 0.5}), ValueError, "can't hold 0.5"),
            (lambda w, _: w.add(**{**step(2), "action": [1, 2]}), ValueError, "same number"),
            (lambda w, _: w.add(**{**step(2), "reward": [], "obs": []}), ValueError, "same number"),
        ],
    )
    def test_refused_step_changes_nothing(self, call, error, message):
        window = NStepWindow(FIELDS, n_step(3), num_envs=4)
        window.add_step(**{name: np.repeat(value, 4) for name, value in step(1).items()})
        before = [as_bytes({"rows": rows}) for rows in window.state()]
        with pytest.raises(error, match=message):
            call(window, {name: np.repeat(value, 4) for name, value in step(2).items()})
        assert [as_bytes({"rows": rows}) for rows in window.state()] == before

    @pytest.mark.parametrize("environment", [0.5, "0", -1, 2])
    def test_environment_that_does_not_exist_is_refused(self, environment):
        window = NStepWindow(FIELDS, n_step(3), num_envs=2)
        error = IndexError if type(environment) is int else TypeError
        for call in (window.end_episode, lambda e: window.add(e, **step(1))):
            with pytest.raises(error, match="environment must be"):
                call(environment)

    def test_its_fields_are_fresh_and_has_the_discount(self):
        window = NStepWindow(FIELDS, n_step(3))
        assert set(window.fields) == {*FIELDS, "discount"}
        window.fields["obs"]["shape"] = (99,)
        assert window.fields["obs"]["shape"] == ()

    @pytest.mark.parametrize("environments", [0, -1])
    def test_no_environment_is_refused(self, environments):
        with pytest.raises(ValueError):
            NStepWindow(FIELDS, n_step(2), num_envs=environments)

    @pytest.mark.parametrize("stop", range(7))
    def test_restored_window_goes_on_as_the_one_that_was_copied(self, stop, tmp_path):
        def steps(window, first, last):
            came = [
                window.add(number, **step(10 * number + t, reward=t, truncated=t == 4))
                for t in range(first, last)
                for number in range(2)
            ]
            return [as_bytes(rows) for rows in came if rows is not None]

        straight, stopped, restored = (NStepWindow(FIELDS, n_step(3), num_envs=2) for _ in range(3))
        before = steps(stopped, 0, stop)
        np.savez(tmp_path / "state.npz", *stopped.state())
        restored.add(0, **step(99))  # forgotten
        with np.load(tmp_path / "state.npz", allow_pickle=False) as file:
            restored.restore([file["arr_0"], file["arr_1"]])
        stopped.add(0, **step(stop))  # the copy is a copy
        assert before + steps(restored, stop, 8) == steps(straight, 0, 8)

    def test_state_with_pictures_can_be_saved(self, tmp_path):
        """Small fields are stored before pictures, in an order that .npy files do not take."""
        fields = {"obs": {"shape": (4, 84, 84), "dtype": np.uint8}, "reward": {}, "terminated": {}}
        window, restored = (NStepWindow(fields, 3) for _ in range(2))
        assert window.add(obs=np.full((4, 84, 84), 7), reward=1.5, terminated=False) is None
        np.savez(tmp_path / "state.npz", *window.state())
        with np.load(tmp_path / "state.npz", allow_pickle=False) as file:
            restored.restore([file["arr_0"]])
        rows = restored.end_episode()
        assert (rows["obs"] == 7).all() and rows["reward"].tolist() == [1.5]

    def test_equal_lives_have_equal_states_to_the_last_byte(self):
        """Between a flag and the next number lie bytes of no field, which NumPy copies or not."""

        def life(noise):
            window = NStepWindow(FIELDS, n_step(3), num_envs=2, autoreset="next_step")
            for t in range(9):
                np.full(200, noise)  # what freed memory holds
                both = {name: np.repeat(value, 2) for name, value in step(t).items()}
                both["terminated"] = np.array([False, t % 3 == 2])
                window.add_step(**both)
                window.restore(window.state())
            return [rows.tobytes() for rows in window.state()]

        assert life(1.0) == life(-7.5)

    def test_state_of_another_kind_of_window_is_refused(self):
        other_fields = {**FIELDS, "obs": {"shape": 2}}
        longer = NStepWindow(FIELDS, n_step(9), num_envs=2)
        longer.add(1, reward=np.ones(4), **{name: np.zeros(4) for name in FIELDS if name != "reward"})
        window = NStepWindow(FIELDS, n_step(3), num_envs=2)
        window.add(0, **step(7))
        others = {
            "with 1 environments; this NStepWindow has 2": NStepWindow(FIELDS, n_step(3)),
            r"\('obs', '<f4', \(2,\)\).* has .*'obs'": NStepWindow(other_fields, n_step(3), num_envs=2),
            "4 pending steps of environment 1; with n_step=3, at most 2": longer,
        }
        for message, other in others.items():
            with pytest.raises(ValueError, match=message):
                window.restore(other.state())
        rows = window.end_episode(0)
        assert rows is not None
        assert rows["obs"].tolist() == [7]


STREAMS = [ReplayBuffer, PrioritizedReplayBuffer, NStepWindow]


def of_two_environments(kind):
    """A batch of two environments' steps: (a, b) leads to (a + 1, b + 1)."""
    fields = {"obs": {"shape": (2, 2)}, "reward": {}, "next_obs": {"shape": (2, 2)}, "done": {}}
    settings = NStep(3)
    made = NStepWindow(fields, settings) if kind is NStepWindow else kind(20, fields, n_step=settings)
    obs = np.stack([np.full((2, 2), 1.0), np.full((2, 2), 100.0), np.full((2, 2), 2.0)])
    return made, {"obs": obs, "reward": np.ones(3), "next_obs": obs + 1, "done": np.zeros(3)}


@pytest.mark.parametrize("kind", STREAMS)
def test_batch_of_several_environments_is_refused_and_changes_nothing(kind):
    made, batch = of_two_environments(kind)
    made.add(**{name: column[0] for name, column in batch.items()})
    shown = (lambda: made.state()[0].tobytes()) if kind is NStepWindow else (lambda: snapshot(made))
    before = shown()
    with pytest.raises(
        ValueError, match=r"step 0 differs from the 'obs' of step 1.*NStepWindow\(num_envs=n\)"
    ):
        made.add(**batch)
    assert shown() == before


@pytest.mark.parametrize("kind", STREAMS)
def test_the_same_batch_is_taken_where_the_episodes_end(kind):
    made, batch = of_two_environments(kind)
    made.add(**{**batch, "done": np.array([1, 1, 0])})
    with pytest.raises(ValueError, match=r"step 1 differs from the 'obs' of step 2"):
        made.add(**{**batch, "done": np.array([1, 0, 1])})


STACKS = {"obs": {"shape": (2, 3), "dtype": np.uint8}, "reward": {}, "done": {}}
MADE_OF_STACKS: dict[str, Any] = {
    "plain": (ReplayBuffer, {}),
    "dedupe_next": (ReplayBuffer, {"dedupe_next": "obs"}),
    "dedupe_frames": (ReplayBuffer, {"dedupe_frames": {"obs": 0, "next_obs": 0}}),
    "one of them": (ReplayBuffer, {"dedupe_frames": {"obs": 0}}),
    "both": (PrioritizedReplayBuffer, {"dedupe_next": "obs", "dedupe_frames": {"obs": 0}}),
    "NStepWindow": (NStepWindow, {}),
}


@pytest.mark.parametrize("name", MADE_OF_STACKS)
def test_single_steps_of_two_environments_in_turns_are_refused_and_change_nothing(name):
    kind, options = MADE_OF_STACKS[name]
    fields = {**STACKS, "next_obs": STACKS["obs"]}
    made = (
        NStepWindow(fields, n_step(3))
        if kind is NStepWindow
        else kind(20, fields, n_step=n_step(3), **options)
    )
    shown = (lambda: made.state()[0].tobytes()) if kind is NStepWindow else (lambda: snapshot(made))

    def at(t):
        observations = np.arange(t, t + 3, dtype=np.uint8)[:, None] * np.ones(3, np.uint8)
        return {"obs": observations[:2], "reward": 1, "next_obs": observations[1:], "done": 0}

    for t in range(5):
        made.add(**at(t))
        before = shown()
        for elsewhere in (at(t + 100), at(t), {name: [value] * 2 for name, value in at(t + 9).items()}):
            with pytest.raises(ValueError, match=r"'next_obs'.*num_envs=n"):
                made.add(**elsewhere)
            assert shown() == before
    made.end_episode()
    made.add(**at(100))  # the remedy


@pytest.mark.parametrize("options", [{}, {"dedupe_next": "obs", "dedupe_frames": {"obs": 0}}])
def test_a_window_that_was_loaded_remembers_where_it_led_to(options, tmp_path):
    fields = {**STACKS, "next_obs": STACKS["obs"]}
    buffer, loaded = (ReplayBuffer(20, fields, n_step=n_step(3), **options) for _ in range(2))
    obs = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    buffer.add(obs=obs[0], reward=1, next_obs=obs[1], done=0)
    buffer.save(tmp_path / "saved")
    loaded.load(tmp_path / "saved")
    with pytest.raises(ValueError, match="end_episode"):
        loaded.add(obs=obs[0], reward=1, next_obs=obs[1], done=0)
    loaded.add(obs=obs[1], reward=1, next_obs=obs[0], done=0)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_nan_of_other_bytes_and_a_negative_zero_lead_on(kind):
    made, batch = of_two_environments(kind)
    other = np.array([0x7FC00001], np.uint32).view(np.float32)[0]
    first, second = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
    first[0, 0], second[0, 0], second[1, 1] = np.nan, other, -0.0
    made.add(obs=batch["obs"][0], reward=0, next_obs=first, done=0)
    if kind is NStepWindow:
        made.add_step(obs=second[None], reward=[0], next_obs=first[None], done=[0])
    made.add(obs=second, reward=0, next_obs=first, done=0)


def test_steps_of_fields_that_are_no_pair_are_taken_as_they_come():
    fields = {"obs": {}, "reward": {}, "next_obs": {"dtype": np.float64}, "next_goal": {}, "done": {}}
    buffer = ReplayBuffer(9, fields, n_step=NStep(2, next_fields=["next_obs", "next_goal"]))
    buffer.add(
        obs=np.zeros(5), reward=np.ones(5), next_obs=np.ones(5), next_goal=np.arange(5), done=np.zeros(5)
    )
    assert len(buffer) == 4


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["reward", "obs"])
def test_nan_and_infinity_are_refused_before_they_enter_a_window_if_that_is_asked_for(field, bad):
    def numbers(t, **changed):
        now = {"obs": np.full(2, t), "next_obs": np.full(2, t + 1), "reward": np.ones(2), **changed}
        return {**now, "terminated": np.zeros(2, bool)}

    fields = {name: {} for name in ("obs", "next_obs", "reward")} | {"terminated": {"dtype": bool}}
    made = NStepWindow(fields, n_step(3), num_envs=2, check_finite=True)
    made.add_step(**numbers(0))
    before = [part.tobytes() for part in made.state()]
    wrong = numbers(1, **{field: np.array([1, bad])})
    for refused in (made.add_step, made.add):
        with pytest.raises(ValueError, match=f"'{field}' contains {bad}, which check_finite=True"):
            refused(**wrong)
    assert [part.tobytes() for part in made.state()] == before
    made.add_step(**numbers(1))
    rows = made.add_step(**numbers(2))
    assert rows is not None and rows["reward"].tolist() == [1.75, 1.75]
    made.restore(made.state())
    with pytest.raises(ValueError, match="check_finite"):
        made.add_step(**wrong)


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
def test_large_batch_interrupted_between_two_parts_stores_no_step_twice(kind, monkeypatch):
    monkeypatch.setattr(stages, "BYTES_AT_ONCE", 4 * 24)  # a few rows
    number, flag = {}, {"dtype": bool}
    fields = {"obs": number, "reward": number, "next_obs": number, "terminated": flag}
    made = kind(100, fields, n_step=3, gamma=0.5)
    parts = []

    def interrupted(*arguments: Any) -> int:
        parts.append(arguments)
        if len(parts) == 3:
            raise KeyboardInterrupt
        return append(*arguments)

    append = made._ring.append
    monkeypatch.setattr(made._ring, "append", interrupted)
    i = np.arange(40.0)
    with pytest.raises(KeyboardInterrupt):
        made.add(obs=i, reward=i, next_obs=i + 1, terminated=np.zeros(40, bool))
    done = made.next_index + len(made._stages.pending)
    assert 0 < done < 40
    made.add(obs=i[done:], reward=i[done:], next_obs=i[done:] + 1, terminated=i[done:] == 39)
    assert made[:]["obs"].tolist() == i.tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64])
def test_number_of_an_environment_may_be_any_integer(dtype):
    number, flag = {}, {"dtype": bool}
    fields = {"obs": number, "reward": number, "next_obs": number, "terminated": flag}
    windows = NStepWindow(fields, 1, num_envs=2)
    assert windows.add(dtype(1), obs=0, reward=1, next_obs=1, terminated=False)["reward"].tolist() == [1.0]
    episodes = EpisodeReplayBuffer(20, fields, num_envs=2)
    assert episodes.add(dtype(1), obs=0, reward=1, next_obs=1, terminated=False) == 1


def test_end_episode_without_a_number_ends_the_episodes_of_all_environments():
    number, flag = {}, {"dtype": bool}
    fields = {"obs": number, "reward": number, "next_obs": number, "terminated": flag}
    window = NStepWindow(fields, 3, num_envs=2)
    steps = {"reward": [1, 2], "terminated": [False, False]}
    window.add_step(obs=[0, 5], next_obs=[1, 6], **steps)
    rows = window.end_episode()
    assert rows is not None and rows.obs.tolist() == [0, 5] and rows.reward.tolist() == [1, 2]
    assert window.end_episode() is None
    buffer = EpisodeReplayBuffer(20, fields, num_envs=2)
    buffer.add_step(obs=[0, 5], next_obs=[1, 6], **steps)
    buffer.end_episode()
    assert buffer.episodes()["finished"].tolist() == [True, True]


def test_a_return_that_overflows_leaves_the_other_episodes_as_they_were():
    number, flag = {}, {"dtype": bool}
    fields = {"obs": number, "reward": {"dtype": np.float16}, "next_obs": number, "terminated": flag}
    window = NStepWindow(fields, 3, gamma=1.0, num_envs=3)
    for obs in range(2):
        flags, rewards = np.zeros(3, bool), [1, 60_000, 2]
        window.add_step(obs=np.full(3, obs), next_obs=np.full(3, obs + 1), reward=rewards, terminated=flags)
    with pytest.raises(ValueError, match="too large"):
        window.end_episode()
    rows = window.end_episode()
    assert rows is not None and rows.reward.tolist() == [2, 1, 4, 2]


def test_a_window_is_not_copied_by_copy_copy():
    window = NStepWindow({"obs": {}, "reward": {}, "next_obs": {}, "terminated": {}}, 2)
    with pytest.raises(TypeError, match="deepcopy"):
        copy.copy(window)
