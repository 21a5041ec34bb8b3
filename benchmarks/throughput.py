"""`python -m benchmarks throughput`: compare a training run with its actors and learner alone.

Each round first measures two bounds: the steps of the environment in one process, and the updates of a
learner without actors. Then it measures complete runs, including evaluator and checkpoints. One has no rate
limit, so the cores bound both sides; one has the preset's replay ratio, so the slower side bounds the other.
Ratios are computed within each round.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring.output import add_count, add_outputs, add_seconds, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import spread_text, table
from replay_course.timing import Spread, Workload
from replay_tutorial.agents.environments import make_environment, spaces_of
from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.context import Context, InitialCounters
from replay_tutorial.apex.learner import make_learner
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.runs.engine import Workers
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.apex.runs.setup import RunSetup, new_setup
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.local.local_engine import roles
from replay_tutorial.local.shared_context import make_shared_context
from replay_tutorial.local.supervisor import Supervisor

PATIENCE_SECONDS = 120.0  # maximum time to the first update, on a busy machine
UNLIMITED = 10**9  # slack of the limiter in rows, larger than any run
FILLED = 20_000  # rows in the replay of the learner alone
WIDE_OPEN, PRESET_RATIO = "wide open", "the preset's ratio"  # names of the limiters
HEADS = ("limiter", "actors", "steps/s", "of env.step", "updates/s", "of the learner alone", "samples/insert")


@dataclass(frozen=True)
class Round:
    """The measurements of one round, in calls per second."""

    raw_steps: float  # env.step in one process
    solo_updates: float  # updates of the learner alone
    runs: dict[str, tuple[float, float]]  # limiter → steps/s of all actors, updates/s


def endless(config: Config) -> Config:
    """Return the settings of a run that never ends by itself."""
    return replace(config, progress=False, total_steps=10**12, solved_at=1e9)


def settings_of(environment: str, actors: Sequence[int] | None) -> dict[str, Config]:
    """Return the settings of the complete runs, keyed by the name of the limiter.

    The first number of actors runs both with and without a limit, the others only without.
    """
    config = endless(preset(environment))
    first, *others = actors or [config.actors]
    config = replace(config, actors=first)
    unlimited = replace(config, slack=UNLIMITED)
    more = {f"{WIDE_OPEN}, {count}": replace(unlimited, actors=count) for count in others}
    return {WIDE_OPEN: unlimited, **more, PRESET_RATIO: config}


def rate_of(workload: Workload, warm_up: float, seconds: float) -> float:
    """Return a workload's calls per second, measured for `seconds` after a warm-up."""
    calls, spent = 0, 1.0
    for span in (warm_up, seconds):
        calls, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < span:
            workload()
            calls += 1
    return calls / spent


def raw_steps(name: str) -> Workload:
    """Return a workload that takes one environment step with a random action and resets after an episode."""
    environment = make_environment(name, training=True)
    environment.action_space.seed(0)
    environment.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        if terminated or truncated:
            environment.reset()

    return step


def solo_updates(config: Config) -> Workload:
    """Return a workload that makes one update of a learner without actors, on a filled replay."""
    config = replace(config, slack=UNLIMITED, replay_start=min(FILLED, config.replay_start))
    spaces = spaces_of(config.environment)
    context = make_shared_context(
        config, spaces, make_policy(config, spaces).parameter_count, InitialCounters()
    )
    actor = Actor(context, 0, RunSeeds(config).actor(0, 0, 0))
    while context.counters.steps < min(FILLED, config.capacity):
        actor.play_and_send()
    learner = make_learner(context, RunSeeds(config).network, None)

    def update() -> None:
        sample = context.replay.sample(config.batch_size, config.beta, timeout=0.0)
        assert sample is not None, "the limiter must not block"
        learner.update(sample)

    return update


def local_workers(setup: RunSetup) -> Any:
    """Return the workers of a run on this machine."""
    return Supervisor(roles(setup), setup.context.stop.request)


def await_update(context: Context, workers: Workers) -> None:
    """Wait for the learner's first update, at most for `PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while context.counters.updates == 0:
        if time.monotonic() >= deadline:
            raise RuntimeError(f"the learner made no update within {PATIENCE_SECONDS:g} s")
        workers.receive(0.02)


def speed_of(
    config: Config, warm_up: float, seconds: float, make_workers: Callable[[RunSetup], Any] = local_workers
) -> tuple[float, float]:
    """Start a run; return its steps and updates per second after the warm-up."""
    with tempfile.TemporaryDirectory() as folder:
        setup = new_setup(replace(config, runs=Path(folder)), make_shared_context)
        counters = setup.context.counters
        with make_workers(setup) as workers:

            def work(until: float) -> tuple[float, int, int]:
                while (now := time.monotonic()) < until:
                    workers.receive(min(0.05, until - now))
                return time.monotonic(), counters.steps, counters.updates

            await_update(setup.context, workers)
            start, steps, updates = work(time.monotonic() + warm_up)
            end, more_steps, more_updates = work(start + seconds)
    return (more_steps - steps) / (end - start), (more_updates - updates) / (end - start)


def measure(configs: dict[str, Config], rounds: int, warm_up: float, seconds: float) -> list[Round]:
    """Measure the bounds and the runs in every round, and print each round."""
    measured: list[Round] = []
    config = next(iter(configs.values()))
    for number in range(rounds):
        steps = rate_of(raw_steps(config.environment), warm_up / 4, seconds)
        updates = rate_of(solo_updates(config), warm_up / 4, seconds)
        runs = {name: speed_of(each, warm_up, seconds) for name, each in configs.items()}
        measured.append(Round(steps, updates, runs))
        print(f"round {number}: {measured[-1]}", flush=True)
    return measured


def body_of(configs: dict[str, Config], rounds: Sequence[Round]) -> dict[str, Any]:
    """Return the record without its provenance."""
    config = configs[PRESET_RATIO]
    raw = np.array([each.raw_steps for each in rounds])
    solo = np.array([each.solo_updates for each in rounds])
    runs: dict[str, dict[str, Spread]] = {}
    for name in rounds[0].runs:
        steps, updates = np.array([each.runs[name] for each in rounds]).T
        runs[name] = {
            "steps": Spread.of(steps),
            "share_of_raw_steps": Spread.of(steps / raw),
            "updates": Spread.of(updates),
            "share_of_solo_updates": Spread.of(updates / solo),
            "samples_per_insert": Spread.of(updates * config.batch_size / np.maximum(steps, 1e-9)),
        }
    return {
        "environment": config.environment,
        "actors": {name: each.actors for name, each in configs.items()},
        "raw_steps": Spread.of(raw),
        "solo_updates": Spread.of(solo),
        "runs": runs,
    }


def lines_of(body: dict[str, Any]) -> list[str]:
    """Return the lines of the table."""

    def percent(share: Spread) -> str:
        return f"{share.median:.0%} ({share.lower:.0%}, {share.upper:.0%})"

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
    return table(HEADS, rows)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table could not be written, else 0."""
    parser = new_parser("throughput", "Compare a training run with its actors and its learner alone.")
    environment_help = "Gymnasium ID (default: %(default)s)"
    parser.add_argument("--environment", default="CartPole-v1", help=environment_help)
    actors = "number of actors (default: the preset's); further numbers are measured without a rate limit"
    add_count(parser, "--actors", None, actors, nargs="+")
    add_count(parser, "--rounds", 5, "number of rounds")
    add_seconds(parser, 10.0, "length of each measurement in a round")
    add_seconds(
        parser, 4.0, "seconds of warm-up before each run; a quarter of it before each bound", "--warm-up"
    )
    add_outputs(parser, "throughput")
    arguments = parser.parse_args(argv)
    configs = settings_of(arguments.environment, arguments.actors)
    with torch_threads(1):
        rounds = measure(configs, arguments.rounds, arguments.warm_up, arguments.seconds)
        body = body_of(configs, rounds)
    about = (
        f"{body['environment']}. Medians of {arguments.rounds} rounds of {arguments.seconds:g} s, quartiles "
        "in brackets; steps/s is the sum over all actors."
    )
    provenance = Provenance.of("throughput", argv, ("torch", "gymnasium"))
    return write_results(arguments, "throughput", provenance, body, lines_of(body), about)
