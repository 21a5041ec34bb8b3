"""Whole runs with real processes: what they leave behind, and nothing else, however they end."""

import json
import multiprocessing
import os
import re
import signal
import sys
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from places import ROOT
from run_parts import records, rewrite_rows, short
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from victim import Victim

from replay_tutorial.apex import messages
from replay_tutorial.apex.runs import restart_policy
from replay_tutorial.apex.runs.checkpoint import complete_checkpoints, load_checkpoint, newest_checkpoint
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.apex.runs.run_folder import RunInUse, lock_run
from replay_tutorial.apex.runs.setup import NothingToDo
from replay_tutorial.apex.runs.signals import signals_deferred, stop_requests
from replay_tutorial.local import local_engine, supervisor

POLL_SECONDS = 900  # seconds that anything may take on a busy machine
posix_only = pytest.mark.skipif(os.name != "posix", reason="sessions and signals of POSIX")


@pytest.fixture
def steps_at_stop(monkeypatch):
    """The steps that were counted just after the processes had been told to stop."""
    watch, counted = local_engine.watch, []

    def watch_and_count(setup, workers, recorder, stop):
        def stop_and_count(last_evaluation=False):
            supervisor.Supervisor.stop(workers, last_evaluation)
            counted.append(setup.context.counters.steps)

        monkeypatch.setattr(workers, "stop", stop_and_count)
        return watch(setup, workers, recorder, stop)

    monkeypatch.setattr(local_engine, "watch", watch_and_count)
    return counted


def test_short_run_leaves_its_files_and_no_process_and_keeps_the_ratio(tmp_path, steps_at_stop):
    config = short(tmp_path, samples_per_insert=3.0, slack=200, replay_start=500, solved_at=1e9)
    result = train(config)
    assert multiprocessing.active_children() == []
    assert result.end == "budget spent"
    # The parent may notice the budget late, but then each actor sends at most once more.
    assert 3_000 <= steps_at_stop[0] <= result.steps <= steps_at_stop[0] + config.actors * 60
    owed = (result.steps - config.replay_start) * 3.0 - result.updates * config.batch_size
    # The band's half width, and two sends that pass the limiter at the same time.
    assert abs(owed) <= 200 * 3.0 + config.batch_size + 2 * 60 * 3.0
    tables, others = {"progress.csv", "evaluations.csv"}, {"learning_curve.png", "policy.pt", "run.lock"}
    names = {"checkpoints", "config.json", "evaluation.json"} | tables | others
    assert {path.name for path in result.folder.iterdir() if "tfevents" not in path.name} == names
    assert (result.folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((result.folder / "evaluation.json").read_text())["mean"] == result.evaluation.mean
    assert len(result.evaluation.returns) == 10

    rows = records(result.folder / "progress.csv")
    updates = [int(row["update"]) for row in rows]
    assert updates == list(range(20, result.updates + 1, 20))
    for name in ("td_loss", "q_values", "replay_ratio", "priority_p50", "weight_p10", "row_age_p90", "SPS"):
        assert all(np.isfinite(float(row[name])) for row in rows), name
    played = [row for row in rows if row["episodic_return"]]  # a late parent reads these first
    assert all(5 < float(row["episodic_return"]) <= 500 for row in played)
    assert all(0 <= float(row["parameters_age"]) < 1_000 for row in played)
    assert all(float(row["restarts"]) == 0 for row in rows)

    evaluated = [int(row["update"]) for row in records(result.folder / "evaluations.csv")]
    assert evaluated == sorted(set(evaluated))
    # Each at least 50 updates after the last, except the look at the end.
    assert all(later - earlier >= 50 for earlier, later in pairwise(evaluated[:-1]))
    assert evaluated[-1] > result.updates - 25 - 1  # what had been published last

    points = set(EventAccumulator(str(result.folder)).Reload().Tags()["scalars"])
    assert ({"charts/episodic_return", "charts/episodic_length"} <= points) == bool(played)
    assert "charts/SPS" in points
    assert {"losses/td_loss", "losses/q_values", "evaluation/mean_return", "charts/restarts"} <= points


@pytest.fixture
def kill(monkeypatch):
    """Kill the process of a role as soon as the parent receives a message of some kind, once."""

    def kill_at(role, kind):
        receive, killed = supervisor.Supervisor.receive, []

        def receive_and_kill(self, timeout):
            received = receive(self, timeout)
            if not killed and any(isinstance(message, kind) for message in received):
                (worker,) = [worker for worker in self.workers if worker.role.name == role]
                killed.append(worker.process.pid)
                os.kill(worker.process.pid, signal.SIGKILL)
            return received

        monkeypatch.setattr(supervisor.Supervisor, "receive", receive_and_kill)

    monkeypatch.setattr(restart_policy, "FIRST_PAUSE_SECONDS", 0.01)
    return kill_at


@posix_only
def test_killed_actor_is_replaced_and_a_run_that_is_solved_stops_early(tmp_path, kill):
    kill("actor 0", messages.Progress)
    endless = {"total_steps": 10**9, "solved_at": 1.0, "evaluation_interval": 150}
    result = train(short(tmp_path, actors=1, **endless))
    assert multiprocessing.active_children() == []
    assert result.end == "solved"
    assert result.policy_step <= result.steps
    restarts = [float(row["restarts"]) for row in records(result.folder / "progress.csv")]
    assert sorted(set(restarts)) == [0, 1]
    with pytest.raises(NothingToDo, match="is solved"):
        resume(result.folder, progress=False)
    (result.folder / "evaluation.json").unlink()  # as if killed in its final evaluation
    resumed = resume(result.folder, progress=False)
    assert (resumed.end, resumed.updates) == ("solved", result.updates)
    assert resumed.evaluation.returns.tolist() == result.evaluation.returns.tolist()


@posix_only
def test_killed_learner_ends_the_run_which_is_resumed_until_the_learner_refuses_its_rows(
    tmp_path, kill, monkeypatch
):
    kill("learner", messages.Saved)
    config = short(tmp_path, actors=1, checkpoint_seconds=0.5, total_steps=10**9)
    with pytest.raises(ProcessDied, match=r"learner was killed by SIGKILL(?s:.*)resume") as error:
        train(replace(config, solved_at=1e9))
    assert multiprocessing.active_children() == []
    (folder,) = tmp_path.iterdir()
    checkpoint = newest_checkpoint(folder)
    assert str(checkpoint.path) in str(error.value)
    monkeypatch.undo()

    budget = checkpoint.step + 3_000
    result = resume(folder, budget, progress=False)
    assert result.folder == folder
    assert (result.end, len(result.evaluation.returns)) == ("budget spent", 10)
    assert result.steps >= budget
    # What was learned since is learned again: the limiter's and the learner's counters go on from the
    # checkpoint. On a slow machine, the first one is saved before learning starts.
    rows = result.steps - max(checkpoint.step, config.replay_start)
    owed = rows * 4.0 - (result.updates - checkpoint.update) * config.batch_size
    assert abs(owed) <= 2 * (500 * 4.0 + config.batch_size)
    for name in ("progress.csv", "evaluations.csv"):
        updates = [int(row["update"]) for row in records(folder / name)]
        assert updates == sorted(set(updates))
    assert newest_checkpoint(folder).update == result.updates
    assert json.loads((folder / "config.json").read_text())["resumed"][0]["step"] == checkpoint.step

    (_, before), (_, newest) = complete_checkpoints(folder)
    # What only the replay itself reads, checksums and all
    rewrite_rows(newest, lambda name, part: b"{}" if name == "state.json" else part)
    with pytest.raises(ProcessDied) as died:
        resume(folder, total_steps=10**6, progress=False)
    advice = (
        rf"To resume from {before.name}, rename that folder to {newest.name}.unusable\. Don't delete it.*"
    )
    refused = rf"learner failed: {re.escape(str(newest))} can't be used: .*{advice}"
    assert re.fullmatch(refused, str(died.value)), "one line"
    newest.rename(newest.with_name(f"{newest.name}.unusable"))
    assert newest_checkpoint(folder).path == before


@posix_only
@pytest.mark.long
def test_killed_evaluator_ends_the_run_but_the_learner_leaves_a_checkpoint(tmp_path, kill):
    kill("evaluator", messages.EvaluationReport)
    with pytest.raises(ProcessDied, match=r"evaluator was killed by SIGKILL(?s:.*)resume"):
        train(short(tmp_path, actors=1, total_steps=10**9))
    assert multiprocessing.active_children() == []
    (folder,) = tmp_path.iterdir()
    assert newest_checkpoint(folder).update >= 50


def train_in_a_session(tmp_path, environment, *flags):
    """The command line, whose processes must all be gone in the end."""
    runs = ("--runs", str(tmp_path / "runs"), "--no-progress", "--solved-at", "1000")
    return Victim(tmp_path, "train", environment, *runs, *flags)


def wait_for_file(program, pattern):
    """Wait until the run has left a file, and a record if it is a table."""

    def found():
        paths = program.printed.parent.glob(f"runs/*/{pattern}")
        return [path for path in paths if path.suffix != ".csv" or records(path)]

    assert program.wait_for(lambda: bool(found()), POLL_SECONDS), f"no {pattern}"
    return found()[0]


@posix_only
def test_failing_actor_gives_a_nonzero_exit_status_and_its_traceback(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"), prepend=os.pathsep)
    with train_in_a_session(tmp_path, "small_environments:Crashing-v0") as program:
        assert program.end(POLL_SECONDS) == 1
        errors = program.errors.read_text()
        assert errors.count("ArithmeticError: the pole is broken") == 1
        assert "leaked" not in errors
        assert program.left(POLL_SECONDS) == 0


@posix_only
def test_first_signal_to_all_processes_ends_the_run_cleanly(tmp_path):
    """SIGTERM here, and Ctrl-C where the commands of the page Start are tested."""
    with train_in_a_session(tmp_path, "CartPole-v1", "--actors", "1") as program:
        folder = wait_for_file(program, "progress.csv").parent
        program.signal_all(signal.SIGTERM)
        assert (program.end(POLL_SECONDS), program.errors.read_text()) == (130, "")
        output = program.printed.read_text()
        assert "writing a checkpoint, then stopping; press Ctrl-C again to stop immediately" in output
        assert "interrupted after" in output
        assert (folder / "learning_curve.png").exists()
        (checkpoint,) = folder.glob("checkpoints/*")
        assert load_checkpoint(checkpoint).update > 0
        assert f"resume {folder}" in output
        assert program.left(POLL_SECONDS) == 0


@posix_only
@pytest.mark.long
def test_second_signal_ends_the_run_at_once(tmp_path):
    with train_in_a_session(tmp_path, "CartPole-v1", "--actors", "1") as program:
        folder = wait_for_file(program, "progress.csv").parent
        for process, what in program.children():
            if what == "role":
                os.kill(process, signal.SIGSTOP)  # it can't end, and so neither can the run, but at once
        os.kill(program.process.pid, signal.SIGINT)
        # Two signals at once may come as one.
        assert program.wait_for(lambda: "press Ctrl-C again" in program.printed.read_text(), POLL_SECONDS)
        os.kill(program.process.pid, signal.SIGINT)
        assert program.end(POLL_SECONDS) == 130
        errors = program.errors.read_text()
        assert errors.startswith("train: stopped immediately\n")
        assert str(folder) in errors
        assert "Traceback" not in errors
        assert program.left(POLL_SECONDS) == 0


@posix_only
def test_running_run_is_not_resumed_and_a_killed_parent_takes_its_actors_along(tmp_path):
    flags = ("--actors", "1", "--checkpoint-seconds", "1")
    with train_in_a_session(tmp_path, "CartPole-v1", *flags) as program:
        folder = wait_for_file(program, "checkpoints/0*").parents[1]
        with pytest.raises(RunInUse, match="another process"):
            resume(folder, progress=False)
        assert program.process.poll() is None
        program.process.kill()
        program.process.wait(POLL_SECONDS)
        with lock_run(folder):  # at once, though the processes that it has started live on for a while
            pass
        assert program.left(POLL_SECONDS) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="terminals of Linux")
@pytest.mark.parametrize(
    "ignored", [False, pytest.param(True, marks=pytest.mark.long)], ids=["SIGHUP", "nohup"]
)
def test_run_whose_terminal_is_closed_ends_with_a_checkpoint(tmp_path, ignored):
    flags = ("--actors", "0", "--hidden-sizes", "16", "--solved-at", "1000", "--runs", str(tmp_path))
    if ignored:
        flags += ("--total-steps", "8000", "--final-episodes", "2")
    process, terminal = os.forkpty()
    if process == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)  # nohup's is inherited
        os.execv(sys.executable, [sys.executable, "-m", "replay_tutorial", "train", "CartPole-v1", *flags])
    try:
        deadline = time.monotonic() + POLL_SECONDS
        while time.monotonic() < deadline and not list(tmp_path.glob("*/policy.pt")):
            os.read(terminal, 1 << 16)
        os.close(terminal)
        _, status = os.waitpid(process, 0)
    except BaseException:
        os.kill(process, signal.SIGKILL)
        raise
    assert os.waitstatus_to_exitcode(status) == (0 if ignored else 130)
    (folder,) = tmp_path.iterdir()
    assert newest_checkpoint(folder).update > 0
    assert (folder / "learning_curve.png").exists()


def test_first_signal_is_a_request_and_the_second_an_exception():
    before = signal.getsignal(signal.SIGINT)
    with stop_requests() as request:
        assert not request.received
        signal.raise_signal(signal.SIGINT)
        assert request.received
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@posix_only
def test_a_signal_that_comes_while_processes_start_is_not_lost():
    with stop_requests() as stop:
        with signals_deferred():
            os.kill(os.getpid(), signal.SIGINT)  # another thread may take it at once
        assert stop.received
