"""The functions that the processes of a run execute.

A worker process ignores Ctrl-C, reports its exceptions to the parent, and never outlives the parent. If a
worker dies without a report, the parent notices that the worker's pipe is closed or that the worker is no
longer alive. A worker detects the death of its parent through `parent_process().sentinel`.
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
from multiprocessing import current_process, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
import torch

from replay_tutorial.agents.environments import EnvironmentFailed, slow_steps_reported
from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.context import POLL_SECONDS, Context
from replay_tutorial.apex.evaluator import Candidate, Evaluator, evaluate_policies
from replay_tutorial.apex.learner import learn, make_learner
from replay_tutorial.apex.messages import Failure, Message, Note
from replay_tutorial.apex.runs.checkpoint import load_checkpoint, save_checkpoint
from replay_tutorial.apex.runs.files import DamagedFile
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.apex.runs.signals import stop_signals

DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # not a bug, so reported without a traceback
NICENESS = 10  # nice value: on a busy core, other processes get about nine times the CPU time


def act(context: Context, number: int, seed: np.random.SeedSequence) -> None:
    """Run an actor."""
    Actor(context, number, seed).run()


def learn_and_save(context: Context, seed: int, folder: Path, checkpoint: Path | None) -> None:
    """Run the learner, from a checkpoint if there is one; save a checkpoint whenever one is due."""
    read = None if checkpoint is None else load_checkpoint(checkpoint, rows=False)
    learner = make_learner(context, seed, read)
    learn(learner, partial(save_checkpoint, folder, context, learner.agent))


def evaluate(
    context: Context, folder: RunFolder, solved_at: float | None, best: Candidate | None, update: int
) -> None:
    """Run the evaluator, at a lower priority than learner and actors."""
    lower_priority()
    evaluator = Evaluator(context, folder.save_policy, solved_at, best, update)
    threading.Thread(target=exit_when_stopped, args=(context,), daemon=True).start()
    evaluate_policies(evaluator)


def run_worker(messages: Connection, context: Context, work: Callable[..., None], *arguments: object) -> None:
    """Main function of a worker process: call `work`, and send a `Failure` to the parent if it raises.

    `work` is `act`, `learn_and_save` or `evaluate`, which return at the end of the run.
    """
    # The terminal sends Ctrl-C to every process; the parent handles it and requests a stop.
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    # By default, torch starts one thread per core in each process, which oversubscribes the cores.
    torch.set_num_threads(context.config.threads)
    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:  # messages of two threads could mix
            messages.send(message)

    def report_slow_step(line: str) -> None:
        with contextlib.suppress(ConnectionError):  # the parent has died
            send(Note(f"{current_process().name}: {line}"))

    try:
        with slow_steps_reported(report_slow_step, context.config.slow_step_seconds):
            work(replace(context, send_message=send), *arguments)
    except Exception as error:  # noqa: BLE001 - every exception is reported to the parent
        full = isinstance(error, OSError) and error.errno in DISK_IS_FULL
        damaged = isinstance(error, DamagedFile)
        is_explained = full or damaged or isinstance(error, EnvironmentFailed)
        text = f"{error}" if is_explained else f"\n\n{traceback.format_exc()}"
        with contextlib.suppress(ConnectionError):  # the parent has died
            send(Failure(text, resumable=not damaged))
        sys.exit(1)


def lower_priority() -> None:
    """Lower the scheduling priority of this process; has no effect on Windows."""
    if sys.platform != "win32":
        os.nice(NICENESS)


def exit_with_parent() -> None:
    """Wait until the parent process ends, then exit at once, even if the main thread is blocked."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def exit_when_stopped(context: Context) -> None:
    """Exit when a stop without a last evaluation is requested, even in the middle of an episode."""
    while not context.stop.requested:
        time.sleep(POLL_SECONDS)
    if not context.stop.last_evaluation:
        os._exit(0)
