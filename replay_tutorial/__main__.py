"""The command line: `python -m replay_tutorial COMMAND ...`.

Each command imports its dependencies when it is called, so that it works without the packages of the others.
"""

import sys

try:  # Before any other import: Ctrl-C must end the process, not raise inside a library that swallows it.
    import signal

    if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    sys.exit(130)  # INTERRUPTED, which isn't defined yet

import argparse
import errno
import importlib
import math
import os
import pkgutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from replay_tutorial import __version__

if TYPE_CHECKING:
    from replay_tutorial.apex.runs.run import Result

USAGE = """\
usage: python -m replay_tutorial COMMAND ...

commands:
  train ENVIRONMENT   train Ape-X, evaluate the selected policy, plot the learning curve
  resume RUN          continue a run from its newest checkpoint
  evaluate RUN        evaluate the policy of a run in greedy episodes
  play RUN            record an episode of a run's policy as a GIF
  plot RUN...         plot the learning curves of several runs in one figure
  warm-up             compile all kernels in advance, for container images and CI
  course              let the chapters use the code that you write in them
  cluster             check a Ray cluster, or print a file that starts one
  tables              serve tables of trajectories to other processes, or show a server's tables

Run python -m replay_tutorial COMMAND --help for the options of a command, or --version for the version.
"""

# Module → the extra that installs it. If any other module is missing, ModuleNotFoundError is raised.
TRAIN_MODULES = ("torch", "gymnasium", "tensorboard", "tyro", "rich", "matplotlib", "PIL")
EXTRAS = {**dict.fromkeys(TRAIN_MODULES, "train"), "ray": "cluster", "zmq": "tables", "msgspec": "tables"}
# Commands with subcommands: module and function.
SUBCOMMANDS = {
    "cluster": ("replay_tutorial.cluster.command", "cluster"),
    "course": ("replay_course.course_command", "course"),
    "tables": ("replay_tutorial.tables.command", "tables"),
}
KERNEL_LAYERS = ("buffers", "shared", "tables")  # the layers that contain kernels
INTERRUPTED = 130  # exit status after Ctrl-C
CLOSED_PIPE = 141  # exit status when stdout has been closed: 128 + SIGPIPE
DEFAULT = "(default: %(default)s)"


def train(arguments: Sequence[str]) -> int:
    """Train an agent."""
    from replay_tutorial.apex.flags import read_config
    from replay_tutorial.cluster.command import make_engine
    from replay_tutorial.cluster.options import split_options

    cluster_options, others = split_options("python -m replay_tutorial train", arguments)
    config = read_config(others)

    from replay_tutorial.apex.runs.run import train as train_agent

    return report("train", lambda: train_agent(config, make_engine(cluster_options)))


def resume(arguments: Sequence[str]) -> int:
    """Continue a run from its newest checkpoint, in the same folder."""
    parser = make_parser(resume)
    parser.add_argument("run", type=Path, help="folder of the run")
    total_steps = "new total number of environment steps (default: unchanged)"
    parser.add_argument("--total-steps", type=at_least(1), help=total_steps)
    goal = "new target for the mean return; inf trains until --total-steps (default: unchanged)"
    parser.add_argument("--solved-at", type=target, help=goal)
    parser.add_argument("--device", help="device on which the learner trains (default: unchanged)")
    parser.add_argument("--no-progress", action="store_true", help="hide the progress bar")
    from replay_tutorial.cluster.command import make_engine
    from replay_tutorial.cluster.options import add_options, resolve_options, saved_options

    add_options(parser, "unchanged")
    options = parser.parse_args(arguments)
    try:
        cluster_options = resolve_options(parser, options, saved_options(options.run))
    except (OSError, ValueError) as error:
        exit_with_error("resume", error)

    from replay_tutorial.apex.runs.run import resume as resume_agent

    changes = (options.total_steps, not options.no_progress, options.device, options.solved_at)
    return report("resume", lambda: resume_agent(options.run, *changes, make_engine(cluster_options)))


def report(command: str, run: "Callable[[], Result]") -> int:
    """Run `run` and print its result; exit with a one-line message for known errors."""
    from replay_tutorial.agents.environments import EnvironmentFailed, UnsupportedEnvironment
    from replay_tutorial.apex.runs.engine import ProcessDied
    from replay_tutorial.apex.runs.files import DamagedFile
    from replay_tutorial.apex.runs.run_folder import RunInUse
    from replay_tutorial.apex.runs.setup import NothingToDo, UnusableDevice

    restore_interrupts()
    known = (
        *(EnvironmentFailed, UnsupportedEnvironment, DamagedFile, NothingToDo),
        *(ProcessDied, RunInUse, UnusableDevice),
    )
    try:
        result = run()
    except known as error:
        sys.exit(f"{command}: {error}")
    except OSError as error:  # a full disk, for example
        sys.exit("\n".join([f"{command}: {error}", *getattr(error, "__notes__", [])]))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        # torch raises a plain RuntimeError when memory runs out.
        sys.exit(f"{command}: {type(error).__name__}: {error}")
    policy = f"best policy from step {result.policy_step:,}" if result.policy_step else "no policy evaluated"
    print(
        f"{result.end} after {result.steps:,} steps and {result.updates:,} updates "
        f"in {result.seconds:.1f} s; {policy}"
    )
    if result.evaluation is not None:
        print(f"evaluation      {result.evaluation}")
    print(f"run folder      {result.folder}")
    print(f"learning curve  {result.folder / 'learning_curve.png'}")
    if not result.interrupted:
        return 0
    command = "resume" if result.end == "interrupted" else "evaluate"
    print(f"{f'to {command}':15} python -m replay_tutorial {command} {result.folder}")
    return INTERRUPTED


def evaluate(arguments: Sequence[str]) -> int:
    """Evaluate the policy of a run in greedy episodes."""
    parser = make_parser(evaluate)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--episodes", type=at_least(1), default=100, help=f"number of episodes {DEFAULT}")
    parser.add_argument("--seed", type=at_least(0), default=1_000_000, help=f"seed of the episodes {DEFAULT}")
    options = parser.parse_args(arguments)

    import numpy as np

    from replay_tutorial.agents.environments import EnvironmentFailed
    from replay_tutorial.agents.evaluation import draw_seeds
    from replay_tutorial.agents.evaluation import evaluate as play
    from replay_tutorial.apex.runs.run_folder import RunFolder

    try:
        folder = RunFolder.open(options.run)
        policy, step = folder.load_policy()
        config = folder.config()
    except (OSError, ValueError) as error:
        exit_with_error("evaluate", error)
    seeds = draw_seeds(np.random.SeedSequence(options.seed), options.episodes)
    limits = config.evaluation_step_limit, config.evaluation_environments
    try:
        evaluation = play(policy.act_greedily, config.environment, seeds, *limits)
    except EnvironmentFailed as error:
        exit_with_error("evaluate", error)
    print(f"{evaluation}, policy from step {step:,}")
    return 0


def play(arguments: Sequence[str]) -> int:
    """Record a greedy episode of a run's policy as a GIF."""
    parser = make_parser(play)
    parser.add_argument("run", type=Path, help="folder of the run")
    place = "path of the GIF, which must end in .gif (default: play.gif in the folder of the run)"
    parser.add_argument("--output", type=Path, help=place)
    parser.add_argument("--seed", type=at_least(0), default=1_000_000, help=f"seed of the episode {DEFAULT}")
    limit = f"maximum number of steps of the episode {DEFAULT}"
    parser.add_argument("--steps", type=at_least(1), default=1_000, help=limit)
    width = "width of the GIF in pixels (default: the width of the environment's frames)"
    parser.add_argument("--width", type=at_least(1), help=width)
    options = parser.parse_args(arguments)

    from replay_tutorial.agents.environments import EnvironmentFailed
    from replay_tutorial.apex.runs.gif import play as play_episode
    from replay_tutorial.apex.runs.run_folder import RunFolder

    output: Path = options.output or options.run / "play.gif"
    try:
        folder = RunFolder.open(options.run)
        policy, _ = folder.load_policy()
        environment = folder.config().environment
        played = play_episode(policy, environment, options.seed, output, options.steps, options.width)
    except (EnvironmentFailed, OSError, ValueError) as error:
        exit_with_error("play", error)
    cut = "" if played.ended else " (truncated by --steps)"
    print(f"{output}: return {played.total:.1f} in {played.steps:,} steps{cut}")
    return 0


def plot(arguments: Sequence[str]) -> int:
    """Plot the learning curves of several runs in one figure.

    Runs with the same environment and agent are drawn as their mean, with a 95% bootstrap band.
    """
    parser = make_parser(plot)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folder of a run")
    figure = f"path of the figure {DEFAULT}"
    parser.add_argument("--output", type=Path, default="learning_curves.png", help=figure)
    options = parser.parse_args(arguments)

    from replay_tutorial.apex.runs.learning_curve import draw_curves

    for run in options.runs:
        if not (run / "progress.csv").is_file():
            exit_with_error("plot", f"{run} is not the folder of a run: it has no progress.csv.")
    try:
        print(draw_curves(options.runs, options.output))
    except (OSError, ValueError) as error:
        exit_with_error("plot", error)
    return 0


def warm_up(arguments: Sequence[str]) -> int:
    """Compile all kernels and cache them on disk, so that no first call has to compile them.

    They are cached in `__pycache__` beside the package or, if that is not writable, in the user's cache
    folder; NUMBA_CACHE_DIR selects another folder. They run only on processors like this one. For a container
    image that will run on other processors, set NUMBA_CPU_NAME=generic both when you build it and when it
    runs; the kernels are then slower.
    """
    make_parser(warm_up).parse_args(arguments)

    from replay_tutorial.buffers.runtime import jit, numba_internals

    start = time.perf_counter()
    for layer in KERNEL_LAYERS:
        package = importlib.import_module(f"replay_tutorial.{layer}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    restore_interrupts()
    folders = numba_internals.compile_all(jit.kernels)
    seconds = time.perf_counter() - start
    about = f"{len(jit.kernels)} kernels are ready after {seconds:.1f} s"
    if not folders:
        print(f"{about}, but they are not cached")
        return 1
    print(f"{about}, cached in", *folders, sep="\n    ")
    return 0


def run_subcommand(name: str, arguments: Sequence[str]) -> int:
    """Run a command that has subcommands."""
    place, command_name = SUBCOMMANDS[name]
    command = getattr(importlib.import_module(place), command_name)
    restore_interrupts()
    return command(list(arguments))


def exit_with_error(command: str, reason: object) -> NoReturn:
    """Print `reason` to stderr and exit with status 2."""
    print(f"{command}: {reason}", file=sys.stderr)
    raise SystemExit(2)


def print_log() -> None:
    """Print the package's log messages, which explain long pauses."""
    import logging

    logger = logging.getLogger("replay_tutorial")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler())


def restore_interrupts() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, after a command's imports."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def make_parser(command: Callable[[Sequence[str]], int]) -> argparse.ArgumentParser:
    """Return a parser whose description is the command's docstring."""
    name = f"python -m replay_tutorial {command_name(command)}"
    return argparse.ArgumentParser(prog=name, description=command.__doc__)


def command_name(command: Callable[[Sequence[str]], int]) -> str:
    """Return the name of a command on the command line."""
    return command.__name__.replace("_", "-")


def at_least(minimum: int) -> Callable[[str], int]:
    """Return an argparse type: an int of at least `minimum`."""

    def number(text: str) -> int:
        if int(text) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {text}")
        return int(text)

    return number


def target(text: str) -> float:
    """Argparse type: a float that is not NaN."""
    number = float(text)
    if math.isnan(number):
        raise argparse.ArgumentTypeError(f"must be a number, inf or -inf, not {text}")
    return number


COMMANDS = {
    **{command_name(command): command for command in (train, resume, evaluate, play, plot, warm_up)},
    **{name: partial(run_subcommand, name) for name in SUBCOMMANDS},
}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if name == "--version":
        print(f"replay_tutorial {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"unknown command {name!r}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    print_log()
    try:
        return COMMANDS[name](rest)
    except ModuleNotFoundError as error:
        if (extra := EXTRAS.get((error.name or "").partition(".")[0])) is None:
            raise
        print(
            f"{name} requires {error.name}, which is not installed. Install the extra `{extra}`:\n"
            f'    pip install "replay_tutorial[{extra}]"',
            file=sys.stderr,
        )
    except KeyboardInterrupt as error:
        if str(error):
            print(f"{name}: {error}", file=sys.stderr)
        return INTERRUPTED
    return 1


def run_program() -> int:
    """Run `main` with the program's arguments; exit without a traceback if stdout has been closed."""
    # On Windows, files and pipes have an encoding that lacks some of the characters in the output.
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(errors="backslashreplace")
    try:
        try:
            return main(sys.argv[1:])
        finally:
            print(end="", flush=True)
    except OSError as error:
        if not is_closed_pipe(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout at exit
        return CLOSED_PIPE


def is_closed_pipe(error: OSError) -> bool:
    """Return whether a write failed because nothing reads the pipe any more; on Windows, this is EINVAL."""
    is_invalid = error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and is_invalid)


def console_script() -> int:
    """Run the command `replay-tutorial`, an alias of `python -m replay_tutorial`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # as at the top
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_program()


if __name__ == "__main__":
    sys.exit(run_program())
