"""A run: from the settings to the policy that was chosen, measured once more on episodes of its own.

An engine runs the roles (`engine`); everything here is the same for each of them. The policy that is reported
is the best one, but its number comes from other episodes: the best of many is partly the luckiest.

Paper: Horgan et al. 2018, figure 1.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from replay_tutorial.agents.evaluation import Evaluation, Stopped, evaluate, until
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.runs.checkpoint import whole_checkpoints
from replay_tutorial.apex.runs.engine import Engine, ProcessDied, local_engine
from replay_tutorial.apex.runs.learning_curve import draw_curves
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.run_folder import RunFolder, lock_run
from replay_tutorial.apex.runs.setup import End, RunSetup, new_setup, resumed_setup
from replay_tutorial.apex.runs.signals import stop_requests


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    folder: Path
    end: End
    evaluation: Evaluation | None  # of the chosen policy, on fresh episodes; None if interrupted
    interrupted: bool  # while it learned, or in this evaluation
    policy_step: int  # environment steps when the policy was chosen
    steps: int  # environment steps of all actors
    updates: int  # of the learner
    seconds: float  # from the start of the processes to the end of learning


def train(config: Config, engine: Engine | None = None) -> Result:
    """Train an agent, choose its best policy, and measure that on fresh episodes.

    The processes import the script that calls this, so call it under `if __name__ == "__main__":`. The first
    Ctrl-C or SIGTERM ends the run cleanly, the second at once. With `actors=0` there is one process only, and
    the same seed makes the same run.

    Args:
        config: The settings; `preset(environment)` returns good ones.
        engine: Who runs actors, learner and evaluator; None for processes of this machine.

    Returns:
        How it ended, with the final evaluation and the run's folder.

    Raises:
        MemoryError: If the replay doesn't fit into memory.
        ProcessDied: If a process ended before its time, with the reason. The others are gone, too.
        UnsupportedEnvironment: If there is no such environment, or its spaces aren't supported. No process
            has been started then.
        UnusableDevice: If there is no such device for the learner.
    """
    engine = engine or local_engine()
    with torch_threads(config.threads):
        setup = new_setup(config, engine.make_context)
        with lock_run(setup.folder.path):
            return finish(setup, engine)


def resume(
    path: str | Path,
    total_steps: int | None = None,
    progress: bool = True,
    device: str | None = None,
    solved_at: float | None = None,
    engine: Engine | None = None,
) -> Result:
    """Go on with a run from its newest checkpoint, in the same folder.

    Args:
        path: The run's folder.
        total_steps: A new budget, those steps included that have been made; None keeps the old one.
        progress: Show a progress bar.
        device: Another one for the learner; None keeps the old one.
        solved_at: A new target for the mean return; infinity is never reached. None keeps the old one.
        engine: As for `train`.

    Returns:
        As `train` does.

    Raises:
        DamagedCheckpoint: If none of its checkpoints can be read.
        FileNotFoundError: If there is no such run, or it has no checkpoint.
        ProcessDied: As for `train`.
        NothingToDo: If it is solved, or the budget is spent.
        RunInUse: If another process trains it.
    """
    engine, path = engine or local_engine(), Path(path)
    folder = RunFolder.open(path)
    config = replace(folder.config(), progress=progress)
    new = {"total_steps": total_steps, "device": device, "solved_at": solved_at}
    config = replace(config, **{name: value for name, value in new.items() if value is not None})
    with torch_threads(config.threads), lock_run(path):
        setup = resumed_setup(folder, config, engine.make_context)
        folder.note_resumption(config, setup.initial_counters.steps)
        return finish(setup, engine)


@contextmanager
def torch_threads(count: int) -> Generator[None]:
    """Let torch use `count` threads; small networks are faster in one, and actors have the other cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def finish(setup: RunSetup, engine: Engine) -> Result:
    """Train, then plot, then evaluate.

    Raises:
        KeyboardInterrupt: At the second Ctrl-C; it says how to go on.
    """
    try:
        return train_and_evaluate(setup, engine)
    except OSError as error:  # a full disk, for example
        error.add_note(resume_hint(setup.folder.path))
        raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped at once\n{resume_hint(setup.folder.path)}") from None


def train_and_evaluate(setup: RunSetup, engine: Engine) -> Result:
    """Do what `finish` does, to its end or to the second Ctrl-C."""
    config, counters, folder = setup.context.config, setup.context.counters, setup.folder
    initial = setup.initial_counters
    with stop_requests() as stop:
        with Recorder(
            folder.path, config.total_steps, config.progress, initial.steps, initial.update
        ) as recorder:
            if not setup.context.spaces.time_limit:
                limit = f"{config.evaluation_step_limit:,} steps (--evaluation-step-limit)"
                recorder.print_line(
                    f"{config.environment} declares no time limit: an evaluated episode may take {limit}"
                )
            if setup.checkpoint is not None:
                for reason in setup.checkpoint.damaged:
                    recorder.print_line(reason)
                recorder.print_line(f"going on from {setup.checkpoint.path}")
            try:
                end = engine.run(setup, recorder, stop)
            except ProcessDied as error:
                if not error.resumable:
                    raise
                raise ProcessDied(f"{error}\n{resume_hint(folder.path)}") from None
            seconds = recorder.seconds
        # Before the evaluation, which may take long: whoever interrupts that has the curve.
        draw_curves([folder.path], folder.path / "learning_curve.png")
        chosen, evaluation = folder.load_best(), None
        if chosen is not None and end != "interrupted":
            setup.policy.set_parameters(chosen.parameters)
            with suppress(Stopped):
                evaluation = evaluate(
                    until(lambda: stop.received, setup.policy.act_greedily),
                    config.environment,
                    setup.seeds.final,  # of episodes that played no part in choosing the policy
                    config.evaluation_step_limit,
                    config.evaluation_environments,
                )
                folder.save_evaluation(evaluation, chosen.step, seconds)
    return Result(
        folder=folder.path,
        end=end,
        evaluation=evaluation,
        interrupted=end == "interrupted" or (chosen is not None and evaluation is None),
        policy_step=0 if chosen is None else chosen.step,
        steps=counters.steps,
        updates=counters.updates,
        seconds=seconds,
    )


def resume_hint(run: Path) -> str:
    """Say how a run that has ended too early can be resumed."""
    checkpoints = whole_checkpoints(run)
    if not checkpoints:
        return f"{run} has no checkpoint yet; what there is of it lies there."
    return f"The newest checkpoint is {checkpoints[-1][1]}. To go on: python -m replay_tutorial resume {run}"
