"""Frames of several environments that add to one buffer, in turns or a batch a step, beside a list of rows.

`Environments` steps them all, resets each at its own times, and folds n-step rows if it is told to. Every row
that it gives has frames that others show, too, of the same environment, some steps before.
"""

import copy
import pickle

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st

from replay_tutorial import NStep, NStepWindow, PrioritizedReplayBuffer, ReplayBuffer
from replay_tutorial.buffers.fields import Fields
from replay_tutorial.buffers.images import frames
from replay_tutorial.buffers.images.frame_layout import FrameLayout

N_STEP = NStep(1, gamma=0.5)


class Environments:
    """Environments whose observations are stacks of the last frames, of which `letters` ** pixels differ."""

    def __init__(self, rng, count, *, side=5, stack=4, last=False, n=1, episode=50, letters=256, start=None):
        self.rng, self.side, self.stack, self.last, self.episode = rng, side, stack, last, episode
        self.letters, self.start = letters, start
        self.shape = (side, side, stack) if last else (stack, side, side)
        observation = {"shape": self.shape, "dtype": np.uint8}
        self.fields = {
            "obs": observation,
            "action": {"dtype": np.int64},
            "reward": {},
            "next_obs": observation,
            "terminated": {"dtype": bool},
        }
        self.n_step = NStepWindow(self.fields, N_STEP._replace(n=n), num_envs=count)
        self.fields = self.n_step.fields
        self.recent = [self.reset() for _ in range(count)]
        self.left = [int(rng.integers(1, episode + 1)) for _ in range(count)]  # not all end at the same step
        self.steps = 0

    def frame(self):
        return self.rng.integers(0, self.letters, (self.side, self.side)).astype(np.uint8)

    def reset(self):
        return [self.frame() if self.start is None else self.start] * self.stack

    def observation(self, environment):
        return np.stack(self.recent[environment], axis=-1 if self.last else 0)

    def step(self):
        """Step all; return the rows that became whole, arrays of shape (n, ...)."""
        parts = []
        for environment in range(len(self.recent)):
            obs = self.observation(environment)
            self.recent[environment] = [*self.recent[environment][1:], self.frame()]
            self.left[environment] -= 1
            over = self.left[environment] == 0
            rows = self.n_step.add(
                environment,
                obs=obs,
                action=self.steps,
                reward=float(self.rng.integers(9)),
                next_obs=self.observation(environment),
                terminated=over,
            )
            self.steps += 1
            if over:
                self.recent[environment], self.left[environment] = self.reset(), self.episode
            if rows is not None:
                parts.append(rows)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else None


def add(buffer, rows, whole):
    """Add rows as one batch, or one by one."""
    if whole:
        buffer.add(**rows)
    else:
        for i in range(len(rows["action"])):
            buffer.add(**{name: column[i] for name, column in rows.items()})


def assert_same(buffer, added):
    """The buffer holds the last of the rows that were added, a list of dicts, bit for bit."""
    stored = buffer[:]
    expected = added[-buffer.capacity :]
    assert len(stored["action"]) == len(expected)
    for name, column in stored.items():
        assert column.tobytes() == b"".join(row[name].tobytes() for row in expected), name
    if expected and stored["obs"].shape[0]:
        by_action = {int(row["action"]): row for row in expected}
        sample = buffer.sample(4)
        for i, action in enumerate(sample["action"]):
            assert np.array_equal(sample["obs"][i], by_action[int(action)]["obs"])
            assert np.array_equal(sample["next_obs"][i], by_action[int(action)]["next_obs"])


@pytest.mark.parametrize("kind", [ReplayBuffer, PrioritizedReplayBuffer])
@pytest.mark.parametrize("young", [768, 7, 1, 40])
@repeatable(20)
@given(seed=st.integers(0, 2**32 - 1))
def test_rows_of_several_environments_equal_a_list_in_any_history(tmp_path_factory, kind, young, seed):
    """Also if few frames are young, so that they grow too old again and again."""
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "MIN_SEARCHED", young)
        environments = Environments(
            rng,
            int(rng.choice([1, 2, 4, 8])),
            side=int(rng.choice([1, 2, 3, 4])),
            stack=int(rng.choice([1, 2, 3, 4, 5, 8])),
            last=bool(rng.random() < 0.5),
            n=int(rng.choice([1, 1, 3, 5])),
            episode=int(rng.choice([1, 2, 5, 30])),
            letters=int(rng.choice([1, 2, 256])),
        )
        axis = 2 if environments.last else 0
        arguments = {
            "dedupe_next": "obs" if rng.random() < 0.7 else None,
            "dedupe_frames": rng.choice([{"obs": axis}, {"obs": axis, "next_obs": axis}, None]),
        }
        size = int(rng.choice([1, 2, 7, 30, 90]))

        def build():
            return kind(size, environments.fields, seed=0, **arguments)

        buffer, added = build(), []
        for _ in range(int(rng.integers(5, 60))):
            rows = environments.step()
            if rows is not None:
                add(buffer, rows, rng.random() < 0.5)
                added += [
                    {name: column[i] for name, column in rows.items()} for i in range(len(rows["action"]))
                ]
            choice = rng.random()
            if choice < 0.03:
                buffer.clear()
                added = []
            elif choice < 0.08:
                path = tmp_path_factory.getbasetemp() / "saved"
                buffer.save(path)
                buffer = build()
                buffer.load(path)
            elif choice < 0.12:
                buffer = pickle.loads(pickle.dumps(buffer)) if rng.random() < 0.5 else copy.deepcopy(buffer)
            elif choice < 0.4:
                assert_same(buffer, added)
        assert_same(buffer, added)


def bytes_per_row(environments, n, whole, arguments, path=None, size=2000, **told):
    told = {"side": 24, "episode": 500, **told}
    stream = Environments(np.random.default_rng(0), environments, n=n, **told)
    buffer = ReplayBuffer(size, stream.fields, **arguments)
    while buffer.next_index < 1.8 * size:
        rows = stream.step()
        if rows is not None:
            add(buffer, rows, whole)
        if path is not None and buffer.next_index % 1500 < environments:
            buffer.save(path)
            buffer = ReplayBuffer(size, stream.fields, **arguments)
            buffer.load(path)
    return buffer.bytes_per_transition


BOTH = {"dedupe_next": "obs", "dedupe_frames": "obs"}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("environments", [4, 64])
def test_frames_of_many_environments_take_little_more_room_than_those_of_one(environments, n, whole):
    """They took 4.8 times as much, and n-step rows 7.4 times."""
    of_one = ReplayBuffer(2000, Environments(np.random.default_rng(0), 1, side=24, n=n).fields, **BOTH)
    of_many = bytes_per_row(environments, n, whole, BOTH)
    assert of_many <= 1.35 * of_one.bytes_per_transition


@pytest.mark.parametrize("environments", [16, 64])
def test_a_buffer_that_was_saved_and_loaded_finds_its_frames_again(tmp_path, environments):
    of_many = bytes_per_row(environments, 3, False, BOTH, tmp_path / "saved")
    assert of_many <= 1.35 * bytes_per_row(1, 1, False, BOTH)


def test_a_frame_that_all_episodes_begin_with_does_not_keep_everything_since():
    start = np.zeros((24, 24), np.uint8)
    often = bytes_per_row(4, 1, True, BOTH, start=start, episode=60)
    assert often <= 1.35 * bytes_per_row(1, 1, False, BOTH)


def test_a_memory_of_frames_that_lies_harms_no_row():
    """Bytes decide whether a frame is there, even if all hashes are alike, or another frame's."""
    rng = np.random.default_rng(0)
    environments = Environments(rng, 4, letters=2, episode=9)
    buffer, added = ReplayBuffer(50, environments.fields, seed=0, **BOTH), []
    for step in range(200):
        rows = environments.step()
        add(buffer, rows, step % 2 == 0)
        added += [{name: column[i] for name, column in rows.items()} for i in range(4)]
        (log,) = buffer._stages.frames.logs
        hashes, numbers = log._index
        hashes[:] = rng.permutation(hashes) if step % 3 else 1
        numbers[:] = rng.permutation(numbers)
        assert_same(buffer, added)


def test_the_oldest_frame_may_be_named_by_a_row_that_is_not_the_oldest():
    """Rows come 1,024 at a time; later ones may name older frames, as far back as frames are looked for."""
    field = Fields({"obs": {"shape": 3}}).fields["obs"]
    log = frames.FrameLog(FrameLayout(field, ("obs",), None), 10_000)
    log._ends[1] = 9000
    rows = [np.array([([number],)], [("obs", np.int64, (1,))]) for number in (5000, 3000, 6000, 3999)]
    assert log.oldest_frame(rows) == 3000
    assert log.oldest_frame(rows[2:]) == 3999
    assert log.oldest_frame([]) == 9000


def test_rows_that_are_kept_are_looked_through_only_when_the_log_is_full():
    """Once per add it was, for 30 µs."""

    class Asked(ReplayBuffer):
        times = 0

        def _rows_kept(self):
            self.times += 1
            return super()._rows_kept()

    environments = Environments(np.random.default_rng(0), 1, episode=500)
    buffer = Asked(1000, environments.fields, **BOTH)
    for _ in range(5000):
        add(buffer, environments.step(), False)
    assert buffer.times <= 4000 / 200  # 271 frames more than rows there is room for


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.float32, np.float64])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_observations_come_apart_and_together_as_numpy_stacks_them(axis, depth, dtype):
    rng = np.random.default_rng(depth)
    shape = np.insert([7, 5], axis, depth).tolist()
    field = Fields({"obs": {"shape": shape, "dtype": dtype}}).fields["obs"]
    layout = FrameLayout(field, ("obs",), axis)
    log = rng.integers(0, 200, (30, 7, 5)).astype(dtype)
    numbers = rng.integers(0, 30, (6, depth))
    expected = np.stack([np.stack(log[row], axis=axis) for row in numbers])
    for observations in (expected, np.asfortranarray(expected), np.repeat(expected, 2, axis=0)[::2]):
        observations.flags.writeable = False
        apart = layout.split(observations)
        assert apart.tobytes() == log[numbers].tobytes()
    raw = log.reshape(30, -1).view(np.uint8)
    padded = np.concatenate([apart, apart], axis=2)
    taken = np.empty(expected.shape, dtype)
    layout.take(raw, numbers, taken)
    for observations in (taken, layout.join(apart), layout.join(padded)):
        assert observations.dtype == dtype
        assert observations.flags.c_contiguous
        assert np.array_equal(observations, expected)
