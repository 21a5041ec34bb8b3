"""Batches of tensors without end: drawn ahead, copied by a thread, and the same after a resume."""

import copy
import os
import pickle
import signal
import sys
import threading
from itertools import count
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

from replay_tutorial import (
    Batch,
    EpisodeReplayBuffer,
    HindsightReplayBuffer,
    Mixture,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
)
from replay_tutorial.buffers.schemes import Geometric

torch = pytest.importorskip("torch")

FLAG: dict[str, Any] = {"dtype": bool}
FIELDS: dict[str, Any] = {
    "obs": {"shape": 3},
    "image": {"shape": (2, 40, 64), "dtype": np.uint8},  # large, so that it is copied by a kernel of its own
    "row": {"dtype": np.int64},
    "next_obs": {"shape": 3},
    "reward": {},
    "terminated": FLAG,
}
PRIVATE = [ReplayBuffer, PrioritizedReplayBuffer]
PRIORITIZED = [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer]
KINDS = [*PRIVATE, MPReplayBuffer, MPPrioritizedReplayBuffer, EpisodeReplayBuffer]


def rows(first: int, count: int) -> dict[str, Any]:
    numbers = np.arange(first, first + count)
    pixels = (numbers % 251).astype(np.uint8)
    return {
        "obs": numbers[:, None] + np.zeros(3),
        "image": np.zeros((count, 2, 40, 64), np.uint8) + pixels[:, None, None, None],
        "row": numbers,
        "next_obs": numbers[:, None] + np.ones(3),
        "reward": numbers % 7,
        "terminated": np.zeros(count, bool),
    }


def filled(kind: Any, capacity: int = 64, **options: Any) -> Any:
    buffer = kind(capacity, FIELDS, seed=3, **options)
    buffer.add(**rows(0, capacity // 2))
    return buffer


def replace_rows(buffer: Any) -> None:
    buffer.end_episode()
    buffer.add(**rows(100, 80))


def update_rows(buffer: Any) -> None:
    new = rows(100, len(buffer))
    buffer.update_fields(buffer.indexes, row=new["row"], image=new["image"])


def check_whole(batch: Any) -> None:
    """Check that every field of a row is of the same row."""
    numbers = batch.row
    assert (batch.obs == numbers[:, None]).all() and (batch.next_obs == numbers[:, None] + 1).all()
    assert (batch.image == (numbers % 251)[:, None, None, None]).all() and (batch.reward == numbers % 7).all()


class Schedule:
    """An annealed beta; it has been annealed after ten batches."""

    def __call__(self, number: int) -> float:
        return number / 10


def as_lists(batch: Any) -> dict[str, Any]:
    return {name: np.asarray(values).tolist() for name, values in batch.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_those_that_sample_returns_as_tensors(kind, prefetch):
    buffer, twin = filled(kind), filled(kind)
    with buffer.batches(16, prefetch=prefetch) as batches:
        for _ in range(5):
            batch, sample = next(batches), twin.sample(16)
            assert type(batch) is Batch and {type(value) for value in batch.values()} == {torch.Tensor}
            assert as_lists(batch) == as_lists(sample)
            assert batch.image.dtype == torch.uint8
            check_whole(batch)


@pytest.mark.parametrize("kind", PRIVATE)
@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_batch_is_drawn_a_fixed_number_of_calls_in_advance(kind, prefetch):
    """Its rows and weights are those of that moment, whatever is added and updated since."""
    buffer, twin = filled(kind), filled(kind)
    expected = [twin.sample(16) for _ in range(prefetch)]
    batches = buffer.batches(16, prefetch=prefetch)
    for number in range(30):
        expected.append(twin.sample(16))
        batch = next(batches)
        assert as_lists(batch) == as_lists(expected[number])
        for each in (buffer, twin):
            if kind is PrioritizedReplayBuffer:
                each.update_priorities(batch.indexes, batch.reward + 1)
            each.add(**rows(32 + 40 * number, 40))


@pytest.mark.parametrize(
    ("new", "change"),
    [
        (lambda: filled(ReplayBuffer), replace_rows),
        (lambda: filled(ReplayBuffer, n_step=2), replace_rows),
        (lambda: filled(PrioritizedReplayBuffer), replace_rows),
        (lambda: filled(EpisodeReplayBuffer), replace_rows),
        (lambda: filled(EpisodeReplayBuffer), update_rows),
        (lambda: filled(SequenceReplayBuffer, length=2), replace_rows),
        (lambda: filled(SequenceReplayBuffer, length=2), update_rows),
        (lambda: Mixture({"a": (filled(ReplayBuffer), 1.0)}), lambda mixed: replace_rows(*mixed._buffers())),
    ],
)
def test_rows_are_not_changed_before_they_are_copied(new, change):
    buffer = new()
    batches = buffer.batches(16, prefetch=1)
    next(batches)
    may_copy = threading.Event()
    batches._copier.submit(may_copy.wait)
    batches._submit(buffer._draw_batch(16, {})[0])
    threading.Timer(0.05, may_copy.set).start()
    change(buffer)
    for _ in range(2):
        batch = next(batches)
        assert (batch.image == (batch.row % 251)[..., None, None, None]).all() and batch.row.max() < 32


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_of_a_mixture_are_those_that_its_sample_returns_and_stay_whole(prefetch, tmp_path):
    def mixture() -> tuple[Mixture, list[Any]]:
        buffers = [filled(PrioritizedReplayBuffer), filled(EpisodeReplayBuffer), filled(ReplayBuffer)]
        return Mixture(
            {"a": (buffers[0], 0.25), "b": (buffers[1], 0.5), "c": (buffers[2], 0.25)}, seed=0
        ), buffers

    (mixed, buffers), (twin, _) = mixture(), mixture()
    with mixed.batches(16, beta=0.5, prefetch=prefetch) as batches:
        for number in range(6):
            batch = next(batches)
            assert isinstance(batch.obs, torch.Tensor)
            if number < 6 - prefetch:
                assert as_lists(batch) == as_lists(twin.sample(16, beta=0.5))
            check_whole(batch)
        for buffer in buffers:  # while rows of three batches may not have been copied
            replace_rows(buffer)
            buffer.save(tmp_path / "rows")
            with np.load(tmp_path / "rows") as file:
                assert not any(name.startswith("ahead") for name in file.files)
        for _ in range(prefetch):
            check_whole(next(batches))
        mixed.update_priorities(batch, torch.ones(16))
        buffers[1].clear()
        buffers[1].add(**rows(300, 40))
        batch = next(batches)  # no batch was drawn before `clear`
        assert set(batch.row[batch.source == 1].tolist()) <= {*range(300, 340)}


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_resumed_mixture_yields_the_batches_of_an_uninterrupted_one(prefetch, tmp_path):
    def new(prefix: str | None = None) -> tuple[Mixture, list[Any], Any]:
        buffers = [filled(PrioritizedReplayBuffer), filled(EpisodeReplayBuffer)]
        mixed = Mixture({"a": (buffers[0], 0.3), "b": (buffers[1], 0.7)}, seed=4)
        if prefix is not None:
            for number, buffer in enumerate(buffers):
                buffer.load(tmp_path / f"{prefix}{number}")
            mixed.load(tmp_path / f"{prefix}mixture")
        return mixed, buffers, mixed.batches(8, prefetch=prefetch, beta=0.5)

    def save(loop: Any, prefix: str) -> None:
        for number, buffer in enumerate(loop[1]):
            buffer.save(tmp_path / f"{prefix}{number}")
        loop[0].save(tmp_path / f"{prefix}mixture")

    whole, interrupted = new(), new()
    for number in range(5):
        for mixed, buffers, batches in (whole, interrupted):
            batch = next(batches)
            mixed.update_priorities(batch, batch.row % 5 + number)
            buffers[0].add(**rows(32 + 5 * number, 5))
    save(interrupted, "first")
    save(new("first"), "again")
    resumed = new("again")
    for number in range(5, 10):
        drawn = [next(batches) for *_, batches in (whole, interrupted, resumed)]
        assert as_lists(drawn[0]) == as_lists(drawn[1]) == as_lists(drawn[2])
        for (mixed, buffers, _), batch in zip((whole, interrupted, resumed), drawn, strict=True):
            mixed.update_priorities(batch, batch.row % 5 + number)
            buffers[0].add(**rows(32 + 5 * number, 5))
    mixed, buffers, batches = new("again")
    buffers[0].clear()
    buffers[0].add(**rows(500, 5))
    batch = next(batches)
    assert (batch.row[batch.source == 0] >= 500).all(), "no batch was drawn before `clear`"


def test_a_mixture_refuses_files_and_generators_that_it_can_not_resume_from(tmp_path):
    def new(share: float = 0.5, seed: Any = 0) -> Mixture:
        return Mixture(
            {"a": (filled(ReplayBuffer), share), "b": (filled(ReplayBuffer), 1 - share)}, seed=seed
        )

    mixed = new()
    mixed.save(tmp_path / "file")
    before = mixed._rng.state
    with pytest.raises(ValueError, match="different layout: shares"):
        new(0.25).load(tmp_path / "file")
    filled(ReplayBuffer).save(tmp_path / "buffer")
    with pytest.raises(ValueError, match="different layout"):
        mixed.load(tmp_path / "buffer")
    (tmp_path / "damaged").write_bytes((tmp_path / "file").read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        mixed.load(tmp_path / "damaged")
    assert mixed._rng.state == before
    with pytest.raises(TypeError, match="Philox can't be saved"):
        new(seed=np.random.Generator(np.random.Philox(0))).save(tmp_path / "other")


def test_a_mixture_sent_to_another_process_draws_batches_of_its_own(tmp_path):
    mixed = Mixture({"a": (filled(ReplayBuffer), 1.0)}, seed=0)
    batches = mixed.batches(8, prefetch=2)
    next(batches)
    mixed._buffers()[0].save(tmp_path / "buffer")
    mixed.save(tmp_path / "mixture")
    loaded = Mixture({"a": (filled(ReplayBuffer), 1.0)})
    loaded._buffers()[0].load(tmp_path / "buffer")
    loaded.load(tmp_path / "mixture")
    sent, copied = pickle.loads(ForkingPickler.dumps(loaded)), pickle.loads(pickle.dumps(loaded))
    drawn = [next(each.batches(8)).row.tolist() for each in (loaded, sent, copied)]
    assert drawn[0] != drawn[1] and drawn[0] == drawn[2]


@pytest.mark.parametrize("kind", PRIVATE)
def test_options_of_sample_are_passed_on(kind):
    options = {"scheme": Geometric(0.2)}
    buffer, twin = filled(kind, count_samples=True), filled(kind, count_samples=True)
    batches = buffer.batches(8, prefetch=1, **options)
    for _ in range(3):
        batch, sample = next(batches), twin.sample(8, **options)
        assert as_lists(batch) == as_lists(sample) and {"probabilities", "times_sampled"} <= {*batch}


@pytest.mark.parametrize("prefetch", [0, 2])
def test_beta_is_a_number_or_a_function_of_the_number_of_the_batch(prefetch):
    def new() -> Any:
        buffer = filled(PrioritizedReplayBuffer)
        buffer.update_priorities(np.arange(32), np.arange(32))
        return buffer

    twin = new()
    for beta in (0.9, lambda number: number / 10):
        batches = new().batches(8, beta=beta, prefetch=prefetch)
        twin.reseed(3)
        for number in range(4):
            sample = twin.sample(8, beta=beta(number) if callable(beta) else beta)
            assert next(batches).weights.tolist() == sample.weights.tolist()
    with pytest.raises(TypeError, match="beta"):
        next(filled(ReplayBuffer).batches(8, beta=0.4, prefetch=prefetch))


@pytest.mark.parametrize("kind", PRIORITIZED)
def test_priorities_are_updated_with_what_a_learner_has(kind):
    buffer = filled(kind, alpha=1.0, eps=0.0)
    batch = next(buffer.batches(8, prefetch=1))
    errors = (batch.reward + 1.0).requires_grad_() * 2.0
    for given in (errors, errors.detach(), errors.to(torch.bfloat16), errors.tolist()):
        buffer.update_priorities(np.arange(32), np.ones(32))
        buffer.update_priorities(batch.indexes, given)
        assert np.allclose(buffer.priorities[batch.indexes], errors.tolist(), 1e-14)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("prefetch", [0, 3])
def test_batches_on_a_gpu_are_whole_while_the_next_are_copied(prefetch):
    buffer, twin = filled(PrioritizedReplayBuffer, 4096), filled(PrioritizedReplayBuffer, 4096)
    busy = torch.ones(4096, 4096, device="cuda")
    for _ in range(100):  # so that no copy starts before all batches are drawn
        busy = busy @ busy
    batches = buffer.batches(256, device="cuda", prefetch=prefetch)
    for batch in [next(batches) for _ in range(6)]:
        assert {tensor.device.type for tensor in batch.values()} == {"cuda"}
        assert as_lists(Batch({name: tensor.cpu() for name, tensor in batch.items()})) == as_lists(
            twin.sample(256)
        )


@pytest.mark.parametrize("prefetch", [0, 1])
def test_the_device_is_that_of_the_argument(prefetch):
    batch = next(filled(ReplayBuffer).batches(8, device="meta", prefetch=prefetch))
    assert {tensor.device.type for tensor in batch.values()} == {"meta"}


def step(buffer: Any, batch: Any, number: int) -> None:
    if "weights" in batch:
        buffer.update_priorities(batch.indexes, np.asarray(batch.indexes % 5 + number))
    buffer.add(**rows(32 + 5 * number, 5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_resumed_loop_yields_the_batches_of_an_uninterrupted_one(kind, prefetch, tmp_path):
    """Rows are replaced between the draws and the file, and the file is loaded and saved once more."""
    whole, interrupted = filled(kind), filled(kind)
    uninterrupted, batches = (buffer.batches(8, prefetch=prefetch) for buffer in (whole, interrupted))
    for number in range(10):
        for buffer, each in ((whole, uninterrupted), (interrupted, batches)):
            step(buffer, next(each), number)
    interrupted.save(tmp_path / "first")
    loaded, resumed = kind(64, FIELDS), kind(64, FIELDS)
    loaded.load(tmp_path / "first")
    loaded.save(tmp_path / "again")
    resumed.load(tmp_path / "again")
    loops = [(whole, uninterrupted), (interrupted, batches), (resumed, resumed.batches(8, prefetch=prefetch))]
    for number in range(10, 20):
        drawn = [next(each) for _, each in loops]
        assert as_lists(drawn[0]) == as_lists(drawn[1]) == as_lists(drawn[2])
        for (buffer, _), batch in zip(loops, drawn, strict=True):
            step(buffer, batch, number)


def test_a_loop_without_prefetching_first_gets_the_batches_of_the_file(tmp_path):
    buffer, twin = filled(ReplayBuffer), filled(ReplayBuffer)
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    buffer.save(tmp_path / "file")
    expected = [as_lists(twin.sample(8)) for _ in range(6)][1:]
    loaded = ReplayBuffer(64, FIELDS)
    for each in (loaded, buffer):  # the iterator of `buffer` continues with the file, too
        each.load(tmp_path / "file")
    for each in (loaded.batches(8), batches):
        assert [as_lists(next(each)) for _ in range(5)] == expected


def test_the_batches_of_the_file_are_not_passed_off_as_another_size(tmp_path):
    buffer, loaded = filled(ReplayBuffer), filled(ReplayBuffer)
    next(buffer.batches(8, prefetch=2))  # the iterator is deleted, and with it what it has drawn
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    buffer.save(tmp_path / "file")
    loaded.load(tmp_path / "file")
    other = loaded.batches(16, prefetch=2)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"batches of 8 rows.*batch_size=8, or call reseed\(\)"):
            next(other)
    loaded.reseed(1)
    assert len(next(other).reward) == 16


def test_a_resumed_schedule_starts_at_the_number_that_was_reached(tmp_path):
    whole, interrupted, numbers = filled(PrioritizedReplayBuffer), filled(PrioritizedReplayBuffer), []
    loops = [buffer.batches(8, beta=lambda n: n / 20, prefetch=2) for buffer in (whole, interrupted)]
    for _ in range(10):
        for batches in loops:
            next(batches)
    interrupted.save(tmp_path / "file")
    resumed = PrioritizedReplayBuffer(64, FIELDS)
    resumed.load(tmp_path / "file")
    again = resumed.batches(8, beta=lambda n: numbers.append(n) or n / 20, prefetch=2, start=10)
    for _ in range(5):
        assert as_lists(next(loops[0])) == as_lists(next(again))
    assert numbers == [12, 13, 14, 15, 16], "the two batches in the file are numbers 10 and 11"


def test_two_iterators_share_a_buffer_and_are_both_resumed(tmp_path):
    buffer = filled(PrioritizedReplayBuffer)
    loops = [buffer.batches(8, prefetch=2), buffer.batches(4, prefetch=1)]
    for number in range(5):
        for batches in loops:
            batch = next(batches)
            check_whole(batch)
            step(buffer, batch, number)
    buffer.save(tmp_path / "file")
    resumed = PrioritizedReplayBuffer(64, FIELDS)
    resumed.load(tmp_path / "file")
    for before, after in zip(
        loops, [resumed.batches(8, prefetch=2), resumed.batches(4, prefetch=1)], strict=True
    ):
        assert as_lists(next(before)) == as_lists(next(after))


@pytest.mark.parametrize("kind", [SequenceReplayBuffer, HindsightReplayBuffer])
def test_windows_and_relabelled_steps_are_resumed(kind, tmp_path):
    names = ("obs/observation", "obs/desired_goal", "obs/achieved_goal")
    fields = {f"{prefix}{name}": {"shape": 2} for prefix in ("", "next_") for name in names}
    fields |= {"reward": {}, "terminated": FLAG}

    def new() -> Any:
        if kind is SequenceReplayBuffer:
            return kind(100, fields, length=4, seed=0)
        return kind(100, fields, lambda a, g, _: -np.abs(a - g).sum(1), lambda a, g, _: a[:, 0] > 99, seed=0)

    buffer, loaded = new(), new()
    for number in range(30):
        obs, after = ({name.removeprefix("obs/"): [number + i, 3.0] for name in names} for i in (0, 1))
        buffer.add(obs=obs, next_obs=after, reward=0, terminated=number % 10 == 9)
    batches = buffer.batches(4, prefetch=2)
    next(batches)
    buffer.save(tmp_path / "file")
    loaded.load(tmp_path / "file")
    resumed = loaded.batches(4, prefetch=2)
    for _ in range(5):
        assert as_lists(next(batches)) == as_lists(next(resumed))


@pytest.mark.parametrize("kind", PRIVATE)
@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_empty_buffer_is_an_error_from_which_the_iterator_recovers(kind, prefetch):
    buffer = kind(64, FIELDS)
    batches = buffer.batches(8, prefetch=prefetch)
    with pytest.raises(ValueError, match="the buffer is empty"):
        next(batches)
    buffer.add(**rows(0, 30))
    check_whole(next(batches))
    buffer.clear()
    with pytest.raises(ValueError, match="the buffer is empty"):
        next(batches)
    buffer.add(**rows(100, 3))
    for _ in range(4):
        assert next(batches).row.min() >= 100


@pytest.mark.parametrize("kind", [*KINDS, SequenceReplayBuffer])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_after_clear_no_batch_has_rows_from_before(kind, is_loaded, tmp_path):
    options = {"length": 4} if kind is SequenceReplayBuffer else {}
    buffer = filled(kind, **options)
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    if is_loaded:
        buffer.save(tmp_path / "rows")
        buffer = kind(64, FIELDS, **options)
        buffer.load(tmp_path / "rows")
        batches = buffer.batches(8, prefetch=2)
    buffer.clear()
    buffer.add(**rows(100, 20))
    for _ in range(4):
        assert (next(batches).row >= 100).all()


def test_after_another_process_clears_no_batch_has_rows_from_before():
    buffer = filled(MPReplayBuffer)
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    other = MPReplayBuffer.attach(buffer.address)
    other.clear()
    other.add(**rows(100, 20))
    for _ in range(4):
        assert (next(batches).row >= 100).all()


def test_after_reseed_the_batches_are_those_of_the_new_seed():
    buffer, twin = filled(ReplayBuffer), filled(ReplayBuffer)
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    buffer.reseed(9), twin.reseed(9)
    assert as_lists(next(batches)) == as_lists(twin.sample(8))


@pytest.mark.parametrize("change", ["clear", "reseed", "load"])
@pytest.mark.parametrize("kind", [*PRIVATE, EpisodeReplayBuffer])
def test_batches_that_will_be_discarded_are_not_saved(kind, change, tmp_path):
    """A resumed loop gets the batches of the uninterrupted one also if nothing was sampled in between."""
    buffer = filled(kind)
    buffer.save(tmp_path / "before")
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    getattr(buffer, change)(*{"reseed": [5], "load": [tmp_path / "before"]}.get(change, []))
    buffer.add(**rows(32, 20))
    buffer.save(tmp_path / "after")
    resumed = filled(kind)
    resumed.load(tmp_path / "after")
    others = resumed.batches(8, prefetch=2)
    for _ in range(4):
        assert as_lists(next(others)) == as_lists(next(batches))


def test_closing_or_deleting_the_iterator_ends_its_thread():
    def threads() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name.startswith("batches")]

    buffer = filled(ReplayBuffer)
    with buffer.batches(8, prefetch=2) as batches:
        next(batches)
        assert len(threads()) == 1
    assert not threads() and list(batches) == []
    for batch in buffer.batches(8, prefetch=2):
        check_whole(batch)
        (thread,) = threads()
        break
    thread.join(20)
    assert not thread.is_alive()
    buffer.add(**rows(0, 1))
    assert not buffer._iterators


def test_an_error_of_the_thread_is_raised_by_next():
    buffer = ReplayBuffer(4, {"wide": {"dtype": np.longdouble}})
    if buffer.field_specs["wide"][0] == np.float64:
        pytest.skip("long double is float64 here")
    buffer.add(wide=1)
    batches = buffer.batches(2, prefetch=1)
    for _ in range(2):
        with pytest.raises(TypeError, match="'wide' can't become a tensor"):
            next(batches)
    buffer.add(wide=2)


def test_an_error_of_one_copy_is_raised_once_and_the_buffer_can_be_saved(monkeypatch, tmp_path):
    """Such as a lack of memory, which the caller can mend."""
    buffer, copies = filled(ReplayBuffer), count()

    def copied(*drawn: Any) -> Batch:
        if next(copies) == 1:
            raise MemoryError("one copy")
        return ReplayBuffer._copy(buffer, *drawn)

    monkeypatch.setattr(buffer, "_copy", copied)
    batches = buffer.batches(8, prefetch=2)
    check_whole(next(batches))
    buffer.save(tmp_path / "rows")
    with pytest.raises(MemoryError, match="one copy"):
        next(batches)
    following = as_lists(next(batches))
    loaded = ReplayBuffer(64, FIELDS)
    loaded.load(tmp_path / "rows")
    assert as_lists(next(loaded.batches(8))) == following


def test_after_ctrl_c_the_iterator_continues():
    buffer = filled(PrioritizedReplayBuffer)

    calls = count()

    def beta(_: int) -> float:
        if next(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return 0.4

    batches = buffer.batches(8, beta=beta, prefetch=2)
    next(batches)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    check_whole(next(batches))


@pytest.mark.skipif(not hasattr(signal, "alarm"), reason="a hang would not end")
@pytest.mark.parametrize("call", ["next", "add", "close"])
def test_ctrl_c_leaves_no_lock_of_the_executor_locked(call):
    """At any instruction of the executor, its futures and their locks, which are written in Python."""
    left = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(("thread.py", "_base.py", "threading.py")):
            return trace
        frame.f_trace_opcodes = True
        left -= event == "opcode"
        if left == 0:
            left = -1
            signal.raise_signal(signal.SIGINT)
        return trace

    buffer = filled(ReplayBuffer, 8)
    calls = {
        "next": next,
        "add": lambda _: buffer.add(**rows(0, 1)),
        "close": lambda batches: batches.close(),
    }
    signal.alarm(120)
    for moment in count(1, 3):
        batches, left = buffer.batches(2, prefetch=1), moment
        next(batches)
        try:
            sys.settrace(trace)
            calls[call](batches)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        for _ in () if call == "close" else range(3):
            check_whole(next(batches))
        batches.close()
        if left > 0:
            break
    signal.alarm(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:Rows are added to a copy")
@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_an_iterator_in_a_forked_child_draws_batches_of_its_own(kind, prefetch, is_loaded, tmp_path):
    buffer = filled(kind)
    if is_loaded:
        batches = buffer.batches(8, prefetch=2)
        next(batches)
        buffer.save(tmp_path / "file")
        buffer = kind(64, FIELDS)
        buffer.load(tmp_path / "file")
    batches = buffer.batches(8, prefetch=prefetch, beta=lambda number: number / 10)
    if not is_loaded:
        next(batches)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            signal.alarm(60)
            buffer.end_episode()  # waits for no thread
            drawn = [next(batches) for _ in range(2)]
            assert all(check_whole(batch) is None for batch in drawn)
            os.write(writer, bytes(torch.cat([batch.row for batch in drawn]).tolist()))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    theirs = [*os.read(reader, 100)]
    os.close(reader), os.close(writer)
    mine = [next(batches).row.tolist() for _ in range(2)]
    assert len(theirs) == 16 and theirs[:8] != mine[0] and theirs[8:] != mine[1]


def loader_of(dataset: Any, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(dataset, batch_size=None, **options)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_data_loader_yields_the_batches_and_resumes_exactly(prefetch, tmp_path):
    buffer, twin, loaded = (filled(PrioritizedReplayBuffer) for _ in range(3))
    loader, batches = (loader_of(buffer.batches(8, prefetch=prefetch)), twin.batches(8, prefetch=prefetch))
    for number, batch in enumerate(loader):
        assert type(batch) is Batch and as_lists(batch) == as_lists(next(batches))
        for each in (buffer, twin):
            step(each, batch, number)
        if number == 5:
            break
    buffer.save(tmp_path / "file")
    loaded.load(tmp_path / "file")
    resumed = loader_of(loaded.batches(8, prefetch=prefetch))
    for _, mine, theirs in zip(range(3), loader, resumed, strict=False):
        assert as_lists(mine) == as_lists(next(batches)) == as_lists(theirs)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are started by a fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kind", PRIORITIZED)
@pytest.mark.parametrize("prefetch", [0, 1])
def test_workers_of_a_data_loader_draw_rows_of_their_own(kind, prefetch):
    buffer = filled(kind)
    loader = loader_of(buffer.batches(8, prefetch=prefetch), num_workers=2)
    drawn = []
    for epoch in range(2):
        for _, batch in zip(range(4), loader, strict=False):
            check_whole(batch)
            buffer.update_priorities(batch.indexes, batch.reward + epoch)
            drawn.append(tuple(batch.row.tolist()))
    assert len({*drawn}) == 8


def test_a_data_loader_that_would_stack_batches_is_refused():
    """It returned batches of shape (1, 8, ...)."""
    from torch.utils.data import DataLoader

    with pytest.raises(TypeError, match="batch_size=None"):
        next(iter(DataLoader(filled(ReplayBuffer).batches(8))))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are started by a fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_raises_the_error_of_an_empty_buffer(workers):
    loader = loader_of(ReplayBuffer(4, FIELDS).batches(8), num_workers=workers)
    with pytest.raises(ValueError, match="the buffer is empty"):
        next(iter(loader))


def test_an_iterator_sent_to_another_process_draws_batches_of_its_own():
    buffer = filled(PrioritizedReplayBuffer)
    batches = buffer.batches(8, prefetch=2, beta=Schedule(), scheme=Geometric(4.0))
    next(batches)
    sent, copied = pickle.loads(ForkingPickler.dumps(batches)), pickle.loads(pickle.dumps(batches))
    drawn = [next(each) for each in (batches, sent, copied)]
    assert drawn[0].row.tolist() != drawn[1].row.tolist()
    weights = [np.sort(batch.weights) for batch in drawn]
    assert all(batch.weights.min() < 1 and "probabilities" in batch for batch in drawn), weights


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:Rows are added to a copy")
def test_a_forked_child_saves_without_the_thread_that_copies(tmp_path, monkeypatch):
    buffer, go_on = filled(ReplayBuffer), threading.Event()
    monkeypatch.setattr(buffer, "_copy", lambda *drawn: go_on.wait() and ReplayBuffer._copy(buffer, *drawn))
    batches = buffer.batches(8, prefetch=2)
    batches._submit(buffer._draw_batch(8, {})[0])  # as `next`, which would wait for the copy
    batches._source = buffer._source()
    if (child := os.fork()) == 0:
        try:
            signal.alarm(60)
            buffer.save(tmp_path / "rows")
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    go_on.set()  # otherwise this process would wait for the thread at its end
    assert os.waitstatus_to_exitcode(status) == 0
    check_whole(next(batches))
    loaded = ReplayBuffer(64, FIELDS)
    loaded.load(tmp_path / "rows")
    check_whole(next(loaded.batches(4)))


def test_wrong_arguments_are_refused_at_the_call():
    buffer = filled(ReplayBuffer)
    for wrong, error in ({"prefetch": -1}, ValueError), ({"prefetch": 1.5}, TypeError):
        with pytest.raises(error, match="prefetch must be"):
            buffer.batches(8, **wrong)
    with pytest.raises(ValueError, match="batch_size must be"):
        buffer.batches(0)


def test_a_copy_of_a_buffer_has_no_iterator():
    buffer = filled(PrioritizedReplayBuffer)
    batches = buffer.batches(8, prefetch=2)
    next(batches)
    for made in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        assert not made._iterators
        check_whole(next(made.batches(8, prefetch=2)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_subclass_may_change_what_sample_returns(kind):
    class Clipped(kind):
        def sample(self, *arguments: Any, **options: Any) -> Batch:
            batch = super().sample(*arguments, **options)
            batch.reward = batch.reward.clip(2, 3)
            return batch

    batches = filled(Clipped).batches(32, prefetch=2)
    for _ in range(4):
        assert {*next(batches).reward.tolist()} == {2.0, 3.0}


def test_a_mixture_of_shared_buffers_that_has_been_loaded_can_be_pickled(tmp_path):
    with filled(MPReplayBuffer) as buffer, filled(MPReplayBuffer) as other:
        mixed, loaded = (Mixture({"a": (each, 1.0)}, seed=seed) for each, seed in ((buffer, 0), (other, 1)))
        batches = mixed.batches(8, prefetch=2)
        next(batches)
        mixed.save(tmp_path / "mixture")
        loaded.load(tmp_path / "mixture")
        copied = pickle.loads(pickle.dumps(loaded))
        drawn = [next(each).row.tolist() for each in (batches, loaded.batches(8), copied.batches(8))]
        assert drawn[0] == drawn[1] == drawn[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_discards_loaded_batches_although_a_mixture_of_closed_buffers_had_some(tmp_path):
    buffer, shared = filled(ReplayBuffer), filled(MPReplayBuffer)
    mixed = Mixture({"a": (shared, 1.0)})
    for each, path in ((buffer, tmp_path / "buffer"), (mixed, tmp_path / "mixture")):
        with each.batches(8, prefetch=1) as batches:
            next(batches)
            each.save(path)
    mixed.load(tmp_path / "mixture")
    loaded = [filled(ReplayBuffer) for _ in range(8)]  # some of them are reset after the mixture
    for each in loaded:
        each.load(tmp_path / "buffer")
    shared.close()
    if (child := os.fork()) == 0:
        os._exit(sum(len(each._loaded_ahead) for each in loaded))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
