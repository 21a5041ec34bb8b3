"""The exercises of chapter 02, solved."""

# 1. Truncated: γ to the power of the rewards that are there, also at the end.
my_discounts = [0.125, 0.125, 0.25, 0.5]


def my_n_step(rewards, terminated, n, gamma):
    """2. A slice ends by itself where the episode does."""
    rows = []
    for start in range(len(rewards)):
        part = rewards[start : start + n]
        value = sum(gamma**k * reward for k, reward in enumerate(part))
        is_last = start + n >= len(rewards)
        rows.append((value, 0.0 if terminated and is_last else gamma ** len(part)))
    return rows


def my_row(rewards, terminated, n, gamma):
    """3. A tail leads as many steps ahead as it has rewards, so its discount is γ^k, and not γ^n."""
    total = sum(gamma**k * reward for k, reward in enumerate(rewards))
    return total, 0.0 if terminated else gamma ** len(rewards)
