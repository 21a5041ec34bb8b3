"""A run in one process, with actor, learner and evaluator taking turns in a fixed order.

Nothing depends on time, so the same seed reproduces the run exactly: the actor plays a few steps, the learner
makes the updates that have become due, and the evaluator checks whether an evaluation is due. A checkpoint
holds the state of all three, including unfinished episodes, so that a resumed run is bit-identical to an
uninterrupted one. Use it for debugging.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from replay_tutorial.agents.evaluation import EvaluationStopped
from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.evaluator import Evaluator
from replay_tutorial.apex.learner import Learner, make_learner
from replay_tutorial.apex.runs.checkpoint import save_checkpoint
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import ENDING, StopRequest


def run_serial(setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
    """Run until the environment is solved, `total_steps` is reached, or a stop is requested."""
    context, checkpoint, folder = setup.context, setup.checkpoint, setup.folder
    context = replace(context, send_message=recorder.receive)
    config, counters = context.config, context.counters
    learner = make_learner(context, setup.seeds.network, checkpoint)
    actor = Actor(context, 0, setup.seeds.actor(0, 0, 0))
    evaluator = Evaluator(
        context,
        folder.save_policy,
        setup.solved_at,
        setup.best,
        setup.evaluated_update,
        lambda: stop.received,
    )
    if checkpoint is not None and checkpoint.serial is not None:
        actor.restore(actor_state(checkpoint.serial))
        recorder.restore(checkpoint.serial["recorder"])
        torch.set_rng_state(checkpoint.random)  # last, because constructing the roles draws random numbers

    def save() -> None:
        parts = serial_state(actor, evaluator, recorder)
        context.send_message(save_checkpoint(folder.path, context, learner.agent, parts))

    end: End = "interrupted"
    next_checkpoint = (counters.steps // config.checkpoint_steps + 1) * config.checkpoint_steps
    with suppress(EvaluationStopped):
        finish_turn(learner, evaluator)  # if the run was stopped during an evaluation
        while not stop.received:
            if evaluator.solved:
                end = "solved"
                break
            if counters.steps >= config.total_steps:
                end = "budget spent"
                break
            if counters.steps >= next_checkpoint:
                save()
                next_checkpoint += config.checkpoint_steps
            actor.play_and_send()
            finish_turn(learner, evaluator)
            recorder.update_progress(counters.steps)
    if end == "interrupted":
        recorder.print_line(ENDING)
    save()
    if end == "budget spent":
        try:  # after the checkpoint, because a run with more total steps would not evaluate here
            evaluator.evaluate_if_due(last=True)
        except EvaluationStopped:
            end = "interrupted"
    return end


def finish_turn(learner: Learner, evaluator: Evaluator) -> None:
    """Make all updates and evaluations that are due; the next call repeats an evaluation that was stopped."""
    context, config = learner.context, learner.context.config
    evaluator.evaluate_if_due()
    while context.counters.is_update_due(config.batch_size):
        sample = context.replay.sample(config.batch_size, config.beta, timeout=0.0)
        assert sample is not None
        learner.update(sample)
        evaluator.evaluate_if_due()


def serial_state(actor: Actor, evaluator: Evaluator, recorder: Recorder) -> dict[str, Any]:
    """Return the state of actor, evaluator and recorder for a checkpoint: JSON, and the item "arrays"."""
    state = actor.state()
    arrays = {"observations": state.pop("observations")}
    for name in ("actions", "windows"):
        arrays |= {f"{name}_{number}": part for number, part in enumerate(state.pop(name))}
    return {
        "actor": state,
        "evaluated_update": evaluator.evaluated_update,
        "recorder": recorder.state(),
        "arrays": arrays,
    }


def actor_state(serial: dict[str, Any]) -> dict[str, Any]:
    """Return the actor's part of `serial_state`."""
    arrays, state = serial["arrays"], serial["actor"]
    count = range(len(state["seeds"]))
    actions, windows = ([arrays[f"{name}_{number}"] for number in count] for name in ("actions", "windows"))
    return {**state, "actions": actions, "windows": windows, "observations": arrays["observations"]}
