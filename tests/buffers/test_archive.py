"""Save and load: all of a buffer comes back bit for bit, and no file and no crash can do harm."""

import os
import pickle
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import packed
from histories import (
    CONFIGURATIONS,
    EXAMPLE_FIELDS,
    N_STEP,
    behaviour,
    configured,
    random_operation,
    snapshot,
)

from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer

EVERY = pytest.mark.parametrize("name", CONFIGURATIONS)


def saved(buffer: Any, folder: Path) -> Path:
    path = folder / "buffer"
    buffer.save(path)
    return path


@EVERY
def test_life_may_be_saved_at_any_moment(name, tmp_path):
    """Also empty, with an open window, after clear, at the wrap-around, priorities not yet in the tree."""
    buffer = configured(name, size=7)
    rng = np.random.default_rng(2)
    for _ in range(60):
        before = snapshot(buffer)
        loaded = configured(name, size=7, seed=99)
        loaded.load(saved(buffer, tmp_path))
        assert snapshot(buffer) == before, "saving changed the buffer"
        assert behaviour(loaded) == behaviour(buffer)
        loaded.save(tmp_path / "again")
        assert read_members(tmp_path / "again") == read_members(tmp_path / "buffer")
        state = rng.bit_generator.state
        expected = [random_operation(buffer, rng) for _ in range(3)]
        rng.bit_generator.state = state
        assert [random_operation(loaded, rng) for _ in range(3)] == expected
        random_operation(buffer, rng)


def read_members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as container:
        return {member: container.read(member) for member in container.namelist()}


def test_path_may_be_a_string_or_a_path_and_gets_no_suffix(tmp_path):
    buffer = configured("prioritized", rows=20)
    for path in (tmp_path / "plain", tmp_path / "with.npz", tmp_path / "größe und leer"):
        buffer.save(str(path))
        buffer.save(path)
        for given in (str(path), path):
            loaded = configured("prioritized")
            loaded.load(given)
            assert behaviour(loaded) == behaviour(buffer)
    assert sorted(os.listdir(tmp_path)) == ["größe und leer", "plain", "with.npz"]


@EVERY
def test_file_holds_no_pickle(name, tmp_path, monkeypatch):
    buffer = configured(name, rows=30)
    configured(name).load(saved(buffer, tmp_path))  # kernels are read from their cache, which uses pickle

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("pickle was used")

    with monkeypatch.context() as patch:
        for function in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
            patch.setattr(pickle, function, refuse)
        path = saved(buffer, tmp_path)
        configured(name).load(path)
    with np.load(path, allow_pickle=False) as members:
        arrays = [members[member] for member in members.files if not member.endswith(".json")]
    assert any(array.nbytes for array in arrays)
    assert all(array.dtype.kind != "O" for array in arrays)


def other_buffers() -> dict[str, Any]:
    """Buffers that a file of the plain buffer of capacity 12 does not belong to, and prioritized likewise."""
    fields = EXAMPLE_FIELDS
    declared: dict[str, Any] = {
        "another shape": {**fields, "reward": {"shape": 2}},
        "another dtype": {**fields, "reward": {"dtype": np.float64}},
        "a vector for a number": {**fields, "reward": {"shape": 1}},
        "another name": {("act" if name == "action" else name): spec for name, spec in fields.items()},
        "another order": dict(reversed(fields.items())),
        "one field more": {**fields, "extra": {}},
        "one field less": {name: spec for name, spec in fields.items() if name != "terminated"},
    }
    options: dict[str, Any] = {
        "dedupe_next": {"dedupe_next": "obs"},
        "dedupe_frames": {"dedupe_frames": {"obs": 0}},
        "both": {"dedupe_next": "obs", "dedupe_frames": {"obs": 0}},
        "another stack axis": {"dedupe_next": "obs", "dedupe_frames": {"obs": 1}},
        "n-step": {"n_step": N_STEP},
        "another n": {"n_step": N_STEP._replace(n=4)},
        "another gamma": {"n_step": N_STEP._replace(gamma=0.91)},
        "another next": {"n_step": N_STEP._replace(next_fields="obs")},
    }
    return {
        "another capacity": ReplayBuffer(13, fields),
        **{name: ReplayBuffer(12, other) for name, other in declared.items()},
        **{name: ReplayBuffer(12, fields, **other) for name, other in options.items()},
        "another kind": PrioritizedReplayBuffer(12, fields),
        "another alpha": PrioritizedReplayBuffer(12, fields, alpha=0.61),
        "another eps": PrioritizedReplayBuffer(12, fields, eps=2e-4),
        "another initial_priority": PrioritizedReplayBuffer(12, fields, initial_priority="max_stored"),
    }


def test_every_other_layout_is_refused_in_both_directions_and_changes_nothing(tmp_path):
    buffers = other_buffers()
    buffers["plain"] = ReplayBuffer(12, EXAMPLE_FIELDS)
    for name, buffer in buffers.items():
        specs = buffer._fields.specs
        buffer.add(**{f: np.ones((9, *spec["shape"]), spec["dtype"]) for f, spec in specs.items()})
        buffer.save(tmp_path / name)
    for name, buffer in buffers.items():
        before = snapshot(buffer)
        for other in buffers:
            if other != name:
                with pytest.raises(ValueError, match="layout"):
                    buffer.load(tmp_path / other)
        assert snapshot(buffer) == before
        buffer.load(tmp_path / name)
        assert behaviour(buffer) == before[:-1]


def test_message_of_a_refused_layout_names_the_difference(tmp_path):
    path = saved(ReplayBuffer(12, EXAMPLE_FIELDS), tmp_path)
    with pytest.raises(ValueError, match="capacity is 12 in the file and 13 here"):
        ReplayBuffer(13, EXAMPLE_FIELDS).load(path)
    with pytest.raises(ValueError, match="extra"):
        ReplayBuffer(12, {**EXAMPLE_FIELDS, "extra": {}}).load(path)


def damaged(content: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """Yield files that `save` did not write: what is wrong, and whether it may be read as what was saved."""
    rng = np.random.default_rng(0)
    ends = [*range(60), *range(len(content) - 400, len(content), 2)]
    for position in {*ends, *rng.integers(0, len(content), 100).tolist()}:
        changed = bytearray(content)
        changed[position] ^= int(rng.choice([0x01, 0x80, 0xFF, rng.integers(1, 256)]))
        yield f"byte {position} of {len(content)}", bytes(changed), True
    for more in (b"\0", b"more"):
        yield f"{more!r} at the end", content + more, True
    for length in [*range(0, len(content), 197), len(content) - 1]:
        yield f"only {length} bytes", content[:length], False
    empty_zip, pickled = b"PK\x05\x06" + b"\0" * 18, pickle.dumps({"rows": [1, 2, 3]})
    for foreign in (b"\0" * 1000, empty_zip, b"{}", pickled, rng.bytes(5000)):
        yield f"foreign: {foreign[:30]!r}", foreign, False


@EVERY
def test_damaged_truncated_or_foreign_file_is_refused_or_loads_as_if_whole(name, tmp_path):
    content = saved(configured(name, rows=30), tmp_path).read_bytes()
    target = configured(name, rows=3, seed=8)
    before = snapshot(target)
    whole = configured(name)
    whole.load(tmp_path / "buffer")
    expected = behaviour(whole)
    refused = 0
    for wrong, changed, may_load in damaged(content):
        (tmp_path / "damaged").write_bytes(changed)
        try:
            target.load(tmp_path / "damaged")
        except ValueError as error:
            assert str(tmp_path / "damaged") in str(error)
            refused += 1
            if refused % 20 == 0 or not may_load:
                assert snapshot(target) == before, wrong
        else:
            assert may_load and behaviour(target) == expected, wrong
            target = configured(name, rows=3, seed=8)
            before = snapshot(target)
    assert snapshot(target) == before
    assert refused > 150


@pytest.mark.parametrize(
    ("member", "ours", "other", "message"),
    [
        ("state.json", b'"version": 2', b'"version": 3', "version 2"),
        ("rows.npy", b"'|u1'", b"'|i1'", "rows does not contain uint8"),
        ("rows.npy", b"False", b"True ", "rows does not contain uint8"),  # Fortran order
    ],
)
def test_file_of_another_version_dtype_or_order_is_refused(member, ours, other, message, tmp_path):
    buffer = configured("plain", rows=30)
    path = saved(buffer, tmp_path)
    members = read_members(path)
    assert ours in members[member]
    path.write_bytes(packed(members))
    buffer.load(path)  # only what is changed is wrong
    before = snapshot(buffer)
    path.write_bytes(packed(members | {member: members[member].replace(ours, other, 1)}))
    with pytest.raises(ValueError, match=message):
        buffer.load(path)
    assert snapshot(buffer) == before


def test_file_that_is_not_there_or_is_a_folder_is_an_os_error(tmp_path):
    buffer = configured("plain", rows=20)
    before = snapshot(buffer)
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(OSError):
            buffer.load(path)
    with pytest.raises(OSError):
        buffer.save(tmp_path / "no folder" / "file")
    with pytest.raises(OSError):
        buffer.save(tmp_path)
    assert snapshot(buffer) == before
    assert os.listdir(tmp_path) == []


@EVERY
@pytest.mark.parametrize("at", ["replace", "fsync", "write"])
def test_save_that_fails_leaves_the_old_file_whole_and_no_other(name, at, tmp_path, monkeypatch):
    old = configured(name, rows=5)
    path = saved(old, tmp_path)
    content = path.read_bytes()
    buffer = configured(name, rows=40)
    before = snapshot(buffer)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("no space left on device")

    full = files_of_at_most(700) if at == "write" else nullcontext()
    with monkeypatch.context() as patch, full, pytest.raises(OSError):
        if at != "write":
            patch.setattr(os, at, fail)
        buffer.save(path)
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["buffer"]
    assert snapshot(buffer) == before
    buffer.save(path)
    loaded = configured(name)
    loaded.load(path)
    assert behaviour(loaded) == behaviour(buffer)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write files of more than `size` bytes, as a full disk does."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


KILLED = """
import sys
import numpy as np
from replay_tutorial import PrioritizedReplayBuffer
fields = {"obs": {"shape": 20}, "action": {"dtype": np.int64}}
buffer = PrioritizedReplayBuffer(200_000, fields, seed=0)
print("ready", flush=True)
for life in range(1, 1000):
    buffer.add(obs=np.full((200_000, 20), life), action=np.full(200_000, life))
    buffer.save(sys.argv[1])
"""


def test_process_killed_while_saving_leaves_a_whole_file(tmp_path):
    path = tmp_path / "buffer"
    fields = {"obs": {"shape": 20}, "action": {"dtype": np.int64}}
    buffer = PrioritizedReplayBuffer(200_000, fields, seed=0)
    buffer.add(obs=np.zeros((200_000, 20)), action=np.zeros(200_000))
    buffer.save(path)
    rng = np.random.default_rng(0)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        time.sleep(float(rng.uniform(0.0, 0.4)))
        process.kill()
        process.wait()
        process.stdout.close()
        buffer.load(path)
        rows = buffer[:]
        assert len(rows["action"]) == 200_000
        assert len(np.unique(rows["action"])) == len(np.unique(rows["obs"])) == 1, "a file of two lives"
        assert rows["obs"][0, 0] == rows["action"][0]


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_file_can_be_read_by_whom_other_new_files_can(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    path = saved(configured("plain", rows=3), tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


@pytest.mark.filterwarnings("ignore:The frames of 'obs' are hardly shared")
def test_large_buffer_goes_through_a_file(tmp_path):
    """Tens of megabytes, wrapped around: pieces are written and read in full."""
    fields = {"obs": {"shape": (4, 40, 40), "dtype": np.uint8}, "action": {"dtype": np.int64}}
    for arguments in ({}, {"dedupe_next": "obs", "dedupe_frames": "obs"}):
        buffer = ReplayBuffer(2000, fields, seed=0, **arguments)  # type: ignore[arg-type]
        rng = np.random.default_rng(0)
        obs = rng.integers(0, 256, (3000, 4, 40, 40)).astype(np.uint8)
        buffer.add(obs=obs, action=np.arange(3000), **({"next_obs": obs[::-1]} if arguments else {}))
        loaded = ReplayBuffer(2000, fields, **arguments)  # type: ignore[arg-type]
        loaded.load(saved(buffer, tmp_path))
        np.testing.assert_array_equal(loaded[:]["obs"], obs[1000:])
        assert loaded.sample(5)["action"].tolist() == buffer.sample(5)["action"].tolist()
