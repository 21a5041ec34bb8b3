"""A run in one process: the same parts, taking turns in a fixed order, so that the same seed makes the same run.

Nothing here depends on time. The actor plays a few steps; the learner makes the updates that these rows are owed; the
evaluator looks whether a policy is due. A checkpoint holds all three, with the episodes that are open, so a run that is
resumed goes on bit for bit as if it had never stopped. To find a fault in a run, this is the place.
"""

from typing import Any

import torch

from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.batch_source import draw
from replay_tutorial.apex.evaluator import Evaluator
from replay_tutorial.apex.learner import Learner, make_learner
from replay_tutorial.apex.runs.checkpoint import save_checkpoint
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest


def run_serial(setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
    """Run until it is solved, its budget is spent, or somebody asks it to stop."""
    common, config, checkpoint = setup.common, setup.common.config, setup.checkpoint
    learner = make_learner(common, setup.seeds.network, checkpoint, recorder.hear)
    actor = Actor(common, 0, setup.seeds.actor(0, 0, 0), recorder.hear)
    evaluator = Evaluator(
        common, setup.folder, setup.solved_at, setup.best, setup.evaluated_update, recorder.hear
    )
    if checkpoint is not None and checkpoint.serial is not None:
        actor.restore(actor_state(checkpoint.serial))
        recorder.restore(checkpoint.serial["recorder"])
        torch.set_rng_state(checkpoint.random)  # last: building the parts has drawn from it

    def save() -> None:
        parts = serial_state(actor, evaluator, recorder)
        recorder.hear(save_checkpoint(setup.folder.path, common, learner.agent, parts))

    end: End = "interrupted"
    next_checkpoint = (common.steps // config.checkpoint_steps + 1) * config.checkpoint_steps
    while not stop.received:
        take_turns(actor, learner, evaluator)
        recorder.show(common.steps)
        if evaluator.chooser.solved:
            end = "solved"
            break
        if common.steps >= config.total_steps:
            end = "budget spent"
            break
        if common.steps >= next_checkpoint:
            save()
            next_checkpoint += config.checkpoint_steps
    save()
    if end == "budget spent":
        evaluator.look(
            last=True
        )  # after the checkpoint: a run with a greater budget would not have looked here
    return end


def take_turns(actor: Actor, learner: Learner, evaluator: Evaluator) -> None:
    """Play some steps, then make the updates that are due, and judge the policies that are due."""
    actor.play_and_send()
    while learner.is_due:
        sample = draw(learner.common, timeout=0.0)
        assert sample is not None
        learner.update(sample)
        evaluator.look()


def serial_state(actor: Actor, evaluator: Evaluator, recorder: Recorder) -> dict[str, Any]:
    """Return what a checkpoint has to hold of the parts beside the learner: JSON, and "arrays"."""
    state = actor.state()
    arrays = {"observations": state.pop("observations")}
    for name in ("actions", "windows"):
        arrays |= {f"{name}_{number}": part for number, part in enumerate(state.pop(name))}
    return {
        "actor": state,
        "judged": evaluator.evaluated_update,
        "recorder": recorder.state(),
        "arrays": arrays,
    }


def actor_state(serial: dict[str, Any]) -> dict[str, Any]:
    """Return the actor's part of `serial_state`."""
    arrays, state = serial["arrays"], serial["actor"]
    count = range(len(state["seeds"]))
    parts = {name: [arrays[f"{name}_{number}"] for number in count] for name in ("actions", "windows")}
    return {**state, **parts, "observations": arrays["observations"]}
