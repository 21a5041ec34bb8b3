"""Answers to the checks of chapter 05."""

DRAW = "def my_stratified(totals, count, rng):\n    "
UPDATE = "def my_update(tree, indexes, masses, next_index, capacity):\n    "
QUERIES = "(np.arange(batch_size) + self.rng.random(batch_size))"
WRONG = {
    "MyPrioritizedReplay": [
        ("add returned", "return first\n", "return self.next_index\n"),
        ("The difference must be less than 2", "(np.arange(batch_size) + self.rng.random(batch_size)) / batch_size", "self.rng.random(batch_size)"),
        ("row -1 was never added; raise IndexError", "(indexes >= 0) & (indexes < self.next_index)", "True"),
        ("row -1 was never added; raise IndexError", "(indexes >= 0) & ", ""),
        ("row 3 was never added; raise IndexError", " & (indexes < self.next_index)", ""),
        ("independently at random", QUERIES, "(np.arange(batch_size) + self.rng.random())"),
        ("independently at random", QUERIES, "(np.arange(batch_size) + 0.5)"),
        ("independently at random", QUERIES, "(np.arange(batch_size) + np.random.default_rng(0).random(batch_size))"),
        ("with the same seed", "self.rng.random(", "np.random.random("),
        ("with different seeds", "default_rng(seed)", "default_rng(0)"),
        ("The difference must be less than 2", "self.largest if priorities is None else", "1.0 if priorities is None else"),
        ("The difference must be less than 2", "self.tree.set(slots, (priorities + self.eps) ** self.alpha)", "self.tree.set(slots, priorities + self.eps)"),
        ("The difference must be less than 2", "(priorities[kept] + self.eps) ** self.alpha", "priorities[kept] ** self.alpha"),
        ("sample returned index", "slots + (self.next_index - 1 - slots) // self.capacity * self.capacity", "slots"),
        ("sample returned index", "(self.next_index - 1 - slots)", "(self.next_index - slots)"),
        ("has the weight", "self.tree.smallest / masses", "masses.min() / masses"),
        ("has the weight", ") ** beta", ") ** 0.4"),
        ("has the weight", ") ** beta", ")"),
        ("accepted the priority nan", "not np.all((priorities >= 0) & np.isfinite(priorities))", "np.any(priorities < 0)"),
        ("accepted the priority inf", "np.isfinite(priorities)", "~np.isnan(priorities)"),
        ("accepted the priority nan for row 0, which has been replaced", "if not np.all((priorities >= 0) & np.isfinite(priorities))", "current = priorities[indexes >= self.next_index - self.capacity]\n        if not np.all((current >= 0) & np.isfinite(current))"),
        ("stale_updates changed", "            raise ValueError", "            self.stale_updates += int(np.sum(indexes < self.next_index - self.capacity))\n            raise ValueError"),
        ("stale_updates is", "kept = indexes >= self.next_index - self.capacity", "kept = indexes >= 0"),
        ("stale_updates is", "indexes >= self.next_index", "indexes > self.next_index"),
        ("stale_updates is 0", "self.stale_updates += int(np.sum(~kept))", "pass"),
        ("late or rejected updates don't count", "[self.largest, *priorities[kept]]", "[self.largest, *priorities]"),
        ("The difference must be less than 2", "self.largest = max([self.largest, *priorities[kept]])", "pass"),
        ("late or rejected updates don't count", "        if not np.all", "        self.largest = max(self.largest, priorities[0])\n        if not np.all"),
        ("contents of another row", "for name, values in fields.items():\n            self.columns[name][slots] = values", "self.columns['reward'][slots] = fields['reward']"),
        ("'indexes' must be integers", "// self.capacity * self.capacity", "// self.capacity * float(self.capacity)"),
        ("'weights' of a sample", 'batch["weights"] =', 'batch["weight"] ='),
        ("contains NaN", ") ** beta", ") ** beta * np.nan"),
        ("changed its argument `priorities`", "        if not np.all", "        priorities += 0.5\n        if not np.all"),
    ],
    "my_dropped": [
        ("has been replaced", "my_dropped, my_priority_of_8 = [3], 5.0"),
        ("has been replaced", "my_dropped, my_priority_of_8 = [7], 5.0"),
        ("is still stored", "my_dropped, my_priority_of_8 = [3, 7, 8], 5.0"),
        ("is not in the update", "my_dropped, my_priority_of_8 = [3, 7, 0, 1, 2], 5.0"),
        ("write each index that is dropped once", "my_dropped, my_priority_of_8 = [3, 7, 7], 5.0"),
        ("its last priority counts, not 2", "my_dropped, my_priority_of_8 = [3, 7], 2.0"),
        ("nan is not a number", "my_dropped, my_priority_of_8 = [3, float('nan')], 5.0"),
        ("nan is not a number", "my_dropped, my_priority_of_8 = [3, 7], float('nan')"),
        ("write the indexes", "my_dropped, my_priority_of_8 = 3, 5.0"),
        ("has been replaced", "my_dropped, my_priority_of_8 = [], 5.0"),
        ("is not in the update", "my_dropped, my_priority_of_8 = [1, 4], 5.0"),
    ],
    "my_stratified": [
        ("its segment is", "(np.arange(count) + rng.random(count)) / count", "rng.random(count)"),
        ("uniformly distributed", "+ rng.random(count)", "+ 0.5"),
        ("uniformly distributed", "+ rng.random(count)", "+ rng.random(count) / 2"),
        ("uniformly distributed", "+ rng.random(count)", "+ np.random.default_rng(0).random(count)"),
        ("the same offset", "+ rng.random(count)", "+ rng.random()"),
        ("the same offset", "+ rng.random(count)", "+ np.resize(rng.random(2), count)"),
        ("the same generator", "+ rng.random(count)", "+ np.random.random(count)"),
        ("relative to the start of its tree", "points - (ends - totals)[trees]", "points"),
        ("relative to the start of its tree", "(ends - totals)[trees]", "ends[trees]"),
        ("trees must be integers", "return trees,", "return trees - 1,"),
        ("draws 0.9999999999999999: index 2 is out of bounds", ", np.flatnonzero(totals)[-1])", ", 99)"),
        ("belongs to the next one", ", np.flatnonzero(totals)[-1])", ", len(totals) - 1)"),
        ("draws 0.0: query 2 is 1 in tree 0", 'side="right"', 'side="left"'),
        ("index 2 is out of bounds", DRAW + """trees, queries = np.zeros(count, int), np.zeros(count)
    for i in range(count):
        rest = (i + rng.random()) * sum(totals) / count
        while rest >= totals[trees[i]]:
            rest -= totals[trees[i]]
            trees[i] += 1
        queries[i] = rest
    return trees, queries"""),
        ("its segment is", "* ends[-1]", "* ends[-1] / 2"),
        ("trees must be integers", "return trees,", "return trees.astype(float),"),
        ("two arrays", "return trees, points - (ends - totals)[trees]", "return points"),
        ("NaN", "return trees, points", "return trees, np.nan * points"),
        ("changed its argument `totals`", "ends = np.cumsum(totals)", "ends = np.cumsum(totals); totals /= 1.5"),
        ("uniformly distributed", "+ rng.random(count)", "+ np.sqrt(rng.random(count))"),
        ("relative to the start of its tree", 'np.searchsorted(ends, points, side="right"), np.flatnonzero(totals)[-1]', "np.arange(count) % len(totals), len(totals)"),
    ],
    "my_update": [
        ("row 0 has the mass", "indexes >= oldest_index", "indexes > oldest_index"),
        ("has the mass", "indexes >= oldest_index", "indexes >= 0"),
        ("has the mass", "indexes >= oldest_index", "indexes >= oldest_index + 2"),
        ("has the mass", "next_index - capacity", "next_index - capacity - 1"),
        ("has the mass", "tree.set(indexes[still_there] % capacity, masses[still_there])", "pass"),
        ("has the mass nan", "masses[still_there])", "masses[still_there] * np.nan)"),
        ("has the mass", "masses[still_there])", "masses[still_there][::-1])"),
        ("has the mass", "masses[still_there])", "np.ones(still_there.sum()))"),
        ("has the mass", "tree.set(indexes[still_there] % capacity, masses[still_there])", "tree.set(indexes[still_there][::-1] % capacity, masses[still_there][::-1])"),
        ("the total is", "tree.set(indexes[still_there] % capacity, masses[still_there])", "for slot, mass in zip(indexes[still_there] % capacity, masses[still_there]):\n        tree.nodes[tree.leaf_count + slot] = mass"),
        ("changed its argument `masses`", "oldest_index =", "masses[indexes < next_index - capacity] = 0; oldest_index ="),
        ("capacity 5", "% capacity, masses", "& 7, masses"),
    ],
}
RIGHT = {
    "MyPrioritizedReplay": [
        """
class MyPrioritizedReplay:
    def __init__(self, capacity, fields, *, alpha=0.6, eps=1e-4, seed=None):
        self.size, self.power, self.eps = capacity, alpha, eps
        self.random = np.random.default_rng(seed)
        self.table = {n: np.zeros((capacity, *f.get("shape", ()))) for n, f in fields.items()}
        self.masses = np.zeros(capacity)
        self.index_of = np.full(capacity, -1)
        self.count, self.top, self.stale_updates = 0, 1.0, 0
    def add(self, *, priorities=None, **fields):
        first = self.count
        for place in range(len(next(iter(fields.values())))):
            slot = self.count % self.size
            for name in fields:
                self.table[name][slot] = fields[name][place]
            priority = self.starting if priorities is None and place else self.top if priorities is None else priorities[place]
            self.starting = self.top
            self.masses[slot] = (priority + self.eps) ** self.power
            self.index_of[slot] = self.count
            self.count += 1
        if priorities is not None:
            self.top = max(self.top, float(np.max(priorities)))
        return first
    def sample(self, batch_size, beta=0.4):
        sums = np.cumsum(self.masses)
        width = sums[-1] / batch_size
        points = self.random.uniform(np.arange(batch_size) * width, (np.arange(batch_size) + 1) * width)
        slots = np.minimum(np.searchsorted(sums, points, "right"), min(self.count, self.size) - 1)
        least = self.masses[self.masses > 0].min()
        return {n: c[slots] for n, c in self.table.items()} | {
            "indexes": self.index_of[slots], "weights": (least / self.masses[slots]) ** beta}
    def update_priorities(self, indexes, priorities):
        for priority in priorities:
            if not 0 <= priority < float("inf"):
                raise ValueError(f"priority {priority}")
        if min(indexes) < 0 or max(indexes) >= self.count:
            raise IndexError("never added")
        for index, priority in zip(indexes, priorities):
            if self.index_of[index % self.size] != index:
                self.stale_updates += 1
                continue
            self.masses[index % self.size] = (priority + self.eps) ** self.power
            self.top = max(self.top, priority)""",
        "from replay_tutorial import PrioritizedReplayBuffer as MyPrioritizedReplay",
    ],
    "my_dropped": ["my_dropped, my_priority_of_8 = (7, 3), 5", "my_dropped, my_priority_of_8 = np.array([3, 7]), np.float64(5)"],
    "my_stratified": [
        DRAW
        + """starts = np.concatenate([[0.0], np.cumsum(totals)])
    width = starts[-1] / count
    trees, queries = [], []
    for segment in range(count):
        point = rng.uniform(segment * width, (segment + 1) * width)
        tree = max(i for i in range(len(totals)) if starts[i] <= point and totals[i] > 0)
        trees.append(tree)
        queries.append(point - starts[tree])
    return trees, queries""",
        DRAW
        + """trees, queries = np.zeros(count, int), np.zeros(count)
    for i in range(count):
        rest = (i + rng.random()) * sum(totals) / count
        while rest >= totals[trees[i]] and any(totals[trees[i] + 1 :]):
            rest -= totals[trees[i]]
            trees[i] += 1
        queries[i] = rest
    return [trees, queries]""",
    ],
    "my_update": [
        UPDATE
        + """for index, mass in zip(indexes.tolist(), masses.tolist()):
        if next_index - capacity <= index:
            tree.set([index % capacity], [mass])""",
        UPDATE
        + """fresh = next_index - indexes <= capacity
    newest = dict(zip(indexes[fresh], masses[fresh]))
    tree.set([index % capacity for index in newest], newest.values())""",
    ],
}
