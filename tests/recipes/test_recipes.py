"""Run the programs of the recipes, and check the claims of their pages."""

import copy
import functools
import importlib
import itertools
import math
import multiprocessing
import re
import runpy
import threading
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from copy_sections import COPY
from oracles import assert_same_columns
from places import ROOT, modules_in
from programs import Result
from scipy.stats import chisquare

pytest.importorskip("gymnasium")

from small_environments import Counting  # observes (episode, step); five steps; odd episodes terminate

from replay_tutorial import (
    Batch,
    EpisodeReplayBuffer,
    Mailbox,
    MPPrioritizedReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    fields_from_spaces,
)
from replay_tutorial import cpprb as with_cpprbs_names
from replay_tutorial.buffers.runtime.numba_internals import COMPILING

EXAMPLES = ROOT / "examples"
PAGES = sorted((ROOT / "docs" / "recipes").glob("[!.]*.md"))
PROGRAMS = sorted(path.stem for path in modules_in(EXAMPLES))
COMPLETE = modules_in(ROOT / "docs" / "recipes" / "programs")  # test_programs.py runs them
NEEDS = {
    "torch": {
        *("with_pytorch", "images", "colour_images", "sac", "own_environment"),
        *("to_a_gpu", "tables_with_pytorch", "loader_workers", "cleanrl_autoreset"),
    },
    "jax": {"tables_with_jax"},
    "msgspec": {"tables_on_two_hosts"},
    "stable_baselines3": {"with_sb3", "sb3_n_step", "sb3_hindsight"},
}


def skip_without(name: str) -> None:
    for package, programs in NEEDS.items():
        if name in programs and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def as_arrays(batch: Batch) -> Batch:
    """Return a batch of the arrays that share the memory of tensors."""
    return Batch({name: tensor.numpy() for name, tensor in batch.items()})


def program(name: str) -> Any:
    """Import a program."""
    skip_without(name)
    return importlib.import_module(name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs_as_it_stands(name: str, run_program: Callable[..., Result]) -> None:
    skip_without(name)
    finished = run_program(EXAMPLES / f"{name}.py")
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.replace(COMPILING + "\n", "") == "", "with a cold cache it may compile"
    assert finished.stdout


def test_pages_show_the_programs_themselves_and_all_of_them() -> None:
    shown = set()
    for page in PAGES:
        text = page.read_text("utf-8")
        found = [(Path(code["file"]).stem, code["section"]) for code in COPY.finditer(text)]
        assert len(found) == text.count("```python"), f"{page.name} has code that no test runs"
        shown.update(found)
    written = {
        (path.stem, section)
        for path in [*modules_in(EXAMPLES), *COMPLETE]
        for section in re.findall(r"\[start:(\w+)\]", path.read_text("utf-8"))
    }
    assert shown == written


@pytest.mark.parametrize("mode", ["SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_no_row_of_a_vector_environment_crosses_a_reset(mode) -> None:
    recipe = program("vector_environments")
    counting, gamma = "small_environments:Counting-v0", 0.99
    buffer = recipe.main(counting, recipe.AutoresetMode[mode], num_envs=8, steps=500)
    rows = buffer[:]
    (episodes, steps), (next_episodes, next_steps) = rows["obs"].T.astype(float), rows["next_obs"].T
    rewards = np.minimum(3, 5 - steps)
    np.testing.assert_array_equal(next_episodes, episodes)
    np.testing.assert_array_equal(next_steps, steps + rewards)
    np.testing.assert_allclose(rows["reward"], (1 - gamma**rewards) / (1 - gamma), rtol=1e-6)
    ends, odd = next_steps == 5, episodes % 2 == 1
    np.testing.assert_array_equal(rows["terminated"], ends & odd)
    np.testing.assert_array_equal(rows["truncated"], ends & ~odd)
    np.testing.assert_allclose(rows["discount"], np.where(ends & odd, 0, gamma**rewards), rtol=1e-6)
    # 500 steps are 100 episodes; in NEXT_STEP mode each has a reset step: 83 episodes, and 2 pending steps
    assert len(buffer) == 8 * (83 * 5 if mode == "NEXT_STEP" else 500)


@pytest.mark.learns
def test_pytorch_learner_computes_what_numpy_does() -> None:
    recipe = program("with_pytorch")
    buffer, losses = recipe.main()
    assert np.mean(losses[-20:]) < np.mean(losses[:20])

    networks = [recipe.torch.nn.Linear(4, 2) for _ in range(2)]
    (w, b), (w_target, b_target) = ([p.detach().numpy().copy() for p in n.parameters()] for n in networks)
    batch = copy.deepcopy(buffer).sample(128, beta=0.4)  # what `update` will draw
    optimizer = recipe.torch.optim.SGD(networks[0].parameters(), lr=0.1)
    loss = recipe.update(*networks, optimizer, buffer, next(buffer.batches(128, beta=0.4)))
    errors = []
    for i in range(128):
        value = max(w_target @ batch["next_obs"][i] + b_target)
        target = batch["reward"][i] + (0 if batch["terminated"][i] else 0.99 * value)
        errors.append(target - (w @ batch["obs"][i] + b)[batch["action"][i]])
    assert 0 < batch["terminated"].sum() < 128
    assert loss == pytest.approx(np.mean(batch["weights"] * np.square(errors)), rel=1e-4)


def test_pictures_become_channels_first_and_at_most_one() -> None:
    recipe = program("with_pytorch")
    pictures = np.random.default_rng(0).integers(256, size=(2, 5, 6, 3), dtype=np.uint8)
    buffer = ReplayBuffer(2, {"obs": {"shape": (5, 6, 3), "dtype": np.uint8}})
    buffer.add(obs=pictures)
    images = recipe.as_images(buffer[:].to_torch().obs).numpy()
    assert images.shape == (2, 3, 5, 6)
    np.testing.assert_allclose(images[:, 1, 2, 3], pictures[:, 2, 3, 1] / 255, rtol=1e-6)


def test_torch_refuses_what_the_page_says_it_refuses() -> None:
    torch = pytest.importorskip("torch")
    flags, small = torch.tensor([True]), torch.zeros((1, 1), dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="bool tensor is not supported"):
        1 - flags
    with pytest.raises(RuntimeError, match="int64"):
        torch.zeros(1, 2).gather(1, small)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.nn.Linear(1, 1)(torch.zeros(1, 1, dtype=torch.float64))


@pytest.mark.learns
def test_numpy_learner_learns_and_keeps_one_field() -> None:
    after = runpy.run_path(str(EXAMPLES / "with_numpy.py"))
    assert np.mean(after["errors"][-20:]) < 0.1 * np.mean(after["errors"][:20])
    assert after["kept"].base is None
    assert after["batch"]["obs"].base is not None


def test_frames_stored_once_come_out_as_they_went_in() -> None:
    recipe = program("images")
    plain, small = recipe.main(size=300, steps=450)
    rows = list(recipe.play(450, np.random.default_rng(0)))[-300:]
    for buffer in (plain, small):
        everything = buffer[:]
        for name in rows[0]:
            np.testing.assert_array_equal(everything[name], [row[name] for row in rows])
    pages = [(ROOT / "docs" / page).read_text("utf-8") for page in ("recipes/images.md", "api/buffers.md")]
    pages[0] = pages[0].split("\n## Train from pixels")[0]  # records write the figures of the rest
    pages[0] = re.sub(r"\n## Colour images.*?(?=\n## )", "", pages[0], flags=re.DOTALL)
    told, proven = (set(re.findall(r"\d+,\d+", text)) for text in pages)
    assert told and told <= proven, "a test of the site computes the figures of buffers.md"


def test_colour_images_are_stored_once_and_become_channels() -> None:
    recipe = program("colour_images")
    buffer = recipe.main(size=50, steps=120)
    rows = buffer[:]
    same = ~(rows["terminated"] | rows["truncated"])[:-1]
    np.testing.assert_array_equal(rows["next_obs"][:-1][same], rows["obs"][1:][same])
    channels = recipe.as_input(rows.to_torch().obs).numpy()
    assert channels.shape == (50, 12, 64, 64)
    np.testing.assert_allclose(channels[:, 3 * 2 + 1], rows["obs"][:, 2, :, :, 1] / 255, rtol=1e-6)
    page = (ROOT / "docs" / "recipes" / "images.md").read_text("utf-8")
    env = recipe.gymnasium.wrappers.FrameStackObservation(recipe.Walk(), 4)
    plain = fields_from_spaces(env.observation_space, env.action_space)
    for large in (recipe.colour_buffer(env, 100_000), ReplayBuffer(100_000, plain)):
        assert f"{math.ceil(large.bytes_per_transition):,} bytes" in page
    with pytest.raises(ValueError, match=r"dedupe_frames={'obs': 0}"):
        ReplayBuffer(8, plain, dedupe_next="obs", dedupe_frames="obs")


def test_bytes_become_floats_of_the_same_shape_and_at_most_one() -> None:
    recipe = program("images")
    stacks = np.random.default_rng(0).integers(256, size=(3, 4, 84, 84), dtype=np.uint8)
    tensor = recipe.as_input(recipe.torch.from_numpy(stacks))
    assert tensor.shape == (3, 4, 84, 84) and tensor.dtype == recipe.torch.float32
    np.testing.assert_allclose(tensor, stacks / 255.0, rtol=1e-6)


def test_exact_values_give_exact_targets_if_terminations_are_marked() -> None:
    recipe = program("n_step")
    rows, targets, _ = recipe.main(True, recipe.value_if_terminated)
    assert rows["reward"].tolist() == [1.75, 1.75, 1.75, 1.5, 1.0]
    assert rows["next_obs"].tolist() == [3, 4, 5, 5, 5]
    assert rows["discount"].tolist() == [0.125, 0.125, 0, 0, 0]
    assert targets.tolist() == [1 + 0.5 * (1 + 0.5 * (1 + 0.5 * 1.5)), 1.875, 1.75, 1.5, 1.0]
    rows, targets, _ = recipe.main(False, recipe.value_if_truncated)
    assert rows["discount"].tolist() == [0.125, 0.125, 0.125, 0.25, 0.5]
    assert targets.tolist() == [2.0] * 5
    _, wrong, _ = recipe.main(True, recipe.value_if_truncated)  # a time limit marked as a termination
    assert wrong.tolist() == [2.0, 2.0, 1.75, 1.5, 1.0]


def test_the_newest_row_in_every_batch_repairs_a_buffer_that_is_too_large() -> None:
    recipe = program("large_buffer")
    uniform, combined = (
        len(recipe.main(scheme, steps=10_000)) for scheme in (recipe.Uniform(), recipe.Combined())
    )
    assert combined > 3 * uniform


def test_a_goal_env_needs_no_names_and_keeps_its_terminations() -> None:
    recipe = program("goal_env")
    buffer = recipe.main(episodes=5, relabel=1.0, strategy="final")
    rows, stored = buffer.sample(500), buffer[:]
    places = np.searchsorted(np.unique(rows["indexes"]), rows["indexes"])
    assert len(np.unique(rows["indexes"])) == 100, "every step of five episodes"
    finals = stored["next_obs/achieved_goal"][19::20]
    np.testing.assert_array_equal(rows["obs/desired_goal"], finals[places // 20])
    near = (np.abs(rows["next_obs/achieved_goal"] - rows["obs/desired_goal"]) <= 0.5).all(1)
    np.testing.assert_array_equal(rows["reward"], near - 1)
    assert not rows["terminated"].any()
    recipe.update_priorities(buffer, buffer.sample(8), np.ones(8))  # none has kept its goal


@pytest.mark.filterwarnings("ignore::UserWarning")  # Minari recommends to name an author
def test_best_episodes_are_whole_and_can_be_exchanged(monkeypatch, tmp_path) -> None:
    recipe = program("episodes")
    envs, buffer, best = recipe.main()
    table = buffer.episodes()
    returns = table["return"][table["finished"]]
    assert len(returns) == 10 and best["reward"].sum() == len(best["reward"]) == returns.max()
    assert best["obs"].shape == (len(best["reward"]) + 1, 4) and best["terminated"].tolist()[-1] is True
    everything = recipe.new_buffer(envs)
    recipe.collect(envs, everything, steps=600)
    table = everything.episodes()
    assert sorted(table["return"][table["finished"]])[-10:] == sorted(returns)
    if find_spec("minari"):
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
        assert recipe.exchange(buffer, everything) == 10


def test_actors_end_cleanly_when_the_learner_is_done(monkeypatch) -> None:
    recipe = program("many_processes")
    # If a stopped actor holds the slot of a row, the row takes a second index: indexes do not count rows.
    counted = MPPrioritizedReplayBuffer.statistics
    rows_added = property(lambda buffer: counted(buffer).rows_added + counted(buffer).rows_dropped)
    monkeypatch.setattr(recipe.MPPrioritizedReplayBuffer, "next_index", rows_added)
    errors, rows, exit_codes = recipe.main(updates=50)
    assert len(errors) == 50 and np.isfinite(errors).all()
    assert rows >= 1_000 and rows % 50 == 0
    assert exit_codes == [0, 0]


def test_actors_end_when_the_learner_fails() -> None:
    recipe = program("many_processes")
    with pytest.raises(TypeError):
        recipe.main(actors=1, updates=None)
    assert not multiprocessing.active_children()


def test_learner_does_not_wait_for_actors_that_have_died(monkeypatch) -> None:
    recipe = program("many_processes")
    monkeypatch.setattr(recipe, "actor", print)  # prints its arguments and exits
    with pytest.raises(RuntimeError, match="an actor exited"):
        recipe.main(actors=1)


@pytest.mark.learns
def test_actor_acts_on_the_newest_parameters_and_the_learner_publishes_better_ones() -> None:
    recipe = program("many_processes")
    mailbox, stop = Mailbox(8), threading.Event()
    mailbox.publish(np.tile(np.float32([0, 1]), 4))  # action 1 has the higher value everywhere
    with MPPrioritizedReplayBuffer(10_000, recipe.FIELDS, seed=0) as buffer:
        acting = threading.Thread(target=recipe.actor, args=(0, buffer, mailbox, stop))
        acting.start()
        assert buffer.wait_for(2_000, timeout=300)
        stop.set()
        acting.join()
        rows = buffer[:]
        assert 0.85 < rows["action"].mean() < 0.95, "one action in five is random"
        np.testing.assert_array_equal(rows["reward"], rows["obs"][:, 0] * rows["action"])
        errors = recipe.learner(buffer, mailbox, updates=1_000)
    assert np.mean(errors[-20:]) < 0.2 * np.mean(errors[:20])
    _, q = mailbox.pull(1)
    np.testing.assert_allclose(q.reshape(4, 2)[:, 1], [1, 0, 0, 0], atol=0.1)


@pytest.mark.learns
def test_prefetching_learner_learns_what_one_without_does() -> None:
    recipe = program("to_a_gpu")
    torch, networks = recipe.torch, [recipe.torch.nn.Linear(8, 1) for _ in range(2)]
    for network in networks:
        for parameter in network.parameters():
            torch.nn.init.zeros_(parameter)  # random values may be almost right at first
    networks[0].to(recipe.DEVICE)
    optimizers = [torch.optim.SGD(network.parameters(), lr=0.1) for network in networks]
    buffer = recipe.new_buffer()
    twin = copy.deepcopy(buffer)
    losses = recipe.learn(networks[0], optimizers[0], buffer, updates=50)

    ahead, expected = [twin.sample(32, beta=0.4) for _ in range(2)], []
    for _ in range(50):
        ahead.append(twin.sample(32, beta=0.4))
        batch = {name: torch.tensor(array) for name, array in ahead.pop(0).items()}
        td_error = batch["reward"] - networks[1](batch["obs"])[:, 0]
        loss = (batch["weights"] * td_error.square()).mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        twin.update_priorities(batch["indexes"], np.abs(td_error.detach().numpy()))
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-7)
    assert np.mean(losses[-10:]) < 0.2 * np.mean(losses[:10])


def test_every_set_of_transitions_is_equally_likely_to_be_in_the_reservoir() -> None:
    recipe, counts = program("tables_reservoir"), Counter[tuple[int, ...]]()
    for seed in range(1_000):
        client, _ = recipe.main(size=3, steps=6, seed=seed)
        stored = client.sample("reservoir", 100).data["reward"]  # misses one of three in 1 of 10^17 cases
        counts[tuple(sorted({*stored.astype(int).tolist()}))] += 1
    assert set(counts) == {*itertools.combinations(range(6), 3)}
    assert chisquare([*counts.values()]).pvalue > 1e-6


def test_a_state_is_reset_where_an_episode_begins_and_final_observations_are_no_steps() -> None:
    batch, states = program("across_episodes").main()
    for obs, state, learn in zip(
        batch.obs.T.tolist(), np.transpose(states).tolist(), batch.learn.T, strict=True
    ):
        count = 0
        for time in range(16):
            count = 1 if time == 0 or obs[time] == 0 else count + 1  # each episode counts from 0
            assert state[time] == count
            assert learn[time] == (obs[time + 1] == obs[time] + 1)
    assert batch.is_first.any() and not batch.learn.all()


@pytest.mark.parametrize("truncated", [False, True])
def test_targets_of_muzero_by_hand(truncated) -> None:
    recipe = program("muzero_targets")
    recipe.buffer.clear()
    values, policies = np.arange(10.0, 70, 10), np.array([[0.9, 0.1]] * 5)
    ends = np.arange(5) == 4
    first = recipe.buffer.add(
        obs=np.arange(5),
        action=np.zeros(5, int),
        reward=np.arange(1.0, 6),
        next_obs=np.arange(1, 6),
        terminated=ends & (not truncated),
        truncated=ends & truncated,
        value=values[:-1],
        next_value=values[1:],
        policy=policies,
    )
    # two rewards and a value: 1 + 2 / 2 + 30 / 4, …; only a truncated game has a value at its end
    expected = [9.5, 13.5, 17.5, 6.5 + 15 * truncated, 5.0 + 30 * truncated, 0.0, 0.0, 0.0]
    batch = recipe.buffer.sample(100)
    value, policy, counts = recipe.targets(batch)
    assert set(batch["indexes"] - first) == {0, 1, 2, 3, 4}
    for window, start in enumerate(batch["indexes"] - first):
        steps = np.arange(start, start + 4)
        assert value[window].tolist() == expected[start : start + 4]
        np.testing.assert_allclose(policy[window, :, 0], np.where(steps < 5, 0.9, 0.5))
        assert counts[window].tolist() == [step < 5 or not truncated for step in steps]
        assert batch["reward"][window].tolist() == [step + 1.0 if step < 5 else 0.0 for step in steps]


def test_deque_and_buffer_hold_the_same() -> None:
    recipe = program("from_a_deque")
    memory, old = recipe.with_a_deque(recipe.random_transitions())
    buffer, new = recipe.with_a_buffer(recipe.random_transitions())
    assert len(buffer) == len(memory) == 500
    for each in (buffer, recipe.buffer_from(memory)):
        rows = each[:]
        for number, row in enumerate(memory):
            for name, value in zip(recipe.FIELDS, row, strict=True):
                np.testing.assert_array_equal(rows[name][number], value)
    assert {name: array.shape for name, array in old.items()} == {name: new[name].shape for name in old}
    assert len(buffer.sample(501)["reward"]) == 501, "with replacement"
    with pytest.raises(ValueError):
        recipe.random.sample(memory, 501)


def test_a_restored_program_samples_identical_batches() -> None:
    recipe = program("going_on")
    expected, drawn = recipe.main()
    assert len(expected) == len(drawn) == 500
    for one, other in zip(expected, drawn, strict=True):
        assert_same_columns(other, one)


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
def test_a_larger_buffer_with_another_alpha_keeps_rows_of_images_and_priorities(kind) -> None:
    recipe, rng = program("new_size"), np.random.default_rng(0)
    fields = {"obs": {"shape": (2, 8, 8), "dtype": np.uint8}, "action": {"dtype": np.int64}}
    options = {"dedupe_next": "obs", "dedupe_frames": "obs"}
    old = PrioritizedReplayBuffer(100, fields, alpha=0.6, **options)
    frames = rng.integers(256, size=(203, 8, 8), dtype=np.uint8)
    obs = np.stack([frames[:-1], frames[1:]], axis=1)
    old.add(obs=obs[:150], next_obs=obs[1:151], action=np.arange(150), priorities=[1, 2, 3] * 50)
    old.update_priorities([149], [7.5])
    new = kind(200, fields, alpha=0.3, eps=0.01, **options)
    recipe.copy_rows(old, new)

    priorities = np.array([*([1, 2, 3] * 50)[50:-1], 7.5])
    np.testing.assert_allclose(new.priorities[np.arange(100)], priorities, rtol=1e-11)
    assert new.total_mass == pytest.approx(((priorities + 0.01) ** 0.3).sum(), rel=1e-9)
    assert_same_columns(new[:], old[:])
    assert new.max_priority == pytest.approx(7.5)
    new.add(obs=obs[150:200], next_obs=obs[151:201], action=np.arange(150, 200))
    assert new[149]["action"] == 199 and len(new) == 150


def test_a_larger_buffer_of_n_step_rows_continues_with_the_same_rows() -> None:
    recipe, rng = program("new_size"), np.random.default_rng(0)
    number = {}
    fields = {"obs": number, "reward": number, "next_obs": number, "terminated": {"dtype": bool}}
    rewards = rng.random(60)
    steps = [
        {"obs": i, "next_obs": i + 1, "reward": rewards[i], "terminated": i % 7 == 6} for i in range(60)
    ]  # the 30th step is in the middle of an episode
    old, whole = (PrioritizedReplayBuffer(size, fields, n_step=3, gamma=0.9) for size in (30, 60))
    for i, step in enumerate(steps[:30]):
        old.add(**step, priorities=i)
        whole.add(**step, priorities=i)
    whole.end_episode()
    new, window = recipe.with_n_step(old, fields, 3, 0.9, 60)
    assert len(new) == len(old) == 30
    for i, step in enumerate(steps[30:], 30):
        whole.add(**step, priorities=i)
        rows = window.add(**step)
        if rows is not None:
            first = len(new)
            new.add(**rows, priorities=np.arange(first, first + len(rows["reward"])))
    assert len(new) == len(whole) > 55
    assert_same_columns(new[:], whole[:])
    stored = np.arange(len(new))
    np.testing.assert_allclose(new.priorities[stored], stored, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(whole.priorities[stored], stored, rtol=1e-11, atol=1e-12)


def test_episodes_are_copied_to_a_larger_buffer_with_their_ends() -> None:
    recipe, rng = program("new_size"), np.random.default_rng(0)
    number = {}
    fields = {"obs": number, "reward": number, "next_obs": number, "terminated": {"dtype": bool}}
    old = EpisodeReplayBuffer(60, fields, num_envs=2)
    now = np.array([0, 1000])
    for _ in range(80):
        ends = rng.random(2) < 0.15
        old.add_step(obs=now, next_obs=now + 1, reward=now, terminated=ends)
        now = now + 1 + 10 * ends
        if rng.random() < 0.1:
            old.end_episode(0)
    new = EpisodeReplayBuffer(200, fields, num_envs=2)
    recipe.copy_episodes(old, new)
    tables = [buffer.episodes() for buffer in (old, new)]
    for name in ("environment", "length", "finished"):
        for environment in (0, 1):
            one, other = (table[name][table["environment"] == environment] for table in tables)
            np.testing.assert_array_equal(other, one)
    assert sorted(new[:]["obs"]) == sorted(old[:]["obs"])
    new.add_step(obs=now, next_obs=now + 1, reward=now, terminated=[True, True])


def test_the_error_of_load_for_another_size_or_alpha_names_the_recipe(tmp_path) -> None:
    fields = {"obs": {"shape": 4}}
    for kind in (PrioritizedReplayBuffer, MPPrioritizedReplayBuffer):
        buffer = kind(10, fields)
        buffer.add(obs=np.zeros(4))
        buffer.save(tmp_path / "saved")
        for other in (kind(20, fields), kind(10, fields, alpha=0.5)):
            with pytest.raises(ValueError, match=r"capacity or alpha.*'Saving and resuming'"):
                other.load(tmp_path / "saved")
    page = (ROOT / "docs" / "recipes" / "going_on.md").read_text("utf-8")
    assert "\n## Change the size or alpha\n" in page


def test_batches_of_data_loader_workers_differ_and_follow_the_seed() -> None:
    batches, again = program("loader_workers").main()
    assert len({tuple(batch) for batch in batches}) == 20 and again == batches


def test_beta_ends_at_one_exactly() -> None:
    beta_at = program("going_on").beta_at
    buffer = PrioritizedReplayBuffer(1, {"obs": {}})
    buffer.add(obs=0)
    betas = [beta_at(step, steps=777) for step in range(1_000)]
    assert betas[0] == 0.4 and betas[776] < 1 and set(betas[777:]) == {1.0}
    assert betas[333] == pytest.approx(0.4 + 0.6 * 333 / 777)
    for beta in betas[::100]:
        buffer.sample(1, beta=beta)


def test_program_with_cpprbs_names_and_the_native_one_do_the_same() -> None:
    recipe = program("from_cpprb")
    assert recipe.with_cpprbs_names() == pytest.approx(recipe.with_native_names())
    assert recipe.with_native_names() == pytest.approx((500, 1 + 0.99 + 0.99**2))


def test_cpprb_differs_as_the_page_says() -> None:
    cpprb = pytest.importorskip("cpprb")
    fields = {name: {} for name in ("obs", "rew", "next_obs", "done")}
    window = {"size": 3, "rew": "rew", "gamma": 0.5, "next": "next_obs"}
    theirs = cpprb.ReplayBuffer(4, copy.deepcopy(fields), Nstep=window)  # cpprb changes the dict
    ours = with_cpprbs_names.ReplayBuffer(4, fields, Nstep=window)
    for step in range(8):
        row = {"obs": step, "rew": 1, "next_obs": step + 1, "done": step == 7}
        theirs.add(**row, unknown=0)
        ours.add(**row)
    theirs.on_episode_end()
    ours.on_episode_end()
    slots, in_order = theirs.get_all_transitions(), ours.get_all_transitions()
    assert in_order["obs"].ravel().tolist() == [4, 5, 6, 7], "the oldest first"
    np.testing.assert_array_equal(slots["obs"][np.arange(4, 8) % 4], in_order["obs"])
    assert (theirs.get_next_index(), ours.get_next_index() % 4) == (0, 0)
    assert in_order["done"].ravel().tolist() == [0, 1, 1, 1]
    assert slots["done"][5 % 4] == 0, "5 leads to 8, the terminal state"
    assert in_order["discount"].ravel().tolist() == [0.125, 0, 0, 0]

    plain = cpprb.ReplayBuffer(10, copy.deepcopy(fields), unknown=0)
    plain.add(**{name: np.arange(10) for name in fields})
    moved = with_cpprbs_names.ReplayBuffer(10, fields)
    moved.add(**plain.get_all_transitions())
    np.testing.assert_array_equal(moved.get_all_transitions()["obs"].ravel(), np.arange(10))


def test_sampling_schemes_do_what_the_page_says() -> None:
    recipe = program("sampling_schemes")
    size = recipe.size
    powers = 0.5 ** (np.arange(size) / 1_000)
    age = (np.arange(size) * powers).sum() / powers.sum()
    ages = size - 1 - recipe.buffer.sample(20_000, scheme=recipe.Geometric(half_life=1_000))["step"]
    assert abs(ages.mean() - age) < 4 * ages.std() / np.sqrt(len(ages))
    assert recipe.combined["step"][:2].tolist() == [size - 2, size - 1]
    corrected = recipe.correction * recipe.recent["reward"]
    assert abs(corrected.mean() - 0.5) < 4 * corrected.std() / np.sqrt(256)
    assert recipe.recent["reward"].mean() > 0.8

    copies = [
        np.count_nonzero(recipe.buffer.sample(256, scheme=scheme)["step"] == 0)
        for scheme in (recipe.Proportional(), recipe.RankBased(alpha=0.7))
    ]
    assert copies[0] > 60, "(1e6)^0.6 is 4,000, and the mean mass of the others is below 1"
    assert copies[1] <= 8, "1 / Σ r^-0.7 of 256 is 5.2"

    mixed = recipe.mixture.sample(256)["source"]
    assert np.bincount(mixed).tolist() == [192, 64]
    assert recipe.fresh[recipe.positions].mean() > recipe.fresh.mean()
    assert recipe.positions.shape == recipe.weights.shape == (64,)


def test_the_scheme_of_ones_own_draws_the_newest_rows_after_a_wrap_around() -> None:
    recipe = program("sampling_schemes")
    buffer = ReplayBuffer(10, {"step": {"dtype": int}}, seed=0)
    for rows, newest in ((3, 3), (25, 7)):
        buffer.add(step=np.arange(len(buffer), rows))
        drawn = buffer.sample(500, scheme=recipe.Newest(7))
        assert set(drawn["indexes"].tolist()) == set(range(rows - newest, rows))
        assert (drawn["probabilities"] == 1 / newest).all()
        drawn = buffer.sample(500, scheme=recipe.Combined(scheme=recipe.Newest(7)))
        expected = (499 / newest + (drawn["indexes"] == rows - 1)) / 500
        np.testing.assert_allclose(drawn["probabilities"], expected)
    assert recipe.newest == 500, "the last of the updates"
    assert recipe.batch["step"].min() >= recipe.size - 500


def test_cpprbs_hindsight_differs_as_the_page_says() -> None:
    cpprb = pytest.importorskip("cpprb")
    fields = {name: {} for name in ("obs", "act", "next_obs", "done")}

    def replay(**settings: Any) -> Any:
        def reward(next_obs: Any, act: Any, goal: Any) -> Any:
            return -(next_obs != goal).astype(float)

        buffer = cpprb.HindsightReplayBuffer(
            100, copy.deepcopy(fields), 4, reward, prioritized=False, **settings
        )
        for step in range(4):
            buffer.add(obs=step, act=0, next_obs=step + 1, done=0)
        assert buffer.get_stored_size() == 0, "no row before the end of the episode"
        buffer.on_episode_end(99)
        return {name: column.ravel() for name, column in buffer.get_all_transitions().items()}

    rows = replay(strategy="future", additional_goals=4)
    assert len(rows["obs"]) == (4 + 1) * 4, "additional_goals=4 stores 4 copies: 4 / 5 are relabelled"
    assert (rows["rew"] == 0).any()
    assert not rows["done"][rows["rew"] == 0].any(), "the goal is reached, but the row bootstraps"
    assert len(replay(strategy="final")["obs"]) == 2 * 4, "one copy: half of the rows are relabelled"

    rows = replay(strategy="final", Nstep={"size": 3, "rew": "rew", "gamma": 1.0, "next": "next_obs"})
    crossed = (rows["goal"] == 99) & (rows["obs"] == 2)
    assert rows["next_obs"][crossed].tolist() == [1], "step 2, 3, and step 0 of the copy with another goal"

    with pytest.raises(ValueError, match="Exceed Max Episode Length"):
        long = cpprb.HindsightReplayBuffer(100, copy.deepcopy(fields), 1, None)
        for step in range(2):
            long.add(obs=step, act=0, next_obs=step + 1, done=0)


def test_hindsight_from_cpprb_relabels_with_goals_of_the_episode() -> None:
    recipe = program("hindsight_from_cpprb")
    sample = recipe.buffer.sample(2_000)
    reached = (sample["next_achieved"] == sample["goal"]).all(axis=1)
    np.testing.assert_array_equal(sample["done"], reached, "recomputed, unlike cpprb's")
    np.testing.assert_array_equal(sample["reward"], np.where(reached, 0, -1))
    new = sample["relabelled"]
    assert new.mean() == pytest.approx(0.8, abs=0.05)
    assert (sample["goal"][new] >= sample["next_achieved"][new]).all(), "achieved now or later"


def test_cpprbs_reverse_and_selective_replay_differ_as_the_page_says() -> None:
    cpprb = pytest.importorskip("cpprb")
    theirs = cpprb.ReverseReplayBuffer(12, {"id": {}}, stride=4)
    for step in range(30):
        theirs.add(id=step)
    walk = theirs.sample(4)["id"].ravel().tolist()
    assert walk[0] == 23, "29 is the newest row"
    assert len(set(walk)) == 3

    episodes = cpprb.SelectiveReplayBuffer(4, Nepisodes=3)
    for step in range(6):
        episodes.add(step, 0, 0, step + 1, step % 2)  # three episodes of two steps
    assert episodes.get_episode(1)["obs"].ravel().tolist() == [2, 3]
    assert episodes.get_episode(1)["obs"].dtype == np.float64
    episodes.delete_episode(0)
    assert episodes.get_episode(1)["obs"].ravel().tolist() == [4, 5], "renumbered"
    assert episodes.get_stored_episode_size() == 2


def test_cpprbs_files_and_loop_are_as_the_page_says(tmp_path) -> None:
    cpprb = pytest.importorskip("cpprb")
    saved, loaded = (cpprb.PrioritizedReplayBuffer(10, {"id": {}}) for _ in range(2))
    saved.add(id=np.arange(8), priorities=np.arange(8.0))
    saved.save_transitions(tmp_path / "rows.npz")
    loaded.load_transitions(tmp_path / "rows.npz")
    assert set(loaded.sample(64, beta=1.0)["weights"].tolist()) == {1.0}, "the priorities are not in the file"
    loaded.load_transitions(tmp_path / "rows.npz")
    assert loaded.get_stored_size() == 10, "8 + 8 rows, of which 10 fit"
    with pytest.raises(IndexError):
        cpprb.ReplayBuffer(3, {"id": {}}).load_transitions(tmp_path / "rows.npz")
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "rows.npz")["data"]

    fields = {"obs": {"shape": 2}, "act": {}, "rew": {}, "next_obs": {"shape": 2}, "done": {}}
    loop: Any = functools.partial(cpprb.train, get_action=lambda *_: 0, update_policy=lambda *_: None)
    with pytest.warns(UserWarning, match="beta"), pytest.raises(ValueError, match="too many values"):
        loop(cpprb.ReplayBuffer(9, copy.deepcopy(fields)), Counting(), max_steps=20)

    class FourValues(Counting):
        def reset(self) -> Any:
            return super().reset()[0]

        def step(self, action: int) -> Any:
            obs, _, terminated, truncated, info = super().step(action)
            return obs, float(obs[1]), terminated or truncated, info

    returns, buffer = [], cpprb.ReplayBuffer(9, copy.deepcopy(fields))
    with pytest.warns(UserWarning, match="beta"):
        loop(buffer, FourValues(), max_steps=20, episode_callback=lambda *told: returns.append(told[2]))
    assert returns == [5.0] * 4, "the last reward; the sum is 15"


def test_every_name_of_cpprb_is_in_the_table() -> None:
    cpprb = pytest.importorskip("cpprb")
    page = (ROOT / "docs" / "recipes" / "from_cpprb.md").read_text("utf-8")
    kinds = (cpprb.ReplayBuffer, cpprb.PrioritizedReplayBuffer, cpprb.MPReplayBuffer)
    names = {*cpprb.__all__, *(name for kind in kinds for name in dir(kind) if not name.startswith("_"))}
    told = {name for name in names if re.search(rf"`{name}\b", page)}
    assert told == names, f"not on the page: {names - told}"
    with_both = dir(with_cpprbs_names.PrioritizedReplayBuffer)
    assert names - {*cpprb.__all__, *with_both} == {"save_transitions", "load_transitions"}
    table = page.split("\n## Native names\n")[1].split("\n## ")[0]
    for name in {name for name in with_both if not name.startswith("_")} - {*dir(PrioritizedReplayBuffer)}:
        assert f"| `{name}(" in table, f"{name} has no native name in the table"
