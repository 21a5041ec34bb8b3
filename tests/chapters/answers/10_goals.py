"""Answers to the checks of chapter 10."""

RELABEL = "def my_relabel(episode, t, rng):\n    "
ROW = "def my_row(episode, t, goal, n, gamma):\n    "
FAIR = "def my_is_fair(draw):\n    "
LATER = "int(rng.integers(t, len(episode)))"
WRONG = {
    "my_relabel": [
        ("expected a GoalStep, not None", "return with_goal", "with_goal"),
        ("achieved before the action", "later.next_obs", "later.obs"),
        ("must be equally frequent", LATER, "int(rng.integers(min(t + 1, len(episode) - 1), len(episode)))"),
        ("must be equally frequent", LATER, "int(rng.integers(t, max(t + 1, len(episode) - 1)))"),
        ("must be equally frequent", LATER, "len(episode) - 1"),
        ("must be equally frequent", LATER, "t"),
        ("must be equally frequent", LATER, "t + round(rng.random() * (len(episode) - 1 - t))"),
        ("achieved before the action", LATER, "int(rng.integers(len(episode)))"),
        ("rng.integers(low, high) excludes high", LATER, "int(rng.integers(t, len(episode) - 1))"),
        ("twice running", RELABEL + "turns = my_relabel.__dict__.setdefault('turns', {})\n    turn = turns[t, len(episode)] = turns.get((t, len(episode)), 0) + 1\n    return with_goal(episode[t], episode[t + turn % (len(episode) - t)].next_obs)"),
        ("still the original one", RELABEL + "return episode[t]"),
        ("the reward of reaching", RELABEL + "return episode[t]._replace(goal=episode[rng.integers(t, len(episode))].next_obs)"),
        ("terminated must be True", RELABEL + "goal = episode[rng.integers(t, len(episode))].next_obs\n    return episode[t]._replace(goal=goal, reward=float(reward(episode[t].next_obs, goal)))"),
        ("Compare states, not the numbers of steps", RELABEL + "later = int(rng.integers(t, len(episode)))\n    return episode[t]._replace(goal=episode[later].next_obs, reward=float(later == t) - 1, terminated=later == t)"),
        ("they must be those of the step", "return with_goal(episode[t], later.next_obs)", "return with_goal(episode[t], later.next_obs)._replace(next_obs=later.next_obs)"),
        ("the steps of the episode have changed", RELABEL + "later = episode[rng.integers(t, len(episode))]\n    new = with_goal(episode[t], later.next_obs)\n    episode[t] = new\n    return new"),
        ("the same generator", LATER, "int(np.random.randint(t, len(episode)))"),
        ("the reward of reaching", "return with_goal(episode[t], later.next_obs)", "return with_goal(episode[t], later.next_obs)._replace(reward=float('nan'))"),
        ("not a state of the episode", "later.next_obs", "later.next_obs * np.nan"),
    ],
    "my_answers": [
        ("answer 1 is not", "my_answers = [1 / 6, 1 / 6, 1]"),
        ("answer 1 is not", "my_answers = [1 / 3, 1 / 6, 1]"),
        ("answer 2 is not", "my_answers = [1 / 4, 1 / 4, 1]"),
        ("answer 3 is not", "my_answers = [1 / 4, 1 / 6, 6]"),
        ("answer 3 is not", "my_answers = [1 / 4, 1 / 6, 1 / 6]"),
        ("nan is not a number", "my_answers = [float('nan')] * 3"),
        ("write three numbers", "my_answers = [1 / 4, 1 / 6]"),
        ("write three numbers", "my_answers = 0.25"),
        ("answer 1 is not", "my_answers = [25, 16.7, 1]"),
        ("is not a number", "my_answers = ['1/4', '1/6', '1']"),
    ],
    "my_row": [
        ("Is each reward the new one", "reward(step.next_obs, goal)", "step.reward"),
        ("Is each reward the new one", "total += discount * ", "total += "),
        ("the discount is 1", "discount *= gamma", "pass"),
        ("γ = 0.9", "discount *= gamma", "discount *= 0.5"),
        ("the discount is", "return total, 0.0, step.next_obs", "return total, discount, step.next_obs"),
        ("the discount is", "return total, discount, step.next_obs", "return total, gamma**n, step.next_obs"),
        ("next_obs is", "return total, discount, step.next_obs", "return total, discount, episode[t].next_obs"),
        ("next_obs is", "return total, 0.0, step.next_obs", "return total, 0.0, episode[min(t + n, len(episode)) - 1].next_obs"),
        ("the discount is", "episode[t : t + n]", "episode[t : t + n + 1]"),
        ("the discount is", "episode[t : t + n]", "episode[t:]"),
        ("the discount is 0.5, not 0", "        if reached(step.next_obs, goal):\n            return total, 0.0, step.next_obs\n", ""),
        ("two numbers and a state", "return total, discount, step.next_obs", "return total, discount"),
        ("the return is nan", "return total, discount,", "return total * np.nan, discount,"),
        ("changed its argument `goal`", "total, discount = 0.0, 1.0", "total, discount = 0.0, 1.0; goal += 1; goal -= 2; goal += 2"),
        ("the return is", "total, discount = 0.0, 1.0", "total, discount = 0.0, 1.0\n    if any(reached(s.next_obs, goal) for s in episode[:t]): return 0.0, 0.0, goal"),
    ],
    "my_is_fair": [
        ("your function returns True", FAIR + "return True"),
        ("your function returns False", FAIR + "return False"),
        ("my_is_fair must return True or False, not nan", FAIR + "return float('nan')"),
        ("must return True or False, not None", FAIR + "draw(0, 5, np.random.default_rng(0))"),
        ("round(rng.random() * (length - 1 - t))` chooses some steps more often", "counts.min() < 800 or counts.max() > 1200", "counts.min() == 0"),
        ("`rng.integers(t, length)` chooses all steps", "counts.min() < 800 or counts.max() > 1200", "counts.min() < counts.max()"),
        ("`rng.integers(t, length)` chooses all steps", "counts.min() < 800 or counts.max() > 1200", "counts.min() < 990 or counts.max() > 1010"),
        ("`rng.integers(length)` chooses", "counts.min() < 800 or counts.max() > 1200", "counts.min() < 0.8 * counts.mean() or counts.max() > 1.2 * counts.mean()"),
        ("`max(t, rng.integers(length))` chooses", FAIR + "rng = np.random.default_rng(0)\n    counts = np.bincount([draw(0, 5, rng) for _ in range(5000)], minlength=5)\n    return bool(len(counts) == 5 and counts.min() > 800)"),
        ("min(1, length - 1), length)` chooses some", "(0, 3)", "(3,)"),
        ("min(1, length - 1), length)` chooses some", FAIR + "rng = np.random.default_rng(0)\n    counts = np.bincount([draw(2, 7, rng) for _ in range(5000)], minlength=7)[2:]\n    return bool(counts.min() > 800 and counts.max() < 1200)"),
        ("your function returns", FAIR + "return np.random.default_rng(0).random() < 0.5"),
        ("`rng.integers(t, length)` chooses all steps", "range(5000)", "range(50)"),
        ("must return True or False", "return True", "return counts"),
    ],
}
RIGHT = {
    "my_relabel": [
        RELABEL
        + """step = episode[t]
    goal = np.array(episode[t + int(rng.random() * (len(episode) - t))].next_obs)
    hit = bool(np.array_equal(goal, step.next_obs))
    return type(step)(step.obs, step.action, 0.0 if hit else -1.0, step.next_obs, hit, goal)""",
        RELABEL
        + """goals = [later.next_obs for later in episode[t:]]
    goal = goals[rng.choice(len(goals))]
    return episode[t]._replace(
        goal=goal, reward=reward(episode[t].next_obs, goal), terminated=reached(episode[t].next_obs, goal))""",
    ],
    "my_answers": ["my_answers = (0.25, 0.167, 1.0)", "my_answers = np.array([1 / 4, 1 / 6, 1])"],
    "my_row": [
        ROW
        + """last = min(t + n, len(episode))
    hits = [i for i in range(t, last) if reached(episode[i].next_obs, goal)]
    last = hits[0] + 1 if hits else last
    rewards = [float(reward(step.next_obs, goal)) for step in episode[t:last]]
    total = sum(gamma**i * r for i, r in enumerate(rewards))
    return [total, 0 if hits else gamma ** len(rewards), episode[last - 1].next_obs]""",
        ROW
        + """step = episode[t]
    first = reward(step.next_obs, goal)
    if reached(step.next_obs, goal):
        return first, 0.0, step.next_obs
    if n == 1 or t + 1 == len(episode):
        return first, gamma, step.next_obs
    total, discount, end = my_row(episode, t + 1, goal, n - 1, gamma)
    return first + gamma * total, gamma * discount, end""",
    ],
    "my_is_fair": [
        FAIR
        + """rng = np.random.default_rng(1)
    for t, length in [(0, 4), (2, 4), (5, 10)]:
        counts = [0] * length
        for _ in range(4000):
            counts[draw(t, length, rng)] += 1
        expected = 4000 / (length - t)
        if any(counts[:t]) or any(abs(count - expected) > 6 * expected**0.5 for count in counts[t:]):
            return False
    return True""",
        FAIR
        + """rng = np.random.default_rng()
    def chi_square(t):
        counts = np.bincount([draw(t, 9, rng) for _ in range(2000 * (9 - t))], minlength=9)
        wanted = np.where(np.arange(9) >= t, 2000, 0)
        return ((counts - wanted) ** 2 / np.maximum(wanted, 1)).sum()
    return all(chi_square(t) < 50 for t in (0, 5, 8))""",
    ],
}
