"""Sequences: windows, masks, n-step returns and laws, compared with their definitions over a log.

Each observation is (environment, episode, step), all counted from 1, so that padding is recognized: it is 0.
"""

import copy
import tracemalloc
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
from scipy.stats import chisquare

from replay_tutorial import NStep, SequenceReplayBuffer, sequence_priorities

LEAST = 1e-6  # significance of the chi-square tests
IDS, NUMBER = {"shape": 3, "dtype": np.int64}, {"dtype": np.int64}
FLAG = {"dtype": bool}
FIELDS = {
    "obs": IDS,
    "state": {"shape": 2, "dtype": np.int64},
    "action": NUMBER,
    "reward": {"dtype": np.float64},
    "next_obs": IDS,
    "terminated": FLAG,
    "truncated": FLAG,
}


class Log:
    """Plays episodes in several environments at once; remembers every step, and where it must be stored."""

    def __init__(self, environments, places, lengths, terminates=lambda episode: episode % 2 == 0):
        self.environments, self.places, self.lengths = environments, places, lengths
        self.terminates = terminates
        self.episodes = [[[]] for _ in range(environments)]  # environment → episodes → rewards
        self.starts = [[0] for _ in range(environments)]  # the position of each episode's first step
        self.heads = [0] * environments
        self.rng = np.random.default_rng(0)

    def length(self, environment, episode):
        return self.lengths[(environment + episode) % len(self.lengths)]

    def play(self, buffer, steps):
        for _ in range(steps):
            now = [(e + 1, len(all_of), len(all_of[-1]) + 1) for e, all_of in enumerate(self.episodes)]
            rewards = self.rng.integers(1, 9, self.environments).astype(float)
            last = [step == self.length(e - 1, episode) for e, episode, step in now]
            term = [end and self.terminates(episode) for end, (_, episode, _) in zip(last, now, strict=True)]
            indexes = buffer.add_step(
                obs=now,
                state=[(10 * episode, step) for _, episode, step in now],
                action=[step for _, _, step in now],
                reward=rewards,
                next_obs=[(e, episode, step + 1) for e, episode, step in now],
                terminated=term,
                truncated=np.array(last) & ~np.array(term),
            )
            for e in range(self.environments):
                self.episodes[e][-1].append(rewards[e])
                assert indexes[e] == self.heads[e] * self.environments + e
                self.heads[e] += 1
                if last[e]:
                    self.end(e)

    def end(self, e):
        self.heads[e] += 1
        self.episodes[e].append([])
        self.starts[e].append(self.heads[e])

    def windows(self, length, period, boundary):
        """{index: (environment, episode, step)} of every window that must be available, counted from 0."""
        found = {}
        for e, all_of in enumerate(self.episodes):
            for number, rewards in enumerate(all_of):
                steps, finished = len(rewards), number + 1 < len(all_of)
                starts = {s for s in range(0, steps, period) if s + length <= steps}
                if finished and boundary == "pad":
                    starts = set(range(0, steps, period))
                if finished and boundary == "shift" and len(starts) < len(range(0, steps, period)):
                    starts.add(max(0, steps - length))  # instead of those that the end cuts off
                for s in starts:
                    if self.is_stored(e, number, s):
                        found[(self.starts[e][number] + s) * self.environments + e] = (e, number, s)
        return found

    def is_stored(self, e, number, step):
        return self.starts[e][number] + step > self.heads[e] - self.places

    def window(self, e, number, s, length, burn_in, n, gamma):
        """Everything that a sample must contain for the window that starts at step s, as lists."""
        rewards = self.episodes[e][number]
        steps, terminates = len(rewards), self.terminates(number + 1)
        ended = steps == self.length(e, number + 1)
        first = min(k for k in range(max(0, s - burn_in), s + 1) if self.is_stored(e, number, k))
        row = {name: [] for name in ("obs", "action", "reward", "valid", "learn")}
        row |= {name: [] for name in ("n_step_return", "discount", "bootstrap", "state")}
        for k in range(s - burn_in, s + length + n):
            row["obs"].append((e + 1, number + 1, k + 1) if first <= k <= steps else (0, 0, 0))
            if k >= s + length:
                continue
            real = first <= k < steps
            row["action"].append(k + 1 if real else 0)
            row["reward"].append(rewards[k] if real else 0)
            row["valid"].append(real)
            row["learn"].append(real and k >= s)
            taken = rewards[k : k + n] if real else []
            row["n_step_return"].append(sum(gamma**i * r for i, r in enumerate(taken)))
            through = ended and terminates and k + len(taken) == steps
            row["discount"].append(gamma ** len(taken) if real and not through else 0)
            row["bootstrap"].append(k + len(taken) - (s - burn_in) if real else None)
        row["state"] = (10 * (number + 1), first + 1)
        if burn_in == 0:  # that of every step
            row["state"] = [(10 * (number + 1) * bool(action), action) for action in row["action"]]
        return row


class Stream(Log):
    """The definition for windows that cross the ends of episodes: entries of a stream per environment."""

    def stream(self, e):
        """[(episode, step, reward, rewards until the end, whether it ended)]; without a step, None."""
        entries = []
        for number, rewards in enumerate(self.episodes[e]):
            ended = number + 1 < len(self.episodes[e])
            for k, reward in enumerate(rewards):
                entries.append((number + 1, k + 1, reward, rewards[k:], ended))
            if ended or rewards:  # the newest observation of a running episode is not an entry yet
                entries.append((number + 1, len(rewards) + 1, None, [], ended))
        return entries

    def windows(self, length, period, boundary):
        found = {}
        for e in range(self.environments):
            entries = self.stream(e)
            complete = len(entries) - (bool(entries) and not entries[-1][4])
            for s, (_, step, reward, _, _) in enumerate(entries[: max(0, complete - length + 1)]):
                if reward is not None and (step - 1) % period == 0 and s > self.heads[e] - self.places:
                    found[s * self.environments + e] = (e, s, None)
        return found

    def window(self, e, s, _, length, burn_in, n, gamma):
        entries, oldest = self.stream(e), max(0, self.heads[e] - self.places + 1)
        row = {name: [] for name in ("obs", "action", "reward", "valid", "learn", "is_first")}
        row |= {name: [] for name in ("n_step_return", "discount", "bootstrap", "state")}
        states = []
        for k in range(s - burn_in, s + length + n):
            real = oldest <= k < len(entries)
            episode, step, reward, rest, ended = entries[k] if real else (0, 0, None, [], False)
            row["obs"].append((e + 1, episode, step) if real else (0, 0, 0))
            if k >= s + length:
                continue
            real = reward is not None
            states += [(10 * episode, step)] * real
            row["action"].append(step * real)
            row["reward"].append(reward or 0)
            row["valid"].append(real)
            row["learn"].append(real and k >= s)
            row["is_first"].append(real and step == 1)
            taken = rest[:n]
            row["n_step_return"].append(sum(gamma**i * r for i, r in enumerate(taken)))
            through = ended and self.terminates(episode) and len(rest) <= n
            row["discount"].append(gamma ** len(taken) if real and not through else 0)
            row["bootstrap"].append(k + len(taken) - (s - burn_in) if real else None)
            row["state"].append((10 * episode * real, step * real))
        if burn_in:
            row["state"] = states[0]
        return row


M, L = 5, 3  # length and burn-in
SPECIAL = [1, L, M - 1, M, M + 1, 3 * M + 7, 60, 2]  # 60 is longer than a ring


@pytest.mark.parametrize("boundary", ["pad", "shift", "drop", "cross"])
@pytest.mark.parametrize(
    ("period", "burn_in", "n", "time_major"), [(1, L, 3, True), (2, 0, 1, False), (7, 50, 4, False)]
)
def test_windows_are_those_of_the_definition(boundary, period, burn_in, n, time_major, tmp_path):
    gamma, places = 0.5, 37
    buffer = SequenceReplayBuffer(
        3 * places + 1,
        FIELDS,
        M,
        burn_in=burn_in,
        period=period,
        boundary=boundary,
        first_of="state" if burn_in else (),
        n_step=n,
        gamma=gamma,
        num_envs=3,
        seed=0,
    )
    log = (Stream if boundary == "cross" else Log)(3, places, SPECIAL)
    for steps in (4, 9, 20, 40, 130, 31, 1):  # more than five laps
        log.play(buffer, steps)
        buffer.save(tmp_path / "sequences")
        loaded = copy.deepcopy(buffer)
        loaded.load(tmp_path / "sequences")  # a file with other windows is refused
        expected = log.windows(M, period, boundary)
        assert buffer.num_windows == loaded.num_windows == len(expected)
        if not expected:
            with pytest.raises(ValueError, match="none is complete"):
                buffer.sample(1)
            continue
        sample = buffer.sample(3 * len(expected), time_major=time_major)  # contains each, by the strata
        assert set(sample["indexes"].tolist()) == set(expected)
        assert "next_obs" not in sample and (sample["weights"] == 1).all()
        if time_major:
            sample = {
                name: array if name in ("state", "indexes", "weights") else np.swapaxes(array, 0, 1)
                for name, array in sample.items()
            }
        once = {index: i for i, index in enumerate(sample["indexes"].tolist())}
        for index, i in once.items():
            window = log.window(*expected[index], M, burn_in, n, gamma)
            for name, values in window.items():
                got = sample[name][i]
                if name == "bootstrap":
                    assert (sample["obs"][i][got] != 0).all(), "even that of a padded step is real"
                    got = np.where(window["valid"], got, None)
                assert np.array_equal(got, values), (name, expected[index], got, values)
    assert buffer.next_index_of(0) > 5 * places * 3


@pytest.mark.parametrize("boundary", ["pad", "shift"])
def test_every_step_is_learned_and_those_between_twice(boundary):
    length, period, lengths = 80, 40, [1, 40, 79, 80, 81, 247]
    buffer = SequenceReplayBuffer(
        1000, FIELDS, length, burn_in=40, period=period, boundary=boundary, first_of="state"
    )
    log = Log(1, 1000, lengths)
    log.play(buffer, sum(lengths))
    count = len(log.windows(length, period, boundary))
    sample = buffer.sample(3 * count)
    _, once = np.unique(sample["indexes"], return_index=True)
    assert len(once) == count
    learned = Counter(map(tuple, sample["obs"][once][:, :-1][sample["learn"][once]].tolist()))
    for (_, episode, step), times in learned.items():
        between = step > period and (boundary == "pad" or step <= log.length(0, episode) - length)
        assert times == 2 if between else times >= 1
        assert boundary == "shift" or times <= 2
    assert sorted(learned) == [(1, e, s) for e in range(1, 7) for s in range(1, log.length(0, e) + 1)]


def test_windows_that_cross_episodes_are_drawn_uniformly_over_their_starts_and_each_new_one_once():
    options = {"boundary": "cross", "num_envs": 2, "seed": 0}
    buffer = SequenceReplayBuffer(2 * 61, FIELDS, M, **options)
    new = SequenceReplayBuffer(2 * 61, FIELDS, M, period=M, online=True, **options)
    log, copied, served = Stream(2, 61, [1, 3, 7, 2, 12]), Stream(2, 61, [1, 3, 7, 2, 12]), Counter()
    for _ in range(8):
        log.play(buffer, 23)
        copied.play(new, 23)
        windows, steps = log.windows(M, 1, "cross"), copied.windows(M, M, "cross")
        drawn = Counter(i for _ in range(100) for i in buffer.sample(10)["indexes"].tolist())
        assert p_value(drawn, dict.fromkeys(windows, 1)) > LEAST
        expected = sorted({*steps} - {*served})
        served.update(new.sample(len(expected))["indexes"].tolist())
        assert set(expected) <= set(served) and {served[i] for i in expected} == {1}
    buffer.clear()
    assert buffer.num_windows == 0
    firsts = [buffer.next_index_of(e) - e for e in range(2)]
    Stream(2, 61, [3, 2]).play(Mock(add_step=lambda **each: buffer.add_step(**each) - firsts), 5)
    starts = {firsts[0], firsts[0] + 2, firsts[1] + 1, firsts[1] + 3, firsts[1] + 5}
    assert set(buffer.sample(50)["indexes"].tolist()) == starts, "none at a final observation"
    with pytest.raises(ValueError, match='boundary="cross", no episode can be evicted'):
        new.keep_best(1)
    with pytest.raises(ValueError, match='by="episode" requires windows of one episode'):
        new.sample(1, by="episode")


@pytest.mark.parametrize("period", range(1, 9))
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_shift_adds_a_window_only_if_one_is_cut_off(length, period):
    """Drawn by window and by episode, for episodes of 1 to 13 steps, one of them partly overwritten."""
    buffer = SequenceReplayBuffer(50, FIELDS, length, period=period, boundary="shift", seed=0)
    log = Log(1, 50, [13, 1, 8, 2, 7, 3, 6, 4, 5, 9])
    log.play(buffer, 58)
    expected = log.windows(length, period, "shift")
    for by in ("window", "episode"):
        assert set(buffer.sample(1500, by=by)["indexes"].tolist()) == set(expected), by


def test_a_return_that_the_dtype_of_the_reward_cannot_hold_is_an_error():
    fields = {**FIELDS, "reward": {"dtype": np.float16}}
    buffer = SequenceReplayBuffer(20, fields, 3, n_step=3, gamma=1.0, seed=0)
    for _ in range(4):
        step = {name: np.zeros(spec.get("shape", 1)) for name, spec in fields.items()}
        buffer.add(**step | {"reward": 30_000, "terminated": False})
    with pytest.raises(ValueError, match="'n_step_return' has the dtype float16, which can't hold 90000"):
        buffer.sample(1)


def play_three(boundary="drop", alpha=0.0, **options):
    """Three finished episodes of 2, 5 and 9 steps, and a length of 3."""
    buffer = SequenceReplayBuffer(40, FIELDS, 3, boundary=boundary, alpha=alpha, seed=0, **options)
    log = Log(1, 40, [9, 2, 5])
    log.play(buffer, 16)
    return buffer, log


def p_value(drawn, law):
    assert set(drawn) <= set(law)
    counts = [drawn[key] for key in law]
    return chisquare(counts, [sum(counts) * law[key] / sum(law.values()) for key in law]).pvalue


@pytest.mark.parametrize("boundary", ["drop", "pad", "shift"])
def test_episodes_are_drawn_uniformly_after_laps_and_evictions_and_in_running_ones(boundary):
    """And the windows of each; by="window", all windows are equally frequent."""
    buffer = SequenceReplayBuffer(2 * 61, FIELDS, M, period=2, num_envs=2, boundary=boundary, seed=0)
    log, evicted, without = Log(2, 61, [1, 3, 7, 9, 12, 5, 33]), set(), 0
    for steps in (30, 200, 77, 13, *[2] * 35):
        log.play(buffer, steps)
        table = buffer.episodes()
        gone = set(table["episode"][table["finished"]][1::5].tolist() if steps > 2 else ())
        buffer.evict(sorted(gone))
        evicted |= {(number % 2, number // 2) for number in gone}
        windows = {i: w for i, w in log.windows(M, 2, boundary).items() if w[:2] not in evicted}
        in_episode = Counter(w[:2] for w in windows.values())
        law = {i: 1 / in_episode[w[:2]] for i, w in windows.items()}
        without += len(table["episode"]) - len(gone) - len(in_episode)
        assert buffer.num_windows == len(windows)
        sample = buffer.sample(2_000, by="episode")
        assert p_value(Counter(sample["indexes"].tolist()), law) > LEAST
        assert (sample["weights"] == 1).all()
        drawn = Counter(i for _ in range(200) for i in buffer.sample(10)["indexes"].tolist())
        assert p_value(drawn, dict.fromkeys(windows, 1)) > LEAST
    assert without > 0 or boundary != "drop", "some episodes have no window"


def test_priorities_are_those_of_windows():
    buffer, log = play_three("pad", alpha=1.0, eps=0.0, period=2)
    windows = log.windows(3, 2, "pad")
    priorities = {index: 1 + 2 * k for k, index in enumerate(windows)}
    buffer.update_priorities(list(priorities), list(priorities.values()))
    drawn, total = Counter(), sum(priorities.values())
    for _ in range(4000):
        sample = buffer.sample(5, beta=1.0)
        drawn.update(sample["indexes"].tolist())
        inverse = [priorities[index] for index in sample["indexes"].tolist()]
        assert abs(sample["weights"] * inverse - 1).max() < 1e-6
    probabilities = buffer.probabilities(list(priorities))
    np.testing.assert_allclose(probabilities, np.array([*priorities.values()]) / total, rtol=1e-12)
    with pytest.raises(IndexError, match="no window begins there"):
        buffer.probabilities([min(windows) + 1])
    assert p_value(drawn, {index: p / total for index, p in priorities.items()}) > LEAST
    between = max(windows) - 1 if max(windows) - 1 not in windows else max(windows) + 1
    buffer.update_priorities([between], [9.0])  # not the start of a window
    assert buffer.stale_updates == 1 and buffer.max_priority == max(priorities.values())


def test_a_window_has_the_priority_of_the_step_that_completes_it():
    one = {"obs": (1, 1, 1), "state": (0, 0), "action": 0, "reward": 0.0, "next_obs": (1, 1, 1)}
    one |= {"terminated": False, "truncated": False}
    buffer = SequenceReplayBuffer(20, FIELDS, 3, alpha=1.0, eps=0.0, seed=0)
    indexes = [buffer.add(**one, priorities=p) for p in (1.0, 2.0, 0.0, 6.0)]  # windows of 0 and of 6
    assert set(buffer.sample(50)["indexes"].tolist()) == {indexes[1]}
    buffer.add(**one, priorities=2.0)
    drawn = Counter(buffer.sample(4000)["indexes"].tolist())
    assert drawn[indexes[1]] == pytest.approx(3000, abs=1) and drawn[indexes[2]] == pytest.approx(1000, abs=1)
    ended = SequenceReplayBuffer(20, FIELDS, 3, alpha=1.0, eps=0.0, seed=0)
    three = {name: np.repeat([value], 3, axis=0) for name, value in one.items()} | {"terminated": [0, 0, 1]}
    first = ended.add(
        **three, priorities=[1.0, 2.0, 6.0]
    )  # the last step also ends the windows of the others
    drawn = Counter(ended.sample(3000)["indexes"].tolist())
    assert [drawn[first + i] for i in range(3)] == pytest.approx([1000] * 3, abs=1)


@pytest.mark.parametrize("boundary", ["pad", "drop"])
def test_new_windows_are_returned_once_in_order_before_random_ones(boundary):
    """With "pad" and period = length, they partition the steps of every finished episode."""
    buffer = SequenceReplayBuffer(
        3 * 50, FIELDS, 6, period=6, num_envs=3, boundary=boundary, online=True, seed=0
    )
    log, served, learned = Log(3, 50, [1, 5, 6, 7, 25, 70]), set(), Counter()
    for _ in range(100):
        log.play(buffer, 4)
        windows = set(log.windows(6, 6, boundary))
        while new := sorted(windows - served)[:3]:
            sample = buffer.sample(3)
            assert sample["indexes"][: len(new)].tolist() == new
            assert set(sample["indexes"].tolist()) <= windows
            steps = sample["obs"][: len(new), :-1][sample["learn"][: len(new)]]
            learned.update(map(tuple, steps.tolist()))
            served |= {*new}
    assert set(buffer.sample(100)["indexes"].tolist()) <= served, "random ones now"
    finished = {
        (e + 1, number + 1, step + 1)
        for e, all_of in enumerate(log.episodes)
        for number, rewards in enumerate(all_of[:-1])
        for step in range(len(rewards))
    }
    assert len(served) > 100 and set(learned.values()) == {1}
    assert boundary == "drop" or finished <= set(learned)


def test_new_windows_that_were_overwritten_evicted_or_cleared_are_not_returned():
    buffer = SequenceReplayBuffer(30, FIELDS, 4, period=4, boundary="drop", online=True, seed=0)
    log = Log(1, 30, [9])
    log.play(buffer, 100)
    buffer.evict(buffer.episodes()["episode"][1])
    gone = buffer.episodes()["episode"]
    windows = log.windows(4, 4, "drop")
    expected = sorted(i for i, (_, episode, _) in windows.items() if episode in gone)
    assert len(expected) == 3 < len(windows), windows
    assert buffer.sample(3)["indexes"].tolist() == expected
    log.play(buffer, 20)
    buffer.clear()
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    log = Log(1, 30, [9])
    log.heads[0] = log.starts[0][0] = buffer.next_index_of(0)
    log.play(buffer, 9)
    assert buffer.sample(2)["indexes"].tolist() == sorted(log.windows(4, 4, "drop"))


def test_latents_written_back_are_returned():
    buffer, _ = play_three("pad", burn_in=2, first_of="state")
    sample = buffer.sample(50)
    times = np.arange(5) - 2
    indexes = (sample["indexes"][:, None] + times)[sample["valid"]]
    latents = np.stack([1000 + indexes, -indexes], 1)
    assert buffer.update_fields(indexes, state=latents).all()
    again = buffer.sample(50)
    first = again["indexes"] - again["valid"][:, :2].sum(1)
    np.testing.assert_array_equal(again["state"], np.stack([1000 + first, -first], 1))


def test_an_episode_that_is_cut_off_has_its_windows_and_bootstraps():
    buffer = SequenceReplayBuffer(40, FIELDS, 5, n_step=2, gamma=0.5, seed=0)
    log = Log(1, 40, [1000])
    log.play(buffer, 3)
    with pytest.raises(ValueError, match="none is complete"):
        buffer.sample(1)
    buffer.end_episode()
    sample = buffer.sample(9)
    _, once = np.unique(sample["indexes"], return_index=True)
    assert sample["learn"][once].sum(1).tolist() == [3, 2, 1]
    assert sample["discount"][once[0]].tolist() == [0.25, 0.25, 0.5, 0, 0]
    assert sample["bootstrap"][once[0]].tolist() == [2, 3, 3, 3, 3]
    assert sample["obs"][once[0], 3].tolist() == [1, 1, 4], "the observation after the last step"


@pytest.mark.parametrize("shape", [(84, 84), (4,)])
def test_pictures_take_one_frame_per_step_and_states_are_not_copied_with_them(shape):
    picture = {"shape": shape, "dtype": np.uint8}
    fields = {"state": {"shape": 1500}, "obs": picture, "next_obs": picture, "terminated": FLAG, "action": {}}
    buffer = SequenceReplayBuffer(50, fields, 3, burn_in=1, first_of="state", seed=0)
    pictures = np.random.default_rng(0).integers(1, 256, (21, *shape)).astype(np.uint8)
    for step in range(20):
        buffer.add(
            obs=pictures[step],
            next_obs=pictures[step + 1],
            terminated=step == 19,
            action=step,
            state=np.full(1500, step),
        )
    row = buffer.nbytes / (buffer.capacity + 1)
    assert row - pictures[0].nbytes - 6000 < 40, "beside both, only the small fields"
    assert set(buffer._gather_windows._small.names) == {"action", "terminated", *(["obs"] * (shape == (4,)))}
    assert buffer._gather_windows._small_bytes <= 24, "not the states"
    sample = buffer.sample(40)
    for i, start in enumerate(sample["indexes"].tolist()):
        assert (sample["state"][i] == max(0, start - 1)).all()
        for time in range(5):
            step = start - 1 + time
            expected = pictures[step] if 0 <= step <= 20 else 0 * pictures[0]
            np.testing.assert_array_equal(sample["obs"][i, time], expected)


def test_priority_of_a_sequence_by_hand():
    learn = np.array([[False, True, True, True, False]])
    for padded in (9.0, np.nan):
        errors = np.array([[padded, 1.0, -2.0, 3.0, padded]])
        assert sequence_priorities(errors, learn) == pytest.approx([0.9 * 3 + 0.1 * 2])
        assert sequence_priorities(errors.T, learn.T, time_major=True) == pytest.approx([2.9])
        assert sequence_priorities(errors, learn, eta=0.0) == pytest.approx([2.0])
    assert sequence_priorities(np.zeros((0, 5)), np.zeros((0, 5), bool)).shape == (0,)
    for errors, mask, eta, message in (
        ([[1.0]], [[True, True]], 0.9, "same shape"),
        ([1.0], [True], 0.9, r"\(n, T\)"),
        ([[1.0]], [[True]], 1.1, "eta"),
        ([[1.0], [2.0]], [[True], [False]], 0.9, r"\[1\] have no learned step"),
    ):
        with pytest.raises(ValueError, match=message):
            sequence_priorities(errors, mask, eta)


INPUT, RECURRENT, HEAD = (np.random.default_rng(0).normal(size=(n, m)) for n, m in ((2, 6), (6, 6), (6, 3)))


def unroll(obs, states, valid):
    """Q-values of a recurrent network at every time; padded steps keep the state."""
    values = []
    for time in range(obs.shape[1]):
        new = np.tanh(obs[:, time] @ INPUT + states @ RECURRENT)
        values.append(new @ HEAD)  # also of the final observation, which is no step
        states = np.where(valid[:, time, None], new, states) if time < valid.shape[1] else new
    return np.stack(values, 1)


@pytest.fixture(scope="module")
def acted():
    """A network has acted; its states and its Q-values are stored with its steps."""
    fields = {name: {"shape": 2, "dtype": np.float64} for name in ("obs", "next_obs")}
    fields |= {"reward": {"dtype": np.float64}, "terminated": FLAG, "truncated": FLAG}
    fields |= {"state": {"shape": 6, "dtype": np.float64}, "q": {"shape": 3, "dtype": np.float64}}
    buffer = SequenceReplayBuffer(
        45, fields, 4, burn_in=3, period=2, first_of="state", n_step=2, gamma=0.9, seed=0
    )
    rng = np.random.default_rng(0)
    for steps in (9, 2, 11, 5, 8, 11):
        state, obs = np.zeros(6), rng.normal(size=(steps + 1, 2))
        for step in range(steps):
            new, last = np.tanh(obs[step] @ INPUT + state @ RECURRENT), step == steps - 1
            buffer.add(
                obs=obs[step],
                next_obs=obs[step + 1],
                reward=rng.normal(),
                terminated=last and steps % 2 == 0,
                truncated=last and steps % 2 == 1,
                state=state,
                q=new @ HEAD,
            )
            state = new
    return buffer


def test_unrolling_from_the_stored_state_reproduces_the_q_values_of_the_actor(acted):
    batch = acted.sample(200)
    assert (~batch["valid"]).any(0).sum() > 4, "padded on both sides"
    for states, differs in ((batch["state"], False), (0 * batch["state"], True)):
        q = unroll(batch["obs"], states, batch["valid"])[:, :7]
        difference = abs(q - batch["q"])[batch["valid"]].max()
        assert difference > 1e-2 if differs else difference <= 1e-12


def test_nan_in_padding_changes_neither_loss_nor_priority(acted):
    batch = acted.sample(200)
    results = []
    for padding in (0.0, np.nan):
        some = {name: array.copy() for name, array in batch.items()}
        for name in ("obs", "q", "reward", "n_step_return"):
            some[name][~some["valid"] if name != "obs" else (some["obs"] == 0).all(-1)] = padding
        learn = some["learn"]
        q = np.nan_to_num(unroll(some["obs"], some["state"], some["valid"]), nan=1e9)  # after the final one
        values = np.take_along_axis(q.max(-1), some["bootstrap"], 1)
        errors = some["n_step_return"] + some["discount"] * values - q[:, :7, 0]
        loss = np.where(learn, errors**2, 0.0).sum() / learn.sum()
        results.append((loss, sequence_priorities(errors, learn).tolist()))
    assert results[0] == results[1]
    assert np.isfinite(results[0][1]).all()


def test_saved_and_loaded_buffers_return_the_same_windows(tmp_path):
    options = {"period": 2, "online": True, "burn_in": 1, "first_of": "state"}
    buffer, _ = play_three("pad", **options)
    buffer.sample(3)
    buffer.save(tmp_path / "sequences")
    loaded, _ = play_three("pad", **options)
    loaded.load(tmp_path / "sequences")
    for _ in range(4):
        one, other = buffer.sample(4), loaded.sample(4)
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])
    different = SequenceReplayBuffer(40, FIELDS, 4, period=2, online=True, burn_in=1, first_of="state")
    with pytest.raises(ValueError):
        different.load(tmp_path / "sequences")


@pytest.mark.parametrize("boundary", ["pad", "shift", "drop", "cross"])
def test_file_whose_windows_start_at_other_steps_is_refused(boundary, tmp_path):
    options = {"boundary": boundary, "period": 2}
    buffer, log = SequenceReplayBuffer(100, FIELDS, 4, **options), Log(1, 100, [7, 9])
    log.play(buffer, 24)  # two episodes, and the first steps of a third, which is cut off
    buffer.end_episode()
    log.end(0)
    log.play(buffer, 6)
    buffer.save(tmp_path / "file")
    SequenceReplayBuffer(100, FIELDS, 4, **options).load(tmp_path / "file")
    kinds, leaves = buffer._ring.arrays.kinds, buffer._ring.tree.leaves
    for slot in np.flatnonzero(kinds):
        kinds[slot], kept = 3 - kinds[slot], (kinds[slot], leaves[slot])  # STEP becomes START, and vice versa
        leaves[slot] = kinds[slot] == 2
        buffer.save(tmp_path / "file")
        with pytest.raises(ValueError, match=r"is damaged.*starts at a wrong step"):
            SequenceReplayBuffer(100, FIELDS, 4, **options).load(tmp_path / "file")
        kinds[slot], leaves[slot] = kept


def test_numpy_integers_neither_overflow_nor_prevent_saving(tmp_path):
    numbers = {"burn_in": np.uint8(100), "period": np.int8(1), "num_envs": np.int64(1)}
    buffer = SequenceReplayBuffer(500, FIELDS, np.uint8(200), **numbers)
    Log(1, 500, [300]).play(buffer, 320)
    assert buffer.sample(2)["valid"].shape == (2, 300)
    buffer.save(tmp_path / "sequences")
    SequenceReplayBuffer(500, FIELDS, 200, burn_in=100).load(tmp_path / "sequences")


def test_call_that_fails_after_it_has_found_new_windows_has_served_none(monkeypatch):
    buffer, _ = play_three("pad", online=True)
    expected = copy.deepcopy(buffer).sample(5)["indexes"].tolist()
    for error in (MemoryError, KeyboardInterrupt):
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(buffer._gather_windows, "take", Mock(side_effect=error))
            buffer.sample(5)
    assert buffer.sample(5)["indexes"].tolist() == expected


def test_few_episodes_with_a_window_are_drawn_uniformly_without_many_trials():
    buffer, count = SequenceReplayBuffer(40_000, FIELDS, 2, seed=0), 20_000
    steps = {
        name: np.zeros((count, *np.empty(spec.get("shape", ())).shape), int) for name, spec in FIELDS.items()
    }
    buffer.add(**steps | {"terminated": np.ones(count, bool)})  # episodes of one step
    buffer.keep_best(3, by="start")
    buffer.sample(100, by="episode")
    tracemalloc.start()
    drawn = [index for _ in range(10) for index in buffer.sample(100, by="episode")["indexes"].tolist()]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert p_value(Counter(drawn), dict.fromkeys(buffer.episodes()["start"].tolist(), 1)) > LEAST
    assert most < 4 << 20, "memory of rejected draws"


def test_errors_name_the_remedy():
    for length, options, error, message in (
        (0, {}, ValueError, "length must be at least 1"),
        (3, {"burn_in": -1}, ValueError, "burn_in must be at least 0"),
        (3, {"period": 0}, ValueError, "period must be at least 1"),
        (3, {"period": 2**48}, ValueError, r"period must be below 2\*\*48"),
        (3, {"burn_in": 2**63}, ValueError, "burn_in must be below"),
        (3, {"n_step": NStep(2**63)}, ValueError, "n_step must be below"),
        (3.5, {}, TypeError, "length must be an integer"),
        (3, {"boundary": "wrap"}, ValueError, '"pad", "shift", "drop" or "cross"'),
        (39, {}, ValueError, "capacity must be at least 41"),
        (3, {"online": True, "alpha": 0.6}, ValueError, "online=True requires alpha=0"),
        (3, {"first_of": "hidden"}, KeyError, "hidden"),
        (3, {"first_of": ["obs"]}, ValueError, "for every step"),
        (3, {"first_of": ["terminated"], "n_step": NStep(2)}, ValueError, "for every step"),
        (3, {"n_step": NStep(0)}, ValueError, "at least 1"),
        (3, {"n_step": NStep(2, reward=["reward", "state"])}, ValueError, "float"),
        (3, {"n_step": NStep(2, reward=())}, ValueError, "one field"),
        (3, {"n_step": "2"}, TypeError, "n_step must be an integer, not '2'"),
        (3, {"gamma": 0.9}, ValueError, "gamma=0.9"),
    ):
        with pytest.raises(error, match=message):
            SequenceReplayBuffer(40, FIELDS, length, **options)
    with pytest.raises(ValueError, match="reserved"):
        SequenceReplayBuffer(40, FIELDS | {"valid": {}}, 3)
    SequenceReplayBuffer(40, FIELDS | {"discount": {}}, 3)
    buffer = SequenceReplayBuffer(40, FIELDS, 3, boundary="drop", alpha=0.5)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    Log(1, 40, [2]).play(buffer, 6)
    with pytest.raises(ValueError, match=r"none is complete\. Add more steps\. With boundary=\"drop\""):
        buffer.sample(1)
    with pytest.raises(ValueError, match="alpha=0"):
        buffer.sample(1, by="episode")
    with pytest.raises(ValueError, match="by must be"):
        buffer.sample(1, by="row")
