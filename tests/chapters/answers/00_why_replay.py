"""Answers to the checks of chapter 00."""

LEARN = """
class MyQLearning(OnlineQLearning):
    def learn(self, obs, action, reward, next_obs, terminated):
        with torch.no_grad():
            best = self.target(torch.as_tensor(next_obs)[None]).amax(dim=1)[0]
            target = reward + 0.99 * best * (1 - terminated)
        prediction = self.network(torch.as_tensor(obs)[None])[0, action]
        {loss}
"""
WRONG = {
    "MyQLearning": [
        ("not the other way round", "float(goal - value.detach())", "float(value.detach() - goal)"),
        ("after a fall there is no future", "0.0 if terminated else ", ""),
        ("with the target from self.target", "self.target(torch", "self.network(torch"),
        ("before the update", "reward + GAMMA * future", "reward + future"),
        ("1.25 times as long as", "delta=10.0", "delta=12.5"),
        ("0.80 times as long as", "delta=10.0", "delta=8.0"),
        ("times as long as", "nn.functional.huber_loss(value, goal, delta=10.0)", "(value - goal) ** 2"),
        ("there is more than one step", "self.optimizer.step()", "self.optimizer.step(); self.optimizer.step()"),
        ("has the optimizer taken its step?", "self.optimizer.step()", "pass"),
        ("gradients of earlier updates", "self.optimizer.zero_grad()", "pass"),
        ("away from the target", "loss.backward()", "(-loss).backward()"),
        ("target minus prediction", "[action]", "[1 - action]"),
        ("must return the TD error, a float", "float(goal - value.detach())", "goal - value.detach()"),
        ("returned nan", "float(goal - value.detach())", "float('nan')"),
        ("parameters are NaN", "loss.backward()", "(loss * float('nan')).backward()"),
        ("target network has changed", "return float", "self.target.load_state_dict(self.network.state_dict()); return float"),
        ("returned 0.000", "float(goal - value.detach())", "0.0"),
        ("changed its argument `obs`", "return float", "obs += 1; return float"),
        ("not as one step", "return float", "list(self.network.parameters())[0].data += 0.01; return float"),
    ],
    "my_td_errors": [
        ("write a number", "6.4 - 5.0, 1.0 - 5.0", "6.4 - 5.0"),
        ("nan is not a number", "my_td_errors = [float('nan')] * 3"),
        ("transition 1", "my_td_errors = [0.0, 0.0, 0.0]"),
        ("not the other way round", "6.4 - 5.0", "5.0 - 6.4"),
        ("no future", "1.0 - 5.0", "6.4 - 5.0"),
        ("0.9 times the best next value", "6.4 - 5.0", "7.0 - 5.0"),
        ("0.9 times the best next value", "6.4 - 5.0", "1 + 0.9 * 4 - 5.0"),
        ("transition 3", "1.0 - 2.0", "1.0"),
        ("write a number", "my_td_errors = 1.4"),
        ("'1.4' is not a number", "my_td_errors = ['1.4', '-4', '-1']"),
    ],
    "my_targets": [
        ("your target is", " * ~terminated", ""),
        ("your target is", "~terminated", "terminated"),
        ("your target is", "gamma * ", ""),
        ("your target is", "+ gamma", "+ 0.9"),
        ("your target is", "max(axis=1)", "max()"),
        ("must have the shape", "max(axis=1)", "max(axis=1, keepdims=True)"),
        ("your target is", "max(axis=1)", "min(axis=1)"),
        ("your target is", "max(axis=1)", "mean(axis=1)"),
        ("your target is", "max(axis=1)", "max(axis=1).clip(0)"),
        ("your target is", "reward + gamma * next_values.max(axis=1)", "(reward + gamma * next_values.max(axis=1))"),
        ("changed its argument `next_values`", "def my_targets(reward, next_values, terminated, gamma):\n    next_values[terminated] = 0\n    return reward + gamma * next_values.max(axis=1)"),
        ("changed its argument `reward`", "def my_targets(reward, next_values, terminated, gamma):\n    reward += gamma * next_values.max(axis=1) * ~terminated\n    return reward"),
        ("in a loop", "def my_targets(reward, next_values, terminated, gamma):\n    return [r + gamma * max(q) * (not t) for r, q, t in zip(reward, next_values, terminated)]"),
        ("in a loop", "def my_targets(reward, next_values, terminated, gamma):\n    targets = reward.copy()\n    for i in range(len(reward)):\n        if not terminated[i]:\n            targets[i] += gamma * max(next_values[i])\n    return targets"),
    ],
    "my_store": [
        ("in another episode", "next_obs, ended = env.step()", "next_obs, ended = env.step()\n        next_obs = env.reset() if ended else next_obs"),
        ("where an episode has ended: reset", "obs = env.reset() if ended else next_obs", "obs = next_obs"),
        ("a list of 8 rows, not 0", "rows.append((obs, next_obs))", "pass"),
        ("a list of 8 rows, not 6", "rows.append((obs, next_obs))", "ended or rows.append((obs, next_obs))"),
        ("row 0 is", "(obs, next_obs))", "(next_obs, obs))"),
        ("must be a pair", "(obs, next_obs))", "obs)"),
        ("nan is not a number", "(obs, next_obs))", "(float('nan'), next_obs))"),
        ("not None", "return rows", "pass"),
        ("episodes of 1 steps", "if ended else", "if ended and next_obs % 100 != 1 else"),
        ("not 7", "range(steps)", "range(steps - 1)"),
        ("row 1 leads from 1 to 101", "obs = env.reset() if", "env.reset(); obs = env.reset() if"),
    ],
}
RIGHT = {
    "MyQLearning": [
        LEARN.format(
            loss="""
        loss = nn.functional.huber_loss(prediction, target, delta=10.0)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return (target - prediction).item()"""
        ),
        LEARN.format(
            loss="""
        error = target - prediction
        size = error.abs()
        loss = torch.where(size <= 10, 0.5 * error**2, 10 * (size - 5))
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()
        return float(error.detach())"""
        ),
        LEARN.format(
            loss="""
        error = float(target - prediction.detach())
        self.network.zero_grad()
        (-max(-10.0, min(10.0, error)) * prediction).backward()
        self.optimizer.step()
        self.last_error = error
        return error"""
        ),
    ],
    "my_td_errors": ["my_td_errors = (1.4, -4, -1)", "my_td_errors = np.array([1 + 0.9 * 6 - 5, 1 - 5, 1 - 2])"],
    "my_targets": [
        "def my_targets(reward, next_values, terminated, gamma):\n    return np.where(terminated, reward, reward + gamma * np.max(next_values, 1))",
        "def my_targets(r, q, done, gamma):\n    best = np.maximum(q[:, 0], q[:, 1])\n    best[done] = 0\n    return r + gamma * best",
        "def my_targets(r, q, done, gamma):\n    return (r + gamma * q.max(-1) * (1 - done)).astype(np.float32)",
    ],
    "my_store": [
        """
def my_store(env, steps):
    rows = []
    ended = True
    while len(rows) < steps:
        if ended:
            obs = env.reset()
        next_obs, ended = env.step()
        rows += [[obs, next_obs]]
        obs = next_obs
    return tuple(rows)""",
        """
def my_store(env, steps):
    def play():
        while True:
            obs, ended = env.reset(), False
            while not ended:
                next_obs, ended = env.step()
                yield np.array([obs, next_obs])
                obs = next_obs
    stream = play()
    return [next(stream) for _ in range(steps)]""",
    ],
}
