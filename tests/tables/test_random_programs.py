"""Random programs, led in step by a server and by tables of dicts and lists.

After every operation both must agree on every item, count, probability and value, and exactly those cells are
in use that an item or a writer names.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from naive_tables import NaiveTable, distribution, kind_of
from served import WRITERS, Sent, forget, send

from replay_tutorial.tables import (
    CapacityError,
    Fifo,
    Lifo,
    MaxHeap,
    MinHeap,
    MinSize,
    Prioritized,
    Queue,
    RateLimiter,
    Server,
    Table,
    Uniform,
    UnknownWriter,
)
from replay_tutorial.tables.core.message import ColumnSlice, NewItems, Part

COLUMNS = {"a": {"shape": 2}, "b": {"dtype": np.int64}, "c": {"dtype": np.uint8}}
DTYPES = {"a": np.float32, "b": np.int64, "c": np.uint8}
SHAPES: dict[str, tuple[int, ...]] = {"a": (2,), "b": (), "c": ()}
CAPACITY = 12
PRIORITIES = [None, 0.0, 0.5, 1.0, 2.0, 2.0]
SELECTORS = [Uniform(), Fifo(), Lifo(), MinHeap(), MaxHeap(), *map(Prioritized, (0.0, 0.7, 2.0))]
RANDOM = ("Uniform", "Prioritized")  # with these removers, the model is told whom the server evicted
LIMITERS = [MinSize(1), MinSize(2), Queue(3), RateLimiter(2.0, 2, -2.0, 7.0), RateLimiter(0.5, 1, -1.0, 1.0)]
# name → (column, squeezed); of a table the lengths may differ from item to item
PARTS = [
    {"a": ("a", False), "b": ("b", True)},
    {"obs": ("a", False), "next": ("a", False), "reward": ("b", False), "code": ("c", True)},
]

OPTIONS: dict[str, Sequence[Any]] = {  # of a table
    "sampler": SELECTORS,
    "remover": SELECTORS,
    "rate_limiter": LIMITERS,
    "max_size": range(2, 6),
    "max_times_sampled": range(3),
}


class Program:
    """A server, its model, and two writers."""

    def __init__(self, choices: list[int]) -> None:
        self.tables: dict[str, NaiveTable] = {}
        described = []
        for i, parts in enumerate((0, 1, 0)):
            options: dict[str, Any] = {
                option: values[choice % len(values)]
                for (option, values), choice in zip(OPTIONS.items(), choices[5 * i : 5 * i + 5], strict=True)
            }
            name = f"{'uvw'[i]}{parts}"
            described.append(Table(name, **options))
            sampler, remover, limiter, size, times = options.values()
            self.tables[name] = NaiveTable(
                kind_of(sampler), kind_of(remover), size, numbers_of(limiter), times
            )
        self.server = Server(described, COLUMNS, CAPACITY, seed=0)
        self.names = list(self.tables)
        self.sequence = [0, 0]
        self.next_step = [0, 0]
        self.keep_from = [0, 0]
        self.held: list[dict[tuple[str, int], np.ndarray]] = [{}, {}]  # by column and step
        self.last: list[tuple[Sent, list[Any], list[int]] | None] = [None, None]
        self.lives = [0, 0]
        self.values_made = 0

    def run(self, program: list[tuple[int, int, int, int]]) -> None:
        others = [self.mutate, self.again, self.refused, self.others]
        operations = [*[self.write] * 3, *[self.sample] * 2, *others]
        for kind, *arguments in program:
            operations[kind % len(operations)](np.random.default_rng(arguments))
            self.compare()

    # Writing

    def writer(self, w: int) -> int:
        return 1000 * self.lives[w] + w

    def write(self, rng: np.random.Generator) -> None:
        """One message: new values, perhaps items, perhaps the window moves on."""
        w = int(rng.integers(2))
        if self.last[w] and self.last[w][1]:
            self.again(rng)
            return
        message, values, plans = self.compose(rng, w)
        new = {name for name in COLUMNS if self.used(name) + len(values.get(name, ())) > CAPACITY}
        try:
            keys = send(self.server, message, timeout=0)
        except CapacityError:
            assert new, "there was room"
            self.close_writer(w)  # it may have let go of some steps
            return
        except TimeoutError:
            keys = None
        self.sequence[w] += 1
        self.next_step[w] += 3
        for column, by_step in values.items():
            self.held[w].update({(column, step): value for step, value in by_step.items()})
        self.last[w] = (message, plans, [])
        self.follow(w, keys)

    def compose(self, rng: np.random.Generator, w: int) -> tuple[Sent, dict[str, Any], list[Any]]:
        first, runs = self.next_step[w], []
        values: dict[str, dict[int, np.ndarray]] = {}
        for column in COLUMNS:
            start, count = int(rng.integers(2)), int(rng.integers(3))
            if count:
                made = np.arange(self.values_made, self.values_made + count)
                self.values_made += count
                array = np.zeros((count, *SHAPES[column]), DTYPES[column])
                array[...] = (made % 256).reshape(-1, *[1] * len(SHAPES[column]))
                runs.append(ColumnSlice(column, first + start, array))
                values[column] = {first + start + i: array[i] for i in range(count)}
        older = first - int(rng.integers(1, 6))
        column = str(rng.choice(list(COLUMNS)))
        if older >= self.keep_from[w] and (column, older) not in self.held[w]:  # a value that comes late
            self.values_made += 1
            array = np.full((1, *SHAPES[column]), self.values_made % 256, DTYPES[column])
            runs.append(ColumnSlice(column, older, array))
            values.setdefault(column, {})[older] = array[0]
        known = {**self.held[w], **{(c, s): v for c, by in values.items() for s, v in by.items()}}
        items, plans = [], []
        for _ in range(int(rng.integers(3))):
            name = self.names[rng.integers(len(self.names))]
            if any(plan[0] == name for plan in plans) and self.tables[name].remover[0] in RANDOM:
                continue  # whom it would evict first could not be told afterwards
            item = self.choose(rng, name, known)
            if item is not None:
                items.append(item[0])
                plans += [(name, *plan) for plan in item[1]]
        keep_from = int(rng.integers(max(0, first - 4), first + 4))
        return Sent(self.writer(w), self.sequence[w], runs, items, keep_from), values, plans

    def choose(self, rng: np.random.Generator, name: str, known: dict[Any, Any]) -> Any:
        """Items of random steps: not neighbours, not in order, some twice."""
        layout, steps, cells = [], [], []
        for part, (column, squeezed) in PARTS[int(name[1])].items():
            there = [step for c, step in known if c == column]
            if not there:
                return None
            length = 1 if squeezed else int(rng.integers(1, 4))
            layout.append(Part(part, column, length, squeezed))
            chosen = [int(rng.choice(there)) for _ in range(length)]
            steps += chosen
            cells += [(column, step) for step in chosen]
        count = 1 + int(rng.integers(4) == 0 and self.tables[name].remover[0] not in RANDOM)
        priority = PRIORITIES[rng.integers(len(PRIORITIES))]
        plan = (priority, tuple(layout), cells, [known[cell] for cell in cells])
        given = None if priority is None else np.full(count, priority)
        return NewItems(name, given, tuple(layout), np.array([steps] * count)), [plan] * count

    def again(self, rng: np.random.Generator) -> None:
        """The last message once more: it goes on, or is answered as before."""
        w = int(rng.integers(2))
        if self.last[w] is None:
            return
        try:
            keys = send(self.server, self.last[w][0], timeout=0)
        except TimeoutError:
            keys = None
        self.follow(w, keys)

    def follow(self, w: int, keys: list[int] | None) -> None:
        """Do in the model what the server did with a writer's last message."""
        message, plans, done = self.last[w]
        # a call that has timed out has not answered, but remembers what it would have
        given = WRITERS[self.server][self.writer(w)].message.keys if keys is None else keys
        while plans and self.tables[plans[0][0]].may_insert():
            name, priority, layout, cells, values = plans.pop(0)
            table, there = self.tables[name], self.server.items(name).info.keys.tolist()
            key = given[len(done)]
            by_part, at = {}, 0
            for part in layout:
                taken = values[at : at + part.length]
                by_part[part.name] = taken[0] if part.squeezed else np.stack(taken)
                at += part.length
            table.insert(key, priority, by_part, [(self.writer(w), *cell) for cell in cells])
            pending_here = sum(plan[0] == name for plan in plans)
            table.evict(self.left(table, there, pending_here))
            done.append(key)
        assert (keys is None) == bool(plans), "it waited, or did not wait, against the limiter"
        if keys is not None:
            assert keys == done
            self.keep_from[w] = max(self.keep_from[w], message.keep_from)
            self.held[w] = {cell: v for cell, v in self.held[w].items() if cell[1] >= message.keep_from}

    def left(self, table: NaiveTable, there: list[int], pending: int) -> set[int]:
        """Who is left after one eviction: with a remover that does not draw, the model knows."""
        if table.remover[0] in RANDOM:
            return set(there)
        if len(table.items) <= table.max_size:
            return {item.key for item in table.items}
        return {key for key, p in distribution(table.items, table.remover).items() if p == 0.0}

    def close_writer(self, w: int) -> None:
        forget(self.server, self.writer(w))
        self.lives[w] += 1
        self.sequence[w] = self.next_step[w] = self.keep_from[w] = 0
        self.held[w], self.last[w] = {}, None

    # Reading and changing

    def sample(self, rng: np.random.Generator) -> None:
        name, most = self.names[rng.integers(len(self.names))], int(rng.integers(1, 6))
        table = self.tables[name]
        if not table.may_sample():
            with pytest.raises(TimeoutError, match="waits for more inserts"):
                self.server.sample(name, most, timeout=0)
            return
        sample = self.server.sample(name, most, timeout=0)
        for i, (key, p, _, size, priority, times) in enumerate(zip(*sample.info, strict=True)):
            item = table.sampled(int(key), p, int(size), float(priority), int(times))
            self.compare_values(sample, i, item.values)
        assert len(sample.info.keys) == most or not table.may_sample(), "it stopped too early"

    def mutate(self, rng: np.random.Generator) -> None:
        name = self.names[rng.integers(len(self.names))]
        keys = [*self.tables[name].keys_given, 10**9, -1, -3]
        picked = [keys[i] for i in rng.integers(len(keys), size=rng.integers(5))]
        updates = [(key, float(rng.choice([0.0, 0.5, 1.0, 3.0]))) for key in picked]
        deletes = [keys[i] for i in rng.integers(len(keys), size=rng.integers(3))]
        if rng.integers(2) and len(set(picked)) == len(picked):
            stale = self.server.mutate_priorities(name, dict(updates), deletes)
        else:
            pairs = (np.array(picked, np.int64), np.array([p for _, p in updates]))
            stale = self.server.mutate_priorities(name, pairs, np.array(deletes, np.int64))
        assert stale == self.tables[name].mutate(updates, deletes)

    def refused(self, rng: np.random.Generator) -> None:
        """Something bad: an error, and nothing has changed (`compare` sees it)."""
        name, w = self.names[rng.integers(len(self.names))], int(rng.integers(2))
        if self.last[w] and self.last[w][1]:
            return
        before = self.server._rng.bit_generator.state
        message, _, _ = self.compose(rng, w)
        part, steps, newest = (Part("a", "a", 1),), np.array([[9999]]), self.next_step[w]

        def with_run(*run: Any) -> Sent:
            return message._replace(runs=[*message.runs, ColumnSlice(*run)])

        def with_items(*new: Any) -> Sent:
            return message._replace(items=[*message.items, NewItems(*new)])

        bad: list[Sent] = [
            with_items(name, np.array([np.nan]), part, np.array([[0]])),
            with_run("x", 0, np.zeros(1)),
            with_run("b", newest, np.zeros(1, np.int32)),
            message._replace(runs=with_run("b", newest + 2, np.zeros(2, np.int64)).runs * 2),
            with_items(name, None, (), steps),
            with_items("?", None, part, steps),
            with_items(name, None, (Part("q", "a", 1),), steps),
        ]
        if forgotten := self.keep_from[w]:
            run = ColumnSlice("b", forgotten - 1, np.zeros(1, np.int64))
            bad.append(message._replace(runs=[run], items=[]))
        with pytest.raises((ValueError, KeyError, UnknownWriter, CapacityError)):
            send(self.server, bad[rng.integers(len(bad))], timeout=0)
        with pytest.raises((ValueError, TypeError)):
            keys = list(self.tables[name].keys_given)[:1] or [0]
            self.server.mutate_priorities(name, {key: float("nan") for key in keys}, keys)
        assert self.server._rng.bit_generator.state == before

    def others(self, rng: np.random.Generator) -> None:
        name, kind = self.names[rng.integers(len(self.names))], int(rng.integers(4))
        if kind == 0:
            self.server.reset(name)
            self.tables[name].reset()
        elif kind == 1:
            limiter = LIMITERS[rng.integers(len(LIMITERS))]
            self.server.replace_limiter(name, limiter)
            self.tables[name].limits = numbers_of(limiter)
        elif kind == 2:
            self.close_writer(int(rng.integers(2)))

    # Comparing

    def used(self, column: str) -> int:
        named = {(self.writer(w), *cell) for w in (0, 1) for cell in self.held[w]}
        named |= {cell for table in self.tables.values() for item in table.items for cell in item.cells}
        return sum(cell[1] == column for cell in named)

    def compare(self) -> None:
        for name, table in self.tables.items():
            all_items, info = self.server.items(name), self.server.info()[name]
            assert sorted(all_items.info.keys.tolist()) == sorted(item.key for item in table.items)
            for i, key in enumerate(all_items.info.keys.tolist()):
                item = table.find(key)
                assert all_items.info.priorities[i] == item.priority
                assert all_items.info.times_sampled[i] == item.times_sampled
                self.compare_values(all_items, i, item.values)
            if table.items:
                expected = distribution(table.items, table.sampler)
                keys = all_items.info.keys.tolist()
                assert np.allclose(all_items.info.probabilities, [expected[k] for k in keys], atol=1e-12)
                assert abs(all_items.info.probabilities.sum() - 1.0) < 1e-12
            counted = (table.inserts, table.samples, table.deletes, table.unique, table.stale)
            assert counted == tuple(info[2:7])
            assert info.size == len(table.items) == table.inserts - table.deletes <= info.max_size
            assert info.highest_priority == (1.0 if table.highest is None else table.highest)
        cells = self.server._cells
        for number, column in enumerate(COLUMNS):
            assert CAPACITY - cells.free_count(number) == self.used(column), "a cell leaks, or went too early"
        names = sum(len(item.cells) for table in self.tables.values() for item in table.items)
        pending = sum(len(held) for held in self.held)
        assert cells.allocator.references.sum() == names + pending

    def compare_values(self, sample: Any, i: int, values: dict[str, np.ndarray]) -> None:
        assert sample.data.keys() == values.keys()
        for part, expected in values.items():
            got = sample.data[part][i]
            if sample.lengths is not None and got.shape != expected.shape:
                length = int(sample.lengths[part][i])
                assert not got[length:].any()
                got = got[:length]
            assert got.dtype == expected.dtype and got.tolist() == expected.tolist()

    def finish(self) -> None:
        """Without items and writers every cell is free."""
        for w in (0, 1):
            self.close_writer(w)
        for name, table in self.tables.items():
            self.server.mutate_priorities(name, deletes=[item.key for item in table.items])
        assert not self.server._cells.allocator.references.any()
        assert [self.server._cells.free_count(c) for c in range(3)] == [CAPACITY] * 3


def numbers_of(limiter: RateLimiter) -> tuple[float, int, float, float]:
    return limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff


small = st.integers(0, 99)


@given(
    choices=st.lists(small, min_size=15, max_size=15),
    program=st.lists(st.tuples(small, small, small, small), max_size=25),
)
@repeatable(400)
def test_any_program_does_what_tables_of_dicts_do(choices: list[int], program: list[Any]) -> None:
    life = Program(choices)
    life.run(program)
    life.finish()


@pytest.mark.parametrize("seed", range(4))
def test_long_programs_do_what_tables_of_dicts_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(60):
        life = Program(rng.integers(0, 100, 15).tolist())
        life.run([tuple(operation) for operation in rng.integers(0, 100, (rng.integers(20, 80), 4)).tolist()])
        life.finish()
