"""`python -m replay_tutorial bench inputs`: `add` of what programs really have.

An environment gives float64 observations, a tutorial gives lists, a vector environment a batch of eight with
rewards of shape (n,), a robot nested dicts. All of it ends as float32, and has to be checked on its way.

Left out: pictures, which have a table of their own (`pictures`), and `sample`, to which it is all the same.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.bench.method.timing import Workload
from replay_tutorial.bench.one_process.cases import Case, run_all
from replay_tutorial.bench.peers.ordinary import Ordinary, each

CAPACITY = 2**17
SIZES = {"obs": 15, "act": 3, "rew": 1, "next_obs": 15, "done": 1}
NESTED = {"obs/joints": 12, "obs/goal": 3, "act": 3, "rew": 1, "next_obs/joints": 12, "next_obs/goal": 3}

Values = Mapping[str, Any]


def values_of(sizes: Mapping[str, int], count: int | None, dtype: type) -> dict[str, Any]:
    """Draw values for fields: one transition (`count` None), or a batch whose numbers have the shape (n,)."""
    rng = np.random.default_rng(0)
    batch = () if count is None else (count,)
    return {
        name: rng.random(batch if size == 1 and count else (*batch, size)).astype(dtype)
        for name, size in sizes.items()
    }


def nested(values: Values) -> dict[str, Any]:
    """Return dicts in the place of names joined by "/"."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        outer, _, inner = name.partition("/")
        if inner:
            made.setdefault(outer, {})[inner] = value
        else:
            made[outer] = value
    return made


def adding(sizes: Mapping[str, int], calls: Callable[[str], Sequence[Values]]) -> Callable[[Any], Workload]:
    """Return what makes the workload of a library: its `add`, once for each of `calls(library)`."""

    def make(module: Any) -> Workload:
        buffer = module.PrioritizedReplayBuffer(CAPACITY, {name: {"shape": n} for name, n in sizes.items()})
        for _ in range(2):  # pages are touched, and the ring is full
            buffer.add(**{name: np.zeros((CAPACITY, n), np.float32) for name, n in sizes.items()})
        add, given = buffer.add, list(calls(module.__name__))
        if len(given) == 1:
            (only,) = given
            return lambda: add(**only)

        def add_each() -> None:
            for values in given:
                add(**values)

        return add_each

    return make


def as_stored(value: Any) -> npt.NDArray[np.float32]:
    """Return a value in the dtype of the columns."""
    return np.asarray(value, np.float32)


def beside(steps: Sequence[Values], environments: int = 1) -> Callable[[type[Ordinary]], Workload | None]:
    """Return what makes the workload of a learning library: its `add` of each of the steps."""

    def make(library: type[Ordinary]) -> Workload | None:
        if isinstance(steps[0]["act"], list) and not library.lists:
            return None
        example = {name: each(value, as_stored) for name, value in steps[0].items()}
        buffer = library(example, CAPACITY, environments, True, ())
        adds = [buffer.adding(values) for values in steps]
        if len(adds) == 1:
            return adds[0]

        def add_each() -> None:
            for add in adds:
                add()

        return add_each

    return make


def extending(values: Values) -> Callable[[type[Ordinary]], Workload | None]:
    """Return what makes the workload of a learning library: many rows in one call."""

    def make(library: type[Ordinary]) -> Workload | None:
        example = {name: as_stored(value[0]) for name, value in values.items()}
        return library(example, CAPACITY, 1, True, ()).extending(values)

    return make


def assigning(
    sizes: Mapping[str, int], values: Values, count: int = 1, calls: int = 1
) -> Callable[[], Workload]:
    """Return what makes the ceiling: each field assigned to its column, whatever has to be converted."""

    def make() -> Workload:
        columns = [
            (np.zeros((CAPACITY, n), np.float32), value if count == 1 else np.reshape(value, (count, n)))
            for n, value in zip(sizes.values(), values.values(), strict=True)
        ]
        starts = itertools.cycle(range(0, CAPACITY - count + 1, count))

        def assign() -> None:
            for _ in range(calls):
                start = next(starts)
                for column, value in columns:
                    column[start : start + count] = value

        return assign

    return make


def cases() -> list[Case]:
    """Return the table's rows."""

    def case(operation: str, values: Values, count: int = 1) -> Case:
        theirs = extending(values) if count > 8 else beside([values], count)
        ceiling = assigning(SIZES, values, count)
        return Case(operation, adding(SIZES, lambda _: [values]), ceiling, theirs)

    one = values_of(SIZES, None, np.float64)
    lists = {name: value.tolist() for name, value in one.items()}
    eight = values_of(SIZES, 8, np.float64)
    rows = [{name: column[i] for name, column in eight.items()} for i in range(8)]
    deep = values_of(NESTED, None, np.float64)
    each_row = adding(SIZES, lambda _: rows)
    return [
        case("add 1, float32", values_of(SIZES, None, np.float32)),
        case("add 1, float64", one),
        case("add 1, lists", lists),
        Case(
            "add 1, nested dicts of float64",
            adding(NESTED, lambda library: [deep if library == "cpprb" else nested(deep)]),
            assigning(NESTED, deep),
            beside([nested(deep)]),
        ),
        case("add 8, float64, rewards (8,)", eight, 8),
        Case("8 rows one by one, float64", each_row, assigning(SIZES, rows[0], calls=8), beside(rows)),
        case("add 10,000, float32", values_of(SIZES, 10_000, np.float32), 10_000),
        case("add 10,000, float64", values_of(SIZES, 10_000, np.float64), 10_000),
    ]


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table was not written, else 0."""
    fields = " + ".join(map(str, SIZES.values()))
    about = (
        f"Prioritized buffers of {CAPACITY:,} rows of {fields} float32 ({'/'.join(SIZES)}), full. cpprb gets "
        "nested values by their joined names, as it has no others. The ceiling assigns each field to its "
        "column and checks nothing. Stable-Baselines3 and TorchRL have uniform buffers here, tianshou "
        "prioritized ones; a figure below 1, in bold, is one where ours is slower."
    )
    return run_all("inputs", "Measure `add` of ordinary inputs.", cases(), about, argv)
