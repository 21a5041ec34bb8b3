"""Answers to the checks of chapter 02."""

HEAD = "def my_n_step(rewards, terminated, n, gamma):\n    "
WRONG = {
    "MyNStepStream": [
        ("add() returned 1 rows; the step completes 2", "return rows", "return rows[:1]"),
        ("the step completes 0", "len(self.pending) == self.n", "len(self.pending) >= 1"),
        ("the step completes 1", "len(self.pending) == self.n", "len(self.pending) > self.n"),
        ("has discount 0.5, not 0.0", "append(step)", "append(step._replace(terminated=False))"),
        ("has discount 0.0, not 0.5", "append(step)", "append(step._replace(terminated=step.terminated or step.truncated))"),
        ("the step completes 2: 100", "step.terminated or step.truncated", "step.terminated"),
        ("still pending", "rows: list[Row] = []", "rows = self.__dict__.setdefault('rows', [])"),
        ("has reward 5.5, not 5.9", "fold(self.pending, self.gamma)", "fold(self.pending, 0.5)"),
        ("has reward", "fold(self.pending, self.gamma)", "fold(self.pending, self.gamma)._replace(reward=self.pending[0].reward)"),
        ("has next_obs", "fold(self.pending, self.gamma)", "fold(self.pending, self.gamma)._replace(next_obs=self.pending[0].next_obs)"),
        ("has reward nan", "fold(self.pending, self.gamma)", "fold(self.pending, self.gamma)._replace(reward=float('nan'))"),
        ("must return a list", "return rows", "return rows or None"),
        ("still pending", "self.pending.append(step)", "self.all = [*getattr(self, 'all', []), step]; self.pending.append(step)"),
        ("still pending", "return rows", "self.last = [step] * self.n; return rows"),
        ("row 5 → 7 has obs 6", "return rows", "return rows[::-1]"),
        ("has obs missing", "fold(self.pending, self.gamma)", "None"),
    ],
    "my_discounts": [
        ("truncation is not termination", "my_discounts = [0.125, 0, 0, 0]"),
        ("row 2 sums 2 rewards", "my_discounts = [0.125] * 4"),
        ("write four numbers", "my_discounts = [0.125, 0.125, 0.25]"),
        ("nan is not a number", "my_discounts = [float('nan')] * 4"),
        ("row 0 sums 3", "my_discounts = [0.5, 0.25, 0.125, 0.125]"),
        ("row 0 sums 3", "my_discounts = [1, 1, 1, 1]"),
        ("row 1 sums 3", "my_discounts = [0.125, 0.25, 0.5, 1]"),
        ("write four numbers", "my_discounts = 0.125"),
        ("row 0 sums 3", "my_discounts = [0.0625, 0.125, 0.25, 0.5]"),
        ("is not a number", "my_discounts = ['0.125', '0.125', '0.25', '0.5']"),
    ],
    "my_n_step": [
        ("row", "gamma ** len(part)", "gamma ** n"),
        ("row", "terminated and is_last", "is_last"),
        ("row", "0.0 if terminated and is_last else ", ""),
        ("row", "0.0 if terminated and is_last", "0.0 if terminated"),
        ("row", "start + n >= len", "start + n > len"),
        ("row", "start + n >= len", "start + 1 >= len"),
        ("row 0", "gamma**k", "1"),
        ("row 0", "gamma**k", "gamma**(k + 1)"),
        ("γ = 0.9", "value = ", "gamma = 0.5; value = "),
        ("must have the shape", "range(len(rewards))", "range(len(rewards) - n + 1)"),
        ("must have the shape", "rows.append((value, ", "rows.append((value, 0, "),
        ("changed its argument `rewards`", "part = rewards[start : start + n]", "part = rewards[start : start + n]; rewards[start] = 0"),
        ("row", "rewards[start : start + n]", "rewards[start : start + n + 1]"),
        ("row", "rewards[start : start + n]", "rewards[start:]"),
    ],
    "my_row": [
        ("how many steps", "gamma ** len(rewards)", "gamma ** n"),
        ("how many steps", "gamma ** len(rewards)", "gamma"),
        ("how many steps", "0.0 if terminated else ", ""),
        ("how many steps", "gamma ** len(rewards)", "gamma ** (len(rewards) + 1)"),
        ("how many steps", "gamma ** len(rewards)", "(gamma ** len(rewards) if len(rewards) > 1 else 0.5)"),
        ("γ = 0.9", "total =", "gamma = 0.5; total ="),
        ("how many steps", "gamma**k * reward", "reward"),
        ("how many steps", "0.0 if terminated else", "0.0 if terminated or len(rewards) < n else"),
        ("must have the shape (2,)", "return total, ", "return "),
        ("changed its argument `rewards`", "total =", "rewards.append(0.0); total ="),
        ("NaN", "return total", "return float('nan')"),
    ],
}
RIGHT = {
    "MyNStepStream": [
        """
class MyNStepStream:
    def __init__(self, n, gamma):
        self.n, self.gamma, self.pending = n, gamma, []
        self.rows_made = 0
    def add(self, step):
        self.pending.append(step)
        ended = step.terminated or step.truncated
        if ended:
            rows = [fold(self.pending[k:], self.gamma) for k in range(len(self.pending))]
            self.pending = []
        elif len(self.pending) == self.n:
            rows = [fold(self.pending, self.gamma)]
            del self.pending[0]
        else:
            rows = []
        self.rows_made += len(rows)
        return rows""",
        """
class MyNStepStream:
    def __init__(self, n, gamma):
        self.depth, self.g = n, gamma
        self.sums = deque()  # (obs, action, return so far, discount so far)
    def add(self, step):
        self.sums.append((step.obs, step.action, 0.0, 1.0))
        self.sums = deque((o, a, r + d * step.reward, d * self.g) for o, a, r, d in self.sums)
        rows = []
        while self.sums and (step.terminated or step.truncated or len(self.sums) == self.depth):
            o, a, r, d = self.sums.popleft()
            rows.append(Row(o, a, r, step.next_obs, 0.0 if step.terminated else d))
        return rows""",
    ],
    "my_discounts": ["my_discounts = (1 / 8, 1 / 8, 1 / 4, 1 / 2)", "my_discounts = 0.5 ** np.array([3, 3, 2, 1])"],
    "my_n_step": [
        HEAD
        + """rows = []
    for start in range(len(rewards)):
        total, discount = 0.0, 1.0
        for reward in rewards[start:start + n]:
            total += discount * reward
            discount *= gamma
        if terminated and start + n >= len(rewards):
            discount = 0.0
        rows.append([total, discount])
    return rows""",
        HEAD
        + """padded = np.append(rewards, np.zeros(n))
    windows = np.lib.stride_tricks.sliding_window_view(padded, n)[:len(rewards)]
    left = len(rewards) - np.arange(len(rewards))
    discounts = gamma ** np.minimum(n, left).astype(float)
    discounts[left <= n] *= not terminated
    return np.column_stack([windows @ gamma ** np.arange(n), discounts])""",
    ],
    "my_row": [
        """
def my_row(rewards, terminated, n, gamma):
    total, discount = 0.0, 1.0
    for reward in rewards:
        total, discount = total + discount * reward, discount * gamma
    return [total, 0 if terminated else discount]""",
        """
def my_row(rewards, terminated, n, gamma):
    powers = gamma ** np.arange(len(rewards) + 1)
    return np.array([powers[:-1] @ rewards, powers[-1] * (not terminated)])""",
    ],
}
