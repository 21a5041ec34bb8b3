"""Where strangers' programs and attackers hurt the shared buffers; each test failed before its mend."""

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from shared_rows import running

from replay_tutorial import (
    Mailbox,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStep,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from replay_tutorial.buffers.sum_tree import SumTree
from replay_tutorial.shared import processes, registry

FIELDS = {"obs": {"shape": 2}, "reward": {}}
ROWS = {"obs": np.zeros((6, 2)), "reward": np.zeros(6)}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="PID namespaces of Linux")

OPEN = """
import sys
from replay_tutorial import MPReplayBuffer
buffer = MPReplayBuffer(8, {"obs": {"shape": 2}, "reward": {}}, path=sys.argv[1])
print(len(buffer))
"""


def opened_elsewhere(path):
    """What a process in a PID namespace of its own says when it opens the file."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", OPEN, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)


@linux_only
def test_file_in_use_in_another_pid_namespace_is_refused_and_welcome_when_it_is_not(tmp_path):
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False).returncode:
        pytest.skip("this user may not make a PID namespace")
    buffer = MPReplayBuffer(8, FIELDS, path=tmp_path / "rows")
    buffer.add(**ROWS)
    refused = opened_elsewhere(tmp_path / "rows")
    assert refused.returncode == 1
    assert "is open in another PID namespace" in refused.stderr
    again = MPReplayBuffer(8, FIELDS, path=tmp_path / "rows")  # of this namespace
    assert len(again) == 6
    again.close()
    buffer.close()
    assert opened_elsewhere(tmp_path / "rows").stdout == "6\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_descendant_with_an_ancestors_number_is_another_process(monkeypatch):
    buffer = MPReplayBuffer(8, FIELDS)
    buffer.add(**ROWS)
    mine, number, word = buffer._ring.writers.writer_number(), os.getpid(), processes.own_identity()
    words, registration = np.array([word]), buffer._ring.writers._registration
    registration.words.append((words, 0))

    def say(answers):
        # The system has given it the number of this process, which has died meanwhile.
        monkeypatch.setattr(os, "getpid", lambda: number)
        monkeypatch.setattr(processes, "start_time", lambda process: 12345)
        own = processes.own_identity()
        words[0] = own  # as if the child had written its name where its ancestor's stood
        registry.clear_words(registration.words)
        answers.send((os.getpid(), buffer._ring.writers.writer_number(), own, int(words[0])))

    answers, end = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=say, args=(end,))
    child.start()
    told = answers.recv()
    child.join()
    assert told[0] == number
    assert told[1] != mine
    assert told[2] != word, "of another birth, however often its ancestor was asked"
    assert told[3] == told[2], "what the ancestor's seat held is not the child's to take away"


@linux_only
def test_name_of_a_process_that_is_cut_inside_a_character_hides_nothing():
    """Linux keeps 15 bytes of the file's name: a Cyrillic one may end in half a letter."""
    name, started = Path("/proc/self/comm"), processes.start_time(os.getpid())
    before = name.read_bytes()
    name.write_bytes("обучение.py".encode()[:15])
    try:
        assert processes.start_time(os.getpid()) == started
    finally:
        name.write_bytes(before)


PS = """
import sys, time
assert sys.argv[1:] == ["-o", "state=", "-o", "lstart=", "-p", "7"], sys.argv
print("S+  ", time.strftime("%c", time.localtime(1_700_000_000)))
"""


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="systems with ps")
def test_start_time_from_ps_is_the_same_in_every_time_zone(tmp_path, monkeypatch):
    (tmp_path / "ps").write_text(f"#!{sys.executable}\n{PS}")
    (tmp_path / "ps").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(sys, "platform", "darwin")
    times = set()
    for zone in ("Asia/Tokyo", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        times.add(processes.start_time(7))
    assert len(times) == 1 and None not in times


def test_rows_that_were_replaced_while_a_file_was_written_are_not_counted(tmp_path, monkeypatch):
    buffer = MPReplayBuffer(8, FIELDS)
    buffer.add(**ROWS)
    slots = type(buffer._ring).indexes
    calls = []

    def replaced_between(ring, asked):
        if calls:
            buffer.add(obs=np.ones((5, 2)), reward=np.ones(5))
        calls.append(1)
        return slots(ring, asked)

    monkeypatch.setattr(type(buffer._ring), "indexes", replaced_between)
    buffer.save(tmp_path / "rows.npz")
    monkeypatch.undo()
    loaded = MPReplayBuffer(8, FIELDS)
    loaded.load(tmp_path / "rows.npz")
    assert len(loaded) == len(loaded[:]["reward"]) < 6


def save_often(buffer, path, times):
    for _ in range(times):
        buffer.save(path)


def test_two_that_save_to_one_path_leave_a_whole_file(tmp_path):
    buffer = MPReplayBuffer(2_000, {"obs": {"shape": 500}})
    buffer.add(obs=np.ones((2_000, 500)))
    context = multiprocessing.get_context("spawn")
    with running(context, save_often, 2 * [(buffer, tmp_path / "rows.npz", 15)]):
        pass
    loaded = MPReplayBuffer(2_000, {"obs": {"shape": 500}})
    loaded.load(tmp_path / "rows.npz")
    assert len(loaded) == 2_000
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npz"]


def frozen(array):
    array = np.array(array)
    array.flags.writeable = False
    return array


def test_read_only_arrays_are_taken_everywhere():
    row = {"obs": frozen(np.zeros((4, 2), np.float32)), "reward": frozen(np.zeros(4))}
    for kind in (PrioritizedReplayBuffer, MPPrioritizedReplayBuffer):
        buffer = kind(8, FIELDS)
        buffer.add(**row, priorities=frozen(np.ones(4)))
        buffer.update_priorities(frozen(np.arange(4)), frozen(np.full(4, 2.0)))
        assert buffer.max_priority == 2.0
    step = {"obs": {}, "reward": {}, "next_obs": {}, "terminated": {"dtype": bool}}
    window = NStepWindow(step, 2)
    values = {name: frozen(np.zeros(3)) for name in step}
    assert len(window.add(**values)["reward"]) == 2
    mailbox = Mailbox(3)
    assert mailbox.publish(frozen(np.ones(3, np.float32))) == 1
    for kind in (ReplayBuffer, MPReplayBuffer):
        images = kind(8, {"obs": {"shape": (6, 6), "dtype": np.uint8}}, dedupe_next="obs")
        images.add(obs=frozen(np.zeros((6, 6), np.uint8)), next_obs=frozen(np.ones((6, 6), np.uint8)))
        assert images.sample(1)["next_obs"].sum() == 36
    tree = SumTree(4)
    tree.set(frozen(np.arange(4)), frozen(np.array([1.0, 0.0, 3.0, 4.0])))
    assert tree.find(frozen(np.array([0.5, 1.0, 7.5])))[0].tolist() == [0, 2, 3]
    tree.leaves[1] = 2.0
    tree.recompute(frozen(np.array([1])))
    assert tree.total == 10.0


@pytest.mark.parametrize("kind", [PrioritizedReplayBuffer, MPPrioritizedReplayBuffer])
def test_annealed_beta_may_end_beside_one_by_rounding(kind):
    buffer = kind(8, FIELDS)
    buffer.add(**ROWS)
    beta = 0.4
    for _ in range(100_000):
        beta += 0.6 / 100_000
    assert beta != 1.0
    for value in (beta, 1.0000000000000357, -1e-12):
        np.testing.assert_array_equal(buffer.sample(4, beta=value)["weights"], np.ones(4))
    for value in (1.0001, -0.001, float("nan")):
        with pytest.raises(ValueError, match="beta must be in"):
            buffer.sample(4, beta=value)


def test_state_that_is_none_is_refused_by_the_windows():
    step = {"obs": {}, "reward": {}, "next_obs": {}, "done": {}}
    window = NStepWindow(step, 2)
    for state, fault in {"NoneType": [None], "int": [3], "float64": [np.zeros(1)]}.items():
        with pytest.raises(ValueError, match=f"with the fields {state}; this NStepWindow has "):
            window.restore(fault)
    with pytest.raises(ValueError, match="with 0 environments; this NStepWindow has 1"):
        window.restore([])


@pytest.mark.parametrize("kind", [ReplayBuffer, MPReplayBuffer])
def test_name_given_twice_is_refused(kind):
    images = {"obs": {"shape": (6, 6)}, "next_obs": {"shape": (6, 6)}}
    with pytest.raises(ValueError, match="pass each name once"):
        kind(8, images, dedupe_next=["obs", "obs"])
    with pytest.raises(ValueError, match="the next observation of another"):
        kind(8, images, dedupe_next=["obs", "next_obs"])
    with pytest.raises(ValueError, match="pass each name once"):
        ReplayBuffer(8, FIELDS, n_step=NStep(2, reward=["reward", "reward"]))


@pytest.mark.parametrize(
    "kind", [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer]
)
def test_a_buffer_shows_its_size_its_rows_and_its_fields(kind):
    buffer = kind(1_000, {"obs": {"shape": (2, 3), "dtype": np.uint8}, "reward": {}})
    buffer.add(obs=np.zeros((6, 2, 3)), reward=np.zeros(6))
    shown = f"<{kind.__name__}: 6 of 1,000 transitions of obs uint8[2, 3], reward float32>"
    assert repr(buffer) == shown
    if kind in (MPReplayBuffer, MPPrioritizedReplayBuffer):
        buffer.close()
        assert repr(buffer) == f"<{kind.__name__}: closed>"
