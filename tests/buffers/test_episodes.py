"""Episodes beside a log of all steps: what is stored, listed, drawn, evicted, saved and loaded.

Every observation is (environment, episode, step), so that the origin of a sampled row can be read from it.
The log keeps every step in plain lists; rings, tables and masses are worked out anew from it after each call.
Distributions are compared by Pearson's χ² with fixed seeds; correct code fails less than once in a million
tests (`LEAST`).
"""

import copy
import inspect
import pickle
import re
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import trial
from scipy.stats import chisquare
from test_sum_tree import assert_parents_are_their_childrens

from replay_tutorial import EpisodeReplayBuffer, HindsightReplayBuffer, SequenceReplayBuffer
from replay_tutorial.buffers.episodes.episode_replay import EpisodeOptions
from replay_tutorial.buffers.episodes.episode_ring import locate

LEAST = 1e-6
EPS = 1e-4
TRIPLE, NUMBER = {"shape": 3, "dtype": np.float32}, {"dtype": np.float32}
FLAG = {"dtype": bool}
FIELDS: dict[str, dict[str, Any]] = {
    "obs": TRIPLE,
    "action": {"shape": 1, "dtype": np.int64},
    "reward": NUMBER,
    "next_obs": TRIPLE,
    "terminated": FLAG,
    "truncated": FLAG,
}
SMALL = {"obs": NUMBER, "reward": NUMBER, "next_obs": NUMBER, "terminated": FLAG}

Step = dict[str, Any]


class Life:
    """A buffer, environments whose episodes have random lengths, and a log of everything."""

    fields = FIELDS

    def __init__(
        self, places: int = 37, environments: int = 3, longest: int = 9, alpha: float = 0.6, seed: int = 0
    ) -> None:
        self.places, self.environments, self.longest, self.alpha = places, environments, longest, alpha
        self.buffer, self.rng = self.make(seed), np.random.default_rng(seed)
        each = range(environments)
        self.log: list[list[Step | None]] = [[] for _ in each]  # by position; None is a final observation
        self.table: list[list[dict[str, Any]]] = [[] for _ in each]  # the episodes of each environment
        self.left = [0 for _ in each]  # steps until the end of the episode
        self.floor = [0 for _ in each]  # positions that were cleared
        self.max_priority, self.stale = 1.0, 0

    def make(self, seed: int = 0) -> Any:
        size = self.places * self.environments + self.environments - 1  # cannot be divided equally
        options = {"num_envs": self.environments, "alpha": self.alpha, "eps": EPS}
        return EpisodeReplayBuffer(size, FIELDS, seed=seed, **options)

    # The log

    def is_running(self, environment: int) -> bool:
        return bool(self.table[environment]) and self.table[environment][-1]["end"] is None

    def stored(self, environment: int) -> range:
        """Positions whose places are not overwritten; one place belongs to the next step."""
        log = self.log[environment]
        return range(max(self.floor[environment], len(log) - self.places + 1), len(log))

    def step(self, environment: int, priority: float | None) -> Step:
        """Make the next step of an environment and write it to the log."""
        log, table = self.log[environment], self.table[environment]
        if not self.is_running(environment):
            self.left[environment] = int(self.rng.integers(1, self.longest + 1))
            number = len(table) * self.environments + environment
            table.append({"episode": number, "start": len(log), "end": None, "tag": 0, "evicted": False})
        serial, number = len(table) - 1, len(log) - table[-1]["start"]
        self.left[environment] -= 1
        how = self.rng.integers(3) if self.left[environment] == 0 else 2  # 2: no flag, at the end as well
        step = self.values(environment, serial, number) | {"terminated": how == 0, "truncated": how == 1}
        mass = (self.max_priority if priority is None else priority) + EPS
        log.append({**step, "mass": mass**self.alpha, "episode": table[-1]})
        if how < 2:
            self.end(environment)
        return step

    def values(self, environment: int, serial: int, number: int) -> Step:
        return {
            "obs": np.array([environment, serial, number], np.float32),
            "action": np.array([number], np.int64),
            "reward": np.float32(number + 0.5),
            "next_obs": np.array([environment, serial, number + 1], np.float32),
        }

    def end(self, environment: int) -> None:
        if self.is_running(environment):
            self.table[environment][-1]["end"] = len(self.log[environment])
            self.log[environment].append(None)

    def live(self) -> dict[int, Step]:
        """The steps that can be sampled, by index."""
        return {
            position * self.environments + environment: step
            for environment in range(self.environments)
            for position in self.stored(environment)
            if (step := self.log[environment][position]) is not None and not step["episode"]["evicted"]
        }

    def listed(self) -> list[dict[str, Any]]:
        """What `episodes` must return, one dict for each episode."""
        found: list[dict[str, Any]] = []
        for environment in range(self.environments):
            log, stored = self.log[environment], self.stored(environment)
            for entry in self.table[environment]:
                end = len(log) if entry["end"] is None else entry["end"]
                left = range(max(entry["start"], stored.start), end)
                if left and not entry["evicted"]:
                    found.append(
                        {
                            "episode": entry["episode"],
                            "environment": environment,
                            "start": left[0] * self.environments + environment,
                            "length": len(left),
                            "return": sum(float(log[p]["reward"]) for p in range(entry["start"], end)),
                            "tag": entry["tag"],
                            "finished": entry["end"] is not None,
                            "whole": left[0] == entry["start"],
                        }
                    )
        return sorted(found, key=lambda entry: entry["episode"])

    # Calls

    def finish_cut_episodes(self) -> None:
        """End the episodes that are over although no flag says so."""
        for environment in range(self.environments):
            if self.is_running(environment) and self.left[environment] == 0:
                self.buffer.end_episode(environment)
                self.buffer.end_episode(environment)  # once more has no effect
                self.end(environment)

    def priorities(self, count: int) -> list[float] | None:
        return None if self.rng.random() < 0.3 else (self.rng.random(count) * 3).tolist()

    def raise_max(self, priorities: list[float] | None) -> None:
        if priorities is not None:
            self.max_priority = max(priorities + [self.max_priority] * self.known)
        self.known = True

    known = False  # whether any priority has been set, if only by default

    def add(self, environment: int, count: int) -> None:
        """Add a batch, as far as the episode's end has a flag."""
        self.finish_cut_episodes()
        priorities, steps = self.priorities(count), list[Step]()
        expected = len(self.log[environment]) * self.environments + environment
        for i in range(count):
            steps.append(self.step(environment, None if priorities is None else priorities[i]))
            if self.is_running(environment) and self.left[environment] == 0:
                break
        given = None if priorities is None else priorities[: len(steps)]
        fields = {name: np.array([step[name] for step in steps]) for name in self.fields}
        assert self.buffer.add(environment, priorities=given, **fields) == expected
        self.raise_max(given)

    def add_step(self) -> None:
        self.finish_cut_episodes()
        priorities = self.priorities(self.environments)
        heads = [len(log) * self.environments + environment for environment, log in enumerate(self.log)]
        steps = [
            self.step(e, None if priorities is None else priorities[e]) for e in range(self.environments)
        ]
        fields = {name: np.array([step[name] for step in steps]) for name in FIELDS}
        given = None
        if priorities is not None:
            given = np.reshape(priorities, ((-1,), (-1, 1), (1, -1))[self.rng.integers(3)])
        assert self.buffer.add_step(priorities=given, **fields).tolist() == heads
        self.raise_max(priorities)

    def end_early(self) -> None:
        environment = int(self.rng.integers(self.environments))
        self.buffer.end_episode(environment)
        self.end(environment)

    def some_indexes(self, count: int) -> Any:
        """Of stored, overwritten and evicted steps, and of some twice; final observations are refused."""
        given = [e + self.environments * p for e in range(self.environments) for p in range(len(self.log[e]))]
        indexes = self.rng.choice(given[-60:], count if given else 0)
        is_final = np.zeros(len(indexes), bool)
        for i, index in enumerate(indexes.tolist()):
            position, environment = divmod(index, self.environments)
            is_final[i] = position in self.stored(environment) and self.log[environment][position] is None
        if is_final.any():
            told = f"Index {indexes[is_final][0]} belongs to the final observation"
            with pytest.raises(IndexError, match=told):
                self.buffer.update_priorities(indexes, 3.0)
            with pytest.raises(IndexError, match=told):
                self.buffer.update_fields(indexes, action=np.zeros(len(indexes)))
        return indexes[~is_final]

    def update_priorities(self) -> None:
        indexes, live = self.some_indexes(20), self.live()
        priorities = self.rng.random(len(indexes)) * 4
        self.buffer.update_priorities(indexes, priorities)
        known = []
        for index, priority in zip(indexes.tolist(), priorities.tolist(), strict=True):
            if index in live:
                live[index]["mass"] = (priority + EPS) ** self.alpha
                known.append(priority)
            else:
                self.stale += 1
        if known:
            self.raise_max(known)

    def update_fields(self) -> None:
        indexes, live = self.some_indexes(8), self.live()
        actions = self.rng.integers(100, 200, len(indexes))
        stored = self.buffer.update_fields(indexes, action=actions)
        assert stored.tolist() == [index in live for index in indexes.tolist()]
        for index, action in zip(indexes.tolist(), actions, strict=True):
            if index in live:
                live[index]["action"] = np.array([action])

    def some_episodes(self, count: int) -> list[dict[str, Any]]:
        """Episodes that have ended, some of them no longer stored, and some twice."""
        ended = [entry for table in self.table for entry in table[-12:] if entry["end"] is not None]
        return [ended[i] for i in self.rng.integers(len(ended), size=count)] if ended else []

    def tag(self) -> None:
        some, live = self.some_episodes(12), {entry["episode"] for entry in self.listed()}
        tags = self.rng.integers(-5, 5, len(some)).tolist()
        self.buffer.tag([entry["episode"] for entry in some], tags)
        for entry, tag in zip(some, tags, strict=True):
            entry["tag"] = tag if entry["episode"] in live else entry["tag"]

    def evict(self) -> None:
        some = self.some_episodes(2)
        self.buffer.evict([entry["episode"] for entry in some])
        for entry in some:
            entry["evicted"] = True

    def keep_best(self) -> None:
        by = ("return", "length", "tag")[self.rng.integers(3)]
        finished = [entry for entry in self.listed() if entry["finished"]]
        worst = sorted(finished, key=lambda entry: (entry[by], entry["episode"]))[: len(finished) - 6]
        self.buffer.keep_best(6, by)
        gone = {entry["episode"] for entry in worst} if len(finished) > 6 else set()
        for table in self.table:
            for entry in table:
                entry["evicted"] |= entry["episode"] in gone

    def clear(self) -> None:
        self.buffer.clear()
        for environment in range(self.environments):
            for entry in self.table[environment]:
                entry["end"] = entry["start"] if entry["end"] is None else entry["end"]
            self.floor[environment] = len(self.log[environment])
        self.max_priority, self.known = 1.0, False

    CALLS: tuple[tuple[str, float], ...] = (
        *(("add", 0.3), ("add_step", 0.4), ("end_early", 0.05), ("update_priorities", 0.1)),
        *(("update_fields", 0.05), ("tag", 0.05), ("evict", 0.03), ("keep_best", 0.01), ("clear", 0.01)),
    )

    def act(self) -> None:
        """Make one random call."""
        names, shares = zip(*self.CALLS, strict=True)
        name = str(self.rng.choice(names, p=np.array(shares) / sum(shares)))
        if name == "add":
            count = int(self.rng.choice([1, 2, 5, 30]))
            self.add(int(self.rng.integers(self.environments)), count)
        else:
            getattr(self, name)()

    def check(self) -> None:
        """Compare everything that can be seen with the log."""
        buffer, live, listed = self.buffer, self.live(), self.listed()
        assert len(buffer) == len(live)
        assert buffer.stale_updates == self.stale
        assert buffer.max_priority == self.max_priority
        found = {name: array.tolist() for name, array in buffer.episodes().items()}
        assert [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)] == listed
        for entry in listed:
            assert_same(buffer.get_episode(entry["episode"]), self.episode(entry, live))
        entries = {entry["episode"]: entry for entry in listed}
        begun = [entry["episode"] for table in self.table for entry in table]
        for episode in [number for number in begun if number not in entries][-3:]:
            with pytest.raises(IndexError, match=f"Episode {episode} is no longer stored"):
                buffer.get_episode(episode)
        masses, places = np.zeros(self.places * self.environments), dict[int, list[int]]()
        for index, step in live.items():
            position, environment = divmod(index, self.environments)
            slot = environment * self.places + position % self.places
            entry = entries[step["episode"]["episode"]]
            masses[slot], first = step["mass"], entry["start"] // self.environments
            places[slot] = [position, first, first + entry["length"]]
        located = np.empty((3, len(places)), np.int64)
        locate(buffer._ring.arrays_tuple, np.array([*places], np.int64), *located)
        assert np.transpose(located).tolist() == [*places.values()]
        tree = buffer._ring.tree
        np.testing.assert_allclose(
            tree.leaves, np.pad(masses, (0, tree.leaf_count - len(masses))), rtol=1e-12
        )
        assert_parents_are_their_childrens(tree)
        if live:
            for normalize in ("buffer", "batch"):
                self.check_batch(buffer.sample(16, beta=0.7, normalize=normalize), live, normalize)

    def episode(self, entry: dict[str, Any], live: dict[int, Step]) -> dict[str, Any]:
        """What `get_episode` must return."""
        indexes = [entry["start"] + i * self.environments for i in range(entry["length"])]
        steps = [live[index] for index in indexes]
        expected = {name: np.array([step[name] for step in steps]) for name in FIELDS if name != "next_obs"}
        expected["obs"] = np.concatenate([expected["obs"], [steps[-1]["next_obs"]]])
        return expected | {"indexes": np.array(indexes)}

    def check_batch(self, batch: dict[str, Any], live: dict[int, Step], normalize: str) -> None:
        steps = [live[index] for index in batch["indexes"].tolist()]  # raises KeyError for any other index
        assert list(batch) == [*FIELDS, "indexes", "weights"]
        assert_same({**batch, **{name: np.array([step[name] for step in steps]) for name in FIELDS}}, batch)
        least = min(step["mass"] for step in (live.values() if normalize == "buffer" else steps))
        weights = [(least / step["mass"]) ** 0.7 for step in steps]
        np.testing.assert_allclose(batch["weights"], weights, rtol=1e-6)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert np.array_equal(array, expected[name]), (name, array, expected[name])


@pytest.mark.parametrize(
    ("places", "environments", "longest", "alpha"),
    [(37, 3, 9, 0.6), (37, 1, 9, 0.0), (8, 2, 20, 0.6), (3, 2, 5, 1.0), (64, 3, 150, 0.6)],
)
def test_buffer_agrees_with_the_log_after_every_call(places, environments, longest, alpha):
    """Five times around the ring: with running, partly overwritten, evicted and too long episodes."""
    life = Life(places, environments, longest, alpha)
    seen = Counter[str]()
    while min(map(len, life.log)) < 5 * places or sum(seen.values()) < 150:
        life.act()
        life.check()
        for entry in life.listed():
            seen["running"] += not entry["finished"]
            seen["partly overwritten"] += not entry["whole"]
        seen["calls"] += 1
    assert min(seen.values()) > 20


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_steps_are_drawn_in_proportion_to_their_masses(alpha):
    """With alpha = 0, all of them equally often, in episodes of all lengths; never another one."""
    life = Life(alpha=alpha, seed=1)
    while min(map(len, life.log)) < 100:
        life.act()
    live, draws = life.live(), 10_000
    masses = np.array([step["mass"] for step in live.values()])
    if alpha == 0:
        assert (masses == 1).all()
    expected = draws * masses / masses.sum()
    counts = Counter(life.buffer.sample(draws)["indexes"].tolist())
    assert counts.keys() <= live.keys()
    assert abs(np.array([counts[index] for index in live]) - expected).max() < 2, "one from each stratum"
    counts = Counter(index for _ in range(draws // 2) for index in life.buffer.sample(2)["indexes"].tolist())
    assert counts.keys() <= live.keys()
    assert chisquare([counts[index] for index in live], expected).pvalue > LEAST


def line(count: int, first: int = 0, end: bool = True) -> dict[str, Any]:
    """An episode of `SMALL` fields whose observations are consecutive numbers."""
    obs = np.arange(first, first + count, dtype=np.float32)
    return {
        "obs": obs,
        "reward": np.ones(count, np.float32),
        "next_obs": obs + 1,
        "terminated": (np.arange(count) == count - 1) & end,
    }


def test_step_of_priority_zero_is_never_drawn_without_eps():
    buffer = EpisodeReplayBuffer(20, SMALL, alpha=1.0, eps=0.0, seed=0)
    buffer.add(**line(6), priorities=[0, 1, 0, 2, 0, 0])
    assert set(buffer.sample(500)["obs"].tolist()) == {1.0, 3.0}
    buffer.update_priorities([1, 3, 4], [0, 0, 1])
    assert set(buffer.sample(500)["obs"].tolist()) == {4.0}
    buffer.update_priorities([4], [0])
    with pytest.raises(ValueError, match="Every mass is 0"):
        buffer.sample(1)
    assert len(buffer) == 6


@pytest.mark.parametrize("environments", [1, 3])
def test_observation_that_continues_nothing_is_refused(environments):
    """A forgotten end_episode, or the step of an environment that only reset itself."""
    buffer = EpisodeReplayBuffer(60, SMALL, num_envs=environments)
    last = environments - 1
    buffer.add(last, **line(3, end=False))
    with pytest.raises(ValueError, match=rf"'obs' of step 0 differs.*environment {last}.*end_episode"):
        buffer.add(last, **line(2, first=50))
    jump = line(4, first=3, end=False)
    jump["obs"][2] += 7
    with pytest.raises(ValueError, match="step 2 differs"):
        buffer.add(last, **jump)
    one = {name: np.repeat(array[:1], environments) for name, array in line(1, first=8).items()}
    with pytest.raises(ValueError, match=rf"step {last} differs"):
        buffer.add_step(**one)
    assert len(buffer) == 3 and buffer.next_index_of(0) == (3 if environments == 1 else 0)
    buffer.add(last, **line(2, first=3))  # continues the episode
    buffer.add(last, **line(2, first=50))  # begins the next one
    table = buffer.episodes()
    assert table["length"][table["environment"] == last].tolist() == [5, 2]


def test_equal_observations_whose_bytes_differ_continue_an_episode():
    """0.0 and -0.0, and two representations of NaN: alone, in a batch, and in a step of each environment."""
    nans = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    for one, other in ([0.0, -0.0], nans):
        buffer = EpisodeReplayBuffer(60, SMALL, num_envs=2, seed=0)
        step = {"obs": one, "reward": 1.0, "next_obs": other, "terminated": False}
        for count in (None, None, 3, 3):
            fields = step if count is None else {name: np.full(count, v) for name, v in step.items()}
            buffer.add(**fields)
        buffer.add(1, **step)
        buffer.add_step(**{name: np.full(2, v) for name, v in step.items()})
        assert buffer.episodes()["length"].tolist() == [9, 2]
        obs, added = buffer.sample(50)["obs"], np.float32(one)
        assert {*obs.view(np.uint32).tolist()} == {added.view(np.uint32).item()}
        with pytest.raises(ValueError, match="'obs' of step 0 differs"):
            buffer.add(**{**step, "obs": 1.0})


def test_added_batches_are_not_kept_in_memory():
    large = {"shape": 1000, "dtype": np.float32}
    buffer = EpisodeReplayBuffer(3000, {**SMALL, "obs": large, "next_obs": large}, num_envs=3)
    steps = line(1000)
    steps |= {name: np.broadcast_to(steps[name][:, None], (1000, 1000)) for name in ("obs", "next_obs")}
    buffer.add(**{name: array[:3] for name, array in steps.items()})
    tracemalloc.start()
    buffer.end_episode()
    buffer.add(**{name: array[:900] for name, array in steps.items()})
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000 < 900 * 4000 < peak


@pytest.mark.parametrize("name", ["terminated", "truncated", "done"])
def test_each_of_three_flags_ends_an_episode(name):
    buffer = EpisodeReplayBuffer(20, {**SMALL, "truncated": FLAG, "done": {"shape": 1, "dtype": np.float32}})
    step = {"obs": 0, "reward": 1, "next_obs": 1, "terminated": False, "truncated": False, "done": 0.0}
    buffer.add(**step | {name: 1.0 if name == "done" else True})
    assert buffer.episodes()["finished"].tolist() == [True]


def test_large_and_several_observations_share_their_memory():
    """Also when `next_obs` is declared before `obs`, and beside a `next_` field without a partner."""
    image = {"shape": (40, 30), "dtype": np.float32}
    fields = {"next_image": image, "image": image, **SMALL, "next_rew": NUMBER, "next_action": NUMBER}
    del fields["reward"]
    buffer, plain = EpisodeReplayBuffer(9, fields, reward="next_action"), EpisodeReplayBuffer(9, SMALL)
    assert buffer.nbytes < 1.05 * 10 * (40 * 30 * 4 + 24) and plain.nbytes < buffer.nbytes / 100
    for first in range(0, 30, 3):
        step = line(3, first)
        step["image"] = np.broadcast_to(step["obs"][:, None, None], (3, 40, 30))
        step["next_image"] = step["image"] + 1
        step |= {"next_rew": step.pop("reward"), "next_action": step["obs"] * 2}
        buffer.add(**step)
    batch = buffer.sample(30)
    assert list(batch) == [*fields, "indexes", "weights"]
    for name in ("image", "next_image"):
        obs = batch["obs"] + (name == "next_image")
        assert (batch[name] == obs[:, None, None]).all() and batch[name].flags.c_contiguous
    assert buffer.episodes()["return"].tolist() == [2 * (24 + 25 + 26), 2 * (27 + 28 + 29)]


def test_sampled_arrays_are_aligned_for_every_order_of_the_fields():
    """PyTorch requires strides that are multiples of the element size."""
    kinds = [np.uint8, np.complex128, np.float16, np.int64]
    specs = {f"{kind.__name__}": {"shape": 3, "dtype": kind} for kind in kinds}
    specs |= {f"next_{name}": spec for name, spec in specs.items()}
    for order in (list(specs), list(specs)[::-1]):
        fields = {"terminated": FLAG, **{name: specs[name] for name in order}}
        buffer = EpisodeReplayBuffer(60, fields, num_envs=2, seed=0)
        for step in range(40):  # the rings wrap around
            values = {name: np.full((2, 3), step + name.startswith("next_")) for name in specs}
            buffer.add_step(**values, terminated=[step % 7 == 6] * 2)
        batch = buffer.sample(104)  # of 52 steps: contains each, by the strata
        for name in kinds:
            one, other = batch[name.__name__], batch[f"next_{name.__name__}"]
            assert (other == one + 1).all() and {*one.real.ravel().tolist()} == {*range(14, 40)}
            assert all(a.flags.aligned and a.strides[0] % a.itemsize == 0 for a in (one, other))


def test_updated_observation_is_seen_from_both_sides():
    buffer = EpisodeReplayBuffer(20, SMALL, seed=0)
    buffer.add(**line(4))
    assert buffer.update_fields([1, 1], obs=[70, 80], reward=[5, 6]).tolist() == [True, True]
    episode = buffer.get_episode(0)
    assert episode["obs"].tolist() == [0, 80, 2, 3, 4] and episode["reward"].tolist() == [1, 6, 1, 1]
    batch = buffer.sample(100)
    assert {*batch["next_obs"][batch["indexes"] == 0].tolist()} == {80}
    assert buffer.episodes()["return"].tolist() == [4]
    assert buffer.update_fields([], reward=[]).shape == (0,)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (IndexError, "No step with index 3 .*environment 1 is 3", lambda b: b.update_fields([3], reward=1)),
        (IndexError, "No step with index 3 .*environment 1 is 3", lambda b: b.update_priorities([3], 1)),
        (IndexError, "No step with index -1", lambda b: b.update_priorities([-1], 1)),
        (IndexError, "Index 2 belongs to the final", lambda b: b.update_priorities([0, 2], [1, 2])),
        (IndexError, "Index 2 belongs to the final", lambda b: b.update_fields([0, 2], reward=[1, 2])),
        (ValueError, "priority.*nan", lambda b: b.update_priorities([0, 4], [1, np.nan])),
        (KeyError, "'terminated'.*reward", lambda b: b.update_fields([0], terminated=True)),
        (KeyError, "'next_obs'", lambda b: b.update_fields([0], next_obs=True, obs=2)),
        (ValueError, "2 indexes.*3 values", lambda b: b.update_fields([0, 4], reward=[1, 2, 3])),
        (TypeError, "indexes must be integers", lambda b: b.update_fields([0.5], reward=[1])),
        (IndexError, "no episode 3", lambda b: b.get_episode(3)),
        (IndexError, f"can't hold {2**70}", lambda b: b.get_episode(2**70)),
        (IndexError, "no episode -1", lambda b: b.evict(-1)),
        (IndexError, f"can't hold {2**64 - 1}", lambda b: b.evict(np.array([0, -1]).astype(np.uint64))),
        (IndexError, f"indexes .* can't hold {2**63}", lambda b: b.update_fields([2**63], reward=1)),
        (IndexError, f"indexes .* can't hold {2**63}", lambda b: b.update_priorities([2**63], 1)),
        (ValueError, "Episode 2 is running", lambda b: b.evict([0, 2])),
        (TypeError, "episodes must be integers", lambda b: b.evict(1.0)),
        (ValueError, "2 episodes, but 3 tags", lambda b: b.tag([0, 2], [1, 2, 3])),
        (TypeError, "tag must be integers", lambda b: b.tag(0, "good")),
        (ValueError, "tag.*can't hold 9223372036854775808", lambda b: b.tag(0, 2**63)),
        (ValueError, "at least 0", lambda b: b.keep_best(-1)),
        (KeyError, "fame", lambda b: b.keep_best(1, by="fame")),
        (KeyError, r"by is \['return'\], which", lambda b: b.keep_best(1, by=["return"])),
        (IndexError, "environment must be between 0 and 1", lambda b: b.add(2, **line(1))),
        (IndexError, "environment", lambda b: b.end_episode(-1)),
        (KeyError, "next_obs", lambda b: b.add(obs=1, reward=1, terminated=False)),
        (ValueError, "expects 2 steps", lambda b: b.add_step(**line(3))),
        (ValueError, "A priority must be", lambda b: b.add(**line(2, 2), priorities=[1, -1])),
        (ValueError, "batch_size", lambda b: b.sample(0)),
        (ValueError, "beta", lambda b: b.sample(1, 1.1)),
    ],
)
def test_wrong_argument_is_refused_and_changes_nothing(error, text, call):
    buffer = EpisodeReplayBuffer(40, SMALL, num_envs=2, alpha=0.6, seed=0)
    buffer.add(0, **line(1))
    buffer.add(0, **line(2, end=False))
    buffer.add(1, **line(1, end=False))
    before = seen(buffer)
    with pytest.raises(error, match=text):
        call(buffer)
    assert seen(buffer) == before


def test_observation_after_two_steps_is_a_field_of_its_own():
    buffer = EpisodeReplayBuffer(20, {**SMALL, "next_next_obs": NUMBER}, seed=0)
    buffer.add(**line(4), next_next_obs=[2, 3, 4, 4])
    sample = buffer.sample(20)
    assert (sample["next_obs"] == sample["obs"] + 1).all()
    assert (sample["next_next_obs"] == np.minimum(sample["obs"] + 2, 4)).all()


def test_buffer_constructed_with_numpy_integers_can_be_saved(tmp_path):
    buffer = EpisodeReplayBuffer(np.int64(40), SMALL, num_envs=np.int64(2))
    buffer.add(**line(4))
    assert type(buffer.next_index_of(np.uint8(1))) is int  # a sum in uint8 could overflow
    buffer.save(tmp_path / "file")
    loaded = EpisodeReplayBuffer(40, SMALL, num_envs=2)
    loaded.load(tmp_path / "file")
    assert seen(loaded) != seen(EpisodeReplayBuffer(40, SMALL, num_envs=2)) and len(loaded) == 4


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("at least 9, 3 for each", {"capacity": 8, "num_envs": 3}),
        ("at least 1", {"num_envs": 0}),
        (r"num_envs must be below 2\*\*48", {"num_envs": 2**70, "capacity": 2**80}),
        ("no pair such as obs and next_obs", {"fields": {"obs": {}, "terminated": {}}}),
        ("no pair", {"fields": {"obs": {}, "next_obs": {"shape": 2}, "terminated": {}}}),
        ("'terminated' or 'done'", {"fields": {"obs": {}, "next_obs": {}, "truncated": {}}}),
        (r"shape \(\) or \(1,\)", {"fields": {**SMALL, "reward": {"shape": 2}}}),
        ("'indexes'.*reserved", {"fields": {**SMALL, "indexes": {}}}),
        ("'priorities'.*reserved", {"fields": {**SMALL, "priorities": {}}}),
        ("alpha", {"alpha": 1.5}),
    ],
)
def test_constructor_refuses(text, options):
    with pytest.raises(ValueError, match=text):
        EpisodeReplayBuffer(**{"capacity": 20, "fields": SMALL, **options})


def test_empty_buffer_says_so():
    buffer = EpisodeReplayBuffer(20, SMALL)
    with pytest.raises(ValueError, match="empty"):
        buffer.sample(1)
    assert len(buffer) == 0 and buffer.episodes()["episode"].tolist() == []
    buffer.evict([])
    buffer.keep_best(3)
    buffer.end_episode()
    assert buffer.next_index_of(0) == 0  # an episode without steps takes no place


def test_best_episodes_are_kept_and_nan_is_the_worst():
    buffer = EpisodeReplayBuffer(100, SMALL)
    for reward in (3, np.nan, 7, 7, 1, 7):
        buffer.add(obs=0, reward=reward, next_obs=1, terminated=True)
    buffer.add(obs=0, reward=0, next_obs=1, terminated=False)
    buffer.keep_best(5)
    assert buffer.episodes()["episode"].tolist() == [0, 2, 3, 4, 5, 6]
    buffer.keep_best(2)
    assert buffer.episodes()["episode"].tolist() == [3, 5, 6]  # the newest of equal ones
    buffer.keep_best(0, by="length")
    assert buffer.episodes()["episode"].tolist() == [6] and len(buffer) == 1


def test_best_episodes_are_kept_by_tags_of_more_digits_than_a_float_has():
    buffer = EpisodeReplayBuffer(100, SMALL)
    for _ in range(4):
        buffer.add(obs=0, reward=0, next_obs=1, terminated=True)
    buffer.tag([0, 1, 2, 3], [2**60 + 3, 2**60 + 1, 2**60 + 2, 2**60])
    buffer.keep_best(2, by="tag")
    assert buffer.episodes()["episode"].tolist() == [0, 2]


def seen(buffer: Any) -> Any:
    """All there is to see of a buffer; what it draws is seen in a copy."""
    arrays = buffer._ring.arrays
    state: list[Any] = [getattr(arrays, name).tolist() for name in ("kinds", "rings", "sums", "minima")]
    state += [buffer.max_priority, buffer.stale_updates, str(buffer._rng.bit_generator.state)]
    table = buffer.episodes()
    state += [(name, array.tolist()) for name, array in table.items()]
    for episode in table["episode"]:
        state += [(name, array.tolist()) for name, array in buffer.get_episode(episode).items()]
    if len(buffer):
        state += [(name, array.tolist()) for name, array in copy.deepcopy(buffer).sample(9).items()]
    return state


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda buffer: pickle.loads(pickle.dumps(buffer)), None])
def test_generations_of_copies_live_the_same_life(copied, tmp_path):
    """Copied, pickled, or saved and loaded, at any moment: also with unfinished episodes, and after clear."""
    life = Life(places=17, seed=4)
    kept = copy.deepcopy(life)
    for generation in range(30):
        if copied is not None:
            life.buffer = copied(life.buffer)
        else:
            life.buffer.save(tmp_path / "file")
            life.buffer = life.make(seed=generation)
            life.buffer.load(tmp_path / "file")
        assert seen(life.buffer) == seen(kept.buffer)
        for _ in range(12):
            life.act()
            kept.act()
    life.check()


def test_file_has_only_the_places_in_use(tmp_path):
    buffer = EpisodeReplayBuffer(100_000, SMALL, num_envs=4)
    buffer.add(2, **line(30, end=False))
    buffer.save(tmp_path / "file")
    assert (tmp_path / "file").stat().st_size < 5_000


@pytest.mark.parametrize(
    ("text", "forged"),
    [
        ("an episode has no step", {"end": (1, 3), "head": (0, 4)}),
        ("episodes have a gap", {"start": (1, 7)}),
        ("the oldest episode doesn't match", {"start": (0, 1)}),
        ("the newest episode doesn't match", {"end": (1, 8)}),
        ("running episode has ended", {"running": (0, True), "end": (1, 9), "head": (0, 9)}),
        ("larger than another", {"episodes": (0, 99)}),
        ("the wrong kind", {"kinds": (5, 2)}),
        ("the wrong kind", {"kinds": (4, 0)}),
        ("the wrong kind", {"kinds": (4, 3)}),
        ("drawn has a mass", {"leaves": (5, 1.0)}),
        ("starts at a wrong step", {"kinds": (4, 1), "leaves": (4, 0.0)}),
        ("a mass is not between", {"leaves": (4, np.inf)}),
    ],
)
def test_file_that_contradicts_itself_is_refused(text, forged, tmp_path):
    buffer = EpisodeReplayBuffer(20, SMALL)
    buffer.add(**line(5))
    buffer.add(**line(3))
    rings, table = buffer._ring.arrays.rings, buffer._ring.arrays.table
    arrays = {"kinds": buffer._ring.arrays.kinds, "leaves": buffer._ring.tree.leaves}
    arrays |= {name: records[name] for records in (rings, table) for name in records.dtype.names}
    for name, (place, value) in forged.items():
        arrays[name][place] = value
    buffer.save(tmp_path / "file")
    with pytest.raises(ValueError, match=f"is damaged.*{text}"):
        EpisodeReplayBuffer(20, SMALL).load(tmp_path / "file")


def test_forged_file_is_refused_or_loads_and_works(tmp_path: Path):
    life = Life(places=17, environments=2, seed=2)
    for _ in range(60):
        life.act()
    life.buffer.save(tmp_path / "whole")

    zeros = {
        name: np.zeros((3, *np.empty(spec.get("shape", ())).shape), spec["dtype"])
        for name, spec in FIELDS.items()
    }

    def use(buffer: EpisodeReplayBuffer) -> None:
        assert 0 <= len(buffer) <= buffer.capacity
        assert sum(buffer.episodes()["length"]) == len(buffer)
        for environment in range(2):
            buffer.end_episode(environment)
            for _ in range(7):
                buffer.add(environment, **zeros)
                buffer.sample(20, normalize="batch")  # a forged mass may be tiny
        for episode in buffer.episodes()["episode"]:
            assert len(buffer.get_episode(episode)["obs"]) > 1
        buffer.update_priorities(buffer.sample(200, normalize="batch")["indexes"], 1.0)

    assert trial(tmp_path / "whole", life.make, pickle.dumps, use, step=4) > 200


@pytest.mark.parametrize("kind", [EpisodeReplayBuffer, SequenceReplayBuffer, HindsightReplayBuffer])
def test_help_explains_every_argument_of_the_constructor_in_place(kind):
    """The subclasses accept the options of `EpisodeReplayBuffer`, which are documented there once."""
    parameters, text = inspect.signature(kind).parameters, inspect.getdoc(kind.__init__) or ""
    assert list(parameters) == re.findall(r"^    (\w+):", text[: text.index("Raises:")], re.MULTILINE)
    assert "As for" not in text and EpisodeOptions.__annotations__.keys() < parameters.keys()
    options = inspect.signature(EpisodeReplayBuffer).parameters
    assert all(parameters[name] == options[name] for name in EpisodeOptions.__annotations__)
