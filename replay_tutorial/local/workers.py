"""What each process of a run does: its role's work, and around it what every process needs.

A process is quiet at Ctrl-C, fails aloud, and never outlives its parent. The parent learns of a failure
through the process's pipe, and of a sudden death by the end of that pipe, or by asking whether the process
lives. The system signals a parent's death, however that came, by `parent_process().sentinel`.
"""

import contextlib
import errno
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
import torch

from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.context import POLL_SECONDS, Context
from replay_tutorial.apex.evaluator import Candidate, Evaluator, evaluate_policies
from replay_tutorial.apex.learner import learn, make_learner
from replay_tutorial.apex.messages import Failure
from replay_tutorial.apex.runs.checkpoint import load_checkpoint, save_checkpoint
from replay_tutorial.apex.runs.files import DamagedFile
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.apex.runs.signals import stop_signals

DISK_IS_FULL = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
)  # no mistake of a program: nobody needs its traceback
NICENESS = 10  # of the system's `nice`: where a core is short, all others get nine times the share


def act(context: Context, number: int, seed: np.random.SeedSequence) -> None:
    """Do an actor's work."""
    Actor(context, number, seed).run()


def learn_and_save(context: Context, seed: int, folder: Path, checkpoint: Path | None) -> None:
    """Do the learner's work, from a checkpoint on if there is one."""
    read = None if checkpoint is None else load_checkpoint(checkpoint, rows=False)
    learner = make_learner(context, seed, read)
    learn(learner, partial(save_checkpoint, folder, context, learner.agent))


def evaluate(
    context: Context, folder: RunFolder, solved_at: float | None, best: Candidate | None, update: int
) -> None:
    """Do the evaluator's work; learner and actors don't wait for it."""
    lower_priority()
    evaluator = Evaluator(context, folder.save_policy, solved_at, best, update)
    threading.Thread(target=exit_when_stopped, args=(context,), daemon=True).start()
    evaluate_policies(evaluator)


def run_worker(messages: Connection, context: Context, work: Callable[..., None], *arguments: object) -> None:
    """Do the work of a process of its own, to its end or its failure.

    Args:
        messages: The way to the parent.
        context: Of the run.
        work: `act`, `learn_and_save` or `evaluate`; returns when the run is over.
        *arguments: What it takes beside the context.
    """
    # Ctrl-C and the like reach every process; the parent gets them, too, and asks us to stop.
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # By default torch takes a thread per core in each process: they would be in each other's way.
    torch.set_num_threads(context.config.threads)
    try:
        work(replace(context, send_message=messages.send), *arguments)
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must learn of it
        full = isinstance(error, OSError) and error.errno in DISK_IS_FULL
        damaged = isinstance(error, DamagedFile)
        told = f"{error}" if full or damaged else f"\n\n{traceback.format_exc()}"
        with contextlib.suppress(ConnectionError):  # the parent is gone
            messages.send(Failure(told, resumable=not damaged))
        sys.exit(1)


def lower_priority() -> None:
    """Let the other processes go first where there are fewer cores than processes; not on Windows."""
    if sys.platform != "win32":
        os.nice(NICENESS)


def exit_with_parent() -> None:
    """Wait for the parent's end, then end this process at once, whatever it is waiting for."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def exit_when_stopped(context: Context) -> None:
    """End this process as soon as nobody wants its evaluation any more, even in the middle of an episode."""
    while not context.stop.requested:
        time.sleep(POLL_SECONDS)
    if not context.stop.last_evaluation:
        os._exit(0)
