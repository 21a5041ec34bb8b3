"""Checkpoints: all that a run needs to go on, on the disk.

    checkpoints/0007_step_60000/
        manifest.json   checksums of the others: a file that is missing or has changed is noticed
        state.json   counters, random states, and what the parts of a run in one process know
        agent.pt     networks, targets, optimizers; the parameters that were published last
        replay.npz   every row with its priority; not with --no-checkpoint-replay
        actor.npz    open episodes and waiting steps; only of a run in one process
        policy.pt    the best policy by then

A checkpoint is written beside its place and moved there when it is complete, so a crash leaves the ones
before. It is read without pickle: a stranger's checkpoint can't run code. The newest two stay.

Left out: compression, other machines' paths.
"""

import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from replay_tutorial.agents.agent import Agent
from replay_tutorial.apex.context import Context, Published, Replay
from replay_tutorial.apex.messages import Saved
from replay_tutorial.apex.runs.files import DamagedFile, checksum_of, read_json
from replay_tutorial.apex.runs.run_folder import read_tensors, write_tensors
from replay_tutorial.buffers import archive
from replay_tutorial.buffers.atomic_file import with_path

FORMAT = "replay_tutorial checkpoint 3"
ROWS = "replay.npz"
KEPT = 2  # the newest, and one more in case that it is damaged
NAME = re.compile(r"(\d+)_step_\d+")
# What reading a damaged file may raise:
DAMAGE = (*archive.DAMAGE, ValueError, TypeError, AttributeError, IndexError, pickle.UnpicklingError)


class DamagedCheckpoint(DamagedFile):
    """A checkpoint can't be read; the message says which and why."""


class Checkpoint(NamedTuple):
    """A checkpoint that was read, except the replay's rows."""

    path: Path
    has_replay: bool
    step: int  # rows inserted
    samples: int  # rows sampled
    update: int
    serial: dict[str, Any] | None  # the other parts of a run in one process
    agent: dict[str, Any]
    published: Published
    random: torch.Tensor  # torch's global state
    damaged: tuple[str, ...] = ()  # newer ones that can't be read, and why


def save_checkpoint(
    folder: Path, context: Context, agent: Agent, serial: dict[str, Any] | None = None
) -> Saved:
    """Write a checkpoint into a run's folder, and remove the oldest.

    Args:
        folder: Of the run.
        context: Of the run; this process is the replay's sampler.
        agent: What learns.
        serial: State of the other parts: JSON, except "arrays".

    Returns:
        When it was, or why the system couldn't write it; then the last one stays.
    """
    step = context.counters.steps
    checkpoints = folder / "checkpoints"
    unfinished = checkpoints / "unfinished"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        write(unfinished, folder, context, agent, serial)
        numbers = [number for number, _ in whole_checkpoints(folder)]
        os.replace(unfinished, checkpoints / f"{max(numbers, default=0) + 1:04d}_step_{step}")
        sync(checkpoints)
        remove_old(folder)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)  # it may be what fills the disk
        kept = [path.name for _, path in whole_checkpoints(folder)]
        stays = f"{kept[-1]} stays" if kept else "there is none yet"
        return Saved(step, f"{with_path(error, checkpoints)}; {stays}")
    return Saved(step, None)


def write(place: Path, folder: Path, context: Context, agent: Agent, serial: dict[str, Any] | None) -> None:
    """Fill a checkpoint's folder."""
    counters, has_replay = context.counters, context.config.checkpoint_replay
    counts = {"step": counters.steps, "samples": counters.samples, "update": agent.updates}
    arrays: dict[str, NDArray[Any]] = {} if serial is None else serial["arrays"]
    told = None if serial is None else {name: part for name, part in serial.items() if name != "arrays"}
    # The counters come first: rows that actors add meanwhile are then sampled once more, not once less.
    state = {"format": FORMAT, **counts, "has_replay": has_replay, "serial": told}
    (place / "state.json").write_text(json.dumps(state))
    if arrays:
        np.savez(place / "actor.npz", allow_pickle=False, **arrays)
    published = context.parameters.pull()
    assert published is not None
    contents = {
        "agent": agent.state_dict(),
        "published": torch.from_numpy(published.parameters),
        "published_update": published.update,
        "random": torch.get_rng_state(),
    }
    write_tensors(place / "agent.pt", contents)
    if has_replay:
        context.replay.save(place / ROWS)
    if (policy := folder / "policy.pt").is_file():
        shutil.copyfile(policy, place / "policy.pt")
    checksums = {path.name: checksum_of(path) for path in place.iterdir()}
    (place / "manifest.json").write_text(json.dumps(checksums))
    for path in [*place.iterdir(), place]:
        sync(path)


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    if os.name != "posix" and path.is_dir():
        return  # Windows can't open a folder
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def whole_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return number and path of a run's checkpoints, the oldest first."""
    paths = [path for path in (folder / "checkpoints").glob("*") if NAME.fullmatch(path.name)]
    return sorted((int(path.name.partition("_")[0]), path) for path in paths)


def remove_old(folder: Path) -> None:
    """Remove all but the newest checkpoints."""
    for _, path in whole_checkpoints(folder)[:-KEPT]:
        # First the name: what is half removed must not look like a checkpoint.
        doomed = path.with_name("unfinished")
        os.replace(path, doomed)
        shutil.rmtree(doomed)


def load_checkpoint(path: Path, rows: bool = True) -> Checkpoint:
    """Read a checkpoint, except the rows of the replay.

    Args:
        path: Of the checkpoint.
        rows: Whether to compare the checksum of the rows too; the learner has just had it compared.

    Raises:
        DamagedCheckpoint: If a part is missing or can't be read.
    """
    try:
        state = read_json(path / "state.json")
        if state["format"] != FORMAT:
            raise ValueError(f"its format is {state['format']!r}, not {FORMAT!r}")
        check_manifest(path, rows)
        contents = read_tensors(path / "agent.pt")
        serial = state["serial"]
        if serial is not None:
            with np.load(path / "actor.npz", allow_pickle=False) as file:
                serial["arrays"] = {name: file[name] for name in file.files}
        return Checkpoint(
            path=path,
            has_replay=bool(state["has_replay"]),
            step=int(state["step"]),
            samples=int(state["samples"]),
            update=int(state["update"]),
            serial=serial,
            agent=contents["agent"],
            published=Published(0, int(contents["published_update"]), contents["published"].numpy()),
            random=contents["random"],
        )
    except DAMAGE as error:
        raise DamagedCheckpoint(f"{path} can't be read: {error}") from error


def check_manifest(path: Path, rows: bool) -> None:
    """Refuse a checkpoint of which a file is missing or has changed.

    Raises:
        ValueError: If so.
    """
    for name, checksum in read_json(path / "manifest.json").items():
        if (rows or name != ROWS) and checksum_of(path / name) != checksum:
            raise ValueError(f"{name} has changed since it was written")


def holds_rows(rows: Path) -> bool:
    """Return whether a file holds a row: actors may replace all of a small replay while it is written.

    Raises:
        DamagedCheckpoint: If it can't be read.
    """
    try:
        with np.load(rows, allow_pickle=False) as arrays:
            return bool((arrays["indexes"] >= 0).any())
    except (*DAMAGE, MemoryError) as error:
        raise DamagedCheckpoint(f"{rows.parent} can't be read: {rows.name}: {error}") from error


def newest_checkpoint(folder: Path) -> Checkpoint:
    """Read the newest checkpoint of a run that can be read.

    Raises:
        DamagedCheckpoint: If there are some, but none can be read; with the reasons.
        FileNotFoundError: If there is none.
    """
    reasons: list[str] = []
    for _, path in reversed(whole_checkpoints(folder)):
        try:
            checkpoint = load_checkpoint(path)
            has_replay = checkpoint.has_replay and holds_rows(path / ROWS)
            if checkpoint.has_replay and not has_replay and checkpoint.step > 0:
                reasons.append(f"{path / ROWS} holds no row: the replay is filled anew.")
            return checkpoint._replace(has_replay=has_replay, damaged=tuple(reasons))
        except DamagedCheckpoint as error:
            reasons.append(str(error))
    if reasons:
        reasons.append(
            f"No other checkpoint is left: restore one from a backup, or train anew; {folder} stays."
        )
        raise DamagedCheckpoint("\n".join(reasons))
    raise FileNotFoundError(f"{folder} has no checkpoint to go on from.")


def restore_learner(checkpoint: Checkpoint, agent: Agent, replay: Replay) -> Published:
    """Load a checkpoint into the agent, and into the replay if it was kept; return what was published last.

    Raises:
        DamagedCheckpoint: If a part doesn't fit, or its checksum is wrong.
    """
    try:
        agent.load_state_dict(checkpoint.agent)
        if checkpoint.has_replay:
            replay.load(checkpoint.path / ROWS)
    except DAMAGE as error:
        older = [path.name for _, path in whole_checkpoints(checkpoint.path.parent.parent)]
        older = older[: older.index(checkpoint.path.name)]
        remedy = (
            f"To resume from {older[-1]}, rename that folder to {checkpoint.path.name}.unusable; keep it, as "
            "another version of this package may read it."
            if older
            else "It is the only checkpoint: keep it, and restore another one from a backup, or train anew."
        )
        raise DamagedCheckpoint(f"{checkpoint.path} can't be used: {error} {remedy}") from error
    return checkpoint.published
