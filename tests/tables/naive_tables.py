"""Tables of dicts and lists: the server's oracle. It shares no code with it, and stores every value anew.

An item is a dict of the arrays that its trajectory was given. Keys, and what is drawn, are not guessed: the
model is told what the server answered, and says whether that may be so.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Kind = tuple[str, float]  # name and exponent of a selector


@dataclass
class NaiveItem:
    """One item: its values by part, and its history."""

    key: int
    priority: float
    values: dict[str, np.ndarray]
    cells: list[tuple[Any, ...]]  # names of cells, one for each time that it names one
    inserted: int
    touched: int
    times_sampled: int = 0


def kind_of(selector: Any) -> Kind:
    return type(selector).__name__, getattr(selector, "exponent", 0.0)


def distribution(items: list[NaiveItem], kind: Kind) -> dict[int, float]:
    """Each key's probability to be selected, by the definition of the selector."""
    name, exponent = kind
    firsts = {
        "Fifo": lambda item: item.inserted,
        "Lifo": lambda item: -item.inserted,
        "MinHeap": lambda item: (item.priority, item.touched),
        "MaxHeap": lambda item: (-item.priority, item.touched),
    }
    if name in firsts:
        first = min(items, key=firsts[name])
        return {item.key: float(item is first) for item in items}
    masses = {item.key: 1.0 for item in items}
    if name == "Prioritized":
        masses = {i.key: i.priority**exponent if i.priority > 0 else 0.0 for i in items}
        if not any(masses.values()):
            masses = {item.key: 1.0 for item in items}
    total = math.fsum(masses.values())
    return {key: mass / total for key, mass in masses.items()}


@dataclass
class NaiveTable:
    """One table."""

    sampler: Kind
    remover: Kind
    max_size: int
    limits: tuple[float, int, float, float]  # samples per insert, min_size, min_diff, max_diff
    max_times_sampled: int
    items: list[NaiveItem] = field(default_factory=list)
    keys_given: set[int] = field(default_factory=set)
    inserts: int = 0
    samples: int = 0
    deletes: int = 0
    unique: int = 0
    stale: int = 0
    highest: float | None = None
    clock: int = 0

    def may_insert(self) -> bool:
        ratio, min_size, _, max_diff = self.limits
        return (
            self.inserts + 1 - self.deletes <= min_size
            or (self.inserts + 1) * ratio - self.samples <= max_diff
        )

    def may_sample(self) -> bool:
        ratio, min_size, min_diff, _ = self.limits
        return self.inserts - self.deletes >= min_size and self.inserts * ratio - self.samples - 1 >= min_diff

    def find(self, key: int) -> NaiveItem | None:
        return next((item for item in self.items if item.key == key), None)

    def insert(self, key: int, priority: float | None, values: dict[str, Any], cells: list[Any]) -> None:
        """Insert what the server gave this key; whom it evicted is asked for later, by `evict`."""
        assert key not in self.keys_given, "a key is never given twice"
        assert self.may_insert(), "the limiter would not have let it in"
        self.keys_given.add(key)
        if priority is None:
            priority = 1.0 if self.highest is None else self.highest
        self.highest = priority if self.highest is None else max(self.highest, priority)
        self.clock += 1
        self.items.append(NaiveItem(key, priority, values, cells, self.clock, self.clock))

    def evict(self, left: set[int]) -> None:
        """Evict one, if there are too many: the one that is not left. Then count the insert."""
        if len(self.items) > self.max_size:
            gone = [item for item in self.items if item.key not in left]
            assert len(gone) == 1
            assert distribution(self.items, self.remover)[gone[0].key] > 0, "another one was to be evicted"
            self.items.remove(gone[0])
            self.deletes += 1
        self.inserts += 1

    def sampled(self, key: int, probability: float, size: int, priority: float, times: int) -> NaiveItem:
        """Check one draw, and count it."""
        assert self.may_sample(), "the limiter would not have let it be sampled"
        item = self.find(key)
        assert item is not None
        expected = distribution(self.items, self.sampler)[key]
        assert expected > 0 and abs(probability - expected) < 1e-12
        assert (size, priority, times) == (len(self.items), item.priority, item.times_sampled + 1)
        self.samples += 1
        self.unique += times == 1
        item.times_sampled = times
        if times == self.max_times_sampled:
            self.items.remove(item)
            self.deletes += 1
        return item

    def mutate(self, updates: list[tuple[int, float]], deletes: list[int]) -> int:
        """Delete, then update; return how many keys were stale."""
        stale = 0
        for key in deletes:
            item = self.find(key)
            if item is None:
                stale += 1
                continue
            self.items.remove(item)
            self.deletes += 1
        for key, priority in updates:
            item = self.find(key)
            if item is None:
                stale += 1
                continue
            self.clock += 1
            item.priority, item.touched = priority, self.clock
            self.highest = priority if self.highest is None else max(self.highest, priority)
        self.stale += stale
        return stale

    def reset(self) -> None:
        self.items = []
        self.inserts = self.samples = self.deletes = self.unique = self.stale = 0
        self.highest = None
