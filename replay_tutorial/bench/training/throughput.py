"""`python -m replay_tutorial bench throughput`: how near are actors and learner of a real run to what they reach alone?

The bounds come first: the environment's own steps in one process, and a learner with a full replay and nobody beside it.
Then the processes of a real run work side by side, evaluator and checkpoints included: once with the limiter wide open,
so that each side goes as fast as the cores let it, and once with the preset's ratio, where the slower side sets the pace.
All of these take turns, round by round, and a share is taken inside its round.

Left out: GPUs beside the actors of other machines.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.apex.runs.setup import new_setup
from replay_tutorial.bench.many_processes.crash import line
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import add_outputs, at_least, new_file
from replay_tutorial.bench.method.report import put_table, spread_text
from replay_tutorial.bench.method.timing import Spread
from replay_tutorial.bench.training.parts import WIDE_OPEN, RawEnvironment, SoloLearner, for_seconds, profile
from replay_tutorial.bench.training.throughput_chart import draw
from replay_tutorial.local.parallel import roles
from replay_tutorial.local.supervisor import Supervisor

PROGRAM = "python -m replay_tutorial bench throughput"
POLL_SECONDS = 120.0  # seconds until the first update, on a busy machine
HEADS = ("limiter", "actors", "steps/s", "of env.step", "updates/s", "of the learner alone", "samples/insert")


@dataclass(frozen=True)
class Round:
    """What everybody did in one round, in calls a second."""

    raw_steps: float  # env.step in one process
    solo_updates: float  # the learner alone
    runs: dict[str, tuple[float, float]]  # limiter → steps/s of all actors, updates/s


def settings_of(environment: str, actors: int | None) -> dict[str, Config]:
    """Give the settings of both real runs; they never end by themselves."""
    config = replace(preset(environment), progress=False, total_steps=10**12, solved_at=1e9)
    if actors is not None:
        config = replace(config, actors=actors)
    return {"wide open": replace(config, slack=WIDE_OPEN), "the preset's ratio": config}


def speed_of(config: Config, warm_up: float, seconds: float) -> tuple[float, float]:
    """Let a real run work, and count its steps and updates after the warm-up; give both a second.

    Raises:
        RuntimeError: If the learner doesn't begin.
    """
    with tempfile.TemporaryDirectory() as folder:
        setup = new_setup(replace(config, runs=Path(folder)))
        common = setup.common
        with Supervisor(roles(setup), common.ask_to_stop) as supervisor:

            def work(until: float) -> tuple[float, int, int]:
                while (now := time.monotonic()) < until:
                    supervisor.hear(min(0.05, until - now))
                return time.monotonic(), common.steps, common.updates

            deadline = time.monotonic() + POLL_SECONDS
            while common.updates == 0:
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"the learner has made no update in {POLL_SECONDS:g} s")
                supervisor.hear(0.05)
            start, steps, updates = work(time.monotonic() + warm_up)
            end, more_steps, more_updates = work(start + seconds)
    return (more_steps - steps) / (end - start), (more_updates - updates) / (end - start)


def measure(configs: dict[str, Config], rounds: int, warm_up: float, seconds: float) -> list[Round]:
    """Let everybody work in turns, and print each round as it comes."""
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


def record_of(
    config: Config, argv: Sequence[str], rounds: Sequence[Round], parts: dict[str, dict[str, float]]
) -> dict[str, Any]:
    """All that a reader needs to believe the figures, or to take them again."""

    def spread(figures: Sequence[float]) -> Spread:
        return Spread.of(np.array(figures))

    runs: dict[str, dict[str, Any]] = {}
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
        "benchmark": "throughput",
        **Provenance.of(PROGRAM, argv, ("torch", "gymnasium"))._asdict(),
        "environment": config.environment,
        "actors": config.actors,
        "raw_steps": spread([each.raw_steps for each in rounds]),
        "solo_updates": spread([each.solo_updates for each in rounds]),
        "runs": runs,
        "parts": parts,  # actor: µs of one step of one environment; learner: µs of one update
    }


def percent(share: Spread) -> str:
    """Write a share with its quartiles."""
    return f"{share.median:.0%} ({share.lower:.0%}, {share.upper:.0%})"


def table_of(record: dict[str, Any], rounds: int, seconds: float) -> str:
    """The record as a Markdown table."""
    lines = [line(HEADS), line(["---", *["---:"] * (len(HEADS) - 1)])]
    lines.append(line(["env.step alone", "-", spread_text(record["raw_steps"]), "100%", "-", "-", "-"]))
    lines.append(line(["learner alone", "-", "-", "-", spread_text(record["solo_updates"]), "100%", "-"]))
    for name, run in record["runs"].items():
        cells = [
            *(name, str(record["actors"]), spread_text(run["steps"]), percent(run["share_of_raw_steps"])),
            *(spread_text(run["updates"]), percent(run["share_of_solo_updates"])),
            spread_text(run["samples_per_insert"]),
        ]
        lines.append(line(cells))
    for name, parts in record["parts"].items():
        told = ", ".join(f"{part} {microseconds:.2f}" for part, microseconds in parts.items())
        unit = "step" if name == "actor" else "update"
        lines += ["", f"{name.capitalize()} alone, µs of one {unit}: {told}."]
    about = Provenance.read(record)
    medians = f"Medians of {rounds} rounds of {seconds:g} s, quartiles in brackets; steps/s are those of all actors."
    return "\n".join([*lines, "", f"{record['environment']}. {medians} {about}"]) + "\n"


def parser() -> argparse.ArgumentParser:
    """Describes the arguments."""
    arguments = argparse.ArgumentParser(
        prog=PROGRAM, description="Measure a real run against the environment alone and the learner alone."
    )
    arguments.add_argument("--environment", default="CartPole-v1", help="which (default: %(default)s)")
    arguments.add_argument("--actors", type=at_least(1), help="how many (default: the preset's)")
    arguments.add_argument("--rounds", type=at_least(1), default=5, help="how many (default: %(default)s)")
    arguments.add_argument(
        "--seconds", type=float, default=10.0, help="that each works in a round (default: %(default)s)"
    )
    arguments.add_argument(
        "--warm-up", type=float, default=4.0, help="seconds before that (default: %(default)s)"
    )
    add_outputs(arguments, "throughput")
    arguments.add_argument("--chart", type=new_file, metavar="FILE", help="draw where the time goes here")
    return arguments


def main(argv: Sequence[str]) -> int:
    """Measures the throughput.

    Args:
        argv: What follows `bench throughput` on the command line.

    Returns:
        The exit status: 0, or 1 if the table was not written.
    """
    given = parser()
    arguments = given.parse_args(argv)
    if not (0.0 < arguments.seconds < float("inf") and 0.0 <= arguments.warm_up < float("inf")):
        given.error("--seconds must be positive, and --warm-up must not be negative")
    configs = settings_of(arguments.environment, arguments.actors)
    with torch_threads(1):
        rounds = measure(configs, arguments.rounds, arguments.warm_up, arguments.seconds)
        config = configs["the preset's ratio"]
        record = record_of(config, argv, rounds, profile(config, arguments.seconds))
    table = table_of(record, arguments.rounds, arguments.seconds)
    print(f"\n{table}")
    if arguments.json is not None:
        text = json.dumps(record, indent=2, default=asdict, allow_nan=False)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if arguments.chart is not None:
        draw(record, arguments.chart)
    return 0 if put_table(arguments.markdown, "throughput", table) else 1
