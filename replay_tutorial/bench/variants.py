"""The operations of `bench buffers` on episodes and with sampling schemes.

- `sequences`: windows of consecutive steps
- `hindsight`: rows with goals achieved later in the same episode
- `schemes`: other ways to choose rows

TorchRL looks for the ends of episodes again after every `add`, and cpprb stores the goals at the end of an
episode. So `sample` is also timed together with `add`, one step for each sample, as in training.
"""

import itertools
import math
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from replay_tutorial.bench.cases import LEARNER_BATCH, Case, MakeWorkload, in_sequence
from replay_tutorial.bench.peers import episodes
from replay_tutorial.bench.peers.lineup import Side
from replay_tutorial.bench.peers.peer import CEILING, OURS, Kind, Values, each
from replay_tutorial.buffers.rank_based import RankBased
from replay_tutorial.buffers.schemes import Combined, Geometric, Reverse, Scheme, Uniform
from replay_tutorial.measuring.timing import Workload

CHECKED = 64  # samples
FAULTS = {
    episodes.WINDOWS: "windows are not consecutive steps of one episode",
    episodes.GOALS: "rows have a goal that was not achieved after their action, in their episode",
}


def on_episodes(kind: Kind, goals: bool, size: int, steps: int = 0) -> MakeWorkload:
    """Return a function that builds a workload: `sample`, or `steps` times `add` of one step and `sample`.

    The buffer is filled with whole episodes, with or without goals, and its samples are checked.
    """

    def episode(side: Side, number: int) -> Values:
        values = episodes.episode_of(number, goals)
        if kind.variant == episodes.WINDOWS and side.name != OURS:
            del values["next_obs"]  # the obs of the next step
        return values

    def prepare(side: Side) -> Workload | None:
        def step(i: int) -> Values:
            return {name: each(value, itemgetter(i)) for name, value in episode(side, 0).items()}

        if kind not in side.rows:
            count = math.ceil(kind.capacity / episodes.EPISODE)
            side.rows[kind] = side.full(step(0), kind, (episode(side, number) for number in range(count)))
        if (buffer := side.rows[kind]) is None:
            return None
        sample: Any = buffer.sampling(size)
        if steps:
            adds: Any = itertools.cycle([buffer.adding(step(i)) for i in range(episodes.EPISODE)])
            return in_sequence(*(lambda: next(adds)(), sample) * steps)
        if columns := episodes.COLUMNS.get((side.name, kind.variant)):
            broken = float(np.mean([episodes.share_of_broken(*columns(sample())) for _ in range(CHECKED)]))
            if broken:
                side.faults[side.name] = f"{broken:.1%} of its {FAULTS[kind.variant]}"
        return sample

    return prepare


def sequences(capacity: int) -> list[Case]:
    """Return the cases of `sequences`."""
    kind, label = Kind(capacity, variant=episodes.WINDOWS), f"sample 32 windows of {episodes.LENGTH} steps"
    return [
        Case(label, on_episodes(kind, False, 32)),
        Case(f"add 1 + {label}", on_episodes(kind, False, 32, steps=1)),
    ]


def hindsight(capacity: int) -> list[Case]:
    """Return the cases of `hindsight`."""
    plain, relabelled = Kind(capacity), Kind(capacity, variant=episodes.GOALS)
    return [
        Case("sample 256, without hindsight", on_episodes(plain, True, 256)),
        Case("sample 256, future goals", on_episodes(relabelled, True, 256)),
        Case(
            f"{episodes.EPISODE} × (add 1 + sample 256), future goals",
            on_episodes(relabelled, True, 256, episodes.EPISODE),
        ),
    ]


def by_scheme(kind: Kind, scheme: Scheme | None) -> MakeWorkload:
    """Return a function that builds a workload: `sample` with a scheme, with an update if prioritized."""

    def prepare(side: Side) -> Workload | None:
        other = side.name not in (OURS, CEILING)
        if other and not isinstance(scheme, Reverse | None):
            return None
        buffer: Any = side.full_of_rows(replace(kind, variant=episodes.REVERSE if other and scheme else ""))
        if buffer is None:
            return None
        options = {"scheme": scheme} if scheme and side.name == OURS else {}
        return (buffer.updating if kind.prioritized else buffer.sampling)(LEARNER_BATCH, **options)

    return prepare


def schemes(capacity: int) -> list[Case]:
    """Return the cases of `schemes`, without a scheme first."""
    uniform, prioritized = Kind(capacity), Kind(capacity, prioritized=True)
    sample, pair = f"sample {LEARNER_BATCH}", f"sample {LEARNER_BATCH} + update {LEARNER_BATCH}"
    return [
        Case(f"{sample}, uniform", by_scheme(uniform, None)),
        Case(f"{sample}, Uniform()", by_scheme(uniform, Uniform())),
        Case(f"{sample}, Geometric(half_life=100_000)", by_scheme(uniform, Geometric(half_life=100_000))),
        Case(f"{sample}, Combined()", by_scheme(uniform, Combined())),
        Case(f"{sample}, Reverse()", by_scheme(uniform, Reverse())),
        Case(f"{pair}, prioritized", by_scheme(prioritized, None)),
        Case(f"{pair}, RankBased()", by_scheme(prioritized, RankBased())),
    ]
