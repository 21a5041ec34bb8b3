"""The command line: `python -m replay_tutorial COMMAND ...`.

Each command imports what it needs when it is called, so that one works without the packages of the others.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

USAGE = """\
usage: python -m replay_tutorial COMMAND ...

commands:
  train ENVIRONMENT   train Ape-X, evaluate the chosen policy, draw its learning curve
  evaluate RUN        play greedy episodes with the policy of a run
  plot RUN...         draw the learning curves of some runs into one picture
  bench               measure the buffers beside their peers

python -m replay_tutorial COMMAND --help tells what each takes.
"""

# Modules of the extra `train`. Any other missing module is an error of its own.
TRAIN_MODULES = {"torch", "gymnasium", "tensorboard", "tyro", "rich", "matplotlib"}
INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


def train(arguments: Sequence[str]) -> int:
    """Train an agent."""
    import tyro

    from replay_tutorial.apex.config import Config, preset

    program = "python -m replay_tutorial train"
    # Twice: the first reading finds the environment, whose preset is what the second one's flags change.
    environment = tyro.cli(Config, prog=program, args=arguments).environment
    config = tyro.cli(Config, prog=program, args=arguments, default=preset(environment))

    from replay_tutorial.apex.environments import UnsupportedEnvironment
    from replay_tutorial.apex.run import train as train_agent
    from replay_tutorial.apex.supervisor import ActorDied

    try:
        result = train_agent(config)
    except (UnsupportedEnvironment, ActorDied) as error:
        sys.exit(f"train: {error}")
    print(
        f"{result.end} after {result.steps:,} steps and {result.updates:,} updates in {result.seconds:.1f} s; "
        f"policy of step {result.policy_step:,}"
    )
    if result.evaluation is not None:
        print(result.evaluation)
    print(f"run folder      {result.folder}")
    print(f"learning curve  {result.folder / 'learning_curve.png'}")
    return INTERRUPTED if result.end == "interrupted" else 0


def evaluate(arguments: Sequence[str]) -> int:
    """Evaluate the policy of a run."""
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial evaluate",
        description="Play greedy episodes with the policy of a run.",
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--episodes", type=int, default=100, help="how many (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1_000_000, help="decides the episodes (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if options.episodes < 1:
        parser.error(f"--episodes {options.episodes}: at least 1 is needed")

    import numpy as np

    from replay_tutorial.apex.evaluate import draw_seeds
    from replay_tutorial.apex.evaluate import evaluate as play
    from replay_tutorial.apex.run_folder import RunFolder

    try:
        folder = RunFolder.open(options.run)
        policy, step = folder.load_policy()
    except FileNotFoundError as error:
        parser.error(str(error))
    seeds = draw_seeds(np.random.SeedSequence(options.seed), options.episodes)
    config = folder.config()
    evaluation = play(policy.act_greedily, config.environment, seeds, config.evaluation_step_limit)
    print(f"{evaluation}, policy of step {step:,}")
    return 0


def plot(arguments: Sequence[str]) -> int:
    """Draw the learning curves of some runs."""
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial plot",
        description="Draw the learning curves of some runs into one picture.",
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run's folder")
    parser.add_argument(
        "--output", type=Path, default=Path("learning_curves.png"), help="the picture (default: %(default)s)"
    )
    options = parser.parse_args(arguments)

    from replay_tutorial.apex.plot import draw_curves

    try:
        print(draw_curves(options.runs, options.output))
    except FileNotFoundError as error:
        parser.error(f"{error.filename} doesn't exist; is its folder that of a run?")
    return 0


def bench(arguments: Sequence[str]) -> int:
    """Measure the buffers."""
    from replay_tutorial.bench.command import main as bench_main

    return bench_main(list(arguments))


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "train": train,
    "evaluate": evaluate,
    "plot": plot,
    "bench": bench,
}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return the exit status."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if name not in COMMANDS:
        print(f"there is no command {name!r}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    try:
        return COMMANDS[name](rest)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in TRAIN_MODULES:
            raise
        print(
            f"{name} needs {error.name}, which isn't installed. The extra `train` brings it:\n"
            '    pip install "replay_tutorial[train]"',
            file=sys.stderr,
        )
    except KeyboardInterrupt:
        return INTERRUPTED
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
