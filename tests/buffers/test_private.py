"""A copy of a buffer in another process warns, once, when rows are added to it."""

import copy
import inspect
import multiprocessing
import os
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest

from replay_tutorial import EpisodeReplayBuffer, PrioritizedReplayBuffer, ReplayBuffer

STEP = {"obs": {}, "next_obs": {}, "reward": {}, "terminated": {"dtype": bool}}
ONE: dict[str, Any] = {"obs": 0, "next_obs": 1, "reward": 0, "terminated": True}


def caught(buffer: Any, method: str = "add") -> list[str]:
    """Add twice; return the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        getattr(buffer, method)(**ONE)
        getattr(buffer, method)(**ONE)
    assert all(each.filename == __file__ for each in found), "the warning names the line of the call"
    return [str(each.message) for each in found]


def put_caught(buffer: Any, queue: Any) -> None:
    buffer.sample(1)
    queue.put((caught(buffer), caught(pickle.loads(pickle.dumps(buffer))), len(buffer)))


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *((ReplayBuffer, method) for method in multiprocessing.get_all_start_methods()),
        (PrioritizedReplayBuffer, multiprocessing.get_start_method()),
        (EpisodeReplayBuffer, multiprocessing.get_start_method()),
    ],
)
def test_a_buffer_passed_to_a_process_warns_there_once_and_never_here(kind, method: str) -> None:
    buffer = kind(10, STEP)
    buffer.add(**ONE)
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=put_caught, args=(buffer, queue))
    process.start()
    (warning,), others, count = queue.get()
    process.join()
    assert f"a copy of a {kind.__name__}; the original, in process {os.getpid()}," in warning
    assert "MPReplayBuffer" in warning
    assert (others, count, len(buffer)) == ([], 3, 1)
    assert caught(buffer) == []


def test_copies_in_the_same_process_do_not_warn() -> None:
    buffer = ReplayBuffer(10, STEP)
    buffer.add(**ONE)
    sent = pickle.loads(ForkingPickler.dumps(buffer))
    for each in (sent, copy.deepcopy(sent), pickle.loads(pickle.dumps(buffer))):
        assert caught(each) == []


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer, EpisodeReplayBuffer])
def test_a_copy_that_would_share_the_rows_is_refused(kind) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__} can't be copied by copy.copy.*copy.deepcopy"):
        copy.copy(kind(10, STEP))


def returned(rows: int) -> ReplayBuffer:
    buffer = ReplayBuffer(10, STEP)
    for _ in range(rows):
        buffer.add(**ONE)
    return buffer


def test_a_buffer_that_another_process_has_returned_does_not_warn() -> None:
    with ProcessPoolExecutor(1) as pool:
        buffer = pool.submit(returned, 2).result()
        assert caught(buffer) == []
    assert len(buffer) == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_add_step_warns_and_load_neither_forgets_nor_repeats_it(tmp_path) -> None:
    buffer = EpisodeReplayBuffer(10, STEP)
    buffer.add(**ONE)
    buffer.save(tmp_path / "saved")
    if os.fork() == 0:
        buffer.load(tmp_path / "saved")
        first = caught(buffer, "add_step")
        buffer.load(tmp_path / "saved")
        again = caught(buffer) + caught(EpisodeReplayBuffer(10, STEP))
        os._exit(0 if len(first) == 1 and not again and len(buffer) == 3 else 1)
    _, status = os.wait()
    assert status == 0


def test_the_base_class_hides_no_signature() -> None:
    assert list(inspect.signature(ReplayBuffer).parameters)[:3] == ["capacity", "fields", "dedupe_next"]
    with pytest.raises(TypeError, match="fields"):
        ReplayBuffer(10)  # pyright: ignore[reportCallIssue]
    assert len(ReplayBuffer(capacity=10, fields=STEP)) == 0
