"""What a table holds, and the rules by which it changes.

    insert      in, then evict one if there are too many (perhaps the newcomer), then count the insert
    sample      count it, draw, then delete the item if it has been sampled often enough
    mutate      deletes first, then updates; keys of items that are gone are dropped and counted
    reset       nothing in it, all counts 0; keys are not used again, parts that were inferred are forgotten

Everything here happens at once: nobody waits, and whoever calls holds the server's lock. What is not allowed
must have been refused before, so that no rule stops halfway.

Source: Reverb (Cassirer et al. 2021, section 3), whose order of steps this is.
"""

import logging
import math
from typing import NoReturn

import numpy as np

from replay_tutorial.buffers.fields import Batch
from replay_tutorial.buffers.jit import Bytes, Floats, Integers, kernel
from replay_tutorial.buffers.priorities import FIRST_PRIORITY
from replay_tutorial.buffers.rows import copy_row
from replay_tutorial.tables.core.cells import CellList, Cells, release, retain
from replay_tutorial.tables.core.hooks import HookedTable, Item, Tables
from replay_tutorial.tables.core.items import Items, Lengths
from replay_tutorial.tables.core.message import Layout, Part
from replay_tutorial.tables.core.sampled import Sample, SampleInfo, TableInfo
from replay_tutorial.tables.core.selectors import Slots
from replay_tutorial.tables.core.table import Parts, Table, fits, inferred_parts

log = logging.getLogger("replay_tutorial")
ALIKE: Integers = np.zeros(0, np.int64)


@kernel
def first_outside(values: Floats, low: float, high: float) -> int:
    """Find the first value that does not lie between two; -1 if there is none."""
    for i in range(len(values)):
        if not low <= values[i] <= high:  # so written, NaN fails too
            return i
    return -1


@kernel
def count_samples(slots: Integers, times_sampled: Slots, counts: Integers) -> int:
    """Count slots as sampled, one after the other; write how often each was by then.

    Returns:
        How many were sampled for the first time.
    """
    first_times = 0
    for i in range(len(slots)):
        times_sampled[slots[i]] += 1
        counts[i] = times_sampled[slots[i]]
        first_times += counts[i] == 1
    return first_times


@kernel
def take_cells(
    values: Bytes,
    cells: CellList,
    starts: Integers,
    begin: int,
    lengths: Integers,
    most: int,
    columns: int,
    copies: Bytes,
) -> None:
    """Copy values to `most` rows an item: of its cells from starts + begin on `lengths`, or `most`
    if no lengths are given.
    """
    for i in range(len(starts)):
        length = lengths[i] if len(lengths) else most
        for j in range(length):
            copy_row(copies, i * most + j, values, cells[starts[i] + begin + j] // columns)


class TableState(HookedTable):
    """A table's items, selectors and counts.

    Attributes:
        description: The table as it was described.
        limiter: The rate limiter in force.
        items: The items.
        parts: Those that all items have, also those that wait: the signature's, or those of the first item;
            empty before that.
        inserts: Items inserted since the table was made or reset.
        samples: Items sampled since then, each time counted.
        deletes: Items deleted since then.
    """

    def __init__(self, table: Table, cells: Cells, rng: np.random.Generator) -> None:
        """Begin empty."""
        self.description = table
        self.limiter = table.rate_limiter
        for column, _ in table.parts.values():
            if column not in cells.numbers:
                raise KeyError(
                    f"The signature of the table {table.name!r} names the column {column!r}; there are "
                    f"{list(cells.numbers)}."
                )
        self._cells = cells
        self._rng = rng
        self._hooks_under_way = 0
        self.items = Items(table.max_size + 1)  # the newcomer is in before another one goes
        self.settle(table.parts)
        self._begin()

    def _begin(self) -> None:
        """Be without items, and count from 0."""
        self.items.clear()
        self.sampler = self.description.sampler.over(self.items.num_slots)
        self.remover = self.description.remover.over(self.items.num_slots)
        self._low = max(self.sampler.low, self.remover.low)
        self._high = min(self.sampler.high, self.remover.high)
        self.inserts = self.samples = self.deletes = self.unique_samples = self.stale = 0
        self.max_given = -math.inf

    def settle(self, parts: Parts) -> None:
        """Decide the parts of all items; there must be none with other ones."""
        self.parts = parts
        self._newest: tuple[Layout, Lengths] = (), ()  # a layout that fits, and its lengths
        self._squeezed = frozenset(name for name, (_, length) in parts.items() if length == "one")
        numbers = [self._cells.numbers[column] for column, _ in parts.values()]
        self._columns = [(self._cells.fields[number], self._cells.bytes[number]) for number in numbers]

    @property
    def highest_priority(self) -> float:
        """The highest priority that any item has had; FIRST_PRIORITY before the first."""
        return FIRST_PRIORITY if self.max_given == -math.inf else self.max_given

    def info(self, waiting_inserts: int = 0, waiting_samples: int = 0) -> TableInfo:
        """Describe the table at this moment."""
        counts = (self.inserts, self.samples, self.deletes, self.unique_samples, self.stale)
        rest = (self.highest_priority, self.limiter, waiting_inserts, waiting_samples)
        return TableInfo(self.items.size, self.description.max_size, *counts, *rest)

    # May it? Nothing changes.

    def may_insert(self) -> bool:
        """Return whether the limiter lets one more item in."""
        return self.limiter.may_insert(self.inserts, self.samples, self.deletes)

    def may_sample(self) -> bool:
        """Return whether the limiter lets one more item be sampled."""
        return self.limiter.may_sample(self.inserts, self.samples, self.deletes)

    def check_layout(self, layout: Layout, parts: Parts) -> Lengths:
        """Return the lengths of a trajectory, which must fit the parts that the table has, or will have.

        Raises:
            ValueError: If it does not.
        """
        if layout == self._newest[0] and parts is self.parts:  # nearly always
            return self._newest[1]
        if not fits(layout, parts):
            self._refuse_layout(layout, parts)
        lengths = tuple(part.length for part in layout)
        if parts is self.parts:
            self._newest = layout, lengths
        return lengths

    def _refuse_layout(self, layout: Layout, parts: Parts) -> NoReturn:
        came = {part.name: (part.column, "one" if part.squeezed else part.length) for part in layout}
        if self.description.parts:
            raise ValueError(
                f"The signature of the table {self.description.name!r} is {parts}, and an item came with "
                f"{came}."
            )
        raise ValueError(
            f"Items of the table {self.description.name!r} have the parts {parts}, as the first one had, and "
            f"an item came with {came}. Only lengths may differ; use a table for each kind. If the first one "
            "was wrong, call reset; Table(signature=...) declares the parts."
        )

    def check_size(self, count: int, most: int) -> None:
        """Refuse to copy so many items if they may take more than `most` bytes.

        Raises:
            ValueError: If it is so. Shorter items count as much as the longest, since they are padded.
        """

        def bytes_of(lengths: Lengths) -> int:
            values = sum(n * field.nbytes for n, (field, _) in zip(lengths, self._columns, strict=False))
            return values + 8 * len(SampleInfo._fields)

        item = bytes_of(self.items.longest)
        if count * item > most:  # the longest may be gone
            item = bytes_of(self.items.lengths(self.items.used_slots())[0])
        if count * item > most:
            raise ValueError(
                f"{count:,} items of the table {self.description.name!r} may take {count * item:,} bytes; an "
                f"answer has at most {most:,}. Ask for at most {most // item:,} items at once."
            )

    def check_priorities(self, priorities: Floats) -> None:
        """Refuse priorities that a selector can't take.

        Raises:
            ValueError: If it is so.
        """
        wrong = first_outside(priorities, self._low, self._high)
        if wrong >= 0:
            raise ValueError(
                f"A priority in the table {self.description.name!r} must lie between {self._low:.3g} and "
                f"{self._high:.3g}, not {priorities[wrong]}."
            )

    def item(self, key: int) -> Item:
        slot = key % self.items.num_slots
        lengths = self.items.lengths_of(slot)
        layout = tuple(
            Part(name, column, count, length == "one")
            for (name, (column, length)), count in zip(self.parts.items(), lengths, strict=True)
        )
        return Item(layout, self.items.cells_of(slot).copy(), float(self.items.priorities[slot]))

    def times_sampled(self, key: int) -> int:
        return int(self.items.times_sampled[key % self.items.num_slots])

    # Changes; all that they are given has been checked.

    def insert(self, cells: CellList, lengths: Lengths, priority: float | None, tables: Tables) -> int:
        """Insert an item, and return its key."""
        if priority is None:
            priority = self.highest_priority
        self.max_given = max(self.max_given, priority)
        slot = self.items.insert(cells, lengths, priority)
        key = int(self.items.keys[slot])
        retain(cells, self._cells.store.references)
        self.sampler.insert(slot, priority)
        self.remover.insert(slot, priority)
        self._call_hooks("on_insert", tables, key)
        if self.items.size > self.description.max_size:
            self._delete(self.remover.pick(self._rng), tables)
        self.inserts += 1
        return key

    def try_insert(self, item: Item, tables: Tables) -> int | None:
        if self._hooks_under_way or not self.may_insert():  # not in the middle of a change
            return None
        parts = self.parts or inferred_parts(item.layout)
        if not fits(item.layout, parts) or not self._low <= item.priority <= self._high:
            return None
        if not self.parts:
            self.settle(parts)
        lengths = tuple(part.length for part in item.layout)
        return self.insert(item.cells, lengths, item.priority, tables)

    def sample(self, most: int, tables: Tables) -> Sample:
        """Sample as many items as the limiter lets through now, at most `most`; it must let one through."""
        spent: list[int] = []  # sampled for the last time; freed when they have been copied
        try:
            if self.description.max_times_sampled or self.description.hooks:
                slots, info = self._draw_one_by_one(most, spent, tables)
                return Sample(info, *self._copy(slots))
            return self._draw(most)
        finally:
            for slot in spent:
                self._free(slot)

    def _draw(self, most: int) -> Sample:
        """Draw all at once: no draw changes what the next one may be."""
        count = self.limiter.sampleable(self.inserts, self.samples, self.deletes, most)
        slots, probabilities, least = self.sampler.select(count, self._rng)
        copied = self._copy(slots)  # a batch that is too big for the memory is not counted
        sizes, times = np.full(count, self.items.size), np.empty(count, np.int64)
        self.samples += count
        self.unique_samples += count_samples(slots, self.items.times_sampled, times)
        return Sample(self._info(slots, probabilities, np.full(count, least), sizes, times), *copied)

    def _draw_one_by_one(self, most: int, spent: list[int], tables: Tables) -> tuple[Integers, SampleInfo]:
        """Draw one after the other: what is deleted can't be drawn again."""
        items, slots = self.items, list[int]()
        rows: list[tuple[float, ...]] = []
        while len(slots) < most and self.may_sample():
            self.samples += 1
            drawn = self.sampler.select(1, self._rng)
            slot = int(drawn.slots[0])
            slots.append(slot)
            items.times_sampled[slot] += 1
            times = int(items.times_sampled[slot])
            self.unique_samples += times == 1
            rows.append((drawn.probabilities[0], drawn.least_probability, items.size - len(spent), times))
            self._call_hooks("on_sample", tables, int(items.keys[slot]))
            if 0 < self.description.max_times_sampled <= times:
                self._take_out(slot, tables)
                spent.append(slot)
        chosen = np.array(slots)
        probabilities, least, sizes, times = map(np.array, zip(*rows, strict=True))
        return chosen, self._info(chosen, probabilities, least, sizes, times)

    def _info(
        self, slots: Integers, probabilities: Floats, least: Floats, sizes: Integers, times: Integers
    ) -> SampleInfo:
        keys, priorities = self.items.keys[slots], self.items.priorities[slots]
        return SampleInfo(keys, probabilities, least, sizes, priorities, times)

    def _copy(self, slots: Integers) -> tuple[Batch, dict[str, Integers] | None, frozenset[str]]:
        """Copy the trajectories of items: the data, lengths and squeezed parts of a `Sample`."""
        batch: Batch = {}
        if not len(slots):
            return batch, None, frozenset()
        items, count, columns, squeezed = self.items, len(slots), len(self._cells.fields), self._squeezed
        starts, begin = items.starts[slots], 0  # of a part its cells stand from their sum on
        longest, each = items.lengths(slots)
        for part, (name, (field, values)) in enumerate(zip(self.parts, self._columns, strict=True)):
            most = longest[part]
            if each is None:
                copies = np.empty((count * most, values.shape[1]), np.uint8)
                take_cells(values, items.cells, starts, begin, ALIKE, most, columns, copies)
                begin += most
            else:
                copies = np.zeros((count * most, values.shape[1]), np.uint8)
                take_cells(values, items.cells, starts, begin, each[part], most, columns, copies)
                starts += each[part]
            shape = (count, *field.shape) if name in squeezed else (count, most, *field.shape)
            batch[name] = copies.view(field.dtype).reshape(shape)
        return batch, None if each is None else dict(zip(self.parts, each, strict=True)), squeezed

    def look(self) -> Sample:
        """Copy all items, in the order of their slots; nothing is counted."""
        slots = self.items.used_slots()
        probabilities = self.sampler.probabilities(slots)
        positive = probabilities[probabilities > 0]
        least = np.full(len(slots), positive.min() if len(positive) else 0.0)
        sizes, times = np.full(len(slots), len(slots)), self.items.times_sampled[slots].astype(np.int64)
        return Sample(self._info(slots, probabilities, least, sizes, times), *self._copy(slots))

    def mutate(self, keys: Integers, priorities: Floats, deletes: Integers, tables: Tables) -> int:
        """Delete items, then give others new priorities; of a repeated key the last one stays.

        Returns:
            How many keys were stale.
        """
        stale = 0
        for key in deletes.tolist():
            if self.items.keys[key % self.items.num_slots] == key >= 0:
                self._delete(key % self.items.num_slots, tables)
            else:
                stale += 1
        slots, live = self.items.find(keys)
        if not live.all():
            stale += int(len(live) - live.sum())
            slots, priorities = slots[live], priorities[live]
        if len(slots):
            self.items.priorities[slots] = priorities
            self.sampler.update(slots, priorities)
            self.remover.update(slots, priorities)
            self.max_given = max(self.max_given, float(priorities.max()))
        for key in self.items.keys[slots].tolist() if self.description.hooks else ():
            self._call_hooks("on_update", tables, key)
        self.stale += stale
        return stale

    def reset(self, tables: Tables, keep_parts: bool) -> None:
        """Delete everything, and count from 0 again; keep inferred parts if items that wait have them."""
        release(self.items.lists()[1], self._cells.plain)
        self._begin()
        if not keep_parts:
            self.settle(self.description.parts)
        self._call_hooks("on_reset", tables)

    def _call_hooks(self, event: str, tables: Tables, *keys: int) -> None:
        """Call all hooks, in the middle of a change: what one raises must not leave it half done."""
        self._hooks_under_way += 1
        try:
            for hook in self.description.hooks:
                try:
                    getattr(hook, event)(tables, self.description.name, *keys)
                except Exception:
                    log.exception("%r of the table %r failed in %s", hook, self.description.name, event)
        finally:
            self._hooks_under_way -= 1

    def _delete(self, slot: int, tables: Tables) -> None:
        self._take_out(slot, tables)
        self._free(slot)

    def _take_out(self, slot: int, tables: Tables) -> None:
        """Let nobody find an item any more; its list of cells stays."""
        self._call_hooks("on_delete", tables, int(self.items.keys[slot]))
        self.sampler.delete(slot)
        self.remover.delete(slot)
        self.deletes += 1

    def _free(self, slot: int) -> None:
        """Give an item's cells, and its slot, back."""
        release(self.items.cells_of(slot), self._cells.plain)
        self.items.delete(slot)
