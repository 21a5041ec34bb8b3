"""Answers to the checks of chapter 09."""

STARTS = "self.rng.integers(max(self.added - self.capacity, 0), self.added, batch_size)"
PRIORITIES = "def my_priorities(td_errors, learn, eta):\n    "
ROWS = "def my_rows(cell, steps):\n    "
WRONG = {
    "MyWindows": [
        ("must have the mask", "(firsts == firsts[:, :1]) & ", ""),
        ("must have the mask", " & (indexes < self.added)", ""),
        ("padding must be 0", "batch[~valid] = 0", "pass"),
        ("must have the mask", "self.first = self.added", "pass"),
        ("must have the mask", "self.first = self.added", "self.first = self.added - 1"),
        ("must start a window equally often", "max(self.added - self.capacity, 0), self.added,", "max(self.added - self.capacity, 0), max(1, self.added - 1),"),
        ("must start a window equally often", "max(self.added - self.capacity, 0)", "max(self.added - self.capacity + 1, 0)"),
        ("must start a window equally often", STARTS, "np.full(batch_size, self.added - 1)"),
        ("twice running", STARTS, "np.resize(np.arange(max(self.added - self.capacity, 0), self.added), batch_size)"),
        ("They agree too well", STARTS, "self.rng.permutation(np.resize(np.arange(max(self.added - self.capacity, 0), self.added), batch_size))"),
        ("twice running", STARTS, "np.repeat(self.rng.integers(max(self.added - self.capacity, 0), self.added, batch_size // 2), 2)"),
        ("with the same seed", STARTS, "np.random.randint(max(self.added - self.capacity, 0), self.added, batch_size)"),
        ("with different seeds", "default_rng(seed)", "default_rng(0)"),
        ("draw anew each time", "starts = self.rng", "self.rng = np.random.default_rng(self.names.count('obs') + 1); starts = self.rng"),
        ("a batch changed when the next one was sampled", "batch[~valid] = 0", "batch[~valid] = 0\n        self.out = getattr(self, 'out', batch)\n        self.out[:] = batch\n        batch = self.out"),
        ("from the same slots", "return {name: batch[name] for name in self.names}", "batch['reward'] = np.roll(batch['reward'], 1, axis=1)\n        return {name: batch[name] for name in self.names}"),
        ("must have the mask", "(indexes < self.added)", "(self.rows['reward'][indexes % self.capacity] > 0)"),
        ("'valid' must have the dtype bool", '"valid": valid', '"valid": valid.astype(int)'),
        ("'valid'", ' | {"valid": valid}', ""),
        ("'obs' must have the dtype float32", "batch[name] for", "batch[name].astype(float) for"),
        ("must contain", "self.rows.take(indexes % self.capacity)", "self.rows.take((indexes + (indexes > starts[:, np.newaxis])) % self.capacity)"),
        ("NaN", "batch[name] for", "batch[name] * np.float32(np.nan) for"),
        ("'obs'", "np.arange(self.length)", "np.arange(self.length - 1)"),
        ("capacity 37", "self.added % self.capacity", "self.added & (self.capacity - 1)"),
        ("capacity 37", "max(self.added - self.capacity, 0), self.added", "0, min(self.added, self.capacity)"),
    ],
    "my_windows": [
        ("4 windows", "my_windows, my_padding, my_learned = 4, 2, 2"),
        ("10 windows", "my_windows, my_padding, my_learned = 10, 2, 2"),
        ("5: the last window", "my_windows, my_padding, my_learned = 5, 5, 2"),
        ("0: the last window", "my_windows, my_padding, my_learned = 5, 0, 2"),
        ("3: a window learns", "my_windows, my_padding, my_learned = 5, 2, 3"),
        ("1: a window learns", "my_windows, my_padding, my_learned = 5, 2, 1"),
        ("nan is not a number", "my_windows, my_padding, my_learned = [float('nan')] * 3"),
        ("write three numbers", "my_windows, my_padding, my_learned = 5, None, 2"),
        ("0 windows", "my_windows, my_padding, my_learned = 0, 0, 0"),
        ("is not a number", "my_windows, my_padding, my_learned = '5', '2', '2'"),
    ],
    "my_priorities": [
        ("the priority is", "magnitudes.sum(axis=1) / learn.sum(axis=1)", "magnitudes.mean(axis=1)"),
        ("the priority is", "np.abs(td_errors)", "td_errors"),
        ("NaN", "np.where(learn, np.abs(td_errors), 0.0)", "np.abs(td_errors) * learn"),
        ("the priority is", "eta * magnitudes.max(axis=1) + (1 - eta) * mean", "(1 - eta) * magnitudes.max(axis=1) + eta * mean"),
        ("the priority is", "eta * magnitudes", "0.9 * magnitudes"),
        ("the priority is", "magnitudes.max(axis=1)", "magnitudes.max()"),
        ("must have the shape", "magnitudes.max(axis=1)", "magnitudes.max(axis=1, keepdims=True)"),
        ("the priority is", " + (1 - eta) * mean", ""),
        ("the result is None", "return", "_ ="),
        ("changed its argument `td_errors`", "mean = ", "td_errors[~learn] = 0; mean = "),
        ("must have the shape", "return eta * magnitudes.max(axis=1) + (1 - eta) * mean", "return float((eta * magnitudes.max(axis=1) + (1 - eta) * mean)[0])"),
        ("the priority is", "np.where(learn,", "np.where(~np.isnan(td_errors),"),
    ],
    "my_rows": [
        ("the one after the step", "rows.append((obs, state))", "rows.append((obs, cell(obs, state)))"),
        ("the stored state is", "np.zeros(3) if ends else ", ""),
        ("the stored state is", "np.zeros(3) if ends else cell(obs, state)", "np.zeros(3)"),
        ("the stored state is", "np.zeros(3) if ends", "state if ends"),
        ("the stored state is", "cell(obs, state)", "cell(obs, np.zeros(3))"),
        ("state: the result contains NaN", "(obs, state)", "(obs, np.full(3, np.nan))"),
        ("the observation of the pair", "rows.append((obs, state))", "rows.append((0 * obs, state))"),
        ("obs: the result must have the shape (2,)", "rows.append((obs, state))", "rows.append((state, obs))"),
        ("return 6 pairs", "return rows", "return rows[:-1]"),
        ("return 6 pairs", "return rows", "pass"),
        ("return a pair", "rows.append((obs, state))", "rows.append(state)"),
        ("the stored state is", ROWS + "state, rows = np.zeros(3), []\n    for obs, ends in steps:\n        rows.append((obs, state))\n        state[:] = 0 if ends else cell(obs, state)\n    return rows"),
        ("the stored state is", "state, rows = np.zeros(3), []", "state, rows = np.ones(3), []"),
        ("the stored state is", "np.zeros(3) if ends", "np.zeros(3) if len(rows) in (3, 4)"),
    ],
}
RIGHT = {
    "MyWindows": [
        """
class MyWindows:
    def __init__(self, capacity, fields, length, seed=0):
        self.capacity, self.length, self.fields = capacity, length, fields
        self.steps, self.ended, self.count = {}, {}, 0
        self.random = np.random.default_rng(seed)
    def add(self, *, ends, **step):
        self.steps[self.count], self.ended[self.count] = {n: np.array(v) for n, v in step.items()}, ends
        self.steps.pop(self.count - self.capacity, None)
        self.count += 1
    def sample(self, batch_size):
        batch = {n: np.zeros((batch_size, self.length, *f.get("shape", ())), f["dtype"]) for n, f in self.fields.items()}
        batch["valid"] = np.zeros((batch_size, self.length), bool)
        oldest = max(0, self.count - self.capacity)
        for window in range(batch_size):
            index = oldest + int(self.random.random() * (self.count - oldest))
            for place in range(self.length):
                if index + place == self.count:
                    break
                for name in self.fields:
                    batch[name][window, place] = self.steps[index + place][name]
                batch["valid"][window, place] = True
                if self.ended[index + place]:
                    break
        return batch""",
        """
class MyWindows:
    def __init__(self, capacity, fields, length, seed=0):
        self.size, self.length, self.n, self.rng = capacity, length, 0, np.random.default_rng(seed)
        self.columns = {n: np.zeros((capacity, *f.get("shape", ())), f["dtype"]) for n, f in fields.items()}
        self.episodes, self.episode = np.full(capacity, -1), 0
    def add(self, *, ends, **step):
        slot = self.n % self.size
        for name in step:
            self.columns[name][slot] = step[name]
        self.episodes[slot] = self.episode
        self.episode += bool(ends)
        self.n += 1
    def sample(self, batch_size):
        ages = self.rng.integers(1, min(self.n, self.size) + 1, batch_size)
        later = np.arange(self.length)
        slots = (self.n - ages[:, None] + later) % self.size
        valid = (later < ages[:, None]) & (self.episodes[slots] == self.episodes[slots[:, :1]])
        batch = {"valid": valid}
        for name, column in self.columns.items():
            batch[name] = column[slots]
            batch[name][~valid] = 0
        return batch""",
    ],
    "my_windows": ["my_windows, my_padding, my_learned = 5.0, 2.0, 2.0", "my_windows, my_padding, my_learned = np.array([5, 2, 2])"],
    "my_priorities": [
        PRIORITIES
        + """result = []
    for errors, mask in zip(td_errors, learn):
        own = np.abs(errors[mask])
        result.append(eta * own.max() + (1 - eta) * own.mean())
    return result""",
        PRIORITIES
        + """known = np.ma.masked_array(np.abs(td_errors), ~learn)
    return np.array(eta * known.max(axis=1) + (1 - eta) * known.mean(axis=1), np.float32)""",
    ],
    "my_rows": [
        ROWS
        + """rows = []
    fresh = True
    for obs, ends in steps:
        if fresh:
            state = np.zeros(3)
        rows.append([obs, state.copy()])
        state = cell(obs, state)
        fresh = ends
    return rows""",
        ROWS
        + """def run():
        state = np.zeros(3)
        for obs, ends in steps:
            yield obs.copy(), state
            state = cell(obs, state) * (not ends)
    return tuple(run())""",
    ],
}
