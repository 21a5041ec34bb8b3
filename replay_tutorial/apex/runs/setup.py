"""Setting up a run: what has to be there before its first process starts, new or read from a checkpoint."""

import math
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import Spaces, spaces_of
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, InitialCounters, MakeContext
from replay_tutorial.apex.evaluator import Candidate
from replay_tutorial.apex.parts import agent_name, make_policy
from replay_tutorial.apex.runs.checkpoint import Checkpoint, newest_checkpoint
from replay_tutorial.apex.runs.recorder import truncate_records, updates_and_seconds
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.apex.seeds import RunSeeds

End = Literal["solved", "budget spent", "interrupted"]


class UnusableDevice(ValueError):
    """The learner can't train on the device that was asked for; the message says why."""


class NothingToDo(ValueError):
    """A run would not make one update; the message says what would make it learn."""


@dataclass(frozen=True)
class RunSetup:
    """What a run begins with."""

    folder: RunFolder
    context: Context
    initial_counters: InitialCounters
    seeds: RunSeeds
    policy: Policy  # for the final evaluation
    solved_at: float | None
    checkpoint: Checkpoint | None = None  # that it goes on from
    best: Candidate | None = None  # the best policy by then
    evaluated_update: int = 0  # the last update whose parameters were evaluated by then


def new_setup(config: Config, make_context: MakeContext) -> RunSetup:
    """Prepare a new run.

    Raises:
        MemoryError: If the replay doesn't fit into memory.
        NothingToDo: If its steps are too few for one update.
        UnsupportedEnvironment: If there is no such environment, or its spaces aren't supported.
        UnusableDevice: If there is no such device.
    """
    check_device(config)
    refuse_if_too_short(config, InitialCounters())
    spaces = spaces_of(config.environment)
    config = replace(config, agent=agent_name(config, spaces))
    policy = make_policy(config, spaces)
    context = make_context(config, spaces, policy.parameter_count, InitialCounters())
    # The folder comes last: what is refused leaves nothing behind.
    folder = RunFolder.create(config)
    return RunSetup(
        folder, context, InitialCounters(), RunSeeds(config), policy, target_return(config, spaces)
    )


def resumed_setup(folder: RunFolder, config: Config, make_context: MakeContext) -> RunSetup:
    """Prepare to go on from a run's newest checkpoint; records that came after it are removed.

    The settings are the run's own, perhaps with a greater budget, or a higher target.

    Raises:
        DamagedCheckpoint: If none of its checkpoints can be read.
        DamagedFile: If its settings or records can't be read. Nothing has changed then.
        FileNotFoundError: If it has none.
        NothingToDo: If it is solved, or the budget is spent, or too small. Nothing has changed then.
        UnusableDevice: If the GPU that it had is not here.
    """
    check_device(config)
    checkpoint = newest_checkpoint(folder.path)
    # With other processes the best policy may well be newer than the checkpoint, and stays.
    is_newer = checkpoint.serial is None and (folder.path / "policy.pt").exists()
    best = (folder if is_newer else RunFolder(checkpoint.path)).load_best()
    spaces = spaces_of(config.environment)
    target = target_return(config, spaces)
    if (folder.path / "evaluation.json").exists():  # else that is left to do: it was killed before
        refuse_if_done(folder.path, config, checkpoint.step, best, target)
    policy = make_policy(config, spaces)
    counters = InitialCounters(checkpoint.update, checkpoint.step, checkpoint.samples)
    if not checkpoint.has_replay:
        # Without its rows nothing is owed: the replay starts anew, and so do the samples counted against it.
        counters = InitialCounters(checkpoint.update, checkpoint.step, samples=0, lost_steps=checkpoint.step)
    if checkpoint.step < config.total_steps:  # else what is left to do is the final evaluation
        refuse_if_too_short(config, counters)
    progress, evaluations = (folder.path / name for name in ("progress.csv", "evaluations.csv"))
    for records in (progress, evaluations):
        updates_and_seconds(records)  # raises if they can't be continued
    context = make_context(config, spaces, policy.parameter_count, counters)
    # Only from here on is the folder changed: a run that is refused stays as it is.
    folder.remove_unfinished()
    if not is_newer:
        (folder.path / "policy.pt").unlink(missing_ok=True)
        if best is not None:
            shutil.copyfile(checkpoint.path / "policy.pt", folder.path / "policy.pt")
    truncate_records(progress, checkpoint.update)
    serial = checkpoint.serial
    last = checkpoint.update if serial is None else int(serial["evaluated_update"])
    evaluated_update = truncate_records(evaluations, last)
    seeds = RunSeeds(config)
    return RunSetup(folder, context, counters, seeds, policy, target, checkpoint, best, evaluated_update)


def refuse_if_done(
    run: Path, config: Config, step: int, best: Candidate | None, target: float | None
) -> None:
    """Refuse to go on with a run that has its final evaluation and would end at once."""
    if best is not None and target is not None and best.solves(target):
        raise NothingToDo(
            f"{run} is solved: the mean return of its policy of step {best.step:,} is above {target:g} by "
            f"more than three standard errors ({best.confirmation}). To go on, raise the target: --solved-at "
            "(inf: go on until the steps are used up)."
        )
    if step >= config.total_steps:
        raise NothingToDo(
            f"{run} has made {step:,} steps, and its budget is {config.total_steps:,}. "
            "Give it a greater one: --total-steps."
        )


def refuse_if_too_short(config: Config, initial_counters: InitialCounters) -> None:
    """Refuse a run that ends before its first update."""
    first = initial_counters.lost_steps + config.replay_start
    if config.actors == 0:  # in turns, an update waits for all the rows that it is owed for
        first += math.ceil(config.batch_size / config.samples_per_insert)
    # With processes, a run whose steps are made when learning may begin is over at that moment.
    is_too_short = config.total_steps < first or (config.actors > 0 and config.total_steps == first)
    if is_too_short and initial_counters.steps == initial_counters.lost_steps:
        raise NothingToDo(
            f"a run of {config.total_steps:,} steps would not learn anything: its first update comes after "
            f"{first:,}. Raise --total-steps, or lower --replay-start."
        )


def check_device(config: Config) -> None:
    """Refuse a device that isn't there, before a process starts."""
    name, there = config.device, torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name in ("auto", "cpu"):
        return
    number = re.fullmatch(r"cuda(?::(\d+))?", name)
    if number is None:
        raise UnusableDevice(f"device is {name}; it must be cpu, cuda, cuda:1, ... or auto.")
    if int(number[1] or 0) >= there:
        finds = f"{there} of them, counted from 0" if there else "none"
        raise UnusableDevice(
            f"device is {name}, a GPU, but torch finds {finds}. --device auto takes one only if it is there."
        )


def target_return(config: Config, spaces: Spaces) -> float | None:
    """Return the mean return at which a run is solved, if there is one."""
    return config.solved_at if config.solved_at is not None else spaces.solved_at
