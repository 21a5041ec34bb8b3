"""What cpprb's own tests assert, with `replay_tutorial.cpprb` and the other names of *Coming from cpprb*.

`covers` names the tests of cpprb 11.0.0 whose assertions a test here repeats; `HER.future` is `test_future`
in `test/test_HER.py`. If an assertion doesn't hold here, `but` is the departure, a row of the page's table.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles import assert_same_columns
from places import ROOT
from rows_in_files import load_from_cpprb, load_transitions, save_transitions

from replay_tutorial import EpisodeReplayBuffer, HindsightReplayBuffer, laber
from replay_tutorial.buffers.schemes import Reverse
from replay_tutorial.cpprb import PrioritizedReplayBuffer, ReplayBuffer

COVERED: dict[str, set[str]] = {}  # a test of cpprb → the departures that it meets; none if all of it holds
STEPS = ("obs", "act", "rew", "next_obs", "done")
NATIVE_STEPS = ("obs", "action", "reward", "next_obs", "done")
both_classes = pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])


def covers(names: str, *, but: str = "") -> Callable[[Any], Any]:
    for name in names.split():
        COVERED.setdefault(name, set()).update([but] if but else [])
    return lambda test: test


def reward(achieved: Any, goal: Any, rows: Any) -> Any:
    return -(achieved != goal).any(axis=1).astype(np.float32)


def reached(achieved: Any, goal: Any, rows: Any) -> Any:
    return (achieved == goal).all(axis=1)


def hindsight(steps: int = 2, **settings: Any) -> HindsightReplayBuffer:
    """0 → 1 → 2 with the goal 9; as in cpprb without `goal_func`, the goal is the state."""
    fields = {name: {"shape": 1} for name in (*NATIVE_STEPS, "goal")}
    settings = {"goal": "goal", "achieved_goal": "obs", "seed": 0, **settings}
    buffer = HindsightReplayBuffer(10, fields, reward, reached, **settings)
    for state in range(steps):
        buffer.add(obs=state, action=0, next_obs=state + 1, reward=-1, goal=9, done=0)
    return buffer


@covers("HER.get_buffer_size")
@covers("HER.stored_size", but="Copies of an episode")
def test_hindsight_buffer_counts_each_step_once_and_at_once():
    buffer = hindsight()
    assert (buffer.capacity, len(buffer)) == (10, 2)
    for _ in range(2):
        buffer.end_episode()
        assert len(buffer) == 2
    buffer.clear()
    assert len(buffer) == 0


@covers(
    "HER.future HER.episode HER.random HER.final HER.goal_func HER.goal_final", but="Copies of an episode"
)
@covers("HER.future HER.episode HER.random", but="Reward of the original goal")
@pytest.mark.parametrize(
    ("strategy", "allowed"),
    [
        ("future", {(0, 1), (0, 2), (1, 2)}),
        ("episode", {(0, 1), (0, 2), (1, 1), (1, 2)}),
        ("random", {(0, 1), (0, 2), (1, 1), (1, 2)}),
        ("final", {(0, 2), (1, 2)}),
    ],
)
def test_each_row_has_a_goal_of_its_strategy_and_the_reward_for_it(strategy, allowed):
    buffer = hindsight(strategy=strategy, relabel=0.5)
    buffer.end_episode()
    rows = buffer.sample(256)
    states, goals, new = rows["obs"].ravel(), rows["goal"].ravel(), rows["relabelled"]
    assert set(zip(states[new].tolist(), goals[new].tolist(), strict=True)) == allowed
    assert set(goals[~new]) == {9}
    np.testing.assert_array_equal(rows["reward"], np.where(rows["next_obs"] == rows["goal"], 0, -1))
    for stored in (buffer[:], buffer.get_episode(0)):
        assert stored["goal"].ravel().tolist() == [9, 9], "as stored"


@covers("HER.goal_func HER.goal_final")
def test_goal_may_be_a_part_of_the_state():
    state, goal = {"shape": 5}, {"shape": 3}
    fields = {name: {} for name in NATIVE_STEPS} | {"obs": state, "next_obs": state}
    fields |= {name: goal for name in ("goal", "achieved", "next_achieved")}
    names = {"goal": "goal", "achieved_goal": "achieved", "strategy": "final", "seed": 0}
    buffer = HindsightReplayBuffer(10, fields, reward, reached, **names)
    for at in range(2):
        now, following = np.full(5, at), np.full(5, at + 1)
        step = {
            "obs": now,
            "action": 0,
            "next_obs": following,
            "reward": -1,
            "done": 0,
            "goal": np.full(3, 3),
        }
        buffer.add(**step, achieved=now[:3], next_achieved=following[:3])
    buffer.end_episode()
    rows = buffer.sample(64)
    assert rows["goal"].shape == (64, 3)
    np.testing.assert_array_equal(rows["goal"], np.where(rows["relabelled"], 2, 3)[:, None].repeat(3, 1))


@covers("HER.unknown_strategy")
def test_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="strategy must be one of"):
        hindsight(strategy="unknown")


@covers("HER.assert_exceed_max_episode", but="Length of an episode")
def test_episode_may_be_longer_than_announced_and_than_the_buffer():
    buffer = hindsight(steps=25)
    assert buffer.get_episode(0)["indexes"].tolist() == list(range(16, 25)), "9 steps and an observation"


@covers("HER.assert_PER", but="Priorities without `prioritized`")
@covers("HER.PER", but="Copies of an episode")
@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_hindsight_buffer_takes_priorities_with_any_alpha(alpha):
    buffer = hindsight(alpha=alpha)
    buffer.end_episode()
    buffer.update_priorities(buffer.sample(4)["indexes"], np.zeros(4))
    buffer.update_priorities([0], [8.0])
    assert buffer.max_priority == 8
    first = (buffer.sample(1000)["obs"] == 0).mean()
    assert first == pytest.approx(0.5, abs=0.01) if alpha == 0 else first > 0.9, "stratified"


@covers("LaBERmean.init LaBERlazy.init LaBERmax.init", but="`m` and `eps`")
@covers("LaBERmean.call LaBERlazy.call LaBERmax.call")
@pytest.mark.parametrize("variant", ["mean", "lazy", "max"])
def test_laber_takes_a_large_batch_of_any_size(variant):
    rng = np.random.default_rng(0)
    for size in (4 * 32, 5 * 32, 7):
        positions, weights = laber(np.ones(size), 32, rng, variant)
        assert positions.shape == weights.shape == (32,)
    with pytest.raises(ValueError, match="batch_size"):
        laber(np.ones(4), -12, rng, variant)
    for priorities in ([], [0.0, 0.0]):
        with pytest.raises(ValueError, match="priority must be above 0"):
            laber(priorities, 2, rng, variant)


@covers("LaBERmean.uniform LaBERmax.uniform LaBERmean.onehot LaBERlazy.onehot LaBERmax.onehot")
@covers("LaBERlazy.uniform", but="`LaBERlazy`")
@pytest.mark.parametrize(("variant", "of_one"), [("mean", 0.25), ("lazy", 1), ("max", 1)])
def test_laber_weights_of_equal_priorities_and_of_a_single_one(variant, of_one):
    rng = np.random.default_rng(0)
    assert laber([1, 1, 1, 1], 2, rng, variant)[1].tolist() == [1, 1], "lazy: cpprb multiplies by 4"
    positions, weights = laber([1, 0, 0, 0], 2, rng, variant)
    assert (positions.tolist(), weights.tolist()) == ([0, 0], [of_one, of_one])


@covers("Reverse.simple Reverse.batch Reverse.reset Reverse.non_full")
@pytest.mark.parametrize("stored", [20, 1])
@pytest.mark.parametrize(("stride", "batch_size"), [(5, 1), (5, 2), (2, 1)])
def test_batches_walk_back_and_begin_again_after_two_strides(stored, stride, batch_size):
    buffer, scheme = ReplayBuffer(20, {"obs": {}}), Reverse(stride)
    buffer.add(obs=np.arange(stored))
    for batch in range(10):
        first = stored - 1 - batch % (2 * stride)
        expected = [(first - stride * row) % stored for row in range(batch_size)]
        assert buffer.sample(batch_size, scheme=scheme)["obs"].ravel().tolist() == expected


def episodes_of(*lengths: int, size: int = 100, finished: bool = True) -> EpisodeReplayBuffer:
    """Observations count all steps; the last episode may still run."""
    fields: dict[str, Any] = {name: {"shape": 3 if "obs" in name else 1} for name in NATIVE_STEPS}
    buffer, at = EpisodeReplayBuffer(size, fields, seed=0), 0
    for episode, length in enumerate(lengths):
        done = np.zeros(length)
        done[-1] = finished or episode < len(lengths) - 1
        obs = np.arange(at, at + length).repeat(3).reshape(-1, 3)
        buffer.add(obs=obs, action=np.zeros(length), reward=np.ones(length), next_obs=obs + 1, done=done)
        at += length
    return buffer


@covers("Selective.1_obs Selective.2_act Selective.3_rew Selective.4_next_obs Selective.5_done")
@covers(
    "Selective.1_obs Selective.2_act Selective.3_rew Selective.4_next_obs Selective.5_done Selective.episode",
    but="Rows that are not consecutive",
)
def test_samples_of_episodes_have_the_shapes_of_cpprb_if_the_steps_are_consecutive():
    buffer = episodes_of(6, 4)
    rows = buffer.sample(16)
    shapes = {"obs": (16, 3), "action": (16, 1), "reward": (16, 1), "next_obs": (16, 3), "done": (16, 1)}
    assert {name: rows[name].shape for name in shapes} == shapes
    assert set(rows["done"].ravel()) == {0, 1}
    rows = {name: np.zeros((2, *shape[1:])) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match="step 1 differs from the 'next_obs' of the step before"):
        buffer.add(**rows | {"next_obs": np.ones((2, 3))})


@covers("Selective.episode Selective.cpp", but="Full buffers and deletion")
@covers("Selective.cpp", but="Errors")
def test_episodes_are_counted_returned_and_removed():
    buffer = episodes_of(4, 3)
    assert (len(buffer), len(buffer.episodes()["episode"])) == (7, 2)
    assert [len(buffer.get_episode(number)["reward"]) for number in range(2)] == [4, 3]
    for call in (buffer.get_episode, buffer.evict):
        with pytest.raises(IndexError, match="no episode 2"):
            call(2)
    kept = buffer.indexes[-3:].tolist()
    buffer.evict(0)
    assert buffer.indexes.tolist() == kept
    assert buffer.episodes()["episode"].tolist() == [1]
    assert buffer.get_episode(1)["reward"].shape == (3, 1)
    buffer.evict(0)
    assert len(buffer) == 3, "already gone"


@covers("Selective.cpp", but="Errors")
def test_running_episode_is_returned_and_must_end_before_it_is_removed():
    buffer = episodes_of(4, 3, finished=False)
    assert len(buffer.get_episode(1)["reward"]) == 3
    with pytest.raises(ValueError, match="running"):
        buffer.evict(1)
    buffer.evict(0)
    assert len(buffer) == 3
    buffer.end_episode()
    buffer.evict(1)
    assert (len(buffer), len(buffer.episodes()["episode"])) == (0, 0)


@covers("Selective.episode", but="Full buffers and deletion")
def test_full_episode_buffer_keeps_the_newest_steps():
    buffer = episodes_of(4, 4, 4, size=2 * (4 + 1) + 1)
    assert buffer.episodes()["whole"].tolist() == [True, True]
    assert set(buffer.sample(256)["obs"].ravel()) == set(range(4, 12)), "episode 0 has been overwritten"


@covers("create.class create.create create.issue51 create.RGB_screen_obs")
@both_classes
@pytest.mark.parametrize("shared", [False, True])
def test_images_come_back_as_they_were_added(kind, shared):
    obs = {"shape": (84, 84, 3)}
    fields = {"obs": obs, "act": {"shape": 3}, "rew": {}, "done": {}} | ({} if shared else {"next_obs": obs})
    buffer = kind(256, fields, next_of="obs" if shared else None)
    images = np.random.default_rng(0).random((3, 84, 84, 3)).astype(np.float32)
    for step in range(2):
        buffer.add(obs=images[step], act=np.ones(3), rew=1, next_obs=images[step + 1], done=0)
    rows = buffer.get_all_transitions()
    np.testing.assert_array_equal(rows["obs"], images[:2])
    np.testing.assert_array_equal(rows["next_obs"], images[1:])
    assert buffer.sample(1)["next_obs"].shape == (1, 84, 84, 3)


@covers("create.stack create.episode_termination create.default_dtype")
@both_classes
@pytest.mark.parametrize("shape", [(6, 6, 4), (4, 6, 6)])  # cpprb stacks along the last axis only
def test_stacks_are_whole_in_every_episode_and_after_a_wrap_around(kind, shape):
    axis, size = shape.index(4), 40
    fields = {"obs": {"shape": shape}, "act": {}, "rew": {}, "done": {}}
    buffer = kind(size, fields, next_of="obs", stack_compress="obs", default_dtype=np.float64)
    video = np.moveaxis(np.random.default_rng(0).random((104, 6, 6)), 0, 2 if axis else 0)
    stacks = [video.take(np.arange(first, first + 4), axis) for first in range(101)]
    for step in range(100):
        buffer.add(obs=stacks[step], act=0, rew=0, next_obs=stacks[step + 1], done=step % 9 == 8)
        if step % 9 == 8:
            buffer.on_episode_end()
    rows = buffer.get_all_transitions()
    assert rows["obs"].dtype == rows["done"].dtype == np.float64
    np.testing.assert_array_equal(rows["obs"], stacks[60:100])
    np.testing.assert_array_equal(rows["next_obs"], stacks[61:101])


@covers("create.BatchSampling create.Issue45 create.Issue46 save.smaller_buffer", but="Errors")
def test_errors_where_cpprb_goes_on(tmp_path):
    fields = {name: {} for name in STEPS}
    window = {"size": 4, "rew": "rew", "next": "next_obs"}
    buffer = PrioritizedReplayBuffer(256, fields, Nstep=window)
    buffer.add(**{name: 0 for name in STEPS})
    with pytest.raises(ValueError, match="the buffer is empty"):
        buffer.sample(64)
    with pytest.raises(TypeError, match="env_dict"):
        PrioritizedReplayBuffer(256)
    with pytest.raises(TypeError, match="obs_shape"):
        PrioritizedReplayBuffer(256, fields, obs_shape=3)
    save_transitions(ReplayBuffer(10, fields), tmp_path / "no rows.npz")  # as its test of a smaller buffer
    with pytest.raises(ValueError, match="The batch is empty"):
        load_transitions(ReplayBuffer(4, fields), tmp_path / "no rows.npz")


@covers("train.default_train train.per_train train.per_without_TD")
@covers(
    "train.too_big_max_steps train.update_count train.warmup train.done_check train.after_step "
    "train.episode_callback",
    but="`train`",
)
@both_classes
def test_loop_of_your_own_may_sample_from_the_first_step_and_pass_one_error_for_all_rows(kind):
    buffer = kind(32, {name: {} for name in STEPS})
    for step in range(10):
        buffer.add(obs=0, act=1.0, rew=1.0, next_obs=0, done=step == 6)
        rows = buffer.sample(64)
        if kind is PrioritizedReplayBuffer:
            buffer.update_priorities(rows["indexes"], 0.5)
            with pytest.raises(TypeError, match="real numbers"):
                buffer.update_priorities(rows["indexes"], None)
    assert buffer.get_stored_size() == 10


def frames(first: int, last: int) -> dict[str, Any]:
    """Rows whose stacks of three frames slide."""
    stacks = np.arange(first, last + 1)[:, None] + np.arange(3)
    return {"a": stacks[:-1], "next_a": stacks[1:]}


def of_frames(size: int, shared: bool, stacked: bool) -> ReplayBuffer:
    fields = {"a": {"shape": 3}} | ({} if shared else {"next_a": {"shape": 3}})
    return ReplayBuffer(
        size, fields, next_of="a" if shared else None, stack_compress="a" if stacked else None
    )


OPTIONS = [(shared, stacked) for shared in (False, True) for stacked in (False, True)]
UNSAFE = """
save.unsafe_next_of save.unsafe_next_of_already_filled save.incompatible_unsafe_next_of
save.fulled_unsafe_next_of save.incompatible_unsafe_stack_compress save.unsafe_next_of_stack_compress
save.unsafe_fulled_next_of_stack_compress
"""


@covers("save.basic save.smaller_buffer save.load_to_filled_buffer save.next_of save.stack_compress")
@covers("save.incompatible_stack_compress save.next_of_stack_compress")
@covers(UNSAFE, but="Files of cpprb")
@pytest.mark.parametrize("source", OPTIONS)
@pytest.mark.parametrize("target", OPTIONS)
def test_rows_in_a_file_are_added_to_a_buffer_of_any_size_and_options(source, target, tmp_path):
    for stored, size, before in ((5, 10, 0), (5, 10, 2), (10, 4, 0), (25, 10, 3)):
        saved, loaded = of_frames(10, *source), of_frames(size, *target)
        saved.add(**frames(0, stored))
        if before:
            loaded.add(**frames(50, 50 + before))
        save_transitions(saved, tmp_path / "rows.npz")
        load_transitions(loaded, tmp_path / "rows.npz")
        kept, rows = min(stored, 10), loaded.get_all_transitions()
        for name in ("a", "next_a"):
            expected = [*frames(50, 50 + before)[name], *frames(stored - kept, stored)[name]][-size:]
            np.testing.assert_array_equal(rows[name], expected)


def check_rows_of_cpprb(path: Path) -> None:
    buffer = of_frames(10, shared=True, stacked=True)
    load_from_cpprb(buffer, path)
    np.testing.assert_array_equal(buffer.get_all_transitions()["next_a"], frames(0, 3)["next_a"])


@covers("save.basic save.next_of save.stack_compress")
def test_file_in_the_format_of_cpprb_is_read_without_cpprb(tmp_path):
    others = {"version": 1, "Nstep": False, "cache": None, "next_of": None}
    np.savez_compressed(tmp_path / "cpprb.npz", safe=True, data=frames(0, 3), **others)
    check_rows_of_cpprb(tmp_path / "cpprb.npz")
    np.savez_compressed(tmp_path / "cpprb.npz", safe=False, data=frames(0, 3), **others)
    with pytest.raises(ValueError, match="safe=False"):
        check_rows_of_cpprb(tmp_path / "cpprb.npz")


@covers("save.load_Nstep save.Nstep_incompatibility", but="Files of cpprb")
def test_n_step_buffer_is_loaded_whole_and_only_by_its_like(tmp_path):
    fields = {"done": {}}
    saved, loaded = (ReplayBuffer(10, fields, Nstep={"size": 3, "gamma": 0.99, "rew": ()}) for _ in range(2))
    saved.add(done=[0, 0, 0, 0, 1])
    saved.on_episode_end()
    saved.save(tmp_path / "rows")
    loaded.load(tmp_path / "rows")
    assert_same_columns(loaded.get_all_transitions(), saved.get_all_transitions())
    with pytest.raises(ValueError, match="n_step is"):
        ReplayBuffer(10, fields).load(tmp_path / "rows")


def test_cpprb_does_what_the_departures_say(tmp_path):
    cpprb = pytest.importorskip("cpprb")
    fields = {"obs": {}, "act": {}, "next_obs": {}}
    buffer = cpprb.HindsightReplayBuffer(10, fields, 2, lambda *_: 0, prioritized=False)
    with pytest.raises(ValueError, match="without PER"):
        buffer.get_max_priority()

    buffer = cpprb.SelectiveReplayBuffer(4, Nepisodes=2)
    for step in range(12):
        buffer.add(step, 0, 0, step + 1, step % 3 == 2)  # rows of 8 steps fit
    assert [buffer.get_episode(i)["obs"].ravel().tolist() for i in range(4)] == [
        *([0, 1, 2], [3, 4, 5], [6, 7], [])
    ], "new rows are dropped"
    assert (buffer.delete_episode(1), buffer.delete_episode(9), buffer.get_next_index()) == (3, 0, 5)

    assert cpprb.PrioritizedReplayBuffer(4, {"a": {}}).sample(2)["a"].shape == (2, 1), "of an empty buffer"
    assert cpprb.create_buffer(4, unknown=0).get_stored_size() == 0

    saved = cpprb.ReplayBuffer(10, {"a": {"shape": 3}, "next_a": {"shape": 3}})
    saved.add(**frames(0, 3))
    saved.save_transitions(tmp_path / "cpprb.npz")
    check_rows_of_cpprb(tmp_path / "cpprb.npz")


def test_the_page_lists_the_departures_and_their_number():
    page = (ROOT / "docs" / "recipes" / "from_cpprb.md").read_text("utf-8")
    section = page.split("## Departures\n")[1].split("\n## ")[0]
    rows = [row.split("|")[1].strip() for row in section.splitlines() if row.startswith("| ")]
    assert set(rows[1:]) == set().union(*COVERED.values())
    departing = sum(map(bool, COVERED.values()))
    numbers = [int(number) for number in re.findall(r"\b\d+\b", section.split("|")[0]) if int(number) > 11]
    assert numbers == [len(COVERED), len(COVERED) - departing, departing]
