"""Random lives of a buffer, led in step with its oracle.

`Stream` makes transitions of frame stacks: obedient ones, in which each observation is the one before it
moved on by a frame, and disobedient ones, in which it is not. `History` feeds them to a buffer and to its
`PlainBuffer`, one operation after the other, and compares. `snapshot` shows all that there is to a buffer,
for tests that say "unchanged".
"""

import copy
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from oracles import PlainBuffer, assert_rows_among, assert_same_columns, names, shape_of

from replay_tutorial import MPReplayBuffer, NStep, PrioritizedReplayBuffer, ReplayBuffer


def repeatable(examples: int) -> settings:
    """Look at half as many histories: the same in every run (conftest.py), so that a failure is the code's.

    EXPLORE=5 looks at five times as many others; `make stress` does.
    """
    return settings(
        max_examples=examples * int(os.environ["EXPLORE"]) if "EXPLORE" in os.environ else examples // 2,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
    )


FLAGS = {
    "none": {},
    "done": {"done": {}},
    "terminated": {"terminated": {"dtype": bool}},
    "gymnasium": {"terminated": {"dtype": bool}, "truncated": {"dtype": bool}},
    "all three": {
        "terminated": {"dtype": np.int8},
        "truncated": {"dtype": bool},
        "done": {"dtype": np.float32},
    },
}


class Stream:
    """A make-believe environment: frame stacks of few letters, so that unequal frames often look alike.

    Args:
        rng: The source of randomness.
        shape: The shape of one observation.
        dtype: Its dtype.
        axis: The stack's axis.
        letters: Pixels are below it.
    """

    def __init__(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, axis: int, letters: int):
        self.rng, self.shape, self.dtype, self.axis, self.letters = rng, shape, np.dtype(dtype), axis, letters
        self.reset()

    def pixels(self) -> np.ndarray:
        return self.rng.integers(0, self.letters, self.shape).astype(self.dtype)

    def reset(self) -> None:
        """Start an episode: fresh frames, or, as frame stacking wrappers do it, one frame again and again."""
        self.obs = self.pixels()
        if self.shape and self.rng.random() < 0.5:
            first = np.take(self.obs, [0], axis=self.axis)
            self.obs = np.repeat(first, self.shape[self.axis], axis=self.axis)

    def step(self) -> tuple[np.ndarray, np.ndarray]:
        obs = self.obs
        self.obs = self.pixels()
        if self.shape:
            kept = np.take(obs, range(1, self.shape[self.axis]), axis=self.axis)
            newest = np.take(self.obs, [0], axis=self.axis)
            self.obs = np.concatenate([kept, newest], axis=self.axis)
        return obs, self.obs


class History:
    """A buffer and its oracle, and one operation after the other on both.

    Args:
        seed: Decides everything.
        modes: Any of "dedupe_next" and "dedupe_frames", joined by "+", or "plain".
        n: The n-step window, or None.
        kind: The class of the buffer.
        size: The capacity; drawn if None.
        shape: The observation's shape; drawn if None.
        disobedience: How often an observation is not the announced one; drawn if None.
        field_of_priority: A field that holds the priority that each transition is added with.
    """

    def __init__(
        self,
        seed: int,
        modes: str = "plain",
        n: int | None = None,
        *,
        kind: Any = ReplayBuffer,
        size: int | None = None,
        shape: tuple[int, ...] | None = None,
        field_of_priority: str | None = None,
        disobedience: float | None = None,
    ):
        rng = self.rng = np.random.default_rng(seed)
        stacked = "dedupe_frames" in modes
        self.size = int(rng.choice([1, 2, 3, 7, 8, 20])) if size is None else size
        shapes = [(2, 3), (3, 2), (2, 2), (1, 3), (3, 1), (3,), (3, 4, 4), (4, 3, 2), (2, 3, 2)]
        shapes = shapes if stacked else [*shapes, (), (1,)]
        shape = shapes[rng.integers(len(shapes))] if shape is None else shape
        dtype = rng.choice([np.uint8, np.float32, np.int64, np.float64])
        axis = 0 if not shape or shape[0] < shape[-1] else len(shape) - 1
        letters = int(rng.choice([1, 2, 3, 200]))
        self.streams = [Stream(rng, shape, dtype, axis, letters) for _ in range(2)]
        self.flags = FLAGS[rng.choice(list(FLAGS)[n is not None :])]  # a window needs a flag
        reward = {"dtype": np.float64} if rng.random() < 0.3 else {}
        self.fields: dict[str, dict[str, Any]] = {
            "obs": {"shape": shape, "dtype": dtype},
            "action": {"dtype": np.int64},  # a serial number: no two transitions are alike
            "reward": reward,
            "next_obs": {"shape": shape, "dtype": dtype},
            **self.flags,
        }
        self.field_of_priority = field_of_priority
        if field_of_priority is not None:
            self.fields[field_of_priority] = {"dtype": np.float64}
        self.arguments: dict[str, Any] = {"seed": seed}
        fields = dict(self.fields)
        if "dedupe_next" in modes:
            self.arguments["dedupe_next"] = "obs"
            if rng.random() < 0.8:
                del fields["next_obs"]  # dedupe_next makes the field
        if stacked:
            explicit = len(shape) == 2 or shape[0] == shape[-1] or rng.random() < 0.3  # ambiguous, or chosen
            keys = ["obs"] if "dedupe_next" in modes or rng.random() < 0.5 else ["obs", "next_obs"]
            self.arguments["dedupe_frames"] = dict.fromkeys(keys, axis) if explicit else keys
        n_step = None
        if n is not None:
            # halves and small integers: sums are exact in float32 too, so equality may be asked for
            n_step = self.arguments["n_step"] = NStep(n, gamma=0.5)
        if issubclass(kind, MPReplayBuffer) and modes != "plain":
            self.arguments["frames_per_transition"] = 12.0  # as much as if no frame were ever met again
        if "Prioritized" in kind.__name__:
            self.arguments.update(
                alpha=float(rng.choice([0.0, 0.6, 1.0])), eps=float(rng.choice([0.0, 1e-4, 0.5]))
            )
        self.build = lambda **options: kind(self.size, fields, **(self.arguments | options))
        self.buffer = self.build()
        self.oracle = PlainBuffer(self.size, self.fields, n_step)
        self.serial = 0
        self.interleaved = rng.random() < 0.25
        self.disobedience = float(rng.choice([0.0, 0.0, 0.1, 1.0])) if disobedience is None else disobedience
        self.endings = float(rng.choice([0.0, 0.05, 0.3]))

    def run(self, operations: int, folder: Path | None = None, compare_every: int = 3) -> None:
        for i in range(operations):
            self.operate(folder)
            self.compare_sizes()
            if i % compare_every == 0:
                self.compare_rows()
        self.compare_rows()

    def operate(self, folder: Path | None = None) -> None:
        operation = self.rng.random()
        if operation < 0.5:
            self.add(1, single=True)
        elif operation < 0.75:
            self.add(int(self.rng.integers(1, min(2 * self.size + 4, 30))), single=False)
        elif operation < 0.82:
            self.buffer.end_episode()
            self.oracle.end_episode()
            self.streams[0].reset()
        elif operation < 0.84:
            self.buffer.clear()
            self.oracle.clear()
        elif operation < 0.88:
            self.add_refused()
        elif operation < 0.90:
            copied = copy.copy if isinstance(self.buffer, MPReplayBuffer) else copy.deepcopy
            self.buffer = copied(self.buffer)
        elif operation < 0.92:
            self.buffer = pickle.loads(pickle.dumps(self.buffer))
        elif operation < 0.94 and folder is not None:
            self.buffer.save(folder / "saved")
            self.buffer = self.build()
            self.buffer.load(folder / "saved")
        elif self.oracle.rows and not self.field_of_priority:  # all priorities may be 0
            sample = self.buffer.sample(int(self.rng.integers(1, 6)))
            indexes = sample.pop("indexes", None)
            sample.pop("weights", None)
            stored = self.oracle.all_transitions()
            if indexes is None:
                assert_rows_among(sample, stored)
            else:
                at = indexes - self.oracle.oldest_index
                assert_same_columns(sample, {name: column[at] for name, column in stored.items()})

    def add(self, count: int, *, single: bool) -> None:
        batch = self.transitions(count)
        given = {name: column[0] for name, column in batch.items()} if single else batch
        extra = {"priorities": given[self.field_of_priority]} if self.field_of_priority else {}
        if self.oracle.leads_elsewhere(batch):
            with pytest.raises(ValueError, match="end_episode"):
                self.buffer.add(**given, **extra)
            self.buffer.end_episode()
            self.oracle.end_episode()
        assert self.buffer.add(**given, **extra) == self.oracle.add(batch, count)
        for column in batch.values():
            column[...] = 0  # what the caller does with the arrays afterwards must not matter

    def add_refused(self) -> None:
        """Add what can't be added: the last of a batch is at fault, after rows that are not."""
        batch = self.transitions(3)
        rewards = batch["reward"].astype(object)
        rewards[-1] = "three"
        error: type[Exception] = TypeError
        if self.rng.random() < 0.5:
            actions = batch["action"].astype(np.float64)
            actions[-1] = 0.5
            rewards, batch["action"], error = batch["reward"], actions, ValueError
        with pytest.raises(error):
            self.buffer.add(**{**batch, "reward": rewards})

    def transitions(self, count: int) -> dict[str, np.ndarray]:
        rng = self.rng
        columns: dict[str, np.ndarray] = {
            name: np.zeros((count, *shape_of(spec)), np.dtype(spec.get("dtype", np.float32)))
            for name, spec in self.fields.items()
        }
        # an n-step batch is refused unless each step leads to the next one
        chained = self.oracle.n_step is not None and count > 1
        stream = self.streams[int(rng.integers(2)) if self.interleaved else 0]
        for i in range(count):
            if not chained:
                stream = self.streams[int(rng.integers(2)) if self.interleaved else 0]
            obs, next_obs = stream.step()
            if not chained and rng.random() < self.disobedience:
                obs = stream.pixels()
            if not chained and rng.random() < self.disobedience:
                next_obs = stream.pixels()
            columns["obs"][i], columns["next_obs"][i] = obs, next_obs
            columns["action"][i] = self.serial
            columns["reward"][i] = rng.integers(-8, 9)
            if self.field_of_priority:
                columns[self.field_of_priority][i] = rng.choice([0.0, 0.001, 0.5, 1.0, 30.0])
            self.serial += 1
            if self.flags and rng.random() < self.endings:
                for name in rng.permutation(list(self.flags))[: int(rng.integers(1, 3))]:
                    columns[name][i] = 1
                if rng.random() < 0.9:
                    stream.reset()
        return columns

    def compare_sizes(self) -> None:
        buffer, oracle = self.buffer, self.oracle
        assert len(buffer) == len(oracle.rows)
        assert buffer.next_index == oracle.next_index
        if isinstance(buffer, MPReplayBuffer):
            assert buffer._episode_len() == oracle.episode_len
        assert buffer.capacity == self.size

    def compare_rows(self) -> None:
        assert_same_columns(self.buffer[:], self.oracle.all_transitions())


def steps_added(buffer: Any) -> int:
    """The number of steps that were added to a buffer, with those that wait in its window."""
    return buffer.next_index + getattr(buffer._stages, "pending_count", 0)


def snapshot(buffer: Any) -> list[Any]:
    """All that there is to a buffer, of which nothing may change in a call that is refused."""
    return [*behaviour(buffer), pickle.dumps(buffer)]


def behaviour(buffer: Any) -> list[Any]:
    """All that the buffer shows now and would do next."""
    shown: list[Any] = [
        len(buffer),
        buffer.capacity,
        buffer.next_index,
        steps_added(buffer),
        as_bytes(buffer[:]),
    ]
    if isinstance(buffer, PrioritizedReplayBuffer):
        shown += [buffer.max_priority, buffer.stale_updates]
    twin = copy.deepcopy(buffer)  # what follows shows the random state, the priorities and the open window
    if len(twin):
        arguments = {"beta": 1.0} if isinstance(buffer, PrioritizedReplayBuffer) else {}
        shown.append(as_bytes(twin.sample(16, **arguments)))
    twin.end_episode()
    shown.append(as_bytes(twin[:]))
    if isinstance(buffer, PrioritizedReplayBuffer) and len(twin):
        shown.append(as_bytes(twin.sample(16, beta=1.0)))
    return shown


def as_bytes(fields: dict[str, np.ndarray]) -> dict[str, tuple[Any, ...]]:
    return {name: (column.dtype.str, column.shape, column.tobytes()) for name, column in fields.items()}


def arrays_inside(thing: Any, seen: set[int] | None = None) -> Iterator[np.ndarray]:
    """Every array that can be reached from an object by its attributes and containers."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type, np.dtype)):
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        yield thing
        return
    parts: list[Any] = []
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        parts = list(thing)
    elif type(thing).__module__.startswith("replay_tutorial"):
        parts = list(getattr(thing, "__dict__", {}).values())
        slots = [slot for base in type(thing).__mro__ for slot in names(getattr(base, "__slots__", ()))]
        parts += [getattr(thing, slot) for slot in slots if hasattr(thing, slot)]
    for part in parts:
        yield from arrays_inside(part, seen)


def atari_like(buffer: Any, count: int, *, shape: tuple[int, ...], episode: int, seed: int = 0) -> None:
    """Add `count` obedient transitions of frame stacks, one at a time, in episodes of the given length."""
    stream = Stream(np.random.default_rng(seed), shape, np.uint8, 0, 256)
    for i in range(count):
        obs, next_obs = stream.step()
        terminated = i % episode == episode - 1
        buffer.add(obs=obs, action=i, reward=1.0, next_obs=next_obs, terminated=terminated)
        if terminated:
            buffer.end_episode()
            stream.reset()


def random_operation(buffer: Any, rng: np.random.Generator) -> Any:
    """Do one thing to a buffer made by `CONFIGURATIONS` and return all that came of it."""
    prioritized = isinstance(buffer, PrioritizedReplayBuffer)
    choice = rng.random()
    if choice < 0.45:
        return buffer.add(**example_transitions(rng, int(rng.integers(1, 4)), buffer))
    if choice < 0.5:
        priorities = {"priorities": rng.random(30) * 3} if prioritized else {}
        return buffer.add(**example_transitions(rng, 30, buffer), **priorities)
    if choice < 0.6:
        return buffer.end_episode()
    if choice < 0.61:
        return buffer.clear()
    if not len(buffer):
        return None
    if choice < 0.65:
        return as_bytes(next(buffer.epoch(len(buffer))))
    if not prioritized:
        return as_bytes(buffer.sample(int(rng.integers(1, 20))))
    sample = buffer.sample(int(rng.integers(1, 20)), beta=float(rng.random()))
    indexes = sample["indexes"] - rng.integers(0, 2) * rng.integers(0, sample["indexes"].min() + 1)
    buffer.update_priorities(indexes, rng.random(len(indexes)) * 5)
    return as_bytes(sample), buffer.max_priority, buffer.stale_updates


EXAMPLE_FIELDS: dict[str, dict[str, Any]] = {
    "obs": {"shape": (2, 3), "dtype": np.uint8},
    "action": {"dtype": np.int64},
    "reward": {},
    "next_obs": {"shape": (2, 3), "dtype": np.uint8},
    "terminated": {"dtype": bool},
}


FRAMES = np.random.default_rng(0).integers(0, 256, (4096, 3)).astype(np.uint8)


def example_transitions(rng: np.random.Generator, count: int, buffer: Any = None) -> dict[str, np.ndarray]:
    """A batch for `EXAMPLE_FIELDS`: each obs is the next_obs before it, moved on by a frame.

    The first of them is that which follows in the buffer's open episode, if there is a buffer.
    """
    frames = rng.integers(0, 256, (count + 2, 3)).astype(np.uint8)
    if buffer is not None:
        first = steps_added(buffer)
        frames = FRAMES[np.arange(first, first + count + 2) % len(FRAMES)]
    stacks = np.stack([frames[:-1], frames[1:]], axis=1)
    return {
        "obs": stacks[:-1],
        "action": rng.integers(0, 2**40, count),
        "reward": rng.standard_normal(count).astype(np.float32),
        "next_obs": stacks[1:],
        "terminated": rng.random(count) < 0.1,
    }


N_STEP = NStep(3, gamma=0.9)
CONFIGURATIONS: dict[str, Any] = {
    "plain": (ReplayBuffer, {}),
    "dedupe_next": (ReplayBuffer, {"dedupe_next": "obs"}),
    "dedupe_frames": (ReplayBuffer, {"dedupe_frames": {"obs": 0, "next_obs": 0}}),
    "both": (ReplayBuffer, {"dedupe_next": "obs", "dedupe_frames": {"obs": 0}}),
    "n-step": (ReplayBuffer, {"n_step": N_STEP}),
    "n-step, both": (ReplayBuffer, {"n_step": N_STEP, "dedupe_next": "obs", "dedupe_frames": {"obs": 0}}),
    "prioritized": (PrioritizedReplayBuffer, {}),
    "prioritized, n-step": (PrioritizedReplayBuffer, {"n_step": N_STEP, "alpha": 0.9}),
    "prioritized, n-step, both": (
        PrioritizedReplayBuffer,
        {"n_step": N_STEP, "dedupe_next": "obs", "dedupe_frames": {"obs": 0}, "eps": 0.01},
    ),
}


def configured(name: str, size: int = 12, seed: int = 0, rows: int = 0, **changes: Any) -> Any:
    """Build the buffer of a configuration and add rows, more than `size` only to test a full ring."""
    kind, arguments = CONFIGURATIONS[name]
    buffer = kind(size, EXAMPLE_FIELDS, **{"seed": seed, **arguments, **changes})
    rng = np.random.default_rng(1)
    for _ in range(rows):
        buffer.add(**{field: column[0] for field, column in example_transitions(rng, 1, buffer).items()})
    return buffer
