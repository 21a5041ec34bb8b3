"""Answers to the checks of chapter 08."""

UPDATES = "def my_updates(steps, batch_size, samples_per_insert, replay_start):\n    "
STATE = 'return {"numbers": replay.numbers.copy(), "added": replay.added, "rng": replay.rng.bit_generator.state}'
WRONG = {
    "MyCorridor": [
        ("the observation should be", "[self.position / 5]", "[self.position]"),
        ("an array of float32", "return self.observe(), -1.0", "return np.array([self.position / 5]), -1.0"),
        (
            "truncated should be False",
            "        return self.observe(), -1.0, self.position == 5, False, {}",
            "        self.steps = getattr(self, 'steps', 0) + 1\n        return self.observe(), -1.0, self.position == 5, self.steps > 200, {}",
        ),
        ("terminated should be", "self.position == 5", "self.position > 5"),
        ("terminated should be", "self.position == 5, False", "abs(self.position) == 5, False"),
        ("the observation should be", "max(-5, self.position", "(self.position"),
        ("the reward should be -1", "-1.0, self.position == 5", "float(self.position == 5), self.position == 5"),
        ("check_env", "-1.0, self.position == 5", "float('nan'), self.position == 5"),
        ("truncated should be False", "== 5, False, {}", "== 5, self.position == 5, {}"),
        ("the observation should be", "1 if action == 1 else -1", "-1 if action == 1 else 1"),
        ("the observation should be", "1 if action == 1 else -1", "action"),
        ("check_env", "super().reset(seed=seed)", "pass"),
        ("check_env", "self.position = 0", "self.position = getattr(self, 'position', 0) % 5"),
        ("share an object", "return np.array([self.position / 5], np.float32)", "self.seen = getattr(self, 'seen', np.zeros(1, np.float32)); self.seen[0] = self.position / 5; return self.seen"),
        ("check_env", "return self.observe(), {}", "return self.observe()"),
        ("check_env", "np.array([self.position / 5], np.float32)", "np.array([np.nan], np.float32)"),
        ("the reward should be -1", "self.observe(), -1.0,", "-1.0, self.observe(),"),
        ("the observation should be", "max(-5,", "max(-4,"),
        ("walk 'two to the left'", "self.position = 0", "self.position = 1"),
    ],
    "my_faults": [
        ("run A", "my_faults = dict.fromkeys('ABCD', 'healthy')"),
        ("run B", "my_faults = dict.fromkeys('ABCD', 'steps too large')"),
        ("run C: the answer", 'my_faults = {"A": "steps too large", "B": "healthy", "C": "target never updated", "D": "too few updates"}'),
        ("run A: choose one of", "my_faults = {}"),
        ("run D: choose one of", 'my_faults = {"A": "steps too large", "B": "healthy", "C": "too few updates"}'),
        ("run A: choose one of", "my_faults = dict.fromkeys('ABCD', float('nan'))"),
        ("write a dict", "my_faults = ['steps too large', 'healthy', 'too few updates', 'target never updated']"),
        ("run A: the answer", 'my_faults = {"A": "healthy", "B": "steps too large", "C": "too few updates", "D": "target never updated"}'),
        ("run D: choose one of", 'my_faults = {"A": "steps too large", "B": "healthy", "C": "too few updates", "D": "target is never updated"}'),
        ("run A: choose one of", "my_faults = dict.fromkeys('ABCD', None)"),
    ],
    "my_updates": [
        ("9,000 steps", "return max(0, int((steps - replay_start) * samples_per_insert) // batch_size)", "return max(0, (steps - replay_start) // int(batch_size / samples_per_insert))"),
        ("How many samples", "int((steps - replay_start) * samples_per_insert) // batch_size", "(steps - replay_start) * samples_per_insert / batch_size"),
        ("How many samples", "(steps - replay_start)", "steps"),
        ("900 steps", "max(0, int((steps - replay_start) * samples_per_insert) // batch_size)", "int((steps - replay_start) * samples_per_insert) // batch_size"),
        ("How many samples", " * samples_per_insert", ""),
        ("How many samples", " // batch_size", ""),
        ("How many samples", "int((steps - replay_start) * samples_per_insert) // batch_size", "-(-int((steps - replay_start) * samples_per_insert) // batch_size)"),
        ("1,040 steps", "int((steps - replay_start) * samples_per_insert) // batch_size", "max(steps > replay_start, int((steps - replay_start) * samples_per_insert) // batch_size)"),
        ("must return a number", "return", "_ ="),
        ("nan is not a number", UPDATES + "return float('nan')"),
        ("900 steps", "max(0, int((steps - replay_start)", "(int(abs(steps - replay_start)"),
        ("How many samples", UPDATES + "return 187"),
    ],
    "my_state": [
        ("what determines the draws", ', "rng": replay.rng.bit_generator.state', ""),
        ("are missing", '"added": replay.added', '"added": min(replay.added, len(replay.numbers))'),
        ("copy it", "replay.numbers.copy()", "replay.numbers"),
        ("`restore` expects the generator's state", "replay.rng.bit_generator.state", "replay.rng"),
        ("what determines the draws", "replay.rng.bit_generator.state", "np.random.default_rng(0).bit_generator.state"),
        ("must return a dict", "return {", "{"),
        ("must return a dict", '"added": replay.added, ', ""),
        ("NaN", "replay.numbers.copy()", "replay.numbers * np.nan"),
        ("are missing", "replay.numbers.copy()", "0 * replay.numbers"),
        ("the shape (8,)", "replay.numbers.copy()", "replay.numbers[:replay.added].copy()"),
        ("what determines the draws", '"added": replay.added', '"added": replay.added + 8 * (replay.added == 0)'),
        ("must be an integer", '"added": replay.added', '"added": float(replay.added)'),
        ("has changed the replay", "return {", "replay.added = 0; return {"),
        ("different slots", '"added": replay.added', '"added": replay.added + 1'),
    ],
}
RIGHT = {
    "MyCorridor": [
        """
class MyCorridor(gymnasium.Env):
    LEFT, RIGHT = -5, 5
    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(np.float32(-1), np.float32(1), shape=(1,), dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.place = None
    def seen(self):
        return np.full(1, self.place / self.RIGHT, np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.int64(0)
        return self.seen(), {}
    def step(self, action):
        assert self.action_space.contains(action)
        self.place = np.clip(self.place + 2 * action - 1, self.LEFT, self.RIGHT)
        done = bool(self.place == self.RIGHT)
        return self.seen(), -1, done, False, {}""",
        """
class MyCorridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.cells, self.at = np.linspace(-1, 1, 11, dtype=np.float32), 5
        return self.cells[[self.at]], {"at": 5}
    def step(self, action):
        if action == 0:
            self.at -= self.at > 0
        else:
            self.at += 1
        return self.cells[[self.at]].copy(), -1.0, self.at == 10, False, {"at": self.at}""",
    ],
    "my_faults": ['my_faults = {"D": "target never updated", "C": "too few updates", "B": "healthy", "A": "steps too large"}', 'my_faults = dict(zip("ABCD", ["steps too large", "healthy", "too few updates", "target never updated"]))'],
    "my_updates": [UPDATES + "rows = max(steps - replay_start, 0)\n    return np.floor(rows * samples_per_insert / batch_size)", UPDATES + "updates = 0\n    while (updates + 1) * batch_size <= (steps - replay_start) * samples_per_insert:\n        updates += 1\n    return updates"],
    "my_state": [
        """
import copy
def my_state(replay):
    return copy.deepcopy({"rng": replay.rng.bit_generator.state, "numbers": replay.numbers, "added": replay.added, "version": 1})""",
        """
def my_state(replay):
    state = replay.state()
    state.update(added=int(replay.added), rng=dict(replay.rng.bit_generator.state), numbers=list(replay.numbers))
    return state""",
    ],
}
