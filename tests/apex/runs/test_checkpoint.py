"""Checkpoints: whole or not there, without pickle, and what becomes of damaged ones and of a full disk."""

import gc
import json
import os
import pickle
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from run_parts import context_of, parts, rewrite_rows

from replay_tutorial.apex.parts import make_agent
from replay_tutorial.apex.runs.checkpoint import (
    DamagedCheckpoint,
    complete_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    restore_learner,
    save_checkpoint,
)
from replay_tutorial.apex.runs.run_folder import write_tensors
from replay_tutorial.buffers.runtime import checkpoints


@pytest.fixture
def saved(tmp_path):
    """Context and agent, and the path of the checkpoint that was made of them."""
    context, agent = parts()
    save_checkpoint(tmp_path, context, agent, {"arrays": {"observations": np.zeros(3)}})
    return context, agent, newest_checkpoint(tmp_path).path


def names(tmp_path):
    return [path.name for _, path in complete_checkpoints(tmp_path)]


def test_newest_two_stay_and_nothing_unfinished(tmp_path):
    context, agent = parts()
    (tmp_path / "policy.pt").write_bytes(b"best")
    for _ in range(4):
        save_checkpoint(tmp_path, context, agent)
        context.replay.limiter.inserted(10)
    assert names(tmp_path) == ["0003_step_70", "0004_step_80"]
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == set(names(tmp_path))
    newest = newest_checkpoint(tmp_path).path
    assert newest.name == "0004_step_80"
    assert (newest / "policy.pt").read_bytes() == b"best"


@pytest.mark.parametrize("moment", ["torch.save", "replay", "os.replace", "sync"])
def test_crash_in_the_midst_leaves_the_checkpoint_before(tmp_path, monkeypatch, moment, saved):
    context, agent, _ = saved

    class Crash(BaseException):
        """As if the process had ended here."""

    def crash(*_, **__):
        raise Crash

    target = {
        "torch.save": (torch, "save"),
        "replay": (type(context.replay), "save"),
        "os.replace": (os, "replace"),
        "sync": (checkpoints, "sync"),
    }[moment]
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(*target, crash)
        save_checkpoint(tmp_path, context, agent)
    assert names(tmp_path) == ["0001_step_50"]
    assert newest_checkpoint(tmp_path).update == 3
    save_checkpoint(tmp_path, context, agent)  # what lies about is no hindrance
    assert names(tmp_path) == ["0001_step_50", "0002_step_50"]


@pytest.mark.parametrize("part", ["state.json", "agent.pt", "replay.npz"])
def test_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, part, saved):
    context, agent, older = saved
    context.replay.limiter.inserted(10)
    save_checkpoint(tmp_path, context, agent)
    (tmp_path / "checkpoints" / "0002_step_60" / part).unlink()
    assert newest_checkpoint(tmp_path).step == 50
    (older / part).write_bytes(b"half of i")
    with pytest.raises(
        DamagedCheckpoint,
        match=r"(?s)0002_step_60.*0001_step_50.*\nThere is no other .* backup, or start a new run",
    ):
        newest_checkpoint(tmp_path)


def test_tensors_that_could_not_be_written_are_collected_silently(tmp_path, monkeypatch):
    """From Python 3.13 on a BytesIO says so when it is collected before a view of its memory."""
    with pytest.raises(OSError) as caught:
        write_tensors(tmp_path, {})  # a folder
    cycle = [caught.value]
    cycle.append(cycle)
    raised = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    del caught, cycle
    gc.collect()
    assert raised == []


def change_a_row(checkpoint):
    file = checkpoint / "replay.npz"
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def test_rows_can_be_left_out(tmp_path):
    context, agent = parts()
    config = replace(context.config, checkpoint_replay=False)
    save_checkpoint(tmp_path, replace(context, config=config), agent)
    checkpoint = newest_checkpoint(tmp_path)
    assert {path.name for path in checkpoint.path.iterdir()} == {"agent.pt", "manifest.json", "state.json"}
    fresh, other = context_of(context.config), make_agent(context.config, context.spaces)
    restore_learner(checkpoint, other, fresh.replay)
    assert fresh.replay.next_index == 0
    np.testing.assert_array_equal(other.parameters(), agent.parameters())


@pytest.mark.parametrize(
    "damage",
    [
        change_a_row,  # after its checksum was compared
        partial(rewrite_rows, change=lambda name, part: part[:-8] if name == "rows.npy" else part),
        partial(rewrite_rows, change=lambda name, part: b"{" if name == "state.json" else part),
    ],
    ids=["changed later", "a part is short", "no state"],
)
def test_rows_that_only_the_learner_finds_damaged_are_told_in_a_line(tmp_path, damage, saved):
    context, agent, path = saved
    checkpoint = newest_checkpoint(tmp_path)
    damage(path)
    line = r"^.*0001_step_50 can't be used: .* only checkpoint\. Restore.*$"
    with pytest.raises(DamagedCheckpoint, match=line):
        restore_learner(checkpoint, agent, context_of(context.config).replay)


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (os.mkdir, (os.environ["EVIL_PLACE"],))


@pytest.mark.parametrize("part", ["agent.pt", "actor.npz", "state.json"])
def test_strangers_checkpoint_cannot_run_code(tmp_path, monkeypatch, part, saved):
    monkeypatch.setenv("EVIL_PLACE", str(tmp_path / "evil"))
    *_, path = saved
    if part == "actor.npz":
        np.savez(path / part, observations=np.array([Evil()], dtype=object))
    elif part == "agent.pt":
        torch.save({"agent": Evil()}, path / part)
    else:
        (path / part).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(DamagedCheckpoint):
        load_checkpoint(path)
    assert not (tmp_path / "evil").exists()


def test_checkpoint_of_another_format_is_refused(saved):
    *_, path = saved
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"format": "replay_tutorial checkpoint 99"}))
    with pytest.raises(DamagedCheckpoint, match="checkpoint 99"):
        load_checkpoint(path)


def test_disk_that_is_full_is_told_and_the_checkpoint_before_stays(tmp_path, saved):
    """With a limit on the size of files, which is as near to a full disk as one comes without being root."""
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    context, agent, _ = saved
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    try:
        error = save_checkpoint(tmp_path, context, agent).error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert error is not None and "too large" in error
    assert f"'{tmp_path / 'checkpoints'}'; the newest checkpoint is 0001_step_50" in error
    assert names(tmp_path) == ["0001_step_50"]
    assert newest_checkpoint(tmp_path).update == 3
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1  # what was begun makes room again
