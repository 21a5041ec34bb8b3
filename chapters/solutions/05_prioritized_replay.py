"""Solutions to the exercises of chapter 05."""

import numpy as np


class MyPrioritizedReplay:
    """A ring of columns and a sum tree: leaf i is the mass of the row in slot i."""

    def __init__(self, capacity, fields, *, alpha=0.6, eps=1e-4, seed=None):
        self.capacity, self.alpha, self.eps = capacity, alpha, eps
        self.rng = np.random.default_rng(seed)
        shapes = {name: (capacity, *field.get("shape", ())) for name, field in fields.items()}
        self.columns = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.tree = TreeWithMinimum(Tree(capacity), set_minimum)  # of the chapter's first cell
        self.next_index, self.largest, self.stale_updates = 0, 1.0, 0

    def add(self, *, priorities=None, **fields):
        first, count = self.next_index, len(next(iter(fields.values())))
        slots = np.arange(first, first + count) % self.capacity
        for name, values in fields.items():
            self.columns[name][slots] = values
        priorities = np.broadcast_to(self.largest if priorities is None else priorities, count)
        self.tree.set(slots, (priorities + self.eps) ** self.alpha)
        self.largest = max(self.largest, priorities.max())
        self.next_index += count
        return first

    def sample(self, batch_size, beta=0.4):
        queries = (np.arange(batch_size) + self.rng.random(batch_size)) / batch_size * self.tree.total
        slots, masses = self.tree.find(queries)
        batch = {name: column[slots] for name, column in self.columns.items()}
        batch["indexes"] = slots + (self.next_index - 1 - slots) // self.capacity * self.capacity
        batch["weights"] = (self.tree.smallest / masses) ** beta
        return batch

    def update_priorities(self, indexes, priorities):
        if not np.all((priorities >= 0) & np.isfinite(priorities)):
            raise ValueError("priorities must be finite and at least 0")
        if not np.all((indexes >= 0) & (indexes < self.next_index)):
            raise IndexError(f"the indexes must be from 0 to {self.next_index - 1}")
        kept = indexes >= self.next_index - self.capacity
        self.tree.set(indexes[kept] % self.capacity, (priorities[kept] + self.eps) ** self.alpha)
        self.largest = max([self.largest, *priorities[kept]])
        self.stale_updates += int(np.sum(~kept))


# 1. Rows 8 to 12 are stored. Row 8 gets priority 2 and then 5; the last one counts.
my_dropped = [3, 7]
my_priority_of_8 = 5.0


def my_stratified(totals, count, rng):
    """2. Draw on the line of all trees; a running sum, as in chapter 03, finds the tree of each point.

    Rounding may take the last point to the total, which no tree owns: it belongs to the last tree with mass.
    """
    ends = np.cumsum(totals)
    points = (np.arange(count) + rng.random(count)) / count * ends[-1]
    trees = np.minimum(np.searchsorted(ends, points, side="right"), np.flatnonzero(totals)[-1])
    return trees, points - (ends - totals)[trees]


def my_update(tree, indexes, masses, next_index, capacity):
    """3. Use `>=`: with `>`, the oldest stored row was never updated."""
    oldest_index = next_index - capacity
    still_there = indexes >= oldest_index
    tree.set(indexes[still_there] % capacity, masses[still_there])
