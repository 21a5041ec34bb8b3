"""A run: train an agent, select its best policy, and evaluate that policy on new episodes.

An engine runs the roles (`engine`); the code here is the same for all engines. The final evaluation uses
episodes of its own, because the best result of many evaluations is partly luck.

Paper: Horgan et al. 2018, figure 1.
"""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from replay_tutorial.agents.environments import EnvironmentFailed, slow_steps_reported
from replay_tutorial.agents.evaluation import Evaluation, EvaluationStopped, evaluate, stop_when
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.parts import exploration_schedule
from replay_tutorial.apex.runs.checkpoint import complete_checkpoints
from replay_tutorial.apex.runs.engine import Engine, ProcessDied, local_engine
from replay_tutorial.apex.runs.learning_curve import draw_curves
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.run_folder import RunFolder, lock_run
from replay_tutorial.apex.runs.setup import End, RunSetup, new_setup, resumed_setup
from replay_tutorial.apex.runs.signals import stop_requests


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        folder: The run's folder.
        end: Why learning ended: "solved", "budget spent" or "interrupted".
        evaluation: The selected policy on new episodes; None if the run or this evaluation was interrupted.
        interrupted: Whether learning or the final evaluation was interrupted.
        policy_step: Environment steps when the policy was selected.
        steps: Environment steps of all actors.
        updates: Updates of the learner.
        seconds: Seconds from the start of the processes to the end of learning.
    """

    folder: Path
    end: End
    evaluation: Evaluation | None
    interrupted: bool
    policy_step: int
    steps: int
    updates: int
    seconds: float


def train(config: Config, engine: Engine | None = None) -> Result:
    """Train an agent, select its best policy, and evaluate that policy on new episodes.

    The processes import the script that calls this function, so call it under `if __name__ == "__main__":`.
    The first Ctrl-C or SIGTERM stops the run and writes a checkpoint; the second stops it immediately. With
    `actors=0` there is only one process, and the same seed reproduces the run.

    Args:
        config: The settings; `preset(environment)` returns recommended ones.
        engine: Runs actors, learner and evaluator; None runs them as processes of this machine.

    Returns:
        The final evaluation, the run's folder, and how the run ended.

    Raises:
        EnvironmentFailed: If an environment of this process returned NaN or infinity, or called `sys.exit`.
        MemoryError: If the replay doesn't fit into memory.
        ProcessDied: If a process ended unexpectedly; the message states why. All other processes have been
            stopped.
        UnsupportedEnvironment: If the environment doesn't exist or its spaces aren't supported. No process
            has been started.
        UnusableDevice: If the learner's device doesn't exist.
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
    """Continue a run from its newest checkpoint, in the same folder.

    Args:
        path: The run's folder.
        total_steps: New number of environment steps after which the run ends, including those already made;
            None keeps the old one.
        progress: Whether to show a progress bar.
        device: New device for the learner; None keeps the old one.
        solved_at: New target for the mean return; infinity is never reached. None keeps the old one.
        engine: As for `train`.

    Returns:
        As for `train`.

    Raises:
        DamagedCheckpoint: If none of the run's checkpoints can be read.
        EnvironmentFailed, ProcessDied: As for `train`.
        FileNotFoundError: If there is no run in this folder, or it has no checkpoint.
        NothingToDo: If the run is solved, or has already made `total_steps` steps.
        RunInUse: If another process is training this run.
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
    """Set the number of torch's threads while the context lasts.

    With small networks one thread is fastest, and the actors need the other cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def finish(setup: RunSetup, engine: Engine) -> Result:
    """Train, plot the learning curve, and evaluate the selected policy.

    Raises:
        KeyboardInterrupt: At the second Ctrl-C; the message states how to resume.
    """
    try:
        return train_and_evaluate(setup, engine)
    except OSError as error:  # a full disk, for example
        error.add_note(resume_hint(setup.folder.path))
        raise
    except EnvironmentFailed as error:  # in this process; another one reports it to the engine
        raise EnvironmentFailed(f"{error}\n{resume_hint(setup.folder.path)}") from error.__cause__
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped immediately\n{resume_hint(setup.folder.path)}") from None


def train_and_evaluate(setup: RunSetup, engine: Engine) -> Result:
    """Do the work of `finish`, without its error messages."""
    config, counters, folder = setup.context.config, setup.context.counters, setup.folder
    initial = setup.initial_counters
    with stop_requests() as stop:
        exploration = exploration_schedule(config, setup.context.spaces).tolist()
        with Recorder(
            folder.path, config.total_steps, config.progress, initial.steps, initial.update, exploration
        ) as recorder:
            if not setup.context.spaces.time_limit:
                limit = f"{config.evaluation_step_limit:,} steps (--evaluation-step-limit)"
                recorder.print_line(
                    f"{config.environment} has no time limit; evaluated episodes are truncated after {limit}"
                )
            if setup.checkpoint is not None:
                for reason in setup.checkpoint.damaged:
                    recorder.print_line(reason)
                recorder.print_line(f"resuming from {setup.checkpoint.path}")
            try:
                with slow_steps_reported(recorder.print_line, config.slow_step_seconds):
                    end = engine.run(setup, recorder, stop)
            except ProcessDied as error:
                if not error.resumable:
                    raise
                raise ProcessDied(f"{error}\n{resume_hint(folder.path)}") from None
            seconds = recorder.seconds
        # Drawn now, because the evaluation may take a long time, and interrupting it must not lose the curve.
        draw_curves([folder.path], folder.path / "learning_curve.png")
        chosen, evaluation = folder.load_best(), None
        if chosen is not None and end != "interrupted":
            setup.policy.set_parameters(chosen.parameters)
            with suppress(EvaluationStopped), slow_steps_reported(print, config.slow_step_seconds):
                evaluation = evaluate(
                    stop_when(lambda: stop.received, setup.policy.act_greedily),
                    config.environment,
                    setup.seeds.final,  # seeds that were not used to select the policy
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
    """Return a sentence on how to resume a run that ended early."""
    checkpoints = complete_checkpoints(run)
    if not checkpoints:
        return f"{run} has no checkpoint yet and can't be resumed; its log files are kept in that folder."
    return f"The newest checkpoint is {checkpoints[-1][1]}. To resume: python -m replay_tutorial resume {run}"
