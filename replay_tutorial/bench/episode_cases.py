"""The operations of `bench buffers` on episodes.

- `sequences`: windows of consecutive steps
- `hindsight`: rows with goals achieved later in the same episode

TorchRL looks for the ends of episodes again after every `add`, and cpprb stores the goals at the end of an
episode. So `sample` is also timed together with `add`, one step for each sample, as in training.
"""

import itertools
import math
from operator import itemgetter
from typing import Any

import numpy as np

from replay_tutorial.bench.cases import Case, MakeWorkload, in_sequence
from replay_tutorial.bench.peers import episodes
from replay_tutorial.bench.peers.buffer import OURS, Kind, Values, each
from replay_tutorial.bench.peers.lineup import Peer
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

    def episode(peer: Peer, number: int) -> Values:
        values = episodes.episode_of(number, goals)
        if kind.variant == episodes.WINDOWS and peer.name != OURS:
            del values["next_obs"]  # the obs of the next step
        return values

    def prepare(peer: Peer) -> Workload | None:
        def step(i: int) -> Values:
            return {name: each(value, itemgetter(i)) for name, value in episode(peer, 0).items()}

        if kind not in peer.buffers:
            count = math.ceil(kind.capacity / episodes.EPISODE)
            peer.buffers[kind] = peer.full(step(0), kind, (episode(peer, number) for number in range(count)))
        if (buffer := peer.buffers[kind]) is None:
            return None
        sample: Any = buffer.sampling(size)
        if steps:
            adds: Any = itertools.cycle([buffer.adding(step(i)) for i in range(episodes.EPISODE)])
            return in_sequence(*(lambda: next(adds)(), sample) * steps)
        if columns := episodes.COLUMNS.get((peer.name, kind.variant)):
            broken = float(np.mean([episodes.share_of_broken(*columns(sample())) for _ in range(CHECKED)]))
            if broken:
                peer.faults[peer.name] = f"{broken:.1%} of its {FAULTS[kind.variant]}"
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
