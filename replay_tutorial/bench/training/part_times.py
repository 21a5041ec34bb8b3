"""Where the time goes: environment, actor and learner, each alone in one process, with a clock at each part.

The parts are those of a real run: the same classes with the same settings, and the learner draws rows that
the actor has played; but here neither waits for the other. A clock replaces a method of one object by one
that reads the time before and after it; that costs a tenth of a microsecond per call, which counts as the
part's own.

Left out: what lies inside an update; torch has a profiler of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from replay_tutorial.agents.environments import make_environment, spaces_of
from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Counters
from replay_tutorial.apex.learner import make_learner
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.local.shared_context import SharedReplay, make_shared_context

WIDE_OPEN = 10**9  # rows by which one side may be ahead of the other: more than any run makes
FILLED = 20_000  # rows that the learner samples from


class Clocks:
    """The seconds that were spent in each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def put_on(self, part: str, owner: Any, method: str) -> None:
        """Measure the calls of one object's method as a part."""
        call: Callable[..., Any] = getattr(owner, method)
        self.seconds.setdefault(part, 0.0)

        def timed(*arguments: Any, **named: Any) -> Any:
            start = perf_counter()
            result = call(*arguments, **named)
            self.seconds[part] += perf_counter() - start
            return result

        setattr(owner, method, timed)

    def shares_of(self, seconds: float, count: int) -> dict[str, float]:
        """Return the microseconds of each part per step, with what no clock has seen as `rest`."""
        parts = {part: 1e6 * spent / count for part, spent in self.seconds.items()}
        return {**parts, "rest": max(0.0, 1e6 * seconds / count - sum(parts.values()))}


def for_seconds(workload: Workload, seconds: float) -> tuple[int, float]:
    """Call a workload again and again; return how often, and the seconds that it took."""
    calls, start = 0, perf_counter()
    while (spent := perf_counter() - start) < seconds:
        workload()
        calls += 1
    return calls, spent


def context_of(config: Config) -> Context:
    """Return the context of a run, with the limiter wide open."""
    config = replace(config, slack=WIDE_OPEN, replay_start=min(FILLED, config.replay_start))
    spaces = spaces_of(config.environment)
    return make_shared_context(config, spaces, make_policy(config, spaces).parameter_count, Counters())


def buffer_of(context: Context) -> Any:
    """Return the buffer behind the replay's limiter."""
    assert isinstance(context.replay, SharedReplay)
    return context.replay.buffer


class RawEnvironment:
    """The environment alone: random actions, and a new episode after each end."""

    def __init__(self, name: str) -> None:
        self.environment = make_environment(name, training=True)
        self.environment.action_space.seed(0)
        self.environment.reset(seed=0)

    def step(self) -> None:
        """Take one step."""
        _, _, terminated, truncated, _ = self.environment.step(self.environment.action_space.sample())
        if terminated or truncated:
            self.environment.reset()


class SoloActor:
    """One actor with a replay that nobody samples."""

    def __init__(self, config: Config) -> None:
        self.context = context_of(config)
        self.actor = Actor(self.context, 0, RunSeeds(config).actor(0, 0, 0))
        self.clocks = Clocks()
        self.steps_per_send = config.send_interval * len(self.actor.environments)

    def start_clocks(self) -> None:
        """Put a clock on each part."""
        actor, clocks = self.actor, self.clocks
        clocks.put_on("pull parameters", actor, "pull_parameters")
        clocks.put_on("forward pass", actor.policy, "act")
        for environment in actor.environments:
            clocks.put_on("env.step", environment, "step")
        clocks.put_on("new episode", actor, "begin_episode")
        clocks.put_on("fold", actor, "fold")
        clocks.put_on("first priorities", actor.policy, "priorities")
        clocks.put_on("add", buffer_of(self.context), "add")

    def play(self, seconds: float) -> tuple[int, float]:
        """Play; return the steps of all environments, and the seconds that they took."""
        sends, spent = for_seconds(self.actor.play_and_send, seconds)
        return sends * self.steps_per_send, spent


class SoloLearner:
    """The learner with a replay that an actor has filled, and nobody who adds."""

    def __init__(self, config: Config) -> None:
        solo = SoloActor(config)
        self.context, self.clocks = solo.context, Clocks()
        while self.context.pace.steps < min(FILLED, config.capacity):
            solo.actor.play_and_send()
        self.learner = make_learner(self.context, RunSeeds(config).network, None)

    def start_clocks(self) -> None:
        """Put a clock on each part."""
        learner, clocks, buffer = self.learner, self.clocks, buffer_of(self.context)
        clocks.put_on("sample", buffer, "sample")
        clocks.put_on("update", learner.agent, "update")
        clocks.put_on("priorities", buffer, "update_priorities")
        clocks.put_on("read parameters", learner.agent, "parameters")
        clocks.put_on("publish", self.context.parameters, "publish")
        clocks.put_on("record", learner, "progress")

    def learn(self, seconds: float) -> tuple[int, float]:
        """Learn; return the updates, and the seconds that they took."""
        config, replay = self.context.config, self.context.replay

        def once() -> None:
            sample = replay.sample(config.batch_size, config.beta, timeout=0.0)
            assert sample is not None, "the limiter is wide open"
            self.learner.update(sample)

        return for_seconds(once, seconds)


def profile(config: Config, seconds: float) -> dict[str, dict[str, float]]:
    """Measure the parts of an actor's step and of a learner's update, each alone, in microseconds."""
    actor, learner = SoloActor(config), SoloLearner(config)
    parts: dict[str, dict[str, float]] = {}
    for name, solo, run in (("actor", actor, actor.play), ("learner", learner, learner.learn)):
        run(seconds / 4)  # warm
        solo.start_clocks()
        count, spent = run(seconds)
        parts[name] = solo.clocks.shares_of(spent, count)
    return parts
