"""Answers to the checks of chapter 07."""

INSERT = "if self.error() + count * self.samples_per_insert <= self.error_buffer:"
SAMPLE = "self.inserts < self.min_size or self.error() - count < -self.error_buffer"
SUMS = "def my_sums(steps, n):\n    "
WRONG = {
    "MyLimiter": [
        ("rows be sampled", "self.inserts < self.min_size or ", ""),
        ("rows be inserted", "self.error() + count * self.samples_per_insert", "self.error()"),
        ("rows be inserted", "<= self.error_buffer", "<= self.error_buffer - 1"),
        ("rows be inserted", "self.error() + count * self.samples_per_insert <= self.error_buffer", "abs(self.error() + count * self.samples_per_insert) <= self.error_buffer and self.inserts >= self.min_size"),
        ("rows be inserted", "        return True\n\n    def await_can_sample", "        return False\n\n    def await_can_sample"),
        ("after 20 inserts, 5 rows may be sampled", "self.inserts < self.min_size or", "self.inserts <= self.min_size or"),
        ("rows be sampled", "self.error() - count <", "self.error() <"),
        ("the error is", "(self.inserts - self.min_size) * self", "self.inserts * self"),
        ("the error is", "self.min_size) * self.samples_per_insert - self.samples", "self.min_size) - self.samples"),
        ("has not returned after 2 s", "deadline = time.monotonic() + timeout", "deadline = time.monotonic() + 10"),
        ("should wait for 0.05 s", "deadline = time.monotonic() + timeout", "deadline = 0"),
        ("rows be inserted", "                return True\n", "                return None\n"),
        ("would take the error to (16 - 10) * 4 = 24", "while self.inserts + count > self.min_size:", "while self.inserts >= self.min_size:"),
        ("kept a core busy", "time.sleep(0.001)", "time.sleep(0)"),
        ("kept a core busy", "            time.sleep(0.001)\n        return True\n\n    def await", "        return True\n\n    def await"),
        ("rows be", "self.inserts += count", "self.inserts += 1"),
        ("rows be", "self.samples += count", "self.samples = count"),
        ("rows be", "self.inserts = self.samples = 0", "self.inserts = 1; self.samples = 0"),
    ],
    "my_error": [
        ("a single actor can reach 512", "my_error = 512"),
        ("too large", "my_error = 1024"),
        ("not 895", "my_error = 895"),
        ("nan is not a number", "my_error = float('nan')"),
        ("write a number", "my_error = None"),
        ("not 128", "my_error = 128"),
        ("not 384", "my_error = 384"),
        ("not 640", "my_error = 640"),
        ("write a number", "my_error = '896'"),
        ("write a number", "my_error = [896]"),
    ],
    "my_epsilons": [
        ("its exponent should be 1", "(1 + 7 *", "(7 *"),
        ("its exponent should be 8", "max(1, actors - 1)", "actors"),
        ("not evenly spaced", "0.4 ** (1 + 7 * np.arange(actors) / max(1, actors - 1))", "np.linspace(0.4, 0.4**8, actors)"),
        ("not evenly spaced", "0.4 ** (1 + 7 * np.arange(actors) / max(1, actors - 1))", "0.4 ** (1 + 7 * (np.arange(actors) / max(1, actors - 1)) ** 2)"),
        ("division by zero", "def my_epsilons(actors):\n    return [0.4 ** (1 + 7 * i / (actors - 1)) for i in range(actors)]"),
        ("NaN or infinity", "max(1, actors - 1)", "(actors - 1)"),
        ("must have the shape (8,)", "np.arange(actors)", "np.arange(actors - 1)"),
        ("its exponent should be 8", "0.4 ** (1 + 7 * np.arange(actors) / max(1, actors - 1))", "[0.4] * actors"),
        ("its exponent should be 1", "0.4 **", "0.5 **"),
        ("its exponent should be 1", "np.arange(actors)", "np.arange(actors)[::-1]"),
        ("every ε must be above 0", "return 0.4", "return -0.4"),
        ("must have the shape (8,)", "return 0.4", "return 0.4 ** 8 if actors else 0.4"),
        ("3 actors", "np.arange(actors)", "np.sort(np.random.default_rng(0).permutation(actors) if actors != 3 else np.array([0, 2, 2]))"),
    ],
    "my_sums": [
        ("Which of them are in the sum?", "windows[environment]", "windows[0]"),
        ("sums, not", "if len(window) == n:", "if len(window) == n and (environment, reward) != steps[-1]:"),
        ("Which of them are in the sum?", "len(window) == n", "len(window) >= 1"),
        ("1 sums, not 3", "deque(maxlen=n)", "deque(maxlen=n + 1)"),
        ("Which of them are in the sum?", "sum(window)", "max(window) * n"),
        ("Which of them are in the sum?", "sum(window)", "sums[-1][1] if sums and sums[-1][0] == environment else sum(window)"),
        ("1 sums, not 3", "sums.append((environment, sum(window)))", "sums.append((environment, sum(window))); window.clear()"),
        ("nan", "sum(window)))", "float('nan')))"),
        ("is not a pair", "(environment, sum(window))", "sum(window)"),
        ("return a list of pairs", "return sums", "pass"),
        ("in the sum?", "return sums", "return sorted(sums)"),
        ("in the sum?", "(environment, sum(window))", "(0, sum(window))"),
        ("changed its argument `steps`", "for environment, reward in steps:", "steps.sort()\n    for environment, reward in steps:"),
        ("sums, not", "return sums", "return []"),
    ],
}
RIGHT = {
    "MyLimiter": [
        """
import threading
class MyLimiter:
    def __init__(self, samples_per_insert, min_size, error_buffer):
        self.ratio, self.start, self.band = samples_per_insert, min_size, error_buffer
        self.rows, self.owed, self.changed = 0, -min_size * samples_per_insert, threading.Condition()
    def inserted(self, count):
        with self.changed:
            self.rows += count
            self.owed += count * self.ratio
            self.changed.notify_all()
    def sampled(self, count):
        with self.changed:
            self.owed -= count
            self.changed.notify_all()
    def await_can_insert(self, count, timeout):
        with self.changed:
            return self.changed.wait_for(
                lambda: self.rows + count <= self.start or self.owed + count * self.ratio <= self.band, timeout)
    def await_can_sample(self, count, timeout):
        with self.changed:
            return self.changed.wait_for(
                lambda: self.rows >= self.start and self.owed - count >= -self.band, timeout)""",
        "from replay_tutorial import SamplesPerInsert as MyLimiter",
        """
class MyLimiter:
    def __init__(self, samples_per_insert, min_size, error_buffer):
        self.k, self.least, self.slack, self.counts = samples_per_insert, min_size, error_buffer, [0, 0]
    def inserted(self, count):
        self.counts[0] += count
    def sampled(self, count):
        self.counts[1] += count
    def error_after(self, inserts, samples):
        return (self.counts[0] + inserts - self.least) * self.k - self.counts[1] - samples
    def wait(self, allowed, timeout):
        end = time.monotonic() + timeout
        while not allowed():
            if time.monotonic() >= end:
                return 0
            time.sleep(0.002)
        return 1
    def await_can_insert(self, count, timeout):
        return self.wait(lambda: self.counts[0] + count <= self.least or self.error_after(count, 0) <= self.slack, timeout)
    def await_can_sample(self, count, timeout):
        return self.wait(lambda: self.counts[0] >= self.least and -self.slack <= self.error_after(0, count), timeout)""",
    ],
    "my_error": ["my_error = 512 + 3 * 32 * 4", "my_error = np.float64(896)"],
    "my_epsilons": [
        "def my_epsilons(actors):\n    return [0.4 ** (1 + 7 * i / (actors - 1)) if actors > 1 else 0.4 for i in range(actors)]",
        "def my_epsilons(n):\n    return np.logspace(1, 8, n, base=0.4)",
        "def my_epsilons(n):\n    step = 0.4 ** (7 / (n - 1)) if n > 1 else 1\n    return tuple(0.4 * step**i for i in range(n))",
    ],
    "my_sums": [
        SUMS
        + """seen = {}
    for environment, reward in steps:
        seen.setdefault(environment, []).append(reward)
        if len(seen[environment]) >= n:
            yield environment, sum(seen[environment][-n:])""",
        SUMS
        + """result, totals, history = [], {}, {}
    for env, reward in steps:
        rewards = history.setdefault(env, [])
        rewards.append(reward)
        totals[env] = totals.get(env, 0) + reward - (rewards[-n - 1] if len(rewards) > n else 0)
        if len(rewards) >= n:
            result.append([env, np.float64(totals[env])])
    return tuple(result)""",
    ],
}
