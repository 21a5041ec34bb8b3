"""The command line: what it says when it is asked, and when it can't."""

import errno
import io
import os
import re
import signal
import sys
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import torch
from places import ROOT
from programs import run_python
from victim import Victim

from replay_tutorial import __main__, __version__
from replay_tutorial.__main__ import is_closed_pipe, main, run_program
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.evaluator import Candidate
from replay_tutorial.apex.parts import make_agent
from replay_tutorial.apex.runs.checkpoint import newest_checkpoint
from replay_tutorial.apex.runs.run_folder import RunFolder


def test_version_is_that_of_the_installed_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"replay_tutorial {version('replay_tutorial')}\n"
    assert __version__ == version("replay_tutorial")


INTERRUPTED_IMPORT = """
import os, runpy, sys
import _signal  # `signal` is one of the imports that are interrupted

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "MODULE":
            os.kill(os.getpid(), _signal.SIGINT)

_signal.signal(_signal.SIGINT, _signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["replay_tutorial", "train", "CartPole-v1"]
runpy.run_module("replay_tutorial", run_name="__main__")
"""


@pytest.mark.skipif(os.name == "nt", reason="a process can't send itself Ctrl-C there")
@pytest.mark.parametrize(
    ("module", "status"), [("enum", 130), ("argparse", -signal.SIGINT), ("numpy.linalg", -signal.SIGINT)]
)
def test_ctrl_c_during_an_import_ends_the_process_silently(tmp_path, module, status):
    """The first import of all brings `enum`, the next is `argparse`, and then come the libraries."""
    done = run_python("-c", INTERRUPTED_IMPORT.replace("MODULE", module), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    assert not list(tmp_path.iterdir())


def test_package_imports_nothing_before_the_program_has_set_its_signals():
    program = "import runpy, sys; old = {*sys.modules}; import replay_tutorial; print({*sys.modules} - old)"
    assert run_python("-c", program).stdout.strip() == "{'replay_tutorial'}"


NAMES = ["train", "resume", "evaluate", "play", "plot", "warm-up"]  # and three more
HELP = """
import contextlib, sys
from replay_tutorial.__main__ import main

for arguments in ([], ["-h"], ["--help"]):
    assert main(arguments) == 0
for name in sys.argv[1:]:
    with contextlib.suppress(SystemExit):
        main([name, "--help"])
print(sorted(sys.modules))
"""


def test_every_command_has_help_that_waits_for_no_library():
    utf8 = {"PYTHONIOENCODING": "utf-8"}  # Windows' pipes have no ε
    told = run_python("-c", HELP, *NAMES, environment=utf8, encoding="utf-8").stdout
    modules = told.splitlines()[-1]
    for name in [*NAMES, "cluster", "course", "tables"]:
        assert f"\n  {name} " in told
    for name in NAMES:
        assert f"usage: python -m replay_tutorial {name}" in told
    assert "'argparse'" in modules
    for library in ("numpy", "numba", "torch", "gymnasium", "matplotlib", "tensorboard", "ray"):
        assert f"'{library}'" not in modules


@pytest.mark.parametrize("arguments", [["train", "--help"], []])
def test_output_that_nothing_reads_ends_without_a_traceback(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    done = run_python("-m", "replay_tutorial", *arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_closed_pipe_is_known_by_windows_error_too(monkeypatch):
    invalid = OSError(errno.EINVAL, "Invalid argument")
    assert is_closed_pipe(BrokenPipeError()) and not is_closed_pipe(OSError(errno.ENOSPC, "full"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert not is_closed_pipe(invalid)
    monkeypatch.setattr(sys, "platform", "win32")
    assert is_closed_pipe(invalid)
    assert not is_closed_pipe(OSError(errno.EINVAL, "Invalid argument", "a file: with a bad name"))


def test_output_whose_encoding_lacks_a_character_is_written_without_it(monkeypatch):
    """Such as that of a pipe on Windows."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    monkeypatch.setattr(sys, "argv", ["replay_tutorial", "tell"])
    monkeypatch.setitem(__main__.COMMANDS, "tell", lambda _: print("0 ± ε"))
    run_program()
    assert written.getvalue().split() == [b"0", b"\xb1", rb"\u03b5"]


KERNELS = """
from replay_tutorial.buffers.runtime import numba_internals
from replay_tutorial.buffers.runtime.jit import kernel

numba_internals.WARN_AFTER_SECONDS = 0.0  # seconds

@kernel
def one() -> int:
    return 1

@kernel
def two() -> int:
    return 2

print(one() + two())
"""


def test_first_call_says_that_kernels_are_compiled_and_the_next_process_has_them(tmp_path):
    program = tmp_path / "kernels.py"
    program.write_text(KERNELS)
    first, second = run_python(program), run_python(program)
    assert first.stdout == second.stdout == "3\n"
    told = "replay_tutorial is compiling its kernels, which happens once per machine; "
    assert first.stderr.startswith(told) and second.stderr == ""


def test_unknown_command_is_refused(capsys):
    assert main(["tarin"]) == 2
    assert "'tarin'" in capsys.readouterr().err


MISSING = {"plot": "matplotlib", "train": "tyro", "evaluate": "torch"}
WITHOUT = """
import sys
from replay_tutorial.__main__ import main

for argument in sys.argv[2:]:
    command, name = argument.split("=")
    sys.modules[name] = None
    assert main([command, sys.argv[1]]) == 1
    del sys.modules[name]
"""


def test_missing_extra_is_told_with_the_remedy(tmp_path):
    done = run_python("-c", WITHOUT, tmp_path, *(f"{command}={name}" for command, name in MISSING.items()))
    assert done.returncode == 0, done.stderr
    for command, name in MISSING.items():
        assert f"{command} requires {name}" in done.stderr
    assert done.stderr.count('pip install "replay_tutorial[train]"') == len(MISSING)


def test_flags_change_the_preset_of_the_environment(monkeypatch, tmp_path, capsys):
    seen = []

    def refuse(config, engine):
        assert engine is None
        seen.append(config)
        from replay_tutorial.agents.environments import UnsupportedEnvironment

        raise UnsupportedEnvironment("not today")

    monkeypatch.setattr("replay_tutorial.apex.runs.run.train", refuse)
    with pytest.raises(SystemExit, match="train: not today"):
        main(["train", "--seed", "5", "Acrobot-v1", "--actors", "3"])
    assert seen == [replace(preset("Acrobot-v1"), seed=5, actors=3)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["train", "--actors", "-1"], "actors"),
        (["train", "--gamma", "2"], "gamma"),
        (["train", "--seed", "-1"], "seed"),
        (["train", "--solved-at", "nan"], "solved_at"),
        (["train", "--no-such-flag"], "no-such-flag"),
        (["resume", "RUN", "--total-steps", "0"], "--total-steps: must be at least 1, not 0"),
        (["resume", "RUN", "--solved-at", "nan"], "must be a number, inf or -inf, not nan"),
        (["evaluate", "RUN", "--seed", "-1"], "must be at least 0, not -1"),
        (["play", "RUN", "--seed", "-1"], "must be at least 0, not -1"),
        (["plot", "RUN/config.json"], "RUN/config.json is not the folder of a run: it has no progress.csv."),
        (["plot", "RUN/checkpoints"], "RUN/checkpoints is not the folder of a run: it has no progress.csv."),
        (["plot", "RUN", "--output", "x.xyz"], r"plot: .*xyz.*png.*svg.*\n"),
        (["evaluate", "RUN/nowhere"], "RUN/nowhere is not the folder of a run: it has no config.json."),
        (["play", "RUN/nowhere"], "RUN/nowhere is not the folder of a run: it has no config.json."),
    ],
)
def test_arguments_that_cannot_work_are_refused(arguments, reason, run, capsys):
    told = refusal([argument.replace("RUN", str(run)) for argument in arguments], capsys)
    told = told.replace(os.sep, "/")
    assert re.search(reason.replace("RUN", re.escape(run.as_posix())), told)
    assert arguments[0] == "train" or told.splitlines()[-1].startswith(arguments[0]) or "usage" in told


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--hidden-sizes", "9999999", "9999999"], r"RuntimeError: .*memory.* [0-9]+ bytes"),
        (["--total-steps", "100"], r"a run of 100 steps would not learn anything: .*after 1,000 steps\."),
        (["--total-steps", "1000"], r"a run of 1,000 steps would not learn anything: .*after 1,000 steps\."),
        pytest.param(
            ["--capacity", str(10**12)],
            r"MemoryError: .* do not fit",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="others don't tell how much is free"),
        ),
        (["NoSuchThing-v0"], r"cannot create the environment 'NoSuchThing-v0'"),
        (
            ["small_environments:GreyPictures-v0", "--convolutions", "4", "8", "4", "4", "10", "1"],
            r"convolutions is .* 40 by 60 pixels: .* layer 2 has a side of 10 pixels, .* at most 9\.",
        ),
    ],
)
def test_run_that_cannot_be_made_is_refused_in_a_line_and_leaves_nothing_behind(tmp_path, flags, reason):
    with pytest.raises(SystemExit, match=rf"^train: {reason}"):
        main(["train", *flags, "--actors", "2", "--replay-start", "1000", "--runs", str(tmp_path / "runs")])
    assert list(tmp_path.iterdir()) == []


def test_runs_in_a_file_are_refused_in_a_line(tmp_path):
    (tmp_path / "runs").touch()
    with pytest.raises(SystemExit, match=r"^train: .*Not a folder; pass another path to --runs: '.*runs'$"):
        main(["train", "CartPole-v1", "--runs", str(tmp_path / "runs")])


def refusal(arguments, capsys):
    """What the command line says as it ends with status 2."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def run(tmp_path):
    config = replace(preset("CartPole-v1"), runs=tmp_path)
    folder = RunFolder.create(config)
    torch.manual_seed(0)
    parameters = make_agent(config, spaces_of(config.environment)).parameters()
    folder.save_policy(Candidate(parameters, 1234, Evaluation(np.zeros(0))))
    (folder.path / "progress.csv").write_text("step,episodic_return\n10,20.0\n20,30.0\n")
    (folder.path / "evaluations.csv").write_text("step,mean\n20,35.0\n")
    return folder.path


def test_evaluate_prints_the_mean_and_the_step_and_repeats_itself(run, capsys):
    assert main(["evaluate", str(run), "--episodes", "5"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("mean ")
    assert "5 episodes" in first
    assert "1,234" in first
    assert main(["evaluate", str(run), "--episodes", "5"]) == 0
    assert capsys.readouterr().out == first
    assert main(["evaluate", str(run), "--episodes", "5", "--seed", "1"]) == 0
    assert capsys.readouterr().out != first


def test_plot_draws_one_picture_of_several_runs(run, tmp_path, capsys):
    picture = tmp_path / "both.png"
    assert main(["plot", str(run), str(run), "--output", str(picture)]) == 0
    assert capsys.readouterr().out.strip() == str(picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the full disk that Linux has")
@pytest.mark.parametrize(
    ("command", "name"), [(["plot"], "curves.png"), (["play", "--steps", "3"], "episode.gif")]
)
def test_picture_that_does_not_fit_on_the_disk_is_told_in_a_line(command, name, run, tmp_path, capsys):
    output = tmp_path / "full" / name
    output.parent.mkdir()
    (output.parent / f".{name}.unfinished").symlink_to("/dev/full")
    told = refusal([*command, str(run), "--output", str(output)], capsys)
    assert told == f"{command[0]}: [Errno 28] No space left on device: '{output}'\n"
    assert not list(output.parent.iterdir())


def test_play_writes_a_picture_into_the_runs_folder(run, capsys):
    assert main(["play", str(run), "--steps", "3"]) == 0
    assert "return 3.0 in 3 steps (truncated by --steps)" in capsys.readouterr().out
    assert (run / "play.gif").read_bytes().startswith(b"GIF89a")


def test_resume_without_a_checkpoint_is_refused(run):
    with pytest.raises(SystemExit, match="has no checkpoint"):
        main(["resume", str(run)])


@pytest.mark.parametrize("command", ["evaluate", "play"])
def test_run_whose_environment_is_not_here_is_refused_in_a_line(command, run, capsys):
    settings = (run / "config.json").read_text().replace("CartPole-v1", "NoSuchThing-v0")
    (run / "config.json").write_text(settings)
    assert "NoSuchThing" in refusal([command, str(run)], capsys)


def commands_of_the_start_page():
    """The lines of its section on training, without the words behind them, by the name of the command."""
    section = (ROOT / "docs" / "start.md").read_text(encoding="utf-8").partition("## Train\n")[2]
    console = section.partition("```console\n")[2].split("```")[0]
    lines = [line.partition("#")[0].split() for line in console.splitlines()]
    return {line[3] if line[0] == "python" else line[0]: line for line in lines}


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_four_commands_of_the_start_page_work(tmp_path, monkeypatch):
    commands = commands_of_the_start_page()
    assert list(commands) == ["source", "train", "tensorboard", "resume", "play"]
    monkeypatch.chdir(tmp_path)
    short = "--hidden-sizes 16 --confirmation-episodes 2 --final-episodes 2 --solved-at 1000 --no-progress"
    short += " --record-interval 20 --evaluation-interval 50"
    with Victim(tmp_path, *commands["train"][3:], *short.split()) as run:
        assert run.wait_for(lambda: bool(list(tmp_path.glob("runs/*/policy.pt"))), 900)
        run.signal_all(signal.SIGINT)
        assert run.end(900) == 130, run.errors.read_text()
        assert "to resume" in run.printed.read_text()
    (folder,) = tmp_path.glob("runs/*")

    seen = run_python("-m", "tensorboard.main", *commands["tensorboard"][1:], "--inspect", cwd=tmp_path)
    assert (seen.returncode, "charts/episodic_return" in seen.stdout) == (0, True)
    budget = str(newest_checkpoint(folder).step + 500)
    more = {"resume": ("--total-steps", budget, "--no-progress"), "play": ("--steps", "50")}
    for name, flags in more.items():
        command = [part.replace("runs/RUN", str(folder)) for part in [*commands[name][1:], *flags]]
        done = run_python(*command, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "play.gif").read_bytes().startswith(b"GIF8")
