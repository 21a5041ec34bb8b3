"""Files of shared buffers: whole or not there, whoever makes them at the same time or is killed meanwhile."""

import gc
import multiprocessing
import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import shared_rows
from shared_rows import START_METHODS, answer, assert_whole, row_fields, rows_of, running

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, NStep

impatience = shared_rows.impatience

fork_only = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def fresh(path):
    return MPPrioritizedReplayBuffer(64, row_fields(), path=path)


def open_all(gate, folder, rounds, writer, answers):
    """Open one new file after the other, at the same moment as the others, and add to each."""
    faults = []
    for i in range(rounds):
        gate.wait()
        try:
            buffer = fresh(folder / str(i))
            buffer.add(**rows_of(writer, 0, 4))
        except (ValueError, OSError, RuntimeError) as error:
            faults.append(f"{type(error).__name__}: {error}")
    answers.put(faults)


def test_processes_that_make_one_file_at_the_same_time_share_the_fastests(tmp_path):
    context = multiprocessing.get_context(START_METHODS[0])
    rounds, processes = 40, 4
    gate, answers = context.Barrier(processes), context.Queue()
    arguments = [(gate, tmp_path, rounds, writer, answers) for writer in range(processes)]
    with running(context, open_all, arguments) as started:
        faults = [fault for _ in started for fault in answer(answers, started)]
    assert not faults, f"{len(faults)} of {rounds * processes}, such as {faults[0]}"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, range(rounds)))
    for i in range(rounds):
        rows = fresh(tmp_path / str(i))[:]
        assert_whole(rows)
        assert np.bincount(rows["writer"]).tolist() == [4] * processes


def die_after(lines, path):
    """Make a file, and kill this process before the package's line of that number."""
    passed = 0

    def watch(frame, event, _):
        nonlocal passed
        if "replay_tutorial" not in frame.f_code.co_filename:
            return None
        if event == "line":
            passed += 1
            if passed > lines:
                os.kill(os.getpid(), signal.SIGKILL)
        return watch

    sys.settrace(watch)
    fresh(path)
    os._exit(0)


@fork_only
def test_process_killed_at_any_line_while_it_makes_a_file_leaves_none_or_a_whole_one(tmp_path):
    path, lines, made = tmp_path / "rows", 0, set()
    while True:
        child = os.fork()
        if child == 0:
            die_after(lines, path)
        _, status = os.waitpid(child, 0)
        made.add(path.exists())
        buffer = fresh(path)
        assert buffer.max_priority == 1.0 and len(buffer) == 0
        buffer.add(**rows_of(1, 0, 3))
        assert_whole(buffer.sample(8))
        buffer.close()
        path.unlink()
        if os.WIFEXITED(status):
            break
        lines += 1 + lines // (40 if "EXPLORE" in os.environ else 10)
    assert lines > 100 and made == {False, True}
    left = [name for name in map(str, tmp_path.iterdir()) if not name.endswith(".part")]
    assert not left


UNEQUAL = {"obs": {"shape": 4}, "next_obs": {"shape": 3}}
LONG_NAMES = {f"{'a long name ' * 4}{i}": {} for i in range(1_400)}
REFUSED = [
    (ValueError, "alpha must be in", {"alpha": 1.5}),
    (TypeError, "alpha must be a number", {"alpha": "high"}),
    (ValueError, "eps must be between", {"eps": -1.0}),
    (ValueError, "weights.*reserved", {"fields": {"weights": {}}}),
    (TypeError, "n_step.*actor", {"n_step": NStep(3, reward="checksum", next_fields="obs")}),
    (TypeError, "no argument 'size'; use capacity=", {"size": 8}),
    (ValueError, "non-negative", {"seed": -1}),
    (TypeError, "int.*seven", {"seed": "seven"}),
    (ValueError, "capacity must be", {"capacity": 0}),
    (ValueError, "dedupe_next: there is no field 'picture'", {"dedupe_next": "picture"}),
    (ValueError, "dedupe_next: 'next_obs' must have", {"fields": UNEQUAL, "dedupe_next": "obs"}),
    (ValueError, "dedupe_frames: 'number'", {"dedupe_frames": "number"}),
    (ValueError, "dedupe_frames: 'obs'.*no axis 3", {"dedupe_frames": {"obs": 3}}),
    *(
        (ValueError, "must be finite and at least 1", {"dedupe_next": "obs", "frames_per_transition": frames})
        for frames in (0.9, 0, -1, np.inf, np.nan)
    ),
    (MemoryError, "do not fit", {"dedupe_next": "obs", "frames_per_transition": 1e300}),
    (MemoryError, "do not fit", {"capacity": 10**15}),
    (MemoryError, "do not fit", {"capacity": 10**30}),
    (ValueError, "Use fewer fields, or shorter names", {"fields": LONG_NAMES}),
]


@pytest.mark.parametrize(("error", "message", "arguments"), REFUSED)
def test_refused_arguments_are_named_and_leave_no_file_behind(error, message, arguments, tmp_path):
    arguments = {"capacity": 64, "fields": row_fields(), "path": tmp_path / "rows", **arguments}
    with pytest.raises(error, match=message):
        MPPrioritizedReplayBuffer(**arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="links of POSIX")
def test_file_system_without_links_is_told_and_left_as_it_was(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(OSError, match="must support hard links"):
        fresh(tmp_path / "rows")
    assert list(tmp_path.iterdir()) == []


def test_file_that_was_cut_is_refused_with_its_size(tmp_path):
    path = tmp_path / "rows"
    buffer = MPReplayBuffer(8, row_fields(), path=path)
    pickled, size = pickle.dumps(buffer), path.stat().st_size
    buffer.close()
    os.truncate(path, size - 1)
    for opened in (
        lambda: MPReplayBuffer(8, row_fields(), path=path),
        lambda: MPReplayBuffer.attach(path),
        lambda: pickle.loads(pickled),
    ):
        with pytest.raises(ValueError, match=rf"rows is truncated: it has {size - 1:,} of {size:,} bytes"):
            opened()


def test_a_pickled_handle_refuses_the_file_of_another_buffer_on_its_path(tmp_path):
    path = tmp_path / "rows"
    with fresh(path) as buffer:
        sent = pickle.dumps(buffer)
    path.unlink()
    with MPReplayBuffer(64, row_fields(), path=path), pytest.raises(ValueError, match="different layout"):
        pickle.loads(sent)


def test_other_fields_alpha_or_kind_on_one_path_are_refused_and_the_rows_stay(tmp_path):
    path = tmp_path / "rows"
    buffer = fresh(path)
    buffer.add(**rows_of(1, 0, 8))
    before = Path(path).read_bytes()
    for make in (
        lambda: MPPrioritizedReplayBuffer(64, {"obs": {"shape": 3}}, path=path),
        lambda: MPPrioritizedReplayBuffer(64, row_fields(), path=path, alpha=0.5),
        lambda: MPPrioritizedReplayBuffer(65, row_fields(), path=path),
        lambda: MPReplayBuffer(64, row_fields(), path=path),
    ):
        with pytest.raises(ValueError, match="different layout"):
            make()
    assert Path(path).read_bytes() == before
    assert_whole(buffer.sample(4))


def test_unpickling_a_handle_of_a_file_that_is_gone_closes_no_other_file(tmp_path):
    buffer = MPReplayBuffer(8, {"obs": {}}, path=tmp_path / "rows")
    pickled, number = pickle.dumps(buffer), buffer._block._handle
    (tmp_path / "rows").unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickled)
    gc.collect()
    os.fstat(number)  # still open
