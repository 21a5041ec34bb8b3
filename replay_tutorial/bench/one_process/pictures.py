"""`python -m replay_tutorial bench pictures`: Atari's stacks of frames, plain and with frames stored once.

A transition of two stacks of four frames is 56 KB: what counts is how often these bytes are moved, and
whether the memory that they are moved into is new.

Left out: how much memory frames take; `memory` has that.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.bench.one_process.cases import Case, run_all

CAPACITY = 2000
CHANNEL_FIRST, CHANNEL_LAST = (4, 84, 84), (84, 84, 4)

Pictures = npt.NDArray[np.uint8]


def stacks(shape: tuple[int, ...], count: int) -> Pictures:
    """Draw the observations of one episode: each has three frames of the one before it."""
    frames = np.random.default_rng(0).integers(0, 256, (count + 3, 84, 84), dtype=np.uint8)
    windows = np.stack([frames[i : i + count] for i in range(4)], axis=1)
    return windows if shape == CHANNEL_FIRST else np.ascontiguousarray(np.moveaxis(windows, 1, -1))


def filled(module: Any, shape: tuple[int, ...], **options: Any) -> tuple[Any, Pictures]:
    """Return a full buffer, and the observations that it was filled with."""
    picture = {"shape": shape, "dtype": np.uint8}
    env_dict: dict[str, Any] = {"obs": picture, "act": {"dtype": np.int64}, "rew": {}, "done": {}}
    if "next_of" not in options:
        env_dict["next_obs"] = picture
    buffer, seen = module.ReplayBuffer(CAPACITY, env_dict, **options), stacks(shape, CAPACITY + 1)
    for i in range(CAPACITY):
        buffer.add(obs=seen[i], act=0, rew=0.0, next_obs=seen[i + 1], done=0.0)
    return buffer, seen


def adding(shape: tuple[int, ...], count: int, dtype: type, **options: Any) -> Callable[[Any], Workload]:
    """Return what makes the workload of a library: `add` of the steps that follow each other."""

    def make(module: Any) -> Workload:
        buffer, seen = filled(module, shape, **options)
        seen = seen[:257].astype(dtype)
        places = itertools.cycle(range(0, 256 - count + 1, count))
        actions, zeros = np.zeros(count, np.int64), np.zeros(count)

        def add() -> None:
            i = next(places)
            if count == 1:
                buffer.add(obs=seen[i], act=0, rew=0.0, next_obs=seen[i + 1], done=0.0)
            else:
                steps, following = seen[i : i + count], seen[i + 1 : i + 1 + count]
                buffer.add(obs=steps, act=actions, rew=zeros, next_obs=following, done=zeros)

        return add

    return make


def sampling(
    shape: tuple[int, ...],
    size: int,
    *,
    contiguous: bool = False,
    into: bool = False,
    threads: int = 1,
    **options: Any,
) -> Callable[[Any], Workload]:
    """Return what makes the workload of a library: a `sample`; `into` and `threads` are ours alone."""

    def make(module: Any) -> Workload:
        buffer, _ = filled(module, shape, **options)
        if into:
            out = {name: np.zeros((size, *shape), np.uint8) for name in ("obs", "next_obs")}
            return lambda: buffer.sample(size, out=out, threads=threads)
        if contiguous:
            return lambda: {name: np.ascontiguousarray(field) for name, field in buffer.sample(size).items()}
        return lambda: buffer.sample(size)

    return make


def moving(shape: tuple[int, ...], count: int, *, add: bool, pictures: int = 2) -> Callable[[], Workload]:
    """Return what makes the ceiling: copies of as many pictures."""

    def make() -> Workload:
        seen = stacks(shape, CAPACITY)
        if add:
            given = seen[:count].copy()
            places = itertools.cycle(range(0, CAPACITY - count + 1, count))

            def assign() -> None:
                for _ in range(pictures):
                    start = next(places)
                    seen[start : start + count] = given

            return assign
        slots = itertools.cycle(list(np.random.default_rng(0).integers(0, CAPACITY, (64, count))))
        out = np.empty((count, *shape), np.uint8)

        def take() -> None:
            for _ in range(pictures):
                np.take(seen, next(slots), axis=0, out=out, mode="clip")

        return take

    return make


def cases() -> list[Case]:
    """Return the table's rows."""
    first, last = CHANNEL_FIRST, CHANNEL_LAST
    rows = [
        Case("plain, add 1", adding(first, 1, np.uint8), moving(first, 1, add=True)),
        Case("plain, add 8", adding(first, 8, np.uint8), moving(first, 8, add=True)),
        Case("plain, add 1, float32 frames", adding(first, 1, np.float32), moving(first, 1, add=True)),
    ]
    for size in (32, 512):
        plain, ceiling = sampling(first, size), moving(first, size, add=False)
        rows.append(Case(f"plain, sample {size}", plain, ceiling))
        for threads in (1, 2):
            ours = sampling(first, size, into=True, threads=threads)
            said = f"plain, sample {size}, out=" + (f", {threads} threads" if threads > 1 else "")
            rows.append(Case(said, ours, ceiling, theirs=plain))
    ways: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("channel-first, next_of", first, {"next_of": "obs"}),
        ("channel-last, next_of + stack_compress", last, {"next_of": "obs", "stack_compress": "obs"}),
    ]
    for name, shape, options in ways:
        add = adding(shape, 1, np.uint8, **options)
        rows.append(Case(f"{name}, add 1", add, moving(shape, 1, add=True, pictures=1)))
        for size in (32, 512):
            ceiling = moving(shape, size, add=False)
            rows.append(Case(f"{name}, sample {size}", sampling(shape, size, **options), ceiling))
        copied = sampling(shape, 32, contiguous=True, **options)
        ceiling = moving(shape, 32, add=False)
        rows.append(Case(f"{name}, sample 32, each field contiguous", copied, ceiling))
        plain, ours = sampling(shape, 512, **options), sampling(shape, 512, into=True, **options)
        ceiling = moving(shape, 512, add=False)
        rows.append(Case(f"{name}, sample 512, out=", ours, ceiling, theirs=plain))
    return rows


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    about = (
        f"Uniform buffers of {CAPACITY:,} transitions, two stacks of 4 × 84 × 84 uint8 each, full. `out=` "
        "and threads are ours alone: beside them stands cpprb's plain `sample`. The ceiling copies as many "
        "pictures with NumPy into the same memory."
    )
    return run_all("pictures", "Measure stacks of frames.", cases(), about, argv)
