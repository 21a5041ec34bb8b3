"""Copies of a buffer in other processes draw other rows; copies by pickle, copy and save draw the same."""

import copy
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_tutorial import (
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    Mixture,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers.streams import Stream

ROWS = 1_000
NUMBER: dict[str, Any] = {"dtype": np.int64}
STEP = {"obs": NUMBER, "next_obs": NUMBER, "reward": {}, "terminated": {"dtype": bool}}
GOALS = STEP | {"desired_goal": NUMBER, "achieved_goal": NUMBER, "next_achieved_goal": NUMBER}


def no_reward(achieved: Any, goals: Any, rows: Any) -> Any:
    return np.zeros(len(goals))


def never(achieved: Any, goals: Any, rows: Any) -> Any:
    return np.zeros(len(goals), bool)


KINDS = {
    "uniform": ReplayBuffer,
    "prioritized": PrioritizedReplayBuffer,
    "shared": MPReplayBuffer,
    "shared prioritized": MPPrioritizedReplayBuffer,
    "episodes": EpisodeReplayBuffer,
    "sequences": lambda size, fields, seed: SequenceReplayBuffer(size, fields, 1, seed=seed),
    "hindsight": lambda size, fields, seed: HindsightReplayBuffer(
        size, GOALS, no_reward, never, goal="desired_goal", achieved_goal="achieved_goal", seed=seed
    ),
}
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def filled(kind: str, seed: int | None = None) -> Any:
    buffer = KINDS[kind](2 * ROWS, STEP, seed=seed)
    obs = np.arange(ROWS)
    goals = dict.fromkeys(GOALS.keys() - STEP.keys(), np.zeros(ROWS)) if kind == "hindsight" else {}
    buffer.add(obs=obs, next_obs=obs + 1, reward=np.zeros(ROWS), terminated=obs == ROWS - 1, **goals)
    return buffer


def drawn(buffer: Any) -> list[int]:
    """Return the rows of a sample of 50 as one list."""
    return np.sort(buffer.sample(50)["obs"], axis=None).tolist()


def sent(buffer: Any) -> Any:
    """Return what another process receives as an argument, or from a queue."""
    return pickle.loads(ForkingPickler.dumps(buffer))


def put_drawn(buffer: Any, queue: Any) -> None:
    queue.put(drawn(buffer))


def drawn_in(buffer: Any, method: str) -> list[list[int]]:
    """Return what two other processes draw."""
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    processes = [context.Process(target=put_drawn, args=(buffer, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    samples = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    return sorted(samples)


def all_differ(samples: list[list[int]]) -> bool:
    return len({tuple(sample) for sample in samples}) == len(samples)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_each_process_that_a_buffer_is_passed_to_draws_other_rows(method: str) -> None:
    assert all_differ([*drawn_in(buffer := filled("uniform"), method), drawn(buffer)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_sent_buffer_draws_its_own_batches_instead_of_those_drawn_ahead(kind: str, tmp_path: Path) -> None:
    saved, buffer = filled(kind), KINDS[kind](2 * ROWS, STEP, seed=None)
    ahead = saved.batches(50, prefetch=2)
    next(ahead)
    saved.save(tmp_path / "buffer")
    buffer.load(tmp_path / "buffer")
    batches = [next(each.batches(50)) for each in (buffer, sent(buffer), sent(buffer))]
    assert all_differ([np.sort(batch["obs"], axis=None).tolist() for batch in batches])


@needs_fork
def test_processes_of_a_program_with_a_seed_draw_the_same_rows_again() -> None:
    runs = []
    for seed in (0, 0, 1):
        buffer = filled("uniform", seed)
        runs.append([drawn_in(buffer, "fork"), drawn_in(buffer, "fork"), drawn(sent(buffer)), drawn(buffer)])
        first, second, *others = runs[-1]
        assert all_differ([*first, *second, *others])
    assert runs[0] == runs[1] != runs[2]


@needs_fork
def test_tasks_of_a_pool_draw_different_rows() -> None:
    buffer = filled("uniform", seed=0)
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        assert all_differ([*pool.map(drawn, [buffer] * 4), drawn(buffer)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_sent_to_another_process_draws_other_rows_and_leaves_the_stream_alone(kind: str) -> None:
    buffer, untouched = filled(kind, seed=0), filled(kind, seed=0)
    assert all_differ([drawn(sent(buffer)), drawn(sent(buffer)), expected := drawn(buffer)])
    assert drawn(untouched) == expected


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith("shared")])
def test_pickle_deepcopy_and_save_keep_the_stream(kind: str, tmp_path) -> None:
    buffer = filled(kind, seed=0)
    drawn(buffer)
    buffer.save(tmp_path / "saved")
    loaded = filled(kind)
    loaded.load(tmp_path / "saved")
    copies = [copy.deepcopy(buffer), loaded, pickle.loads(pickle.dumps(buffer))]
    expected = drawn(buffer)
    assert [drawn(each) for each in copies] == [expected] * len(copies)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_buffer_sends_the_copies_that_the_saved_one_would_have_sent(kind: str, tmp_path) -> None:
    buffer, loaded = filled(kind, seed=0), KINDS[kind](2 * ROWS, STEP, seed=1)
    earlier = drawn(sent(buffer))
    buffer.save(tmp_path / "saved")
    loaded.load(tmp_path / "saved")
    assert drawn(sent(loaded)) == drawn(sent(buffer)) != earlier


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("shared")])
def test_deepcopy_of_a_shared_buffer_names_what_to_do(kind: str, tmp_path) -> None:
    buffer = filled(kind, seed=0)
    for holder in (buffer, [buffer], Mixture({"all": (buffer, 1.0)})):
        with pytest.raises(TypeError, match=r"copy\.copy.*save this buffer, and load the file"):
            copy.deepcopy(holder)
    buffer.save(tmp_path / "saved")
    independent = KINDS[kind](2 * ROWS, STEP)
    independent.load(tmp_path / "saved")
    independent.add(obs=0, next_obs=0, reward=0, terminated=False)
    assert (len(buffer), len(independent)) == (ROWS, ROWS + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_reseed_draws_as_a_new_buffer_with_this_seed(kind: str) -> None:
    buffer = filled(kind, seed=0)
    drawn(buffer)
    buffer.reseed(7)
    assert drawn(buffer) == drawn(filled(kind, seed=7))
    buffer.reseed(7)
    seeded = drawn(buffer)
    buffer.reseed()
    assert drawn(buffer) != seeded
    for wrong, error in ((1.5, TypeError), ("7", TypeError), (-1, ValueError)):
        with pytest.raises(error):
            buffer.reseed(wrong)


def test_reseed_of_a_mixture_reseeds_its_buffers() -> None:
    mixtures = [Mixture({kind: (filled(kind), 0.5) for kind in ("uniform", "prioritized")}) for _ in range(2)]
    for mixture in mixtures:
        mixture.reseed(3)
    first, second = (mixture.sample(50) for mixture in mixtures)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    mixtures[0].reseed(np.random.SeedSequence(3))
    assert not np.array_equal(mixtures[0].sample(50)["obs"], mixtures[1].sample(50)["obs"])


def test_a_mixture_still_shares_the_state_of_the_users_generator() -> None:
    rng = np.random.default_rng(0)
    mixture = Mixture({kind: (filled(kind, 0), 0.5) for kind in ("uniform", "prioritized")}, seed=rng)
    state = rng.bit_generator.state
    first, second = (mixture.sample(50)["source"].tolist() for _ in range(2))
    rng.bit_generator.state = state
    assert mixture.sample(50)["source"].tolist() == first != second


@pytest.mark.parametrize("kind", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_streams_of_every_bit_generator_differ_in_copies(kind) -> None:
    stream = Stream(np.random.Generator(kind(0)))
    states = []
    for _ in range(3):
        stream.copies += 1
        states.append(np.random.Generator(kind(0)))
        states[-1].bit_generator.state = stream.state_of_copy()
    assert len({state.random() for state in states} | {stream.random()}) == 4


@needs_fork
def test_children_and_grandchildren_of_plain_forks_draw_different_numbers() -> None:
    stream, numbers = Stream(0), []
    for depth in (1, 1, 2):
        reader, writer = os.pipe()
        if os.fork() == 0:
            if depth == 2 and os.fork() != 0:
                os.wait()
                os._exit(0)
            os.write(writer, stream.random(1).tobytes())
            os._exit(0)
        os.wait()
        numbers.append(np.frombuffer(os.read(reader, 8))[0])
        os.close(reader), os.close(writer)
    assert len({*numbers, stream.random()}) == 4


def test_workers_of_a_torch_data_loader_draw_different_rows() -> None:
    data = pytest.importorskip("torch.utils.data")

    class Batches(data.IterableDataset):
        def __init__(self, buffer: ReplayBuffer) -> None:
            self.buffer = buffer

        def __iter__(self) -> Any:
            yield drawn(self.buffer)

    for seed in (None, 0):
        dataset = Batches(filled("uniform", seed))
        loader = data.DataLoader(dataset, batch_size=None, num_workers=2)
        assert all_differ([*loader, *loader, drawn(dataset.buffer)]), "also in the next epoch's workers"
