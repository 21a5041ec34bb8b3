"""Answers to the checks of chapter 03."""

WEIGHTS = "def my_weights(priorities, drawn, alpha, eps, beta, uniform):\n    "
SEARCH = "def my_search(running_sums, query):\n    "
WRONG = {
    "my_weights": [
        ("the whole buffer, not of the batch", "probabilities.min()", "probabilities[drawn].min()"),
        ("Divide by the largest weight", "probabilities.min()", "1 / len(masses)"),
        ("Add eps to the priorities", "(priorities + eps)", "priorities"),
        ("Add eps before the power", "(priorities + eps) ** alpha", "priorities ** alpha + eps"),
        ("These are not the masses", "(priorities + eps) ** alpha", "priorities"),
        ("N and the total don't cancel", "uniform / len(masses) + (1 - uniform) * masses / masses.sum()", "masses / masses.sum()"),
        ("uniform 0.5", "uniform / len(masses)", "uniform / len(drawn)"),
        ("uniform 0.5", "uniform / len(masses)", "uniform"),
        ("uniform 0.5", "masses / masses.sum()", "masses"),
        ("should have", "** beta", ""),
        ("should have", "** beta", "** -beta"),
        ("uniform 0.5", "(1 - uniform) * ", ""),
        ("should have", "probabilities.min() / probabilities[drawn]", "1 - probabilities[drawn]"),
        ("must have the shape (8,)", "[drawn]", ""),
        ("changed its argument `priorities`", "masses = (priorities + eps) ** alpha", "priorities += eps; masses = priorities ** alpha"),
        ("NaN", "probabilities.min()", "float('nan')"),
    ],
    "my_slots": [
        ("can't find slot 2", "my_slots = [0, 1, 2, 3]"),
        ("can't find slot 2", "my_slots = [0, 1, 1, 2]"),
        ("the query 3 does not find slot 0", "my_slots = [0, 0, 1, 3]"),
        ("write a slot", "my_slots = [0, 1, 1]"),
        ("nan is not a number", "my_slots = [float('nan')] * 4"),
        ("the query 3 does not find slot 0", "my_slots = [0] * 4"),
        ("the query 0 does not find slot 1", "my_slots = [1, 2, 2, 4]"),
        ("the query 4 does not find slot 1", "my_slots = [0, 1, 1, 1]"),
        ("write a slot", "my_slots = None"),
        ("is not a number", "my_slots = ['0', '1', '1', '3']"),
    ],
    "my_search": [
        ("Expected position", "query < running_sums", "query <= running_sums"),
        ("Expected position", "return low", "return high - 1"),
        ("an int, not None", "return low", "pass"),
        ("an int, not nan", "return low", "return float('nan')"),
        ("an int, not", "return low", "return float(low)"),
        ("Expected position", "len(running_sums) - 1", "len(running_sums) - 2"),
        ("Expected position", "low, high = 0,", "low, high = 1,"),
        ("Expected position", "return low", "return 0"),
        ("Expected position", "return low", "return low - 1"),
        ("halve the range", SEARCH + "for place, total in enumerate(running_sums):\n        if total > query:\n            return place"),
        ("halve the range", SEARCH + "return int(np.searchsorted(running_sums, query, side='right'))"),
        ("halve the range", SEARCH + "place = 0\n    while running_sums[place] <= query:\n        place += 1\n    return place"),
        ("halve the range", SEARCH + "return sum(total <= query for total in running_sums)"),
        ("write the loop yourself", SEARCH + "import bisect\n    return bisect.bisect_right(running_sums, query)"),
        ("halve the range", SEARCH + "step, place = len(running_sums) // 2, 0\n    while running_sums[place] <= query:\n        place += 1\n    return place"),
    ],
    "MyMemory": [
        ("after add with priority", "[(priority + self.eps) ** self.alpha]", "[priority + self.eps]"),
        ("after add with priority", "[(priority + self.eps) ** self.alpha]", "[priority ** self.alpha + self.eps]"),
        ("after add with priority", "[(priority + self.eps) ** self.alpha]", "[((priority + self.eps) ** self.alpha) ** self.alpha]"),
        ("after update with priority", "(priorities + self.eps) ** self.alpha)", "priorities + self.eps)"),
        ("after update with priority", "(priorities + self.eps) ** self.alpha)", "priorities ** self.alpha)"),
        ("after update with priority", "(priorities + self.eps) ** self.alpha)", "np.ones(len(slots)))"),
        ("after update with priority", "self.masses.set(slots, (priorities + self.eps) ** self.alpha)", "pass"),
        ("probability nan", "(priorities + self.eps) ** self.alpha)", "priorities * np.nan)"),
        ("slots 5, 3 and 5", "self.masses.set(slots, (", "self.masses.set(np.arange(len(slots)), ("),
        ("changed its argument `priorities`", "self.masses.set(slots, (priorities + self.eps) ** self.alpha)", "priorities += self.eps; self.masses.set(slots, priorities ** self.alpha)"),
        ("slots 5, 3 and 5", "self.masses.set(slots, (priorities", "np.ptp(np.diff(slots)) or self.masses.set(slots, (priorities"),
        ("after", "[slot], [(priority + self.eps) ** self.alpha]", "[slot], [(priority + self.eps) ** 0.5]"),
    ],
}
RIGHT = {
    "my_weights": [
        WEIGHTS
        + """m = np.power(priorities + eps, alpha)
    p = (1 - uniform) * m / np.sum(m) + uniform * np.ones_like(m) / m.size
    u = (1 / (m.size * p)) ** beta
    return u[drawn] / u.max()""",
        WEIGHTS
        + """masses = [(priority + eps) ** alpha for priority in priorities]
    total, count = sum(masses), len(masses)
    scores = [uniform * total + (1 - uniform) * count * mass for mass in masses]
    least = min(scores)
    return [(least / scores[row]) ** beta for row in drawn]""",
        WEIGHTS
        + """p = (priorities + eps) ** alpha
    p /= p.sum()
    p = p * (1 - uniform) + uniform / len(p)
    return np.exp(beta * (np.log(p.min()) - np.log(p[drawn]))).astype(np.float32)""",
    ],
    "my_slots": ["my_slots = (0, 1, 1, 3)", "my_slots = np.searchsorted([3, 4, 4, 8], [0, 3, 3.9, 4], side='right')"],
    "my_search": [
        SEARCH
        + """left, right = -1, len(running_sums)
    while right - left > 1:
        middle = (left + right) // 2
        if running_sums[middle] > query:
            right = middle
        else:
            left = middle
    return right""",
        SEARCH
        + """def between(low, high):
        if low == high:
            return low
        middle = low + (high - low) // 2
        return between(low, middle) if running_sums[middle] > query else between(middle + 1, high)
    return between(0, len(running_sums) - 1)""",
        SEARCH
        + """step = 1
    while step < len(running_sums):
        step *= 2
    place = -1
    while step:
        if place + step < len(running_sums) and running_sums[place + step] <= query:
            place += step
        step //= 2
    return np.int64(place + 1)""",
    ],
    "MyMemory": [
        """
class MyMemory(exercises.Memory):
    def mass_of(self, priority):
        return (np.asarray(priority, float) + self.eps) ** self.alpha
    def add(self, slot, priority):
        self.masses.set([slot], [self.mass_of(priority)])
    def update(self, slots, priorities):
        self.masses.set(slots, self.mass_of(priorities))""",
        """
class MyMemory(exercises.Memory):
    count = 0
    def add(self, slot, priority):
        self.count += 1
        self.update([slot], [priority])
    def update(self, slots, priorities):
        for slot, priority in zip(slots, priorities):
            self.masses.set([slot], [pow(priority + self.eps, self.alpha)])""",
    ],
}
