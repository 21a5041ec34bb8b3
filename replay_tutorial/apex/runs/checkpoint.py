"""Checkpoints: everything that is needed to resume a run.

    checkpoints/0007_step_60000/
        manifest.json   checksums of the other files, so that missing or changed files are detected
        state.json      counters and random states; with --actors 0 also the state of the other roles
        agent.pt        networks, target networks, optimizers, and the parameters published last
        replay.npz      all rows with their priorities; not with --no-checkpoint-replay
        actor.npz       open episodes and pending steps; only with --actors 0
        policy.pt       the best policy so far

`Checkpoints` writes them atomically, and keeps the newest two. Files are read without pickle, so that
a checkpoint from an untrusted source can't execute code. Checkpoints aren't compressed.
"""

import json
import pickle
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
from replay_tutorial.buffers.runtime.atomic_file import with_path
from replay_tutorial.buffers.runtime.checkpoints import Checkpoints, number_of

FORMAT = "replay_tutorial checkpoint 3"
ROWS = "replay.npz"
KEPT = 2  # the newest, and the previous one in case the newest is damaged
# Exceptions that reading a damaged file may raise.
DAMAGE = (*archive.DAMAGE, ValueError, TypeError, AttributeError, IndexError, pickle.UnpicklingError)


class DamagedCheckpoint(DamagedFile):
    """A checkpoint can't be read; the message states which and why."""


class Checkpoint(NamedTuple):
    """A checkpoint that has been read, without the replay's rows.

    Attributes:
        path: Folder of the checkpoint.
        has_replay: Whether it contains the replay.
        step: Rows inserted so far.
        samples: Rows sampled so far.
        update: Updates made so far.
        serial: With `actors=0`, the state of actor, evaluator and recorder; else None.
        agent: State of the agent.
        published: The parameters published last.
        random: State of torch's global generator.
        damaged: Messages about newer checkpoints that can't be read.
    """

    path: Path
    has_replay: bool
    step: int
    samples: int
    update: int
    serial: dict[str, Any] | None
    agent: dict[str, Any]
    published: Published
    random: torch.Tensor
    damaged: tuple[str, ...] = ()


def save_checkpoint(
    folder: Path, context: Context, agent: Agent, serial: dict[str, Any] | None = None
) -> Saved:
    """Write a checkpoint into a run's folder, and remove the oldest one.

    The calling process must be the replay's sampler. If the checkpoint can't be written, the error is
    returned, and older checkpoints are kept. With `actors=0`, `serial` is the state of the other roles: JSON,
    and arrays under the key "arrays".
    """
    step = context.counters.steps
    checkpoints = Checkpoints(folder / "checkpoints", KEPT)
    try:
        with checkpoints.write(step) as unfinished:
            write(unfinished, folder, context, agent, serial)
    except OSError as error:
        kept = checkpoints.newest
        newest = f"the newest checkpoint is {kept.name}" if kept else "the run has no checkpoint yet"
        return Saved(step, f"{with_path(error, checkpoints.folder)}; {newest}")
    return Saved(step, None)


def write(place: Path, folder: Path, context: Context, agent: Agent, serial: dict[str, Any] | None) -> None:
    """Write all files of a checkpoint into the folder `place`."""
    counters, has_replay = context.counters, context.config.checkpoint_replay
    counts = {"step": counters.steps, "samples": counters.samples, "update": agent.updates}
    arrays: dict[str, NDArray[Any]] = {} if serial is None else serial["arrays"]
    json_part = None if serial is None else {name: part for name, part in serial.items() if name != "arrays"}
    # Counters before rows: rows that actors insert in between are then sampled once more after a resume, not
    # less.
    state = {"format": FORMAT, **counts, "has_replay": has_replay, "serial": json_part}
    (place / "state.json").write_text(json.dumps(state), encoding="utf-8")
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
    (place / "manifest.json").write_text(json.dumps(checksums), encoding="utf-8")


def complete_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return the number and path of each complete checkpoint of a run, oldest first."""
    return [(number_of(path), path) for path in Checkpoints(folder / "checkpoints").complete()]


def load_checkpoint(path: Path, rows: bool = True) -> Checkpoint:
    """Read a checkpoint, without the rows of the replay.

    If `rows` is false, the checksum of the rows isn't verified; the learner relies on the parent, which has
    just verified it.

    Raises:
        DamagedCheckpoint: If a file is missing or can't be read.
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
    """Raise ValueError if a file of a checkpoint has changed, or OSError if one is missing."""
    for name, checksum in read_json(path / "manifest.json").items():
        if (rows or name != ROWS) and checksum_of(path / name) != checksum:
            raise ValueError(f"{name} has changed since it was written")


def contains_rows(rows: Path) -> bool:
    """Return whether a replay file contains any row.

    While a small replay is saved, actors may overwrite all its rows.

    Raises:
        DamagedCheckpoint: If the file can't be read.
    """
    try:
        with np.load(rows, allow_pickle=False) as arrays:
            return bool((arrays["indexes"] >= 0).any())
    except (*DAMAGE, MemoryError) as error:
        raise DamagedCheckpoint(f"{rows.parent} can't be read: {rows.name}: {error}") from error


def newest_checkpoint(folder: Path) -> Checkpoint:
    """Read the newest checkpoint of a run that isn't damaged.

    Raises:
        DamagedCheckpoint: If all checkpoints are damaged; the message states why for each.
        FileNotFoundError: If there are none.
    """
    reasons: list[str] = []
    for _, path in reversed(complete_checkpoints(folder)):
        try:
            checkpoint = load_checkpoint(path)
            has_replay = checkpoint.has_replay and contains_rows(path / ROWS)
            if checkpoint.has_replay and not has_replay and checkpoint.step > 0:
                reasons.append(f"{path / ROWS} contains no rows: the replay buffer starts empty.")
            return checkpoint._replace(has_replay=has_replay, damaged=tuple(reasons))
        except DamagedCheckpoint as error:
            reasons.append(str(error))
    if reasons:
        reasons.append(
            f"There is no other checkpoint. Restore one from a backup, or start a new run; {folder} is kept."
        )
        raise DamagedCheckpoint("\n".join(reasons))
    raise FileNotFoundError(f"{folder} has no checkpoint.")


def restore_learner(checkpoint: Checkpoint, agent: Agent, replay: Replay) -> Published:
    """Load a checkpoint into the agent and, if it has rows, the replay; return the last published parameters.

    Raises:
        DamagedCheckpoint: If a part doesn't match this run, or a checksum is wrong.
    """
    try:
        agent.load_state_dict(checkpoint.agent)
        if checkpoint.has_replay:
            replay.load(checkpoint.path / ROWS)
    except DAMAGE as error:
        older = [path.name for _, path in complete_checkpoints(checkpoint.path.parent.parent)]
        older = older[: older.index(checkpoint.path.name)]
        remedy = (
            f"To resume from {older[-1]}, rename that folder to {checkpoint.path.name}.unusable. Don't "
            "delete it: another version of this package may be able to read it."
            if older
            else "It is the only checkpoint. Restore another from a backup, or start a new run."
        )
        raise DamagedCheckpoint(f"{checkpoint.path} can't be used: {error} {remedy}") from error
    return checkpoint.published
