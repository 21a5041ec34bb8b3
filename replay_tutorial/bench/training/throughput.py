"""`python -m replay_tutorial bench throughput`: how near is a real run to what its parts reach alone?

The bounds come first: the environment's own steps in one process, and a learner with a full replay and
nobody beside it. Then the processes of a real run work side by side, evaluator and checkpoints included:
once with the limiter wide open, so that each side goes as fast as the cores let it, and once with the
preset's ratio, where the slower side sets the pace. All of these take turns, round by round, and a share is
taken inside its round.

Left out: GPUs beside the actors of other machines.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.apex.runs.setup import new_setup
from replay_tutorial.bench.method.markdown import spread_text, table
from replay_tutorial.bench.method.output import add_count, add_outputs, chart_file, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.timing import Spread
from replay_tutorial.bench.training.part_times import (
    WIDE_OPEN,
    RawEnvironment,
    SoloLearner,
    for_seconds,
    profile,
)
from replay_tutorial.bench.training.throughput_chart import draw
from replay_tutorial.local.parallel import roles
from replay_tutorial.local.shared_context import make_shared_context
from replay_tutorial.local.supervisor import Supervisor

PATIENCE_SECONDS = 120.0  # until the first update, on a busy machine
HEADS = ("limiter", "actors", "steps/s", "of env.step", "updates/s", "of the learner alone", "samples/insert")


@dataclass(frozen=True)
class Round:
    """What was measured in one round, in calls per second."""

    raw_steps: float  # env.step in one process
    solo_updates: float  # the learner alone
    runs: dict[str, tuple[float, float]]  # limiter → steps/s of all actors, updates/s


def settings_of(environment: str, actors: Sequence[int] | None) -> dict[str, Config]:
    """Return the settings of the real runs, which never end by themselves.

    The first number of actors runs with both limiters, the others wide open.
    """
    config = replace(preset(environment), progress=False, total_steps=10**12, solved_at=1e9)
    first, *others = actors or [config.actors]
    config = replace(config, actors=first)
    wide_open = replace(config, slack=WIDE_OPEN)
    more = {f"wide open, {count}": replace(wide_open, actors=count) for count in others}
    return {"wide open": wide_open, **more, "the preset's ratio": config}


def speed_of(config: Config, warm_up: float, seconds: float) -> tuple[float, float]:
    """Start a real run; return its steps and updates per second after the warm-up.

    Raises:
        RuntimeError: If the learner doesn't begin.
    """
    with tempfile.TemporaryDirectory() as folder:
        setup = new_setup(replace(config, runs=Path(folder)), make_shared_context)
        pace = setup.context.pace
        with Supervisor(roles(setup), setup.context.stop.ask) as supervisor:

            def work(until: float) -> tuple[float, int, int]:
                while (now := time.monotonic()) < until:
                    supervisor.receive(min(0.05, until - now))
                return time.monotonic(), pace.steps, pace.updates

            deadline = time.monotonic() + PATIENCE_SECONDS
            while pace.updates == 0:
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"the learner has made no update in {PATIENCE_SECONDS:g} s")
                supervisor.receive(0.05)
            start, steps, updates = work(time.monotonic() + warm_up)
            end, more_steps, more_updates = work(start + seconds)
    return (more_steps - steps) / (end - start), (more_updates - updates) / (end - start)


def measure(configs: dict[str, Config], rounds: int, warm_up: float, seconds: float) -> list[Round]:
    """Measure all in turns, and print each round as it comes."""
    measured: list[Round] = []
    config = next(iter(configs.values()))
    for number in range(rounds):
        raw, solo = RawEnvironment(config.environment), SoloLearner(config)
        for_seconds(raw.step, warm_up / 4)
        solo.learn(warm_up / 4)
        steps, step_seconds = for_seconds(raw.step, seconds)
        updates, update_seconds = solo.learn(seconds)
        runs = {name: speed_of(each, warm_up, seconds) for name, each in configs.items()}
        measured.append(Round(steps / step_seconds, updates / update_seconds, runs))
        print(f"round {number}: {measured[-1]}", flush=True)
    return measured


def body_of(
    configs: dict[str, Config], rounds: Sequence[Round], parts: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """Return the record, except its provenance."""
    config = configs["the preset's ratio"]

    def spread(figures: Sequence[float]) -> Spread:
        return Spread.of(np.array(figures))

    runs: dict[str, dict[str, Spread]] = {}
    for name in rounds[0].runs:
        pairs = [(each, *each.runs[name]) for each in rounds]
        runs[name] = {
            "steps": spread([steps for _, steps, _ in pairs]),
            "share_of_raw_steps": spread([steps / each.raw_steps for each, steps, _ in pairs]),
            "updates": spread([updates for _, _, updates in pairs]),
            "share_of_solo_updates": spread([updates / each.solo_updates for each, _, updates in pairs]),
            "samples_per_insert": spread([u * config.batch_size / max(s, 1e-9) for _, s, u in pairs]),
        }
    return {
        "environment": config.environment,
        "actors": {name: each.actors for name, each in configs.items()},
        "raw_steps": spread([each.raw_steps for each in rounds]),
        "solo_updates": spread([each.solo_updates for each in rounds]),
        "runs": runs,
        "parts": parts,  # actor: µs of one step of one environment; learner: µs of one update
    }


def percent(share: Spread) -> str:
    """Return a share with its quartiles."""
    return f"{share.median:.0%} ({share.lower:.0%}, {share.upper:.0%})"


def lines_of(body: dict[str, Any]) -> list[str]:
    """Return the table, and the parts below it."""
    rows = [
        ["env.step alone", "-", spread_text(body["raw_steps"]), "100%", "-", "-", "-"],
        ["learner alone", "-", "-", "-", spread_text(body["solo_updates"]), "100%", "-"],
    ]
    for name, run in body["runs"].items():
        steps = (spread_text(run["steps"]), percent(run["share_of_raw_steps"]))
        updates = (spread_text(run["updates"]), percent(run["share_of_solo_updates"]))
        rows.append(
            [name, str(body["actors"][name]), *steps, *updates, spread_text(run["samples_per_insert"])]
        )
    lines = table(HEADS, rows)
    for name, parts in body["parts"].items():
        figures = ", ".join(f"{part} {microseconds:.2f}" for part, microseconds in parts.items())
        unit = "step" if name == "actor" else "update"
        lines += ["", f"{name.capitalize()} alone, µs of one {unit}: {figures}."]
    return lines


def new_throughput_parser() -> argparse.ArgumentParser:
    """Describe the arguments."""
    parser = new_parser(
        "throughput", "Measure a real run against the environment alone and the learner alone."
    )
    parser.add_argument("--environment", default="CartPole-v1", help="which (default: %(default)s)")
    actors = "how many (default: the preset's); each further number runs wide open, to be compared"
    add_count(parser, "--actors", None, actors, nargs="+")
    add_count(parser, "--rounds", 5, "how many")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of each in a round (default: %(default)s)"
    )
    parser.add_argument(
        "--warm-up", type=float, default=4.0, help="seconds before that (default: %(default)s)"
    )
    add_outputs(parser, "throughput")
    parser.add_argument("--chart", type=chart_file, metavar="FILE", help="draw where the time goes here")
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    parser = new_throughput_parser()
    arguments = parser.parse_args(argv)
    if not (0.0 < arguments.seconds < math.inf and 0.0 <= arguments.warm_up < math.inf):
        parser.error("--seconds must be positive, and --warm-up must not be negative")
    configs = settings_of(arguments.environment, arguments.actors)
    config = configs["the preset's ratio"]
    with torch_threads(1):
        rounds = measure(configs, arguments.rounds, arguments.warm_up, arguments.seconds)
        body = body_of(configs, rounds, profile(config, arguments.seconds))
    about = (
        f"{config.environment}. Medians of {arguments.rounds} rounds of {arguments.seconds:g} s, quartiles "
        "in brackets; steps/s are those of all actors."
    )
    if arguments.chart is not None:
        draw(body, arguments.chart)
    provenance = Provenance.of("throughput", argv, ("torch", "gymnasium"))
    return hand_over(arguments, "throughput", provenance, body, lines_of(body), about)
