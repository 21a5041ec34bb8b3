"""Where the time goes: the environment, the actor and the learner, each alone in one process, with a clock at each part.

The parts are those of a real run: the same classes with the same settings, and the learner draws rows that the actor has
played. Only nobody waits for anybody here. A clock replaces a method of one object by one that looks at the time before
and after it; that costs a tenth of a microsecond a call, which counts as the part's own.

Left out: what lies inside an update; torch has a profiler of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from replay_tutorial.agents.environments import make_environment, spaces_of
from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.batch_source import Sample
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.learner import Learner, make_learner
from replay_tutorial.apex.messages import Message
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.local.shared_context import RunSeeds, SharedContext, make_shared_context

WIDE_OPEN = 10**9  # rows by which one side may be ahead of the other: more than any benchmark makes
FILLED = 20_000  # rows that the learner draws from


class Clocks:
    """The seconds that were spent in each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def put_on(self, part: str, owner: Any, method: str) -> None:
        """Measure the calls of one object's method as a part."""
        work: Callable[..., Any] = getattr(owner, method)
        self.seconds.setdefault(part, 0.0)

        def timed(*arguments: Any, **named: Any) -> Any:
            start = perf_counter()
            result = work(*arguments, **named)
            self.seconds[part] += perf_counter() - start
            return result

        setattr(owner, method, timed)

    def shares_of(self, seconds: float, count: int) -> dict[str, float]:
        """Give the microseconds of each part for each of `count` steps, with what no clock has seen as `rest`."""
        parts = {part: 1e6 * spent / count for part, spent in self.seconds.items()}
        return {**parts, "rest": max(0.0, 1e6 * seconds / count - sum(parts.values()))}


def for_seconds(work: Callable[[], object], seconds: float) -> tuple[int, float]:
    """Do a work again and again; give how often, and the seconds that it took."""
    calls, start = 0, perf_counter()
    while (spent := perf_counter() - start) < seconds:
        work()
        calls += 1
    return calls, spent


def hear_nothing(_: Message) -> None:
    """Be the parent that nobody talks to."""


def common_of(config: Config) -> SharedContext:
    """Reserve what the parts of a run share, with the limiter wide open."""
    spaces, seeds = spaces_of(config.environment), RunSeeds(config)
    parameter_count = make_policy(config, spaces).parameter_count
    return make_shared_context(replace(config, slack=WIDE_OPEN), spaces, seeds, parameter_count)


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
    """One actor with a replay, and nobody who draws from it."""

    def __init__(self, config: Config) -> None:
        self.common = common_of(config)
        self.actor = Actor(self.common, 0, RunSeeds(config).actor(0, 0, 0), hear_nothing)
        self.clocks = Clocks()
        self.steps_of_a_send = config.send_interval * len(self.actor.environments)

    def wear_clocks(self) -> None:
        """Put a clock on each part."""
        actor, clocks = self.actor, self.clocks
        clocks.put_on("pull weights", actor, "pull_weights")
        clocks.put_on("forward pass", actor.policy, "act")
        for environment in actor.environments:
            clocks.put_on("env.step", environment, "step")
        clocks.put_on("new episode", actor, "begin_episode")
        clocks.put_on("fold", actor, "fold")
        clocks.put_on("first priorities", actor.policy, "priorities")
        clocks.put_on("add", self.common.replay, "add")

    def play(self, seconds: float) -> tuple[int, float]:
        """Play; give the steps of all environments, and the seconds that they took."""
        sends, spent = for_seconds(self.actor.play_and_send, seconds)
        return sends * self.steps_of_a_send, spent


class SoloLearner:
    """The learner with a replay that is full of what an actor has played, and nobody who adds."""

    def __init__(self, config: Config) -> None:
        solo = SoloActor(config)
        self.common, self.clocks = solo.common, Clocks()
        while self.common.steps < min(FILLED, config.capacity):
            solo.actor.play_and_send()
        self.learner: Learner = make_learner(self.common, RunSeeds(config).network, None, hear_nothing)

    def wear_clocks(self) -> None:
        """Put a clock on each part."""
        learner, clocks = self.learner, self.clocks
        clocks.put_on("sample", self.common.replay, "sample")
        clocks.put_on("update", learner.agent, "update")
        clocks.put_on("priorities", self.common.replay, "update_priorities")
        clocks.put_on("read weights", learner.agent, "weights")
        clocks.put_on("publish", self.common.mailbox, "publish")
        clocks.put_on("record", learner, "progress")

    def learn(self, seconds: float) -> tuple[int, float]:
        """Learn; give the updates, and the seconds that they took."""
        config = self.common.config

        def once() -> None:
            rows = self.common.replay.sample(config.batch_size, beta=config.beta)
            self.learner.update(Sample(rows, rows["weights"], rows["indexes"]))

        return for_seconds(once, seconds)


def profile(config: Config, seconds: float) -> dict[str, dict[str, float]]:
    """Measure the parts of an actor's step and of a learner's update, each alone, in microseconds."""
    actor, learner = SoloActor(config), SoloLearner(config)
    parts: dict[str, dict[str, float]] = {}
    for name, solo, work in (("actor", actor, actor.play), ("learner", learner, learner.learn)):
        work(seconds / 4)  # warm
        solo.wear_clocks()
        count, spent = work(seconds)
        parts[name] = solo.clocks.shares_of(spent, count)
    return parts
