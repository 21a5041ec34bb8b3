"""Who keeps Atari-like transitions, and in which layout: each fills its buffer in a process of its own.

A transition is a stack of four 84 by 84 pictures, the next stack, action, reward and done. Each step brings
one new picture; an episode has 1,000 steps and begins with its first picture four times. So 7,056 bytes of
a transition are new, and 56,448 are what it shows.

Left out: what else a library has running (TensorFlow, JAX): only what grows while the buffer is made and
filled counts.
"""

import importlib
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.method.system_memory import peak_memory, resident_memory

SIDE, STACK, EPISODE = 84, 4, 1000
PICTURE = SIDE * SIDE  # bytes
POOL = 64
STACKED = (SIDE, SIDE, STACK)
Picture = npt.NDArray[np.uint8]
Add = Callable[[Picture, Picture, bool], object]  # obs, next_obs, whether the episode ends


@dataclass(frozen=True)
class Layout:
    """One way to keep transitions."""

    library: str
    name: str
    package: str
    make: Callable[[int], Add]
    pictures: int  # kept of a transition, roughly: to see whether it fits
    last_axis: bool = True  # whether pictures are stacked along the last axis


def cpprb_like(package: str, kind: str, size: int, **layout: Any) -> Add:
    """Make a buffer with cpprb's calls: ours or cpprb's."""
    env_dict: dict[str, dict[str, Any]] = {
        "obs": {"shape": STACKED, "dtype": np.uint8},
        "act": {"shape": 1, "dtype": np.int64},
        "rew": {"shape": 1},
        "done": {"shape": 1},
    }
    if "next_of" not in layout:
        env_dict["next_obs"] = dict(env_dict["obs"])
    buffer = getattr(importlib.import_module(package), kind)(size, env_dict, **layout)

    def add(obs: Picture, next_obs: Picture, done: bool) -> None:
        buffer.add(obs=obs, act=1, rew=0.5, next_obs=next_obs, done=done)
        if done:
            buffer.on_episode_end()

    return add


def stable_baselines3(size: int, optimized: bool) -> Add:
    """Make Stable-Baselines3's; optimized, it keeps next_obs as the obs of the next row."""
    kind = importlib.import_module("stable_baselines3.common.buffers").ReplayBuffer
    spaces = importlib.import_module("gymnasium.spaces")
    observations = spaces.Box(0, 255, STACKED, np.uint8)
    more = {"optimize_memory_usage": True, "handle_timeout_termination": False} if optimized else {}
    buffer = kind(size, observations, spaces.Discrete(4), device="cpu", **more)
    act, rew = np.ones((1, 1), np.int64), np.full(1, 0.5, np.float32)

    def add(obs: Picture, next_obs: Picture, done: bool) -> None:
        buffer.add(obs[np.newaxis], next_obs[np.newaxis], act, rew, np.array([done]), [{}])

    return add


def tianshou(size: int, **layout: Any) -> Add:
    """Make tianshou's, plainly or with its options for pictures."""
    data = importlib.import_module("tianshou.data")
    buffer = data.ReplayBuffer(size, **layout)

    def add(obs: Picture, next_obs: Picture, done: bool) -> None:
        row = {"obs": obs, "act": 1, "rew": 0.5, "terminated": done, "truncated": False, "obs_next": next_obs}
        buffer.add(data.Batch(**row, info={}))

    return add


def torchrl(size: int) -> Add:
    """Make TorchRL's buffer of tensors in memory."""
    data, tensordict = importlib.import_module("torchrl.data"), importlib.import_module("tensordict")
    torch = importlib.import_module("torch")
    buffer = data.TensorDictReplayBuffer(storage=data.LazyTensorStorage(size))

    def add(obs: Picture, next_obs: Picture, done: bool) -> None:
        row = {"obs": torch.from_numpy(obs), "next_obs": torch.from_numpy(next_obs), "act": 1, "rew": 0.5}
        buffer.add(tensordict.TensorDict({**row, "done": done}))

    return add


def plain_deque(size: int) -> Add:
    """Make a deque of tuples, which share an observation's memory with the row before."""
    rows = deque[tuple[Any, ...]](maxlen=size)
    return lambda obs, next_obs, done: rows.append((obs, 1, 0.5, next_obs, done))


def ours(name: str, pictures: int, kind: str = "ReplayBuffer", **layout: Any) -> Layout:
    """Return one of our layouts."""
    package = "replay_tutorial"
    return Layout("ours", name, package, lambda size: cpprb_like(package, kind, size, **layout), pictures)


def cpprb(name: str, pictures: int, **layout: Any) -> Layout:
    """Return one of cpprb's layouts."""
    return Layout(
        "cpprb", name, "cpprb", lambda size: cpprb_like("cpprb", "ReplayBuffer", size, **layout), pictures
    )


BOTH = {"next_of": "obs", "stack_compress": "obs"}
LAYOUTS = (
    ours("plain", 8),
    ours("next_of", 5, next_of="obs"),
    ours("stack_compress", 2, stack_compress=("obs", "next_obs")),
    ours("next_of and stack_compress", 2, **BOTH),
    ours("prioritized, both", 2, "PrioritizedReplayBuffer", **BOTH),
    ours("many processes, both", 2, "MPReplayBuffer", **BOTH),
    ours("many processes, plain", 8, "MPReplayBuffer"),
    cpprb("plain", 8),
    cpprb("next_of", 4, next_of="obs"),
    cpprb("stack_compress", 3, stack_compress=("obs", "next_obs")),
    cpprb("next_of and stack_compress", 2, **BOTH),
    Layout("Stable-Baselines3", "plain", "stable_baselines3", lambda size: stable_baselines3(size, False), 8),
    Layout(
        "Stable-Baselines3",
        "optimize_memory_usage",
        "stable_baselines3",
        lambda size: stable_baselines3(size, True),
        4,
    ),
    Layout("TorchRL", "LazyTensorStorage", "torchrl", torchrl, 8),
    Layout("deque", "of tuples", "collections", plain_deque, 4),
    Layout("tianshou", "plain", "tianshou", tianshou, 8, last_axis=False),
    Layout(
        "tianshou",
        "ignore_obs_next, save_only_last_obs",
        "tianshou",
        lambda size: tianshou(size, ignore_obs_next=True, save_only_last_obs=True, stack_num=STACK),
        1,
        last_axis=False,
    ),
)


def make_pool() -> Picture:
    """Make what pictures are made of: uint8[POOL, SIDE, SIDE]."""
    return np.random.default_rng(0).integers(0, 256, (POOL, SIDE, SIDE), dtype=np.uint8)


def picture(pool: Picture, number: int) -> Picture:
    """Make a picture that was never shown before, or a buffer could find it among those that it has."""
    new = pool[number % POOL].copy()
    new.reshape(-1)[:8] = np.array([number]).view(np.uint8)
    return new


def stacks(pool: Picture, rows: int, last_axis: bool) -> Iterator[tuple[Picture, bool]]:
    """Yield the stack after each of `rows` steps, preceded by that at the beginning of each episode.

    Args:
        pool: What pictures are made of, in turn.
        rows: How many steps.
        last_axis: Whether to stack along the last axis, or the first.

    Yields:
        The stack, and whether an episode begins with it.
    """
    axis = -1 if last_axis else 0
    numbers, shown = itertools.count(), deque[Picture](maxlen=STACK)
    for step in range(rows):
        if step % EPISODE == 0:
            shown.extend([picture(pool, next(numbers))] * STACK)
            yield np.stack(shown, axis), True
        shown.append(picture(pool, next(numbers)))
        yield np.stack(shown, axis), False


def fill(number: int, rows: int) -> None:
    """Make a buffer of `rows` rows, fill it, and print what that took, in bytes, as one line of JSON."""
    layout = LAYOUTS[number]
    importlib.import_module(layout.package)
    # A small one first, so that what a library sets up once is there before the count begins.
    pool = make_pool()
    add_rows(layout.make(100), pool, 8, layout.last_axis)
    before = resident_memory()
    add = layout.make(rows)
    add_rows(add, pool, rows, layout.last_axis)
    print(json.dumps({"growth": resident_memory() - before, "peak": peak_memory()}, allow_nan=False))


def add_rows(add: Add, pool: Picture, rows: int, last_axis: bool) -> None:
    """Add transitions, one at a time."""
    obs, added = np.zeros(0, np.uint8), 0
    for stack, begins in stacks(pool, rows, last_axis):
        if not begins:
            added += 1
            add(obs, stack, added % EPISODE == 0)
        obs = stack
