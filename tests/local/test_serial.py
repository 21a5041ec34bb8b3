"""Runs in one process: the same seed makes the same run, and a resumed run is as if it had never stopped."""

import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import small_environments
import torch
from run_parts import context_of, rewrite_rows
from run_parts import records as all_columns

from replay_tutorial.__main__ import main
from replay_tutorial.agents.environments import EnvironmentFailed
from replay_tutorial.agents.evaluation import Evaluation, evaluate
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.checkpoint import complete_checkpoints, load_checkpoint
from replay_tutorial.apex.runs.files import DamagedFile
from replay_tutorial.apex.runs.recorder import TIME_COLUMNS, Recorder
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.apex.runs.setup import NothingToDo

SHORT = {
    "actors": 0,
    "total_steps": 1_400,
    "hidden_sizes": (16,),
    "capacity": 700,  # so that the ring goes round
    "replay_start": 300,
    "batch_size": 16,
    "publish_interval": 7,  # so that a checkpoint's parameters differ from the published ones
    "evaluation_interval": 40,
    "evaluation_episodes": 3,
    "confirmation_episodes": 2,
    "final_episodes": 3,
    "record_interval": 10,
    "progress": False,
}


def short(tmp_path, environment="CartPole-v1", **changes):
    return replace(preset(environment), runs=tmp_path, **(SHORT | changes))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nothing stopped."""
    return train(short(tmp_path_factory.mktemp("straight")))


posix_only = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def records(path):
    """The lines of a CSV file except the columns of times."""
    return [{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in all_columns(path)]


def bits(state):
    """All numbers in a state, in order."""
    if isinstance(state, dict):
        return [number for key in state for number in bits(state[key])]
    if isinstance(state, list | tuple):
        return [number for part in state for number in bits(part)]
    if isinstance(state, torch.Tensor):
        return [state.numpy().tobytes()]
    if isinstance(state, np.ndarray) and state.dtype.names:
        return [state[name].tobytes() for name in state.dtype.names]  # NumPy reads junk between them
    return [state.tobytes() if isinstance(state, np.ndarray) else state]


def assert_same(one, other):
    """Two runs left the same behind: records, the best policy, and the last checkpoint."""
    for name in ("progress.csv", "evaluations.csv"):
        assert len(records(one / name)) > 5
        assert records(one / name) == records(other / name), name
    for load in (lambda run: torch.load(run / "policy.pt", weights_only=True), last_state):
        assert bits(load(one)) == bits(load(other))
    assert bits(last_replay(one)) == bits(last_replay(other))
    actors = [(complete_checkpoints(run)[-1][1] / "actor.npz").read_bytes() for run in (one, other)]
    assert actors[0] == actors[1]


def assert_resumed_as(straight, stopped):
    """Resume a run: it ends as the one that nothing stopped."""
    resumed = resume(stopped, progress=False)
    assert (resumed.end, resumed.steps, resumed.updates) == ("budget spent", straight.steps, straight.updates)
    assert resumed.evaluation.returns.tolist() == straight.evaluation.returns.tolist()
    assert_same(straight.folder, stopped)


def last_replay(run):
    """All rows of the last checkpoint, and how it goes on drawing."""
    config = RunFolder.open(run).config()
    buffer = context_of(config).replay.buffer
    buffer.load(complete_checkpoints(run)[-1][1] / "replay.npz")
    assert len(buffer) == config.capacity
    return [buffer[:], buffer.sample(64), buffer.next_index]


def last_state(run):
    checkpoint = load_checkpoint(complete_checkpoints(run)[-1][1])
    assert len(bits(checkpoint.agent)) > 20
    assert len(bits(checkpoint.serial)) > 10
    return list(checkpoint[1:])  # all but its path


def test_same_seed_makes_the_same_run_and_another_one_another(tmp_path):
    runs = [train(short(tmp_path, seed=seed)) for seed in (3, 3, 4)]
    assert_same(runs[0].folder, runs[1].folder)
    assert runs[0].evaluation.returns.tolist() == runs[1].evaluation.returns.tolist()
    assert records(runs[0].folder / "progress.csv") != records(runs[2].folder / "progress.csv")


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1"])
def test_resumed_run_is_as_if_it_had_never_stopped(tmp_path, environment):
    straight = train(short(tmp_path, environment, checkpoint_steps=300))
    stopped = train(short(tmp_path, environment, total_steps=1_000))
    assert 1_000 <= stopped.steps < 1_100
    (stopped.folder / ".policy.pt.unfinished").touch()  # as a killed process leaves it
    resumed = resume(stopped.folder, total_steps=1_400, progress=False)
    assert resumed.folder == stopped.folder
    assert resumed.steps == straight.steps
    assert_same(straight.folder, resumed.folder)
    assert not list(resumed.folder.rglob(".*"))
    assert resumed.evaluation.returns.tolist() == straight.evaluation.returns.tolist()


PICTURES = {
    "capacity": 100,
    "replay_start": 50,
    "batch_size": 4,
    "evaluation_interval": 15,
    "record_interval": 3,
    "publish_interval": 3,
    "checkpoint_steps": 60,
    "hidden_sizes": (8,),
    "threads": 1,
}


def test_run_on_pictures_resumed_four_times_is_as_if_it_had_never_stopped(tmp_path):
    """Each time it saves the frames that it has loaded."""
    straight = train(short(tmp_path, "small_environments:Film-v0", total_steps=300, **PICTURES))
    run = train(short(tmp_path, "small_environments:Film-v0", total_steps=100, **PICTURES))
    for steps in (150, 200, 250, 300):
        run = resume(run.folder, total_steps=steps, progress=False)
    assert_same(straight.folder, run.folder)


def after_record(monkeypatch, act):
    """Do something with each message that has been recorded."""
    record = Recorder.record

    def record_and_act(recorder, message):
        record(recorder, message)
        act(message)

    monkeypatch.setattr(Recorder, "record", record_and_act)


@posix_only
def test_interrupted_run_is_resumed_as_if_it_had_never_stopped(tmp_path, straight, monkeypatch, capsys):
    after_record(monkeypatch, lambda message: message.update == 50 and signal.raise_signal(signal.SIGINT))
    stopped = train(short(tmp_path))
    assert stopped.end == "interrupted"
    assert stopped.evaluation is None
    assert "press Ctrl-C again to stop immediately" in capsys.readouterr().out
    monkeypatch.undo()
    assert_resumed_as(straight, stopped.folder)


@posix_only
@pytest.mark.parametrize("evaluation", [1, 2, -1])
def test_run_interrupted_during_an_evaluation_is_resumed_as_if_it_had_never_stopped(
    tmp_path, straight, monkeypatch, evaluation
):
    played = len(evaluations := records(straight.folder / "evaluations.csv"))
    played += sum(row["confirmation"] != "" for row in evaluations)
    interrupted, begun, steps = evaluation % (played + 1), [], []

    def evaluate_and_interrupt(act, *others):
        begun.append(None)

        def step(observations):
            if len(begun) == interrupted:
                steps.append(None)
                if len(steps) == 2:
                    signal.raise_signal(signal.SIGINT)
            return act(observations)

        return evaluate(step, *others)

    monkeypatch.setattr("replay_tutorial.apex.evaluator.evaluate", evaluate_and_interrupt)
    stopped = train(short(tmp_path))
    assert (stopped.end, stopped.evaluation, len(steps)) == ("interrupted", None, 2)
    assert len(begun) == interrupted
    assert_resumed_as(straight, stopped.folder)


@posix_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_final_evaluation_leaves_a_run_that_can_be_evaluated(
    tmp_path, monkeypatch, capsys, number
):
    def interrupted(*arguments):
        assert [signal.getsignal(caught) for caught in (signal.SIGINT, signal.SIGTERM)] != before
        signal.raise_signal(number)
        return evaluate(*arguments)

    before = [signal.getsignal(caught) for caught in (signal.SIGINT, signal.SIGTERM)]
    monkeypatch.setattr("replay_tutorial.apex.runs.run.evaluate", interrupted)
    flags = ["--actors", "0", "--total-steps", "400", "--hidden-sizes", "16", "--replay-start", "300"]
    status = main(["train", "CartPole-v1", *flags, "--runs", str(tmp_path), "--no-progress"])
    (folder,) = tmp_path.iterdir()
    told = capsys.readouterr().out
    assert status == 130
    assert "budget spent after" in told
    assert told.endswith(f"python -m replay_tutorial evaluate {folder}\n")
    assert (folder / "learning_curve.png").exists()
    assert not (folder / "evaluation.json").exists()
    assert main(["evaluate", str(folder), "--episodes", "2"]) == 0


@pytest.mark.parametrize("fault", ["NanObservation", "LargeReward", "Exit", "ExitAtReset", "Exiting"])
def test_faulty_environment_ends_the_command_with_its_name_and_a_nonzero_status(tmp_path, fault):
    name = f"small_environments:{fault}-v0"
    with pytest.raises(SystemExit) as end:
        main(["train", name, "--actors", "0", "--runs", str(tmp_path), "--no-progress"])
    assert end.value.code.startswith("train: "), "a text, hence status 1"
    assert name in end.value.code
    if fault != "Exiting":
        assert "(environment 0)" in end.value.code
        assert "has no checkpoint yet" in end.value.code


def test_environment_that_fails_in_the_final_evaluation_is_named_and_the_run_can_be_resumed(
    tmp_path, monkeypatch
):
    def fail(*_):
        raise EnvironmentFailed("step 3")

    monkeypatch.setattr("replay_tutorial.apex.runs.run.evaluate", fail)
    with pytest.raises(EnvironmentFailed, match=r"step 3\nThe newest checkpoint is .*To resume: "):
        train(short(tmp_path, total_steps=310))


def test_environment_that_hangs_is_named_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    told = (
        "step 2 of an episode of small_environments:Hang-v0 (environment 0) has taken 0.1 s so far and may "
        "hang; still waiting for it"
    )

    def print_and_end_the_hang(recorder, line):
        print_line(recorder, line)
        if line == told:
            small_environments.hang_ends.set()

    print_line = Recorder.print_line
    monkeypatch.setattr(Recorder, "print_line", print_and_end_the_hang)
    small_environments.hang_ends.clear()
    settings = {"total_steps": 310, "environments_per_actor": 1, "slow_step_seconds": 0.1}
    result = train(short(tmp_path, "small_environments:Hang-v0", **settings))
    assert result.end == "budget spent"
    assert told in capsys.readouterr().out.splitlines()
    assert small_environments.hang_ends.is_set()


def test_environment_without_a_time_limit_is_mentioned_at_the_start(tmp_path, capsys):
    changes = {"total_steps": 310, "evaluation_step_limit": 30}
    train(short(tmp_path, "small_environments:Endless-v0", **changes))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "time limit" in line]
    assert line.startswith(
        "small_environments:Endless-v0 has no time limit; evaluated episodes are truncated after 30 ste"
    )
    train(short(tmp_path, total_steps=310))
    assert "time limit" not in capsys.readouterr().out


def test_run_that_crashed_goes_on_from_its_last_checkpoint(tmp_path, straight, monkeypatch):
    def crash(message):
        if message.step > 1_200:
            raise MemoryError("crash")

    after_record(monkeypatch, crash)
    with pytest.raises(MemoryError):
        train(short(tmp_path, checkpoint_steps=500))
    monkeypatch.undo()
    (crashed,) = tmp_path.iterdir()
    assert [path.name.split("_")[0] for _, path in complete_checkpoints(crashed)] == ["0001", "0002"]
    assert_resumed_as(straight, crashed)


def assert_learned_from_new_rows(stopped, resumed):
    """300 are collected before the first update; from then on each is sampled 4 times, by 16 a batch."""
    owed = (resumed.steps - stopped.steps - 300) * 4.0 - (resumed.updates - stopped.updates) * 16
    assert 0 <= owed < 16


def test_run_is_resumed_without_the_rows_of_its_replay(tmp_path):
    stopped = train(short(tmp_path, total_steps=1_000, checkpoint_replay=False))
    runs = []
    for name in ("one", "other"):
        shutil.copytree(stopped.folder, tmp_path / name)
        runs.append(resume(tmp_path / name, total_steps=1_400, progress=False))
    assert_learned_from_new_rows(stopped, runs[0])
    assert records(runs[0].folder / "progress.csv") == records(runs[1].folder / "progress.csv")


def test_run_whose_checkpoint_holds_no_row_fills_its_replay_anew(tmp_path, capsys):
    """As of a replay so small that its actors replaced every row while the file was written."""
    stopped = train(short(tmp_path, total_steps=1_000))
    checkpoint = complete_checkpoints(stopped.folder)[-1][1]

    def without_rows(name, part):
        return part[:128] + b"\xff" * (len(part) - 128) if name == "indexes.npy" else part  # NO_INDEX, -1

    rewrite_rows(checkpoint, without_rows)
    capsys.readouterr()
    result = resume(stopped.folder, total_steps=1_400, progress=False)
    told = f"{checkpoint / 'replay.npz'} contains no rows: the replay buffer starts empty.\n"
    assert told in capsys.readouterr().out
    assert_learned_from_new_rows(stopped, result)
    again = resume(result.folder, total_steps=1_900, progress=False)
    owed = (again.steps - result.steps) * 4.0 - (again.updates - result.updates) * 16
    assert abs(owed) < 16, "the rows that were lost are not sampled after another resume"


def contents(folder):
    """All files of a folder, byte by byte."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_spent_budget_is_refused_and_nothing_is_changed(tmp_path):
    run = train(short(tmp_path, total_steps=400))
    before = contents(run.folder)
    # The last look, after the checkpoint, has chosen this policy: the checkpoint knows nothing of it.
    assert not (complete_checkpoints(run.folder)[-1][1] / "policy.pt").exists()
    assert run.folder / "policy.pt" in before
    with pytest.raises(NothingToDo, match="--total-steps"):
        resume(run.folder, progress=False)
    assert contents(run.folder) == before


def test_run_that_was_killed_after_its_last_checkpoint_is_finished_by_its_evaluation(
    tmp_path, straight, monkeypatch
):
    def killed(*_):
        raise MemoryError("killed")

    monkeypatch.setattr("replay_tutorial.apex.runs.run.evaluate", killed)
    with pytest.raises(MemoryError):
        train(short(tmp_path))
    monkeypatch.undo()
    (stopped,) = tmp_path.iterdir()
    assert_resumed_as(straight, stopped)


def test_run_killed_in_the_final_evaluation_after_a_resume_is_finished_by_its_evaluation(
    tmp_path, monkeypatch
):
    """Its folder holds the final evaluation of the time before."""

    def killed(*_):
        raise MemoryError("killed")

    run = train(short(tmp_path, total_steps=600)).folder
    poor = Evaluation(np.full(2, -1.0))  # no policy is better than the best one so far
    monkeypatch.setattr("replay_tutorial.apex.evaluator.evaluate", lambda *_: poor)
    for budget in (800, 1_000):
        with monkeypatch.context() as final, pytest.raises(MemoryError):
            final.setattr("replay_tutorial.apex.runs.run.evaluate", killed)
            resume(run, budget, progress=False)
        assert not (run / "evaluation.json").exists()
        resumed = resume(run, progress=False)
        assert budget <= resumed.steps < budget + 50
        assert len(resumed.evaluation.returns) == 3
        with pytest.raises(NothingToDo, match="--total-steps"):
            resume(run, progress=False)


def test_run_with_damaged_records_is_not_resumed_and_stays_as_it_is(tmp_path):
    run = train(short(tmp_path, total_steps=1_000)).folder
    for name in ("progress.csv", "evaluations.csv"):
        whole = (run / name).read_bytes()
        for junk in (b"junk\n", b"\x80\xff", whole + b"1,2\n", whole + b"\0" * 100):
            (run / name).write_bytes(junk)
            before = contents(run)
            remedy = rf"^.*{name} .* or remove it: `resume` then starts a new one\.$"
            with pytest.raises(DamagedFile, match=remedy):
                resume(run, total_steps=1_100, progress=False)
            assert contents(run) == before
        (run / name).write_bytes(whole)
    (run / "progress.csv").unlink()
    assert resume(run, total_steps=1_100, progress=False).end == "budget spent"


def test_resume_says_where_it_goes_on_and_that_a_newer_checkpoint_is_damaged(tmp_path, capsys):
    run = train(short(tmp_path, total_steps=1_000, checkpoint_steps=400))
    older, newer = (path for _, path in complete_checkpoints(run.folder))
    (newer / "agent.pt").write_bytes(b"junk")
    resume(run.folder, total_steps=1_100, progress=False)
    told = capsys.readouterr().out
    assert f"resuming from {older}" in told
    assert f"{newer} can't be read" in told


def test_solved_run_goes_on_only_with_a_higher_target(tmp_path):
    run = train(short(tmp_path, solved_at=1.0))
    assert run.end == "solved"
    before = contents(run.folder)
    for budget in (None, 10**6):
        with pytest.raises(NothingToDo, match=r"is solved.*exceeds 1 .*--solved-at"):
            resume(run.folder, budget, progress=False)
    assert contents(run.folder) == before
    resumed = resume(run.folder, run.steps + 200, progress=False, solved_at=float("inf"))
    assert resumed.end == "budget spent"
    assert RunFolder.open(run.folder).config().solved_at == float("inf")


def test_run_that_would_end_before_its_first_update_is_refused(tmp_path):
    for budget in (299, 303):
        reason = r"first update is made after 304.*--total-steps.*--replay-start"
        with pytest.raises(NothingToDo, match=reason):
            train(short(tmp_path, total_steps=budget))
    assert not list(tmp_path.iterdir())
    assert train(short(tmp_path, total_steps=304)).updates > 0, "the shortest run that is not refused"


def test_resumed_run_that_would_end_before_its_first_new_row_is_sampled_is_refused(tmp_path):
    stopped = train(short(tmp_path, total_steps=1_000, checkpoint_replay=False))
    before = (stopped.folder / "config.json").read_bytes()
    with pytest.raises(NothingToDo, match="would not learn anything"):
        resume(stopped.folder, total_steps=1_200, progress=False)
    assert (stopped.folder / "config.json").read_bytes() == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the full disk that Linux has")
def test_disk_that_is_full_ends_the_run_with_the_file_and_how_to_go_on(tmp_path, monkeypatch):
    create = RunFolder.create

    def on_a_full_disk(config):
        folder = create(config)
        (folder.path / ".policy.pt.unfinished").symlink_to("/dev/full")
        return folder

    monkeypatch.setattr(RunFolder, "create", on_a_full_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*policy\.pt'") as error:
        train(short(tmp_path))
    (run,) = tmp_path.iterdir()
    assert error.value.__notes__ == [
        f"{run} has no checkpoint yet and can't be resumed; its log files are kept in that folder."
    ]
    assert not [path.name for path in run.rglob("*") if "unfinished" in path.name or ".part" in path.name]
