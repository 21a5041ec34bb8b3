"""Answers to the checks of chapter 01."""

ADD = "def my_add_many(ring, **columns):\n    count = len(columns['action'])\n    "

WRONG = {
    "MyRing": [
        ("len() is", "min(self.added, self.capacity)", "self.added"),
        ("len() is", "min(self.added, self.capacity)", "self.capacity"),
        ("a row of zeros", "integers(len(self)", "integers(self.capacity"),
        ("was sampled 0 times", "integers(len(self)", "integers(max(1, len(self) - 1)"),
        ("capacity 3, after 2 rows: row 1 was sampled 1,000 times", "integers(len(self)", "integers(len(self) if self.added >= self.capacity else max(1, len(self) - 1)"),
        ("capacity 3", "self.added % self.capacity", "self.added & (self.capacity - 1)"),
        ("was sampled; the stored rows are", "self.added % self.capacity", "min(self.added, self.capacity - 1)"),
        ("a row of zeros", "% self.capacity\n", "% max(1, self.capacity - 1)\n"),
        ("Do all fields come from the same slot?", "column[slots]", "column[self.rng.permutation(slots)]"),
        ("was sampled", "size=batch_size)", "size=batch_size) * 0"),
        ("the same row was drawn twice running", "self.rng.integers(len(self), size=batch_size)", "np.resize(self.rng.permutation(len(self)), batch_size)"),
        ("the same row was drawn twice running 0 times", "self.rng.integers(len(self), size=batch_size)", "(self.rng.integers(len(self)) + np.arange(batch_size)) % len(self)"),
        ("They agree too well", "self.rng.integers(len(self), size=batch_size)", "self.rng.permutation(np.resize(np.arange(len(self)), batch_size))"),
        ("was sampled", "slots = self.rng.integers", "self.rng = np.random.default_rng(0)\n        slots = self.rng.integers"),
        ("with the same seed", "self.rng.integers(len(self), size=batch_size)", "np.random.randint(len(self), size=batch_size)"),
        ("with different seeds", "default_rng(seed)", "default_rng(0)"),
        ("'obs' is float64", 'field["dtype"]', "float"),
        ("must return a dict", "{name: column[slots] for name, column in self.columns.items()}", "[column[slots] for column in self.columns.values()]"),
        ("'obs' is", "column[slots] for", "column[slots].tolist() for"),
        ("a batch changed when the next one was sampled", "return {name: column[slots] for name, column in self.columns.items()}", "self.out = getattr(self, 'out', {})\n        for name, column in self.columns.items():\n            self.out[name] = np.take(column, slots, axis=0, out=self.out[name] if name in self.out and len(self.out[name]) == batch_size else None)\n        return dict(self.out)"),
        ("Don't move any row", "self.columns.items():\n", "self.columns.items():\n            column[:] = np.array(column)\n"),
        ("Don't move any row", "slot = self.added % self.capacity", "self.columns = {k: c.copy() for k, c in self.columns.items()}; slot = self.added % self.capacity"),
    ],
    "my_rows": [
        ("write a row number", "my_rows = [10, 11, 12, 8]"),
        ("nan is not a number", "my_rows = [float('nan')] * 5"),
        ("never added", "my_rows = [10, 11, 12, 13, 9]"),
        ("was in slot 3 earlier", "my_rows = [10, 11, 12, 3, 9]"),
        ("is not in slot 0", "my_rows = [8, 9, 10, 11, 12]"),
        ("row 0 was in slot 0 earlier", "my_rows = [0, 1, 2, 3, 4]"),
        ("row 0 was in slot 0 earlier", "my_rows = [0] * 5"),
        ("is not in slot 0", "my_rows = [11, 12, 8, 9, 10]"),
        ("never added", "my_rows = [10, 11, 12, -2, 9]"),
        ("write a row number", "my_rows = '10'"),
        ("is not a number", "my_rows = ['10', '11', '12', '8', '9']"),
    ],
    "my_add_many": [
        ("slot 0 holds", "% ring.capacity", "% (ring.capacity - 1 or 1)"),
        ("`added` is 1", "ring.added += count", "ring.added += 1"),
        ("`added` is 0", "ring.added += count", "pass"),
        ("`added` is", "ring.added += count", "ring.added = min(ring.added + count, ring.capacity)"),
        ("slot 0 holds", "np.arange(ring.added, ring.added + count)", "np.arange(count)"),
        ("slot 0 holds", "np.arange(ring.added, ring.added + count)", "np.arange(ring.added + 1, ring.added + count + 1)"),
        ("slot", "ring.rows[name][slots] = values", "ring.rows[name][slots] = values[0]"),
        ("slot", "ring.rows[name][slots] = values", "ring.rows[name][slots] = values[::-1]"),
        ("slot 0 holds", "for name, values in columns.items():", "for name, values in [('action', columns['action'])]:"),
        ("slot 0 holds", "ring.rows[name][slots] = values", "pass"),
        ("capacity 8, 5 rows, then a batch of 20", 'count = len(columns["action"])', 'count = min(len(columns["action"]), ring.capacity)\n    columns = {n: v[:count] for n, v in columns.items()}'),
        ("capacity 7", "% ring.capacity", "& (ring.capacity - 1)"),
        ("the caller's arrays have changed", "ring.rows[name][slots] = values", "ring.rows[name][slots] = values; values[:] = 0"),
        ("assign a whole column", ADD + "for i in range(count):\n        ring.add(**{name: values[i] for name, values in columns.items()})"),
        ("assign a whole column", ADD + "for i in range(count):\n        for name in columns:\n            ring.rows[name][(ring.added + i) % ring.capacity] = columns[name][i]\n    ring.added += count"),
        ("assign a whole column", ADD + "[ring.add(**dict(zip(columns, values))) for values in zip(*columns.values())]"),
    ],
    "my_sample": [
        ("Is it the oldest row or the newest?", "len(ring), size", "max(len(ring) - 1, 1), size"),
        ("Is it the oldest row or the newest?", "(0, len(ring), size", "(min(1, len(ring) - 1), len(ring), size"),
        ("Is it the oldest row or the newest?", "len(ring), size", "len(ring) if ring.added >= ring.capacity else 1, size"),
        ("Is it the oldest row or the newest?", "len(ring), size", "len(ring) if ring.added >= ring.capacity else max(len(ring) - 1, 1), size"),
        ("a row of zeros", "len(ring), size", "ring.capacity, size"),
        ("a slot was sampled that does not exist", "len(ring), size", "len(ring) + 1, size"),
        ("not None", "return {name", "{name"),
        ("must return a batch: AttributeError", "len(ring)", "len(ring.memory)"),
        ("'obs' is", "size=batch_size", "size=1"),
        ("was sampled", "size=batch_size)", "size=batch_size) * 0"),
        ("twice running", "ring.rng.integers(0, len(ring), size=batch_size)", "np.resize(ring.rng.permutation(len(ring)), batch_size)"),
        ("with the same seed", "ring.rng.integers(0, len(ring), size=batch_size)", "np.random.randint(0, len(ring), size=batch_size)"),
        ("with different seeds", "ring.rng.integers", "ring.__dict__.setdefault('r', np.random.default_rng(0)).integers"),
        ("'obs' is", "batch[name] for", "batch[name].tolist() for"),
        ("must return a dict", "{name: batch[name] for name in ring.names}", "batch"),
        ("was sampled", "ring.rng.integers(0, len(ring), size=batch_size)", "np.sort(ring.rng.integers(0, len(ring), size=batch_size)) // 2"),
    ],
}
RIGHT = {
    "MyRing": [
        """
class MyRing:
    def __init__(self, capacity, fields, seed=0):
        self.size, self.names, self.stored = capacity, tuple(fields), 0
        self.table = np.zeros(capacity, [(n, f["dtype"], f.get("shape", ())) for n, f in fields.items()])
        self.place, self.rng = 0, np.random.default_rng(seed)
    def __len__(self):
        return self.stored
    def add(self, **transition):
        for name in self.names:
            self.table[name][self.place] = transition[name]
        self.place += 1
        if self.place == self.size:
            self.place = 0
        if self.stored < self.size:
            self.stored += 1
    def sample(self, batch_size):
        rows = self.table[self.rng.choice(self.stored, batch_size)]
        return {name: rows[name] for name in rows.dtype.names}""",
        """
class MyRing:
    def __init__(self, capacity, fields, seed=0):
        self.capacity, self.fields, self.memory, self.added = capacity, fields, [], 0
        self.random = np.random.RandomState(seed)
    def __len__(self):
        return len(self.memory)
    def add(self, **transition):
        row = {name: np.array(value) for name, value in transition.items()}
        if len(self.memory) < self.capacity:
            self.memory.append(row)
        else:
            self.memory[self.added % self.capacity] = row
        self.added += 1
    def sample(self, batch_size):
        rows = [self.memory[i] for i in self.random.randint(0, len(self.memory), batch_size)]
        return {n: np.array([row[n] for row in rows], f["dtype"]) for n, f in self.fields.items()}""",
    ],
    "my_rows": ["my_rows = (10, 11, 12, 8, 9)", "my_rows = np.array([10.0, 11, 12, 8, 9])"],
    "my_add_many": [
        """
def my_add_many(ring, **columns):
    count = len(columns["action"])
    kept = min(count, ring.capacity)
    where = np.mod(ring.added + count - kept + np.arange(kept), ring.capacity)
    for name in ring.names:
        ring.rows[name][where] = columns[name][count - kept:]
    ring.added = ring.added + count""",
        """
def my_add_many(ring, **columns):
    count = len(columns["action"])
    batch = np.empty(count, ring.rows.dtype)
    for name in columns:
        batch[name] = columns[name]
    slots = [*range(ring.added, ring.added + count)]
    ring.rows[np.array(slots) % ring.capacity] = batch
    ring.added += count""",
    ],
    "my_sample": [
        "def my_sample(ring, batch_size):\n    chosen = ring.rows[ring.rng.choice(len(ring), batch_size)]\n    return {n: chosen[n].copy() for n in ring.names}",
        "def my_sample(ring, batch_size):\n    slots = (ring.rng.random(batch_size) * min(ring.added, ring.capacity)).astype(int)\n    return {n: ring.rows[n][slots] for n in ring.names}",
    ],
}
