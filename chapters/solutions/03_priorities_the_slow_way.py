"""Solutions to the exercises of chapter 03."""


def my_weights(priorities, drawn, alpha, eps, beta, uniform):
    """Only N cancels: the weights are divided by the largest, which belongs to the smallest probability."""
    masses = (priorities + eps) ** alpha
    probabilities = uniform / len(masses) + (1 - uniform) * masses / masses.sum()
    return (probabilities.min() / probabilities[drawn]) ** beta


# 1. The running sums are 3, 4, 4 and 8. The first sum above 0 is slot 0's; above 3 and 3.9, slot 1's; above 4, slot 3's.
my_slots = [0, 1, 1, 3]


def my_search(running_sums, query):
    """2. The first sum above the query is always in [low, high]."""
    low, high = 0, len(running_sums) - 1
    while low < high:
        middle = (low + high) // 2
        if query < running_sums[middle]:
            high = middle
        else:
            low = middle + 1
    return low


class MyMemory(exercises.Memory):  # noqa: F821 (the chapter's first cell imports it)
    """3. `add` didn't apply alpha, so with alpha 0.5 a new row of priority 16 was sampled as if it were 256."""

    def add(self, slot, priority):
        self.masses.set([slot], [(priority + self.eps) ** self.alpha])

    def update(self, slots, priorities):
        self.masses.set(slots, (priorities + self.eps) ** self.alpha)
