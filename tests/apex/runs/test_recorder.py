"""Records: what is written, what is cut back at a resumption, and a full disk."""

import csv
import io
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console
from run_parts import records
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex.messages import Cluster, Episodes, EvaluationReport, Note, Progress, Saved
from replay_tutorial.apex.runs.event_file import EventFile
from replay_tutorial.apex.runs.recorder import Recorder, epsilon_curves, last_seconds, truncate_records


def test_checkpoint_that_is_not_there_is_told(tmp_path, capsys):
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        recorder.receive(Saved(100, None))
        recorder.receive(Saved(2000, "the disk is full"))
    assert capsys.readouterr().out == "could not write a checkpoint at step 2,000: the disk is full\n"


def test_record_joins_what_learner_and_actors_say(tmp_path):
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        recorder.receive(Episodes([10.0, 20.0], [1, 3], [0, 1], parameters_age=7))
        recorder.receive(Episodes([60.0], [5], [0], parameters_age=8))
        recorder.restarts = 2
        recorder.receive(Progress(100, 5, {"td_loss": 0.25, "q_values": -3.0, "row_age_p50": 12.0}))
    (row,) = records(tmp_path / "progress.csv")
    told = {"step": "100", "update": "5", "td_loss": "0.25", "q_values": "-3", "row_age_p50": "12"}
    means = {"episodic_return": "30", "episodic_length": "3", "parameters_age": "7.5", "restarts": "2"}
    assert row | told | means == row
    assert row["policy_loss"] == ""


def test_judgement_has_a_file_of_its_own(tmp_path, capsys):
    first, confirmation = Evaluation(np.array([1.0, 3.0])), Evaluation(np.array([5.0, 5.0, 8.0]))
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        recorder.receive(EvaluationReport(100, 5, first, confirmation, solved=False))
        recorder.receive(EvaluationReport(200, 9, first, None, solved=False))
        recorder.receive(EvaluationReport(300, 13, first, confirmation, solved=False, is_tie=True))
        recorder.receive(Note("by the way"))
    columns = ("update", "mean", "min", "max", "confirmation")
    told = [tuple(row[name] for name in columns) for row in records(tmp_path / "evaluations.csv")]
    assert told == [("5", "2", "1", "3", "6"), ("9", "2", "1", "3", ""), ("13", "2", "1", "3", "6")]
    said = capsys.readouterr().out
    assert said.count("best so far, mean 6.0") == 1
    assert "by the way" in said


def recorded(folder, *updates, first_step=0):
    """Record some updates, of ten steps each; return the file."""
    with Recorder(folder, 1_000, progress=False, first_step=first_step) as recorder:
        for update in updates:
            recorder.receive(Progress(update * 10, update, {}))
    return folder / "progress.csv"


def updates_in(path):
    return [row["update"] for row in records(path)]


def test_resumed_record_goes_on_where_it_was_cut(tmp_path):
    path = recorded(tmp_path, 10, 20, 30)
    assert truncate_records(path, 20) == 20
    assert truncate_records(tmp_path / "none.csv", 20) == 0
    seconds = last_seconds(path)
    with Recorder(tmp_path, 1_000, progress=False, first_step=200) as recorder:
        assert recorder.seconds >= seconds
        recorder.receive(Progress(250, 25, {}))
    assert updates_in(path) == ["10", "20", "25"]
    assert truncate_records(path, 5) == 0
    assert updates_in(path) == []


def test_record_goes_on_after_a_line_that_was_half_written(tmp_path):
    path = recorded(tmp_path, 10, 20)
    path.write_bytes(path.read_bytes()[:-9])
    assert last_seconds(path) >= 0
    assert truncate_records(path, 20) == 10
    recorded(tmp_path, 25, first_step=200)
    assert updates_in(path) == ["10", "25"]


def test_file_has_its_header_at_once_and_one_that_was_left_empty_gets_it(tmp_path):
    path = tmp_path / "progress.csv"
    path.touch()  # a run was killed before anything was written
    assert truncate_records(path, 20) == 0
    assert last_seconds(path) == 0
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        assert path.read_text().startswith("step,update,seconds,")  # though nothing has been recorded
        assert (tmp_path / "evaluations.csv").read_text().startswith("step,update,seconds,")
        assert truncate_records(tmp_path / "evaluations.csv", 20) == 0
        recorder.receive(Progress(10, 1, {}))
    (row,) = records(path)
    assert row["update"] == "1"


def test_first_rates_after_a_resumption_count_only_what_was_made_since(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("replay_tutorial.apex.runs.recorder.time", SimpleNamespace(monotonic=lambda: now[0]))
    with Recorder(tmp_path, 10**6, progress=False, first_step=200_000, first_update=9_000) as recorder:
        now[0] += 2.0
        recorder.receive(Progress(200_500, 9_030, {}))
    (row,) = records(tmp_path / "progress.csv")
    assert (row["SPS"], row["UPS"]) == ("250", "15")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the full disk that Linux has")
def test_full_disk_is_an_error_that_says_so(tmp_path):
    first, no_space = Evaluation(np.array([1.0, 3.0])), "No space left"
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        # Closing it writes what it holds.
        with pytest.raises(OSError, match=no_space), open("/dev/full", "a") as full:
            recorder.files.append(full)
            recorder.evaluations = csv.writer(full)
            with pytest.raises(OSError, match=no_space):
                recorder.receive(EvaluationReport(100, 5, first, None, solved=False))
        recorder.files.remove(full)
    (tmp_path / "evaluations.csv").unlink()
    (tmp_path / "evaluations.csv").symlink_to("/dev/full")
    with pytest.raises(OSError, match=no_space):  # not even a header
        Recorder(tmp_path, 1_000, progress=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the full disk that Linux has")
def test_events_that_do_not_fit_on_the_disk_are_told_with_their_file(tmp_path, monkeypatch):
    monkeypatch.setattr("replay_tutorial.apex.runs.event_file.time", SimpleNamespace(time=lambda: 7.0))
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    path = tmp_path / f"events.out.tfevents.7.here.{os.getpid()}"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"):
        EventFile(tmp_path)


def test_events_after_a_resumption_take_the_place_of_those_that_came_before_it(tmp_path):
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        for step in (100, 200):
            recorder.receive(Progress(step, step, {"td_loss": step / 100}))
    with Recorder(tmp_path, 1_000, progress=False, first_step=150) as recorder:
        recorder.receive(Progress(180, 180, {"td_loss": 9.0}))
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("losses/td_loss")
    assert [(event.step, event.value) for event in events] == [(100, 1.0), (180, 9.0)]


def curve(folder, epsilon):
    events = EventAccumulator(str(folder)).Reload().Scalars(f"returns_by_epsilon/{epsilon}")
    return [(event.step, event.value) for event in events]


def test_each_epsilon_has_a_curve_of_the_returns_since_the_last_record(tmp_path):
    with Recorder(tmp_path, 1_000, progress=False, exploration=[0.4, 0.016, 0.0007]) as recorder:
        recorder.receive(Episodes([10.0, 20.0, 40.0], [1, 1, 1], [0, 2, 2], parameters_age=7))
        recorder.receive(Episodes([60.0], [5], [2], parameters_age=8))
        recorder.receive(Progress(100, 5, {}))
        recorder.receive(Episodes([12.0], [1], [0], parameters_age=8))
        recorder.receive(Progress(200, 10, {}))
    assert curve(tmp_path, "0.4") == [(100, 10.0), (200, 12.0)]
    assert curve(tmp_path, "0.0007") == [(100, 40.0)]  # a record without an episode is no point
    scalars = EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"]
    assert "returns_by_epsilon/0.016" not in scalars  # no episode has ended
    assert "returns_by_epsilon" not in (tmp_path / "progress.csv").read_text()


def test_curves_of_hundreds_of_epsilons_are_eight_from_the_largest_to_the_smallest():
    exploration = [0.4 ** (1 + 7 * i / 255) for i in range(256)]
    curves = epsilon_curves(exploration)
    assert [*curves] == [0, 36, 73, 109, 146, 182, 219, 255]
    names = [name.removeprefix("returns_by_epsilon/") for name in curves.values()]
    for environment, name in zip(curves, names, strict=True):
        assert float(name) == pytest.approx(exploration[environment], rel=5e-3)
    assert sorted(names) == sorted(names, key=float) == names[::-1]
    assert list(epsilon_curves([0.5, 1e-9, 1e-10]).values())[1:] == [
        "returns_by_epsilon/0.000000001",
        "returns_by_epsilon/0.0000000001",
    ]


def test_environments_without_a_curve_count_only_in_the_mean_of_all(tmp_path):
    exploration = [0.4 ** (1 + 7 * i / 15) for i in range(16)]
    with Recorder(tmp_path, 1_000, progress=False, exploration=exploration) as recorder:
        recorder.receive(Episodes([8.0] * 16, [1] * 16, list(range(16)), parameters_age=0))
        recorder.receive(Progress(100, 5, {}))
    (row,) = records(tmp_path / "progress.csv")
    assert row["episodic_return"] == "8"
    scalars = EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"]
    assert sum(name.startswith("returns_by_epsilon/") for name in scalars) == 8


@pytest.mark.parametrize("exploration", [[0.4], [0.3, 0.3, 0.3]])
def test_environments_that_explore_equally_have_no_curves_beside_their_mean(tmp_path, exploration):
    with Recorder(tmp_path, 1_000, progress=False, exploration=exploration) as recorder:
        recorder.receive(Episodes([8.0], [1], [0], parameters_age=0))
        recorder.receive(Progress(100, 5, {}))
    tags = EventAccumulator(str(tmp_path)).Reload().Tags()
    assert "charts/episodic_return" in tags["scalars"]
    assert not [name for name in tags["scalars"] if name.startswith("returns_by_epsilon/")]
    assert tags["tensors"] == []  # no chart


def test_curves_continue_after_a_resumption_with_the_episodes_before_it(tmp_path):
    with Recorder(tmp_path, 1_000, progress=False, exploration=[0.4, 0.0007]) as recorder:
        recorder.receive(Episodes([10.0], [1], [1], parameters_age=7))
        recorder.receive(Progress(100, 5, {}))
        recorder.receive(Episodes([20.0], [1], [1], parameters_age=7))
        state = json.loads(json.dumps(recorder.state()))  # as in a checkpoint
        recorder.receive(Progress(200, 10, {}))
    with Recorder(tmp_path, 1_000, progress=False, first_step=150, exploration=[0.4, 0.0007]) as recorder:
        recorder.restore(state)
        recorder.receive(Episodes([50.0], [1], [1], parameters_age=7))
        recorder.receive(Progress(200, 10, {}))
    assert curve(tmp_path, "0.0007") == [(100, 10.0), (200, 35.0)]


def test_chart_shows_the_curves_of_all_epsilons_and_the_evaluated_return(tmp_path):
    options = {"progress": False, "exploration": [0.4, 0.0007]}
    for first_step in (0, 150):
        with Recorder(tmp_path, 1_000, first_step=first_step, **options) as recorder:
            recorder.receive(Episodes([10.0, 20.0], [1, 1], [0, 1], parameters_age=7))
            recorder.receive(Progress(first_step + 100, 5, {"td_loss": 1.0}))
            recorder.receive(EvaluationReport(200, 9, Evaluation(np.array([1.0])), None, solved=False))
        events = EventAccumulator(str(tmp_path)).Reload()
        content = events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
        (category,) = Layout.FromString(content).category
        (chart,) = category.chart
        # As TensorBoard selects them: a name begins with a match
        scalars, tags = events.Tags()["scalars"], chart.multiline.tag
        matched = {name for name in scalars for tag in tags if re.match(tag, name)}
        curves = {"returns_by_epsilon/0.4", "returns_by_epsilon/0.0007"}
        assert matched == {*curves, "evaluation/mean_return"}


@pytest.mark.parametrize("width", [80, 160])
def test_progress_is_told_in_full_however_narrow_the_terminal_is(tmp_path, width):
    with Recorder(tmp_path, 400_000, progress=False) as recorder:
        recorder.receive(Episodes([329.0], [329], [0], parameters_age=20))
        recorder.receive(Progress(67_760, 4_150, {"td_loss": 0.25, "replay_ratio": 3.91}))
        recorder.update_progress(67_760)
        console = Console(width=width, file=io.StringIO())
        console.print(recorder.bar.get_renderable())
    shown = " ".join(console.file.getvalue().split())
    parts = "67,760 of 400,000 steps", "return 329.0", "steps/s", "updates/s", "ratio 3.91", "parameters 20"
    assert all(part in shown for part in parts), shown


def test_hosts_and_actors_are_told_also_while_the_learner_waits(tmp_path):
    with Recorder(tmp_path, 1_000, progress=False) as recorder:
        recorder.receive(Progress(100, 10, {}))
        assert "hosts" not in recorder.bar.tasks[0].fields["numbers"]  # there may be none
        recorder.receive(Cluster(3, 4, 50))
        assert recorder.bar.tasks[0].fields["numbers"].endswith("4 actors on 3 hosts · 50 rows lost")
        recorder.receive(Cluster(1, 0, 50))
        assert "0 actors on 1 hosts" in recorder.bar.tasks[0].fields["numbers"]
        recorder.receive(Progress(200, 20, {}))
    told = [(row["hosts"], row["actors"], row["rows_lost"]) for row in records(tmp_path / "progress.csv")]
    assert told == [("", "", ""), ("1", "0", "50")]
