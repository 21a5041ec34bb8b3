"""The operations that `python -m benchmarks buffers` measures.

- `rows`: add, sample and update of float32 rows, which every library stores without conversion
- `inputs`: `add` of float64 observations, lists, nested dicts and batches of eight environments
- `pictures`: add and sample of Atari's frame stacks, 56 KB per transition, with and without deduplication
- `schemes`: other ways to choose rows
- `kernels`: our calls compared with the kernels that they call
- `sequences`: windows of consecutive steps
- `hindsight`: rows with goals achieved later in the same episode

Libraries may defer work: cpprb updates its tree in the next `sample` and stores hindsight goals at the end of
an episode, and TorchRL looks for the ends of episodes again after every `add`. So `sample` is timed together
with `update_priorities`, and `add` together with the `sample` that follows.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers import episodes
from benchmarks.peers.buffer import (
    ALPHA,
    CEILING,
    FIELDS,
    OURS,
    Buffer,
    Float32Array,
    Kind,
    Values,
    each,
    random_rows,
)
from benchmarks.peers.lineup import MakeWorkload, Peer
from replay_course.timing import FloatArray, SelfTimed, Workload
from replay_tutorial.buffers.fields import Fields, as_bytes
from replay_tutorial.buffers.rows import take_rows
from replay_tutorial.buffers.schemes import Combined, Geometric, RankBased, Reverse, Scheme, Uniform
from replay_tutorial.buffers.sum_tree import SumTree, find_leaves, set_leaves

BATCH_SIZES = (32, 64, 256, 512)
MANY = 101  # rows of a batched add: the largest batch in cpprb's own benchmark
LEARNER_BATCH = 512  # Ape-X's batch

Cases = dict[str, MakeWorkload]
"""Operation, which is a row of the table → the function that builds its workload."""


def on_rows(kind: Kind, do: Callable[[Buffer], Workload | None]) -> MakeWorkload:
    """Return a function that fills a buffer with random rows and then calls `do` to build the workload."""

    def prepare(peer: Peer) -> Workload | None:
        buffer = peer.full_of_rows(kind)
        return None if buffer is None else do(buffer)

    return prepare


def in_sequence(*works: Workload | None) -> Workload | None:
    """Return a workload that calls several in order, or None if any is None or runs in another process."""
    known = [work for work in works if work is not None and not isinstance(work, SelfTimed)]

    def call_each() -> None:
        for work in known:
            work()

    return call_each if len(known) == len(works) else None


def adding(kind: Kind, count: int | None, priorities: Float32Array | None = None) -> MakeWorkload:
    """Return a function that builds a workload: `add` of `count` random rows, or of one unbatched row."""
    rows: Values = random_rows(np.random.default_rng(2), count)
    if priorities is not None:
        rows = {**rows, "priorities": priorities}

    def add(buffer: Buffer) -> Workload | None:
        if priorities is not None and not buffer.takes_priorities:
            return None
        return buffer.adding(rows) if count is None else buffer.extending(rows)

    return on_rows(kind, add)


def sampling(kind: Kind, size: int) -> MakeWorkload:
    """Return a function that builds a workload: `sample` with a batch of `size`."""
    return on_rows(kind, lambda buffer: buffer.sampling(size))


def updating(kind: Kind, size: int) -> MakeWorkload:
    """Return a function that builds a workload: `sample` and `update_priorities` with a batch of `size`."""
    return on_rows(kind, lambda buffer: buffer.updating(size))


def each_field_contiguous(prepare: MakeWorkload, names: Sequence[str]) -> MakeWorkload:
    """Return a variant in which these peers copy each sampled field to a contiguous array.

    The samples of the other libraries are contiguous already.
    """

    def contiguous(peer: Peer) -> Workload | None:
        sample: Any = prepare(peer)
        if peer.name not in names:
            return sample
        return lambda: {name: np.ascontiguousarray(field) for name, field in sample().items()}

    return contiguous


def rows(capacity: int) -> Cases:
    """Return the cases of `rows`: add, sample and update."""
    uniform, prioritized = Kind(capacity), Kind(capacity, prioritized=True)
    cases = {f"sample {size}, uniform": sampling(uniform, size) for size in BATCH_SIZES}
    copied = each_field_contiguous(sampling(uniform, LEARNER_BATCH), [OURS])
    cases[f"sample {LEARNER_BATCH}, uniform, each field copied"] = copied
    for size in BATCH_SIZES:
        cases[f"sample {size} + update {size}, prioritized"] = updating(prioritized, size)
    masses = np.random.default_rng(2).exponential(size=MANY).astype(np.float32)
    for count in (None, MANY):
        add, given = f"add {count or 1}", masses[: count or 1]
        cases[f"{add}, uniform"] = adding(uniform, count)
        cases[f"{add}, prioritized"] = adding(prioritized, count)
        cases[f"{add}, prioritized, with priorities"] = adding(prioritized, count, given)
    sample = sampling(prioritized, LEARNER_BATCH)
    for label, given in (("prioritized", None), ("prioritized, with priorities", masses)):
        add = adding(prioritized, MANY, given)
        both: MakeWorkload = lambda peer, add=add: in_sequence(add(peer), sample(peer))
        cases[f"add {MANY} + sample {LEARNER_BATCH}, {label}"] = both
    return cases


def values_of(count: int | None, dtype: type) -> dict[str, Any]:
    """Return `count` random transitions with scalar fields of shape (count,), or one if `count` is None."""
    rng, batch = np.random.default_rng(0), () if count is None else (count,)
    shapes = {name: batch if size == 1 and count else (*batch, size) for name, size in FIELDS.items()}
    return {name: rng.random(shape).astype(dtype) for name, shape in shapes.items()}


def nested(values: Values) -> dict[str, Any]:
    """Return the values with each observation split into a dict of two fields."""
    parts = {
        name: {"joints": values[name][..., :12], "goal": values[name][..., 12:]}
        for name in ("obs", "next_obs")
    }
    return {**values, **parts}


def adding_input(
    capacity: int, steps: Sequence[Values], environments: int = 1, many: bool = False
) -> MakeWorkload:
    """Return a function that builds a workload: `add` of each step, prioritized if the library can."""

    def prepare(peer: Peer) -> Workload | None:
        kind = Kind(capacity, prioritized=True, environments=environments)
        example, batch = values_of(None, np.float32), values_of(capacity, np.float32)
        if isinstance(steps[0]["obs"], dict):
            example, batch = nested(example), nested(batch)
        buffer = peer.full(example, kind, [batch])
        if buffer is None:
            buffer = peer.full(example, replace(kind, prioritized=False), [batch])
        if buffer is None:
            return None
        return in_sequence(*(buffer.extending(values) if many else buffer.adding(values) for values in steps))

    return prepare


def inputs(capacity: int) -> Cases:
    """Return the cases of `inputs`: `add` of the inputs of typical programs."""
    one, eight = values_of(None, np.float64), values_of(8, np.float64)
    lists = {name: value.tolist() for name, value in one.items()}
    apart = [{name: column[i] for name, column in eight.items()} for i in range(8)]
    cases = {
        "add 1, float32": adding_input(capacity, [values_of(None, np.float32)]),
        "add 1, float64": adding_input(capacity, [one]),
        "add 1, lists": adding_input(capacity, [lists]),
        "add 1, nested dicts of float64": adding_input(capacity, [nested(one)]),
        "add 8, float64, rewards (8,)": adding_input(capacity, [eight], environments=8),
        "8 rows one by one, float64": adding_input(capacity, apart),
    }
    many = min(10_000, capacity)
    for dtype in (np.float32, np.float64):
        batch = values_of(many, dtype)
        cases[f"add {many:,}, {dtype.__name__}"] = adding_input(capacity, [batch], many=True)
    return cases


CHANNEL_FIRST, CHANNEL_LAST = (4, 84, 84), (84, 84, 4)
Pictures = npt.NDArray[np.uint8]


def stacks(shape: tuple[int, ...], count: int) -> Pictures:
    """Return uint8[count, *shape]: observations of one episode, which share three of four random frames."""
    frames = np.random.default_rng(0).integers(0, 256, (count + 3, 84, 84), dtype=np.uint8)
    windows = np.stack([frames[i : i + count] for i in range(4)], axis=1)
    return windows if shape == CHANNEL_FIRST else np.ascontiguousarray(np.moveaxis(windows, 1, -1))


def steps_of(seen: npt.NDArray[Any], first: int, count: int) -> dict[str, Any]:
    """Return a batch of consecutive transitions, or one unbatched transition if `count` is 1."""
    zeros, obs = np.zeros(count, np.float32), seen[first : first + count]
    after = seen[first + 1 : first + 1 + count]
    batch = {"obs": obs, "act": zeros.astype(np.int64), "rew": zeros, "next_obs": after, "done": zeros}
    return batch if count > 1 else {name: column[0] for name, column in batch.items()}


def full_of_pictures(peer: Peer, kind: Kind, shape: tuple[int, ...]) -> tuple[Buffer | None, Pictures]:
    """Return a full buffer and its first 257 observations; learning libraries stack channel-first."""
    any_shape = peer.name in (OURS, "cpprb", CEILING)
    seen = stacks(shape if any_shape else CHANNEL_FIRST, kind.capacity + 1)
    rows = kind.capacity // kind.environments * kind.environments
    buffer = peer.full(steps_of(seen, 0, 1), kind, [steps_of(seen, 0, rows)])
    return buffer, seen[:257]


def adding_pictures(kind: Kind, shape: tuple[int, ...], dtype: type = np.uint8) -> MakeWorkload:
    """Return a function that builds a workload: `add` of the next step of each environment."""

    def prepare(peer: Peer) -> Workload | None:
        buffer, seen = full_of_pictures(peer, kind, shape)
        if buffer is None:
            return None
        seen, count = seen.astype(dtype), kind.environments
        adds = [buffer.adding(steps_of(seen, i, count)) for i in range(0, 256 - count + 1, count)]
        turns: Any = itertools.cycle(adds)
        return lambda: next(turns)()

    return prepare


def sampling_pictures(kind: Kind, shape: tuple[int, ...], size: int) -> MakeWorkload:
    """Return a function that builds a workload: `sample` with a batch of `size`."""

    def prepare(peer: Peer) -> Workload | None:
        buffer, _ = full_of_pictures(peer, kind, shape)
        return None if buffer is None else buffer.sampling(size)

    return prepare


def pictures(capacity: int) -> Cases:
    """Return the cases of `pictures`: add and sample of frame stacks."""
    plain, first = Kind(capacity), CHANNEL_FIRST
    cases = {
        "plain, add 1": adding_pictures(plain, first),
        "plain, add 8": adding_pictures(replace(plain, environments=8), first),
        "plain, add 1, float32 frames": adding_pictures(plain, first, np.float32),
    }
    for size in (32, 512):
        cases[f"plain, sample {size}"] = sampling_pictures(plain, first, size)
    for name, shape, once in (
        ("channel-first, dedupe_next", first, ("dedupe_next",)),
        ("channel-last, dedupe_next + dedupe_frames", CHANNEL_LAST, ("dedupe_next", "dedupe_frames")),
    ):
        kind = replace(plain, once=once)
        sample_32 = sampling_pictures(kind, shape, 32)
        cases |= {
            f"{name}, add 1": adding_pictures(kind, shape),
            f"{name}, sample 32": sample_32,
            f"{name}, sample 512": sampling_pictures(kind, shape, 512),
            f"{name}, sample 32, each field contiguous": each_field_contiguous(sample_32, [OURS, "cpprb"]),
        }
    return cases


def by_scheme(kind: Kind, scheme: Scheme | None) -> MakeWorkload:
    """Return a function that builds a workload: `sample` with a scheme, with an update if prioritized."""

    def prepare(peer: Peer) -> Workload | None:
        other = peer.name not in (OURS, CEILING)
        if other and not isinstance(scheme, Reverse | None):
            return None
        buffer: Any = peer.full_of_rows(replace(kind, variant=episodes.REVERSE if other and scheme else ""))
        if buffer is None:
            return None
        options = {"scheme": scheme} if scheme and peer.name == OURS else {}
        return (buffer.updating if kind.prioritized else buffer.sampling)(LEARNER_BATCH, **options)

    return prepare


def schemes(capacity: int) -> Cases:
    """Return the cases of `schemes`, without a scheme first."""
    uniform, prioritized = Kind(capacity), Kind(capacity, prioritized=True)
    sample, pair = f"sample {LEARNER_BATCH}", f"sample {LEARNER_BATCH} + update {LEARNER_BATCH}"
    return {
        f"{sample}, uniform": by_scheme(uniform, None),
        f"{sample}, Uniform()": by_scheme(uniform, Uniform()),
        f"{sample}, Geometric(half_life=100_000)": by_scheme(uniform, Geometric(half_life=100_000)),
        f"{sample}, Combined()": by_scheme(uniform, Combined()),
        f"{sample}, Reverse()": by_scheme(uniform, Reverse()),
        f"{pair}, prioritized": by_scheme(prioritized, None),
        f"{pair}, RankBased()": by_scheme(prioritized, RankBased()),
    }


def kernels(capacity: int) -> Cases:
    """Return the cases of `kernels`; their ceiling is the kernels, without draws, checks and weights."""
    rng = np.random.default_rng(2)
    dtype = Fields({name: {"shape": shape} for name, shape in FIELDS.items()}).dtype
    stored, tree = as_bytes(np.ones(capacity, dtype)), SumTree(capacity)

    def masses(count: int) -> FloatArray:
        return (rng.exponential(size=count) + 1e-4) ** ALPHA

    tree.set(np.arange(capacity), masses(capacity))
    # Twice as many draws as rows: a shorter list of slots would stay in the cache.
    count = max(1, 2 * capacity // LEARNER_BATCH)
    drawn = itertools.cycle(list(rng.integers(0, capacity, (count, LEARNER_BATCH))))
    stratified = (np.arange(LEARNER_BATCH) + rng.random((count, LEARNER_BATCH))) / LEARNER_BATCH
    queries = itertools.cycle(list(stratified))
    updates = itertools.cycle([masses(LEARNER_BATCH) for _ in range(256)])

    def take(slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        copies = np.empty((LEARNER_BATCH, stored.shape[1]), np.uint8)
        take_rows(stored, slots, copies)
        return slots

    def find_and_take() -> npt.NDArray[np.int64]:
        slots, _ = find_leaves(tree.sums, next(queries) * tree.total)
        return take(slots)

    def find_take_and_set() -> None:
        set_leaves(tree.sums, tree.minima, find_and_take(), next(updates))

    def beside(call: MakeWorkload, bare: Workload) -> MakeWorkload:
        return lambda peer: bare if peer.name == CEILING else call(peer)

    sample = sampling(Kind(capacity), LEARNER_BATCH)
    pair = updating(Kind(capacity, prioritized=True), LEARNER_BATCH)
    return {
        "sample 512, uniform / take_rows": beside(sample, lambda: take(next(drawn))),
        "sample 512 + update, prioritized / find_leaves, take_rows": beside(pair, find_and_take),
        "sample 512 + update, prioritized / find_leaves, take_rows, set_leaves": beside(
            pair, find_take_and_set
        ),
    }


CHECKED = 64  # samples
FAULTS = {
    episodes.WINDOWS: "windows are not consecutive steps of one episode",
    episodes.GOALS: "rows have a goal that was not achieved after their action, in their episode",
}


def on_episodes(kind: Kind, goals: bool, size: int, steps: int = 0) -> MakeWorkload:
    """Return a function that builds a workload: `sample`, or `steps` times `add` of one step and `sample`.

    The buffer is filled with whole episodes, with or without goals. Samples are checked if `steps` is 0.
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
                peer.fault = f"{broken:.1%} of its {FAULTS[kind.variant]}"
        return sample

    return prepare


def sequences(capacity: int) -> Cases:
    """Return the cases of `sequences`."""
    kind, label = Kind(capacity, variant=episodes.WINDOWS), f"sample 32 windows of {episodes.LENGTH} steps"
    return {label: on_episodes(kind, False, 32), f"add 1 + {label}": on_episodes(kind, False, 32, steps=1)}


def hindsight(capacity: int) -> Cases:
    """Return the cases of `hindsight`."""
    plain, relabelled, steps = Kind(capacity), Kind(capacity, variant=episodes.GOALS), episodes.EPISODE
    both = f"{steps} × (add 1 + sample 256), future goals"
    return {
        "sample 256, without hindsight": on_episodes(plain, True, 256),
        "sample 256, future goals": on_episodes(relabelled, True, 256),
        both: on_episodes(relabelled, True, 256, steps),
    }
