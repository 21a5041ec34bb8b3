"""The state of a table, and the operations that change it.

    insert      insert the item, evict one if the table is overfull (perhaps the new one), count the insert
    sample      count the sample, select an item, then delete it if it has reached max_times_sampled
    mutate      delete items, then update priorities; stale keys are ignored and counted
    reset       delete all items and set the counts to 0; keys are not reused, inferred parts are forgotten

All operations run without waiting, with the server's lock held. Arguments must have been checked, so that no
operation fails halfway.

Source: Reverb (Cassirer et al. 2021, section 3), which applies these steps in the same order.
"""

import logging
import math

import numpy as np

from replay_tutorial.buffers.priorities import FIRST_PRIORITY
from replay_tutorial.buffers.rows import copy_row
from replay_tutorial.buffers.runtime.jit import Bytes, Floats, Int32s, Integers, kernel
from replay_tutorial.tables.core.cells import CellList, Cells, release_cells, retain_cells
from replay_tutorial.tables.core.hooks import HookedTable, Item, Tables
from replay_tutorial.tables.core.items import Items, Lengths
from replay_tutorial.tables.core.message import Layout
from replay_tutorial.tables.core.results import Parts, Sample, SampleInfo, TableInfo
from replay_tutorial.tables.core.table import PartTypes, Table, inferred_parts, item_layout

log = logging.getLogger("replay_tutorial")
NO_LENGTHS: Integers = np.zeros(0, np.int64)


@kernel
def first_outside(values: Floats, low: float, high: float) -> int:
    """Return the index of the first value outside [low, high], or -1."""
    for i in range(len(values)):
        if not low <= values[i] <= high:  # also true for NaN
            return i
    return -1


@kernel
def count_samples(slots: Integers, times_sampled: Int32s, counts: Integers) -> int:
    """Increment `times_sampled` for each slot in turn and store the new values in `counts`.

    Returns the number of slots that were sampled for the first time.
    """
    first_times = 0
    for i in range(len(slots)):
        times_sampled[slots[i]] += 1
        counts[i] = times_sampled[slots[i]]
        first_times += counts[i] == 1
    return first_times


@kernel
def gather_cells(
    values: Bytes,
    cells: CellList,
    starts: Integers,
    begin: int,
    lengths: Integers,
    max_length: int,
    columns: int,
    copies: Bytes,
) -> None:
    """Copy the values of one part of several items to `copies`, `max_length` rows per item.

    Item i contributes lengths[i] cells, or `max_length` without lengths, from cells[starts[i] + begin] on.
    Its other rows are set to 0.
    """
    for i in range(len(starts)):
        length = lengths[i] if len(lengths) else max_length
        for j in range(length):
            copy_row(copies, i * max_length + j, values, cells[starts[i] + begin + j] // columns)
        if length < max_length:
            copies[i * max_length + length : (i + 1) * max_length] = 0


class TableState(HookedTable):
    """The items, selectors and counts of a table.

    `parts` are those of all items, including pending items. They are taken from the signature, or else from
    the first item, and are empty until then. Counts start when the table is created or reset.
    """

    def __init__(self, config: Table, cells: Cells, rng: np.random.Generator, tables: Tables) -> None:
        """Create an empty table; `tables` are all tables of the server, for hooks."""
        self.config = config
        self.limiter = config.rate_limiter
        for column, _ in config.parts.values():
            if column not in cells.column_numbers:
                raise KeyError(
                    f"The signature of the table {config.name!r} refers to the column {column!r}; the "
                    f"columns are {list(cells.column_numbers)}."
                )
        self._cells = cells
        self._rng = rng
        self._tables = tables
        self.in_hook = False  # whether the table is calling its hooks, in the middle of a change
        self.items = Items(config.max_size + 1)  # a new item is inserted before one is evicted
        self.set_parts(config.parts)
        self._clear()

    def _clear(self) -> None:
        """Delete all items, create new selectors and set the counts to 0."""
        self.items.clear()
        self.sampler = self.config.sampler.for_slots(self.items.num_slots)
        self.remover = self.config.remover.for_slots(self.items.num_slots)
        self._low = max(self.sampler.low, self.remover.low)
        self._high = min(self.sampler.high, self.remover.high)
        self.inserts = self.samples = self.deletes = self.unique_samples = self.stale = 0
        self.max_priority = -math.inf

    def set_parts(self, parts: PartTypes) -> None:
        """Set the parts of all items; the table must not hold items with other parts."""
        self.parts = parts
        self._last_layout: tuple[Layout, Lengths] = (), ()  # the last layout that matched, and its lengths
        self._squeezed = frozenset(name for name, (_, length) in parts.items() if length == "one")
        numbers = [self._cells.column_numbers[column] for column, _ in parts.values()]
        self._columns = [(self._cells.fields[number], self._cells.bytes[number]) for number in numbers]

    @property
    def highest_priority(self) -> float:
        """Highest priority of any item so far; FIRST_PRIORITY before the first item."""
        return FIRST_PRIORITY if self.max_priority == -math.inf else self.max_priority

    def info(self, waiting_inserts: int = 0, waiting_samples: int = 0) -> TableInfo:
        """Return the current state of the table."""
        counts = (self.inserts, self.samples, self.deletes, self.unique_samples, self.stale)
        rest = (self.highest_priority, self.limiter, waiting_inserts, waiting_samples)
        return TableInfo(self.items.size, self.config.max_size, *counts, *rest)

    # Queries and checks, which change nothing

    def may_insert(self) -> bool:
        """Return whether the rate limiter admits one more insert."""
        return self.limiter.may_insert(self.inserts, self.samples, self.deletes)

    def may_sample(self) -> bool:
        """Return whether the rate limiter admits one more sample."""
        return self.limiter.may_sample(self.inserts, self.samples, self.deletes)

    def check_idle(self) -> None:
        """Raise RuntimeError if a hook of this table made the call."""
        if self.in_hook:
            raise RuntimeError(
                f"A hook of the table {self.config.name!r} can't change this table, save or load, because "
                "the table is being changed."
            )

    def check_layout(self, layout: Layout, parts: PartTypes) -> Lengths:
        """Return the lengths of a trajectory; raise ValueError unless it has these parts, in this order."""
        if layout == self._last_layout[0] and parts is self.parts:  # the common case
            return self._last_layout[1]
        if len(layout) == len(parts) and all(
            (part.name, part.column) == (name, column)
            and part.squeezed == (length == "one")
            and length in ("one", "any", part.length)
            and 1 <= part.length <= (1 if part.squeezed else part.length)
            for part, (name, (column, length)) in zip(layout, parts.items(), strict=True)
        ):
            lengths = tuple(part.length for part in layout)
            if parts is self.parts:
                self._last_layout = layout, lengths
            return lengths
        received = {part.name: (part.column, "one" if part.squeezed else part.length) for part in layout}
        if self.config.parts:
            raise ValueError(
                f"The signature of the table {self.config.name!r} is {parts}, but an item has {received}."
            )
        raise ValueError(
            f"The first item of the table {self.config.name!r} had the parts {parts}, but this item has "
            f"{received}. Only lengths may differ, so use one table per kind of item. If the first item was "
            "wrong, call reset. Table(signature=...) declares the parts in advance."
        )

    def check_size(self, count: int, max_bytes: int) -> None:
        """Raise ValueError if copies of `count` items could take more than `max_bytes` bytes.

        Every item counts as the longest one, because samples are padded.
        """

        def bytes_of(lengths: Lengths) -> int:
            values = sum(n * field.nbytes for n, (field, _) in zip(lengths, self._columns, strict=False))
            return values + 8 * len(SampleInfo._fields)

        item = bytes_of(self.items.longest)
        if count * item > max_bytes:  # `longest` may be the length of a deleted item
            item = bytes_of(self.items.lengths(self.items.used_slots())[0])
        if count * item > max_bytes:
            raise ValueError(
                f"{count:,} items of the table {self.config.name!r} may take {count * item:,} bytes; "
                f"the limit for one reply is {max_bytes:,} bytes. Request at most {max_bytes // item:,} "
                "items at once."
            )

    def check_priorities(self, priorities: Floats) -> None:
        """Raise ValueError unless both selectors accept these priorities."""
        first_invalid = first_outside(priorities, self._low, self._high)
        if first_invalid >= 0:
            raise ValueError(
                f"Priorities in the table {self.config.name!r} must be between {self._low:.3g} and "
                f"{self._high:.3g}, not {priorities[first_invalid]}."
            )

    def item(self, key: int) -> Item:
        slot = key % self.items.num_slots
        layout = item_layout(self.parts, self.items.lengths(np.array([slot]))[0])
        return Item(layout, self.items.cells_of(slot).copy(), float(self.items.priorities[slot]))

    def times_sampled(self, key: int) -> int:
        return int(self.items.times_sampled[key % self.items.num_slots])

    # Operations; the caller has checked the arguments

    def insert(self, cells: CellList, lengths: Lengths, priority: float | None) -> int:
        """Insert an item and return its key."""
        if priority is None:
            priority = self.highest_priority
        self.max_priority = max(self.max_priority, priority)
        slot = self.items.insert(cells, lengths, priority)
        key = int(self.items.keys[slot])
        retain_cells(cells, self._cells.allocator.references)
        self.sampler.insert(slot, priority)
        self.remover.insert(slot, priority)
        self._call_hooks("on_insert", key)
        if self.items.size > self.config.max_size:
            self._delete(self.remover.select_one(self._rng))
        self.inserts += 1
        return key

    def try_insert(self, item: Item) -> int | None:
        if self.in_hook or not self.may_insert():  # a hook is called while the table is being changed
            return None
        parts = self.parts or inferred_parts(item.layout)
        try:
            lengths = self.check_layout(item.layout, parts)
            self.check_priorities(np.array([item.priority], np.float64))
        except ValueError:
            return None
        if not self.parts:
            self.set_parts(parts)
        return self.insert(item.cells, lengths, item.priority)

    def sample(self, limit: int) -> Sample:
        """Sample as many items as the limiter admits, at most `limit`; it must admit at least one.

        A batch that does not fit into memory raises MemoryError before any item is counted.
        """
        count = self.limiter.sampleable(self.inserts, self.samples, self.deletes, limit)
        if not (self.config.max_times_sampled or self.config.hooks):
            return self._draw(count)
        if self.config.max_times_sampled:
            count = min(count, self.items.size * self.config.max_times_sampled)
        try:
            memory = self._allocate(count, self.items.longest)
        # `longest` may be the length of a deleted item. NumPy raises ValueError for 2**63 bytes or more.
        except (MemoryError, ValueError):
            memory = self._allocate(count, self.items.lengths(self.items.used_slots())[0])
        exhausted: list[int] = []  # items sampled for the last time, which are freed after copying
        try:
            slots, info = self._draw_one_by_one(count, exhausted)
            return Sample(info, *self._copy(slots, memory))
        finally:
            for slot in exhausted:
                self._free(slot)

    def _draw(self, count: int) -> Sample:
        """Draw the whole batch at once, which is possible because no draw changes the table."""
        slots, probabilities, least = self.sampler.select(count, self._rng)
        copied = self._copy(slots)
        sizes, times = np.full(count, self.items.size), np.empty(count, np.int64)
        self.samples += count
        self.unique_samples += count_samples(slots, self.items.times_sampled, times)
        return Sample(self._sample_info(slots, probabilities, np.full(count, least), sizes, times), *copied)

    def _draw_one_by_one(self, count: int, exhausted: list[int]) -> tuple[Integers, SampleInfo]:
        """Draw at most `count` items one by one, because a deleted item cannot be sampled again."""
        items, slots = self.items, list[int]()
        rows: list[tuple[float, ...]] = []
        while len(slots) < count and self.may_sample():
            self.samples += 1
            drawn = self.sampler.select(1, self._rng)
            slot = int(drawn.slots[0])
            slots.append(slot)
            items.times_sampled[slot] += 1
            times = int(items.times_sampled[slot])
            self.unique_samples += times == 1
            rows.append((drawn.probabilities[0], drawn.least_probability, items.size - len(exhausted), times))
            self._call_hooks("on_sample", int(items.keys[slot]))
            if 0 < self.config.max_times_sampled <= times:
                self._remove_from_selectors(slot)
                exhausted.append(slot)
        chosen = np.array(slots)
        probabilities, least, sizes, times = map(np.array, zip(*rows, strict=True))
        return chosen, self._sample_info(chosen, probabilities, least, sizes, times)

    def _sample_info(
        self, slots: Integers, probabilities: Floats, least: Floats, sizes: Integers, times: Integers
    ) -> SampleInfo:
        keys, priorities = self.items.keys[slots], self.items.priorities[slots]
        return SampleInfo(keys, probabilities, least, sizes, priorities, times)

    def _allocate(self, count: int, lengths: Lengths) -> list[Bytes]:
        """Allocate memory for the parts of `count` items of at most these lengths."""
        return [
            np.empty((count * length, values.shape[1]), np.uint8)
            for length, (_, values) in zip(lengths, self._columns, strict=True)
        ]

    def _copy(
        self, slots: Integers, memory: list[Bytes] | None = None
    ) -> tuple[Parts, dict[str, Integers] | None, frozenset[str]]:
        """Copy the trajectories of items; return `data`, `lengths` and `squeezed` of a `Sample`."""
        batch: Parts = {}
        if not len(slots):
            return batch, None, frozenset()
        items, count, columns, squeezed = self.items, len(slots), len(self._cells.fields), self._squeezed
        starts, begin = items.starts[slots], 0  # starts + begin: first cell of the current part
        longest, lengths_by_item = items.lengths(slots)
        for part, (name, (field, values)) in enumerate(zip(self.parts, self._columns, strict=True)):
            max_length = longest[part]
            lengths = NO_LENGTHS if lengths_by_item is None else lengths_by_item[part]
            rows = count * max_length
            copies = np.empty((rows, values.shape[1]), np.uint8) if memory is None else memory[part][:rows]
            shape = (count, *field.shape) if name in squeezed else (count, max_length, *field.shape)
            batch[name] = copies.view(field.dtype).reshape(shape)
            gather_cells(values, items.cells, starts, begin, lengths, max_length, columns, copies)
            if lengths_by_item is None:
                begin += max_length
            else:
                starts += lengths
        return (
            batch,
            None if lengths_by_item is None else dict(zip(self.parts, lengths_by_item, strict=True)),
            squeezed,
        )

    def snapshot(self) -> Sample:
        """Return a copy of all items in slot order, without counting them as sampled."""
        slots = self.items.used_slots()
        probabilities = self.sampler.probabilities(slots)
        nonzero = probabilities[probabilities > 0]
        least = np.full(len(slots), nonzero.min() if len(nonzero) else 0.0)
        sizes, times = np.full(len(slots), len(slots)), self.items.times_sampled[slots].astype(np.int64)
        return Sample(self._sample_info(slots, probabilities, least, sizes, times), *self._copy(slots))

    def mutate(self, keys: Integers, priorities: Floats, deletes: Integers) -> int:
        """Delete items, then update priorities of others; return the number of stale keys.

        The last priority of a repeated key is used.
        """
        stale = 0
        for key in deletes.tolist():
            if self.items.keys[key % self.items.num_slots] == key >= 0:
                self._delete(key % self.items.num_slots)
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
            self.max_priority = max(self.max_priority, float(priorities.max()))
        for key in self.items.keys[slots].tolist() if self.config.hooks else ():
            self._call_hooks("on_update", key)
        self.stale += stale
        return stale

    def reset(self, keep_parts: bool) -> None:
        """Delete all items and set the counts to 0; `keep_parts` keeps inferred parts for waiting items."""
        release_cells(self.items.all_cells()[1], self._cells.allocator_tuple)
        self._clear()
        if not keep_parts:
            self.set_parts(self.config.parts)
        self._call_hooks("on_reset")

    def _call_hooks(self, event: str, *keys: int) -> None:
        """Call all hooks; exceptions are logged, because they must not interrupt the operation."""
        self.in_hook = True
        try:
            for hook in self.config.hooks:
                try:
                    getattr(hook, event)(self._tables, self.config.name, *keys)
                except BaseException:
                    log.exception("The hook %r of the table %r failed in %s", hook, self.config.name, event)
        finally:
            self.in_hook = False

    def _delete(self, slot: int) -> None:
        self._remove_from_selectors(slot)
        self._free(slot)

    def _remove_from_selectors(self, slot: int) -> None:
        """Make an item unreachable; its cells stay allocated until `_free`."""
        self._call_hooks("on_delete", int(self.items.keys[slot]))
        self.sampler.delete(slot)
        self.remover.delete(slot)
        self.deletes += 1

    def _free(self, slot: int) -> None:
        """Release the cells and the slot of an item."""
        release_cells(self.items.cells_of(slot), self._cells.allocator_tuple)
        self.items.delete(slot)
