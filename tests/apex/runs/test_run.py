"""Whole runs with real processes: what they leave behind, and nothing else, however they end."""

import contextlib
import csv
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from replay_tutorial.apex import messages
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs import lives
from replay_tutorial.apex.runs.checkpoint import load_checkpoint, newest_checkpoint, whole_checkpoints
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.files import checksum_of
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.apex.runs.run_folder import RunInUse
from replay_tutorial.apex.runs.setup import NothingToDo
from replay_tutorial.apex.runs.signals import signals_deferred, stop_requests
from replay_tutorial.local import supervisor

SHORT = {
    "total_steps": 4_000,
    "hidden_sizes": (32,),
    "evaluation_interval": 50,
    "record_interval": 20,
    "confirmation_episodes": 10,
    "final_episodes": 20,
    "progress": False,
}
POLL_SECONDS = 180  # seconds that anything may take on a busy machine


def short(environment, tmp_path, **changes):
    return replace(preset(environment), runs=tmp_path, **(SHORT | changes))


def test_short_run_leaves_its_files_and_no_process(tmp_path):
    result = train(short("CartPole-v1", tmp_path))
    assert multiprocessing.active_children() == []
    assert result.end == "budget spent"
    assert 4_000 <= result.steps < 5_000  # the end is noticed after a few sends
    assert {path.name for path in result.folder.iterdir() if "tfevents" not in path.name} == {
        "checkpoints",
        "config.json",
        "evaluation.json",
        "evaluations.csv",
        "learning_curve.png",
        "policy.pt",
        "progress.csv",
        "run.lock",
    }
    assert list(result.folder.glob("events.out.tfevents.*"))
    assert (result.folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((result.folder / "evaluation.json").read_text())["mean"] == result.evaluation.mean
    assert len(result.evaluation.returns) == 20

    rows = records(result.folder / "progress.csv")
    updates = [int(row["update"]) for row in rows]
    assert updates == list(range(20, result.updates + 1, 20))
    for name in ("td_loss", "q_values", "replay_ratio", "priority_p50", "weight_p10", "row_age_p90", "SPS"):
        assert all(np.isfinite(float(row[name])) for row in rows), name
    assert all(5 < float(row["episodic_return"]) <= 500 for row in rows)
    assert all(0 <= float(row["parameters_age"]) < 1_000 for row in rows)
    assert all(float(row["restarts"]) == 0 for row in rows)

    evaluated = [int(row["update"]) for row in records(result.folder / "evaluations.csv")]
    assert evaluated == sorted(set(evaluated))
    # Each at least 50 updates after the last, except the look at the end.
    assert all(later - earlier >= 50 for earlier, later in pairwise(evaluated[:-1]))
    assert evaluated[-1] > result.updates - 25 - 1  # what had been published last

    accumulator = EventAccumulator(str(result.folder))
    accumulator.Reload()
    points = set(accumulator.Tags()["scalars"])
    assert {"charts/episodic_return", "charts/episodic_length", "charts/SPS"} <= points
    assert {"losses/td_loss", "losses/q_values", "evaluation/mean_return", "charts/restarts"} <= points


def records(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_samples_per_insert_are_kept(tmp_path):
    config = short("CartPole-v1", tmp_path, samples_per_insert=2.0, slack=200, replay_start=500)
    result = train(config)
    owed = (result.steps - config.replay_start) * 2.0 - result.updates * config.batch_size
    # The band's half width, and two sends that pass the limiter at the same time.
    assert abs(owed) <= 200 * 2.0 + config.batch_size + 2 * 60 * 2.0


def test_solved_run_stops_early(tmp_path):
    config = short("CartPole-v1", tmp_path, solved_at=1.0, total_steps=10**9)
    result = train(config)
    assert result.end == "solved"
    assert result.policy_step <= result.steps < 100_000
    with pytest.raises(NothingToDo, match="is solved"):
        resume(result.folder, progress=False)


posix_only = pytest.mark.skipif(os.name != "posix", reason="sessions and signals of POSIX")


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

    monkeypatch.setattr(lives, "FIRST_PAUSE_SECONDS", 0.01)
    return kill_at


@posix_only
def test_killed_actor_is_replaced_and_the_run_goes_on(tmp_path, kill):
    kill("actor 0", messages.Progress)
    result = train(short("CartPole-v1", tmp_path, actors=1))
    assert result.end == "budget spent"
    restarts = [float(row["restarts"]) for row in records(result.folder / "progress.csv")]
    assert sorted(set(restarts)) == [0, 1]
    assert multiprocessing.active_children() == []


@posix_only
def test_killed_learner_ends_the_run_which_is_resumed_from_its_checkpoint(tmp_path, kill, monkeypatch):
    kill("learner", messages.Saved)
    config = short("CartPole-v1", tmp_path, actors=1, checkpoint_seconds=0.5, total_steps=10**9)
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
    assert (result.end, len(result.evaluation.returns)) == ("budget spent", 20)
    assert budget <= result.steps < budget + 1_000
    # What was learned since is learned again: the limiter's and the learner's counters go on from the
    # checkpoint.
    owed = (result.steps - checkpoint.step) * 4.0 - (result.updates - checkpoint.update) * config.batch_size
    assert abs(owed) <= 2 * (500 * 4.0 + config.batch_size)
    for name in ("progress.csv", "evaluations.csv"):
        updates = [int(row["update"]) for row in records(folder / name)]
        assert updates == sorted(set(updates))
    assert newest_checkpoint(folder).update == result.updates
    assert json.loads((folder / "config.json").read_text())["resumed"][0]["step"] == checkpoint.step


def test_run_is_resumed_without_the_rows_of_its_replay(tmp_path):
    # Rows of old and rows of new steps must not be mixed up: 1,000 new ones are 4,000 samples, far outside of
    # the band.
    config = short("CartPole-v1", tmp_path, actors=1, checkpoint_replay=False)
    first = train(config)
    checkpoint = newest_checkpoint(first.folder)
    assert not checkpoint.has_replay
    assert not (checkpoint.path / "replay.npz").exists()
    result = resume(first.folder, total_steps=8_000, progress=False)
    assert result.end == "budget spent"
    owed = (result.steps - first.steps - 1_000) * 4.0 - (result.updates - first.updates) * config.batch_size
    assert abs(owed) <= 2 * (500 * 4.0 + config.batch_size)
    newer = [row for row in records(result.folder / "progress.csv") if int(row["update"]) > checkpoint.update]
    assert 0 < max(float(row["row_age_p90"]) for row in newer) <= result.steps - first.steps


def test_damaged_rows_give_way_before_a_process_starts_and_what_the_learner_refuses_is_one_line(
    tmp_path, capsys
):
    run = train(short("CartPole-v1", tmp_path, actors=1, checkpoint_seconds=0.05)).folder
    older, newer = (path for _, path in whole_checkpoints(run))
    raw = bytearray((newer / "replay.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (newer / "replay.npz").write_bytes(raw)
    capsys.readouterr()
    resume(run, total_steps=6_000, progress=False)
    told = capsys.readouterr().out
    assert f"{newer} can't be read: replay.npz has changed since it was written" in told
    assert f"going on from {older}\n" in told

    newest = newest_checkpoint(run).path
    with zipfile.ZipFile(newest / "replay.npz") as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(newest / "replay.npz", "w") as file:
        for name, part in parts.items():
            file.writestr(name, b"{}" if name == "state.json" else part)
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest["replay.npz"] = checksum_of(newest / "replay.npz")
    (newest / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ProcessDied) as died:
        resume(run, total_steps=10**6, progress=False)
    before = whole_checkpoints(run)[-2][1]
    advice = rf"To resume from {before.name}, rename that folder to {newest.name}.unusable; keep it.*"
    assert re.fullmatch(
        rf"learner failed: {re.escape(str(newest))} can't be used: .*{advice}", str(died.value)
    )
    newest.rename(newest.with_name(f"{newest.name}.unusable"))
    capsys.readouterr()
    resume(run, total_steps=7_000, progress=False)
    assert f"going on from {before}\n" in capsys.readouterr().out
    assert len(list(newest.with_name(f"{newest.name}.unusable").iterdir())) > 3, "it is kept"


@posix_only
def test_killed_evaluator_ends_the_run_but_the_learner_leaves_a_checkpoint(tmp_path, kill):
    kill("evaluator", messages.EvaluationReport)
    with pytest.raises(ProcessDied, match=r"evaluator was killed by SIGKILL(?s:.*)resume"):
        train(short("CartPole-v1", tmp_path, actors=1, total_steps=10**9))
    assert multiprocessing.active_children() == []
    (folder,) = tmp_path.iterdir()
    assert newest_checkpoint(folder).update >= 50


@posix_only
def test_actor_that_is_killed_too_often_in_a_row_ends_the_run_with_the_signal(tmp_path, monkeypatch):
    monkeypatch.setattr(lives, "FIRST_PAUSE_SECONDS", 0.01)
    config = short("small_environments:Dying-v0", tmp_path, actors=1, restart_limit=2)
    with pytest.raises(ProcessDied, match=r"actor 0 was killed by SIGKILL .*, 2 times in a row"):
        train(config)
    assert multiprocessing.active_children() == []


class Program:
    """The command line in a session of its own, so that nothing else is hit and nothing can hide."""

    def __init__(self, tmp_path, environment, *flags):
        paths = [str(ROOT / "tests"), str(ROOT)]
        command = [sys.executable, "-m", "replay_tutorial", "train", environment, "--runs", str(tmp_path)]
        self.process = subprocess.Popen(
            [*command, "--no-progress", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Leave nothing behind, also when a test fails."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def wait_for_updates(self, tmp_path):
        """Wait until the actors have played and the learner has learned."""
        deadline = time.monotonic() + POLL_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            curves = list(tmp_path.glob("*/progress.csv"))
            if curves and len(curves[0].read_text().splitlines()) > 1:
                return
            time.sleep(0.05)
        pytest.fail("no update was made")

    def roles(self):
        """The processes of the roles; only Linux shows them: a server in between has started them."""
        found, main = [], self.process.pid
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                _, parent, group, *_ = stat.read_text().rpartition(")")[2].split()
                if int(group) == main and main not in (int(stat.parent.name), int(parent)):
                    found.append(int(stat.parent.name))
        return found

    def is_gone(self):
        """Whether no process of the session is left after a while."""
        deadline = time.monotonic() + POLL_SECONDS
        while time.monotonic() < deadline:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False


@posix_only
def test_failing_actor_gives_a_nonzero_exit_status_and_its_traceback(tmp_path):
    with Program(tmp_path, "small_environments:Crashing-v0") as program:
        _, errors = program.process.communicate(timeout=POLL_SECONDS)
        assert program.process.returncode == 1
        assert errors.count("ArithmeticError: the pole is broken") == 1
        assert "leaked" not in errors
        assert program.is_gone()


@posix_only
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_first_signal_to_all_processes_ends_the_run_cleanly(tmp_path, name):
    with Program(tmp_path, "CartPole-v1", "--solved-at", "1000") as program:
        program.wait_for_updates(tmp_path)
        os.killpg(program.process.pid, getattr(signal, name))
        output, errors = program.process.communicate(timeout=POLL_SECONDS)
        assert program.process.returncode == 130
        assert errors == ""
        assert "ending, with a checkpoint; press Ctrl-C again to stop at once" in output
        assert "interrupted after" in output
        assert list(tmp_path.glob("*/learning_curve.png"))
        (checkpoint,) = tmp_path.glob("*/checkpoints/*")
        assert load_checkpoint(checkpoint).update > 0
        assert f"resume {checkpoint.parents[1]}" in output
        assert program.is_gone()


@posix_only
def test_second_signal_ends_the_run_at_once(tmp_path):
    with Program(tmp_path, "CartPole-v1", "--solved-at", "1000") as program:
        program.wait_for_updates(tmp_path)
        for role in program.roles():
            os.kill(role, signal.SIGSTOP)  # it can't end, and so neither can the run, but at once
        os.kill(program.process.pid, signal.SIGINT)
        while "press Ctrl-C again" not in program.process.stdout.readline():
            assert program.process.poll() is None  # two signals at once may come as one
        os.kill(program.process.pid, signal.SIGINT)
        _, errors = program.process.communicate(timeout=POLL_SECONDS)
        assert program.process.returncode == 130
        (folder,) = tmp_path.iterdir()
        assert errors.startswith("train: stopped at once\n")
        assert str(folder) in errors
        assert "Traceback" not in errors
        assert program.is_gone()


@posix_only
def test_killed_parent_takes_its_actors_along(tmp_path):
    with Program(tmp_path, "CartPole-v1", "--solved-at", "1000") as program:
        program.wait_for_updates(tmp_path)
        program.process.kill()
        program.process.wait(POLL_SECONDS)
        assert program.is_gone()


@posix_only
def test_running_run_is_not_resumed_until_it_is_killed(tmp_path):
    flags = ("--actors", "0", "--hidden-sizes", "16", "--checkpoint-steps", "500", "--solved-at", "1000")
    with Program(tmp_path, "CartPole-v1", *flags, "--final-episodes", "2") as program:
        deadline = time.monotonic() + POLL_SECONDS
        while not whole_checkpoints(next(tmp_path.iterdir(), tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)
        (folder,) = tmp_path.iterdir()
        with pytest.raises(RunInUse, match="another process"):
            resume(folder, progress=False)
        assert program.process.poll() is None
        program.process.kill()
        program.process.wait(POLL_SECONDS)
        step = newest_checkpoint(folder).step
        result = resume(folder, step + 100, progress=False)
        assert result.end == "budget spent"
        assert step + 100 <= result.steps < step + 200


@posix_only
def test_unknown_environment_is_refused_before_anything_is_made(tmp_path):
    with Program(tmp_path, "NoSuchThing-v0") as program:
        _, errors = program.process.communicate(timeout=POLL_SECONDS)
        assert program.process.returncode == 1
        assert "NoSuchThing" in errors
        assert "Traceback" not in errors
        assert list(tmp_path.iterdir()) == []


@posix_only
def test_ignored_hangup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with stop_requests() as request:
            signal.raise_signal(signal.SIGHUP)
            assert not request.received
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.skipif(sys.platform != "linux", reason="terminals of Linux")
def test_run_whose_terminal_is_closed_ends_with_a_checkpoint(tmp_path):
    flags = ("--actors", "0", "--hidden-sizes", "16", "--solved-at", "1000", "--runs", str(tmp_path))
    process, terminal = os.forkpty()
    if process == 0:
        os.environ["PYTHONPATH"] = str(ROOT)
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
    assert os.waitstatus_to_exitcode(status) == 130
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
