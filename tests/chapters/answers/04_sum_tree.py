"""Answers to the checks of chapter 04."""

MINIMUM = "def my_set_minimum(minima, slot, mass):\n    "
RANGE = "def my_range_sum(nodes, first, last):\n    "
FIND = "class MySumTree(MyTree):\n    def find(self, queries):\n        "
ASCENT = "self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]"
WRONG = {
    "MyTree": [
        ("the smallest power of two", "self.leaf_count = 1", "self.leaf_count = 2"),
        ("the smallest power of two", "self.leaf_count < capacity", "self.leaf_count <= capacity"),
        ("the smallest power of two", "while self.leaf_count < capacity:\n            self.leaf_count *= 2", "self.leaf_count = capacity"),
        ("nodes of 0.0", "(2 * self.leaf_count)", "(2 * self.leaf_count - 1)"),
        ("nodes of 0.0", "[0.0]", "[1.0]"),
        ("nodes of 0.0", "[0.0]", "[float('nan')]"),
        ("has not set self.nodes", "self.nodes = [0.0] * (2 * self.leaf_count)", "pass"),
        ("the sum of its children", "while node > 1", "while node > 2"),
        ("the leaf of slot", "self.leaf_count + slot", "self.leaf_count + slot - 1"),
        ("a difference, which rounds", "self.nodes[node] = mass", "self.nodes[node] += mass - self.nodes[node]"),
        ("Are all nodes above", ASCENT, "pass"),
        ("nan", "self.nodes[node] = mass", "self.nodes[node] = float('nan')"),
        ("changed its argument `masses`", "for slot, mass in zip", "masses[:] = [float(m) for m in masses]; masses.sort()\n        for slot, mass in zip"),
        ("the leaf of slot", "self.nodes[node] = mass", "self.nodes[node] = max(mass, self.nodes[node])"),
        ("a single slot", ASCENT, "pass\n            for node in range(self.leaf_count - 1, 0, -1):\n                " + ASCENT),
        ("a single slot", "for slot, mass in zip", "leaves = self.nodes.copy()\n        for slot, mass in zip"),
        ("a single slot", "for slot, mass in zip(slots, masses, strict=True):", "self.nodes = list(self.nodes)\n        for slot, mass in zip(slots, masses, strict=True):"),
        ("a single slot", ASCENT, "width = self.leaf_count >> (node.bit_length() - 1); low = node * width\n                self.nodes[node] = sum([self.nodes[low]]) if width == 1 else self.nodes[2 * node] + self.nodes[2 * node + 1] + 0 * sum(self.nodes[low:low + width])"),
        ("a single slot", "node = self.leaf_count + slot", "node = self.leaf_count + slot; self.nodes[self.leaf_count : node]"),
    ],
    "MySumTree": [
        ("Only a query strictly less", "query >= self", "query > self"),
        ("no query finds slot", "query -= self.nodes[node]", "pass"),
        ("go to the leaf on its left", "while self.nodes[node] == 0 and node > self.leaf_count", "while False"),
        (
            "go to the leaf on its left",
            "class MySumTree(MyTree):\n    def find(self, queries):\n        leaves = [self.find_one(query) for query in np.minimum(queries, np.nextafter(self.total, 0))]\n        return np.array(leaves) - self.leaf_count, np.array([self.nodes[leaf] for leaf in leaves])\n    def find_one(self, query):\n        node = 1\n        while node < self.leaf_count:\n            node *= 2\n            if query >= self.nodes[node]:\n                query -= self.nodes[node]\n                node += 1\n        return node",
        ),
        ("find returned slots of dtype", "np.array(leaves) - self.leaf_count", "np.array(leaves) - float(self.leaf_count)"),
        ("the masses returned are not", "self.nodes[leaf] for", "1.0 for"),
        ("the masses returned are not", "self.nodes[leaf] for", "float('nan') for"),
        ("but the capacity is", "np.array(leaves) - self.leaf_count", "np.array(leaves)"),
        ("find returned", "leaves = [self.find_one(query) for query in queries]", "leaves = [self.find_one(queries[0])]"),
        ("find must return slots and masses", "np.array(leaves) - self.leaf_count, ", ""),
        ("changed its argument `queries`", "leaves = [self", "queries.sort()\n        leaves = [self"),
        ("for a single slot", FIND + "sums = np.cumsum(self.nodes[self.leaf_count:])\n        slots = np.minimum(np.searchsorted(sums, queries, side='right'), np.flatnonzero(self.nodes[self.leaf_count:])[-1])\n        return slots, np.array(self.nodes)[self.leaf_count + slots]"),
        ("for a single slot", "node = 1\n", "sum(self.nodes[self.leaf_count:])\n        node = 1\n"),
        ("for a single slot", "node = 1\n", "leaves = self.nodes[self.leaf_count:]\n        node = 1\n"),
        ("for a single slot", FIND + "return [np.array(part) for part in zip(*map(self.scan, queries))]\n    def scan(self, query):\n        last = 0\n        for slot in range(self.leaf_count):\n            mass = self.nodes[self.leaf_count + slot]\n            if mass:\n                last = slot\n                if query < mass:\n                    return slot, mass\n                query -= mass\n        return last, self.nodes[self.leaf_count + last]"),
        ("uses none of the nodes", "class MySumTree(MyTree):\n    def __init__(self, capacity):\n        super().__init__(capacity)\n        self.masses = {}\n    def set(self, slots, masses):\n        super().set(slots, masses)\n        self.masses.update(zip(map(int, slots), map(float, masses)))\n    def find(self, queries):\n        found = []\n        for query in queries:\n            last = 0\n            for slot in sorted(self.masses):\n                if self.masses[slot]:\n                    last = slot\n                    if query < self.masses[slot]:\n                        break\n                    query -= self.masses[slot]\n            found.append(last)\n        return np.array(found), np.array([self.masses[slot] for slot in found])"),
        ("of mass 1", "return node", "return min(node, self.leaf_count + 2)"),
    ],
    "my_path": [
        ("10 is not less than 9", "my_path = [1, 2, 5, 11]"),
        ("less than the 2.5 of node 6", "my_path = [1, 3, 7, 14]"),
        ("not less than the 0.5 of node 12", "my_path = [1, 3, 6, 12]"),
        ("has the children 12 and 13", "my_path = [1, 3, 6, 14]"),
        ("nan is not a number", "my_path = [1, 3, 6, float('nan')]"),
        ("begins at the root", "my_path = [16, 7, 2.5, 2]"),
        ("begins at the root", "my_path = [0, 1, 2, 5]"),
        ("four nodes", "my_path = [1, 3, 6]"),
        ("has the children", "my_path = [1, 1, 1, 1]"),
        ("four nodes", "my_path = None"),
    ],
    "my_set_minimum": [
        ("A mass of 0 must not count", "mass if mass > 0 else math.inf", "mass"),
        ("from both children", "min(minima[2 * node], minima[2 * node + 1])", "min(minima[node], mass or math.inf)"),
        ("node 1 is inf", "while node > 1", "while node > 2"),
        ("8 slots", "    minima[node] = min(minima[2 * node], minima[2 * node + 1])", "    pass\n    minima[1] = min(minima[len(minima) // 2:])"),
        ("node", "minima[2 * node + 1])", "minima[2 * node])"),
        ("node", "min(minima", "max(minima"),
        ("nan", "mass if mass > 0 else math.inf", "float('nan')"),
        ("the smallest mass above 0", "while node > 1", "while False"),
        ("the smallest mass above 0", "len(minima) // 2 + slot", "len(minima) // 2 - 1 + slot"),
        ("nodes", "minima[node] = mass if mass > 0 else math.inf", "minima.append(mass)"),
        ("Only the 13 nodes", MINIMUM + "half = len(minima) // 2\n    minima[half + slot] = mass or math.inf\n    for node in range(half - 1, 0, -1):\n        minima[node] = min(minima[2 * node], minima[2 * node + 1])"),
        ("Only the 13 nodes", "while node > 1", "smallest = min(minima)\n    while node > 1"),
    ],
    "my_range_sum": [
        ("Which slot is missing or extra?", "last + 1 + len", "last + len"),
        ("Which slot is missing or extra?", "first + len", "first + 1 + len"),
        ("Which slot is missing or extra?", "high -= 1\n            total += nodes[high]", "total += nodes[high]\n            high -= 1"),
        ("NaN", "total = 0.0", "total = float('nan')"),
        ("Which slot", "return total", "return nodes[1]"),
        ("Which slot", "return total", "return total + nodes[len(nodes) // 2 + last]"),
        ("the result is None", "return total", "pass"),
        ("Which slot", "total += nodes[low]", "total += nodes[low - 1]"),
        ("changed its argument `nodes`", "total = 0.0", "total = 0.0; nodes[0] = 1.0"),
        ("Climb from both ends", RANGE + "half = len(nodes) // 2\n    return sum(nodes[half + first : half + last + 1])"),
        ("Climb from both ends", RANGE + "return sum(nodes[len(nodes) // 2 + slot] for slot in range(first, last + 1))"),
        ("Climb from both ends", RANGE + "sums = np.cumsum([0, *nodes[len(nodes) // 2 :]])\n    return float(sums[last + 1] - sums[first])"),
        ("must have the shape ()", "return total", "return [total]"),
    ],
}
RIGHT = {
    "MyTree": [
        """
class MyTree:
    def __init__(self, capacity):
        self.levels = (capacity - 1).bit_length()
        self.leaf_count = 1 << self.levels
        self.nodes = [0.0 for _ in range(2 * self.leaf_count)]
        self.updates = 0
    @property
    def total(self):
        return self.nodes[1]
    def set(self, slots, masses):
        for slot, mass in zip(slots, masses):
            self.nodes[self.leaf_count + slot] = mass
            self.climb((self.leaf_count + slot) // 2)
            self.updates += 1
    def climb(self, node):
        if node:
            left, right = self.nodes[2 * node : 2 * node + 2]
            self.nodes[node] = left + right
            self.climb(node // 2)""",
        """
class MyTree:
    def __init__(self, capacity):
        self.leaf_count = int(2 ** np.ceil(np.log2(capacity)))
        self.nodes = np.zeros(2 * self.leaf_count)
    @property
    def total(self):
        return self.nodes[1]
    def set(self, slots, masses):
        nodes = np.asarray(slots) + self.leaf_count
        self.nodes[nodes] = masses
        while nodes[0] > 1:
            nodes = np.unique(nodes // 2)
            self.nodes[nodes] = self.nodes[2 * nodes] + self.nodes[2 * nodes + 1]""",
    ],
    "MySumTree": [
        """
class MySumTree(MyTree):
    def find(self, queries):
        leaves = [self.find_one(query) for query in queries]
        return np.array(leaves) - self.leaf_count, np.array([self.nodes[leaf] for leaf in leaves])
    def find_one(self, query):
        def descend(node, rest):
            if node >= self.leaf_count:
                return node
            left, right = self.nodes[2 * node], self.nodes[2 * node + 1]
            if rest < left or right == 0:
                return descend(2 * node, rest)
            return descend(2 * node + 1, rest - left)
        return descend(1, query)""",
        """
class MySumTree(MyTree):
    def find(self, queries):
        nodes, rest = np.ones(len(queries), int), np.array(queries)
        for _ in range(self.leaf_count.bit_length() - 1):
            nodes *= 2
            left = np.array([self.nodes[node] for node in nodes])
            right = np.array([self.nodes[node + 1] for node in nodes])
            goes = (rest >= left) & (right > 0)
            rest -= left * goes
            nodes += goes
        return nodes - self.leaf_count, np.array([self.nodes[node] for node in nodes])""",
    ],
    "my_path": ["my_path = (1, 3, 6, 13)", "my_path = np.array([1.0, 3.0, 6.0, 13.0])"],
    "my_set_minimum": [
        MINIMUM
        + """node = len(minima) // 2 + slot
    minima[node] = np.inf if mass == 0 else mass
    node >>= 1
    while node:
        minima[node] = min(minima[2 * node : 2 * node + 2])
        node >>= 1""",
        MINIMUM
        + """def climb(node):
        if node >= 1:
            left, right = minima[2 * node], minima[2 * node + 1]
            minima[node] = left if left < right else right
            climb(node // 2)
    minima[slot + len(minima) // 2] = mass or float("inf")
    climb((slot + len(minima) // 2) // 2)
    return minima[1]""",
    ],
    "my_range_sum": [
        RANGE
        + """def before(slot):  # the sum of all slots below
        node, total = slot + len(nodes) // 2, 0.0
        while node > 1:
            if node % 2:
                total += nodes[node - 1]
            node //= 2
        return total
    half = len(nodes) // 2
    return (nodes[1] if last + 1 == half else before(last + 1)) - before(first)""",
        RANGE
        + """def covered(node, low, high):
        if low > last or high < first:
            return 0.0
        if first <= low and high <= last:
            return nodes[node]
        middle = (low + high) // 2
        return covered(2 * node, low, middle) + covered(2 * node + 1, middle + 1, high)
    return covered(1, 0, len(nodes) // 2 - 1)""",
    ],
}
