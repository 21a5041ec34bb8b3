"""Prepares a run, new or from a checkpoint, before its first process starts."""

import math
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from replay_tutorial.agents.agent import Policy
from replay_tutorial.agents.environments import spaces_of
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
    """The learner's device can't be used; the message states why."""


class NothingToDo(ValueError):
    """A run would not make a single update; the message states how to change that."""


@dataclass(frozen=True)
class RunSetup:
    """Everything that an engine needs to start a run.

    Attributes:
        folder: The run's folder.
        context: Context of the run.
        initial_counters: The counters at the start: zeros, or those of the checkpoint.
        seeds: The seed of each part.
        policy: The policy for the final evaluation.
        solved_at: The target for the mean return, if there is one.
        checkpoint: The checkpoint to resume from, if any.
        best: The best policy before the run was resumed, if any.
        evaluated_update: The last update whose parameters were evaluated before the run was resumed.
    """

    folder: RunFolder
    context: Context
    initial_counters: InitialCounters
    seeds: RunSeeds
    policy: Policy
    solved_at: float | None
    checkpoint: Checkpoint | None = None
    best: Candidate | None = None
    evaluated_update: int = 0


def new_setup(config: Config, make_context: MakeContext) -> RunSetup:
    """Prepare a new run.

    Raises:
        MemoryError: If the replay doesn't fit into memory.
        NothingToDo: If the run is too short for one update.
        UnsupportedEnvironment: If the environment doesn't exist, or its spaces aren't supported.
        UnusableDevice: If the learner's device doesn't exist.
    """
    check_device(config)
    refuse_if_too_short(config, InitialCounters())
    spaces = spaces_of(config.environment)
    config = replace(config, agent=agent_name(config, spaces))
    policy = make_policy(config, spaces)
    context = make_context(config, spaces, policy.parameter_count, InitialCounters())
    # The folder comes last, so that a run that is refused leaves nothing behind.
    folder = RunFolder.create(config)
    target = spaces.solved_at if config.solved_at is None else config.solved_at
    return RunSetup(folder, context, InitialCounters(), RunSeeds(config), policy, target)


def resumed_setup(folder: RunFolder, config: Config, make_context: MakeContext) -> RunSetup:
    """Prepare to resume a run from its newest checkpoint, and remove records after the checkpoint.

    The folder is changed only after all checks, so it is unchanged if one of the exceptions below is raised.
    The settings may have more steps, a higher target or another device.

    Raises:
        DamagedCheckpoint: If no checkpoint can be read.
        DamagedFile: If the settings or records can't be read.
        FileNotFoundError: If there is no checkpoint.
        NothingToDo: If the run is solved, has used up its steps, or is too short for one update.
        UnusableDevice: If the learner's device doesn't exist.
    """
    check_device(config)
    checkpoint = newest_checkpoint(folder.path)
    # With several processes, the best policy may be newer than the checkpoint; it is then kept.
    is_newer = checkpoint.serial is None and (folder.path / "policy.pt").exists()
    best = (folder if is_newer else RunFolder(checkpoint.path)).load_best()
    spaces = spaces_of(config.environment)
    target = spaces.solved_at if config.solved_at is None else config.solved_at
    if (folder.path / "evaluation.json").exists():  # else the final evaluation is still to be done
        refuse_if_done(folder.path, config, checkpoint.step, best, target)
    policy = make_policy(config, spaces)
    counters = InitialCounters(checkpoint.update, checkpoint.step, checkpoint.samples)
    if not checkpoint.has_replay:
        # Without its rows the replay starts empty, so the limiter counts inserts and samples from zero.
        counters = InitialCounters(checkpoint.update, checkpoint.step, samples=0, lost_steps=checkpoint.step)
    if checkpoint.step < config.total_steps:  # else only the final evaluation is left
        refuse_if_too_short(config, counters)
    progress, evaluations = (folder.path / name for name in ("progress.csv", "evaluations.csv"))
    for records in (progress, evaluations):
        updates_and_seconds(records)  # raises an error if the records are damaged
    context = make_context(config, spaces, policy.parameter_count, counters)
    # The folder is changed only from here on, so that a run that is refused stays unchanged.
    folder.remove_unfinished()
    if not is_newer:
        (folder.path / "policy.pt").unlink(missing_ok=True)
        if best is not None:
            shutil.copyfile(checkpoint.path / "policy.pt", folder.path / "policy.pt")
    # Otherwise, a kill in the next final evaluation would leave a run that appears to be finished.
    (folder.path / "evaluation.json").unlink(missing_ok=True)
    truncate_records(progress, checkpoint.update)
    serial = checkpoint.serial
    last = checkpoint.update if serial is None else int(serial["evaluated_update"])
    evaluated_update = truncate_records(evaluations, last)
    seeds = RunSeeds(config)
    return RunSetup(folder, context, counters, seeds, policy, target, checkpoint, best, evaluated_update)


def refuse_if_done(
    run: Path, config: Config, step: int, best: Candidate | None, target: float | None
) -> None:
    """Raise NothingToDo if a run with a final evaluation would end immediately."""
    if best is not None and target is not None and best.solves(target):
        raise NothingToDo(
            f"{run} is solved: the mean return of the policy of step {best.step:,} exceeds {target:g} by at "
            f"least three standard errors ({best.confirmation}). To continue, raise the target with "
            "--solved-at (inf trains until --total-steps)."
        )
    if step >= config.total_steps:
        raise NothingToDo(
            f"{run} has already run {step:,} steps; total_steps is {config.total_steps:,}. To continue, "
            "raise --total-steps."
        )


def refuse_if_too_short(config: Config, initial_counters: InitialCounters) -> None:
    """Raise NothingToDo if a run would end before its first update."""
    first = initial_counters.lost_steps + config.replay_start
    if config.actors == 0:  # the first update then waits until the ratio allows a whole batch
        first += math.ceil(config.batch_size / config.samples_per_insert)
    # With actor processes, a run that reaches total_steps exactly when learning could start ends there.
    is_too_short = config.total_steps < first or (config.actors > 0 and config.total_steps == first)
    if is_too_short and initial_counters.steps == initial_counters.lost_steps:
        raise NothingToDo(
            f"a run of {config.total_steps:,} steps would not learn anything: its first update is made after "
            f"{first:,} steps. Raise --total-steps, or lower --replay-start."
        )


def check_device(config: Config) -> None:
    """Raise UnusableDevice if the learner's device doesn't exist, before a process starts."""
    name, there = config.device, torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name in ("auto", "cpu"):
        return
    number = re.fullmatch(r"cuda(?::(\d+))?", name)
    if number is None:
        raise UnusableDevice(f"device is {name}; it must be cpu, cuda, cuda:1, ... or auto.")
    if int(number[1] or 0) >= there:
        found = f"only {there} GPU(s), numbered from 0" if there else "no GPU"
        raise UnusableDevice(
            f"device is {name}, but torch finds {found}. --device auto uses a GPU only if there is one."
        )
