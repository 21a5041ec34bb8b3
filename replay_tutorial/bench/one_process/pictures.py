"""`python -m replay_tutorial bench pictures`: Atari's stacks of frames, plain and with frames stored once.

A transition of two stacks of four frames is 56 KB: what counts is how often these bytes are moved, and
whether the memory that they are moved into is new.

Left out: how much memory frames take; `memory` has that.
"""

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.bench.one_process.cases import Case, run_all
from replay_tutorial.bench.peers.ordinary import Ordinary

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


def beside_adding(
    count: int, dtype: type = np.uint8, once: Collection[str] = ()
) -> Callable[[type[Ordinary]], Workload | None]:
    """Return what makes the workload of a learning library: as `adding`, and always channel-first."""

    def make(library: type[Ordinary]) -> Workload | None:
        if (buffer := beside(library, count, once)) is None:
            return None
        seen = stacks(CHANNEL_FIRST, 257).astype(dtype)
        adds = [buffer.adding(step(seen, i, count)) for i in range(0, 256 - count + 1, count)]
        turns = itertools.cycle(adds)
        return lambda: next(turns)()

    return make


def beside_sampling(size: int, once: Collection[str] = ()) -> Callable[[type[Ordinary]], Workload | None]:
    """Return what makes the workload of a learning library: its `sample`, whose fields are contiguous."""

    def make(library: type[Ordinary]) -> Workload | None:
        buffer = beside(library, 1, once)
        return None if buffer is None else buffer.sampling(size)

    return make


def beside(library: type[Ordinary], environments: int, once: Collection[str]) -> Ordinary | None:
    """Return a full buffer of a learning library; None if it can't store that once."""
    if not set(once) <= set(library.once):
        return None
    return library(step(stacks(CHANNEL_FIRST, 9), 0, environments), CAPACITY, environments, False, once)


def step(seen: Pictures, i: int, count: int) -> dict[str, Any]:
    """Return a transition, or a batch of those that follow each other."""
    if count == 1:
        return {"obs": seen[i], "act": 0, "rew": 0.0, "next_obs": seen[i + 1]}
    zeros, steps, following = np.zeros(count), seen[i : i + count], seen[i + 1 : i + 1 + count]
    return {"obs": steps, "act": zeros.astype(np.int64), "rew": zeros, "next_obs": following}


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
    one, eight = moving(first, 1, add=True), moving(first, 8, add=True)
    floats = "plain, add 1, float32 frames"
    rows = [
        Case("plain, add 1", adding(first, 1, np.uint8), one, beside_adding(1)),
        Case("plain, add 8", adding(first, 8, np.uint8), eight, beside_adding(8)),
        Case(floats, adding(first, 1, np.float32), one, beside_adding(1, np.float32)),
    ]
    for size in (32, 512):
        plain, ceiling = sampling(first, size), moving(first, size, add=False)
        beside_ours = beside_sampling(size)
        rows.append(Case(f"plain, sample {size}", plain, ceiling, beside_ours))
        for threads in (1, 2):
            ours = sampling(first, size, into=True, threads=threads)
            said = f"plain, sample {size}, out=" + (f", {threads} threads" if threads > 1 else "")
            rows.append(Case(said, ours, ceiling, beside_ours, theirs=plain))
    ways: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("channel-first, next_of", first, {"next_of": "obs"}),
        ("channel-last, next_of + stack_compress", last, {"next_of": "obs", "stack_compress": "obs"}),
    ]
    for name, shape, options in ways:
        add, ceiling = adding(shape, 1, np.uint8, **options), moving(shape, 1, add=True, pictures=1)
        rows.append(Case(f"{name}, add 1", add, ceiling, beside_adding(1, once=options)))
        plain = {size: sampling(shape, size, **options) for size in (32, 512)}
        ceilings = {size: moving(shape, size, add=False) for size in (32, 512)}
        besides = {size: beside_sampling(size, options) for size in (32, 512)}
        for size in (32, 512):
            rows.append(Case(f"{name}, sample {size}", plain[size], ceilings[size], besides[size]))
        copied = sampling(shape, 32, contiguous=True, **options)
        rows.append(Case(f"{name}, sample 32, each field contiguous", copied, ceilings[32], besides[32]))
        ours = sampling(shape, 512, into=True, **options)
        rows.append(Case(f"{name}, sample 512, out=", ours, ceilings[512], besides[512], theirs=plain[512]))
    return rows


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    about = (
        f"Uniform buffers of {CAPACITY:,} transitions, two stacks of 4 × 84 × 84 uint8 each, full. `out=` "
        "and threads are ours alone: beside them stands the others' plain `sample`. The ceiling copies as "
        "many pictures with NumPy into the same memory. The learning libraries have their stacks "
        "channel-first; a figure below 1, in bold, is one where ours is slower."
    )
    return run_all("pictures", "Measure stacks of frames.", cases(), about, argv)
