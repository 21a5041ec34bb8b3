"""The learner's end of several shards, whatever happens to its calls; no Ray."""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from histories import repeatable
from hypothesis import given
from hypothesis import strategies as st
from oracles import chi_square_p_value
from shard_world import Clock, Lost, PlainShard, Post, calls_of, is_lost

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from gymnasium.spaces import Box, Discrete

from replay_tutorial import SamplesPerInsert
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import preset
from replay_tutorial.cluster.shards.learner_link import (
    ASK_AGAIN_SECONDS,
    PARCEL_ANSWER_SECONDS,
    PATIENCE_SECONDS,
)
from replay_tutorial.cluster.shards.shard import Shard, ShardPart
from replay_tutorial.cluster.shards.sharded_replay import ShardedReplay

LEAST = 1e-6  # significance of the chi-square tests: one false alarm in a million
BATCH, BETA = 12, 0.4


class World:
    """A learner, its shards and all that is under way between them."""

    def __init__(self, masses, *, batches=2, seed=0, batch_size=BATCH):
        rng = np.random.default_rng(seed)
        self.shards = [PlainShard(number, rng) for number in range(len(masses))]
        for shard, of_shard in zip(self.shards, masses, strict=True):
            shard.add(of_shard)
        self.handed, self.batches, self.batch_size = 0, batches, batch_size
        self.posts = [Post(shard, lambda: self.handed) for shard in self.shards]
        self.clock, self.updated = Clock(), 0
        self.named = {}  # index → shard, life and row
        self.limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e9)
        self.limiter.inserted(1)
        self.replay = ShardedReplay(
            [post.calls() for post in self.posts],
            self.limiter,
            is_lost,
            np.random.SeedSequence(seed),
            batches,
            clock=self.clock,
        )

    def sample(self, timeout=0.0):
        """Sample, and check all that can be seen of one batch."""
        sample = self.replay.sample(self.batch_size, BETA, timeout)
        if sample is None:
            return None
        rows = sample.rows
        assert len(sample.indexes) == len(sample.weights) == len(rows["mass"]) == self.batch_size
        columns = (rows[name].tolist() for name in ("shard", "life", "row", "call"))
        for index, shard, life, row, call in zip(sample.indexes.tolist(), *columns, strict=True):
            assert self.named.setdefault(index, (shard, life, row)) == (shard, life, row)
            assert index < self.replay.next_index
            # one more: it is asked for while the batch before is handed over
            assert self.handed - self.posts[shard].asked[call] <= 2 * self.batches + 1, "an old batch"
        assert (sample.weights > 0).all()
        assert all(rows <= self.batch_size for post in self.posts for rows in post.rows), "more than a batch"
        self.handed += 1
        assert self.limiter.samples == self.handed * self.batch_size
        return sample

    def update(self, sample):
        """Give each row a priority that no other row has been given."""
        priorities = np.arange(self.updated, self.updated + self.batch_size, dtype=np.float32)
        self.updated += self.batch_size
        for index, priority in zip(sample.indexes.tolist(), priorities.tolist(), strict=True):
            shard, *row = self.named[index]
            self.shards[shard].given.setdefault(tuple(row), set()).add(priority)
        self.replay.update_priorities(sample.indexes, priorities)

    def deliver(self, what=("sample", "update")):
        """Let all calls through."""
        for post in self.posts:
            for which in reversed(range(len(post.under_way))):
                if post.under_way[which][0] in what:
                    post.deliver(which)

    def sample_soon(self, turns=8):
        """Sample, while all calls get through."""
        for _ in range(turns):
            if (sample := self.sample()) is not None:
                return sample
            self.deliver()
        raise AssertionError(f"no batch after {turns} answers of all shards")

    def until_asked(self, number, what="sample"):
        """Go on until a shard owes an answer; return which of its calls that is."""
        for _ in range(20):
            kinds = [kind for kind, _, _ in self.posts[number].under_way]
            if what in kinds:
                return kinds.index(what)
            self.update(self.sample_soon())
        raise AssertionError(f"shard {number} was not asked to {what}")


def one_buffers_weights(world, sample, shards):
    """(least mass / mass)^β over the rows of some shards."""
    least = min(shard.totals().least for shard in shards)
    return (least / sample.rows["mass"]) ** BETA


def shards_in(sample):
    return set(sample.rows["shard"].tolist())


UNLIKE = [[0.2, 3.0, 7.5, 0.9], [0.05, 0.1], [12.0, 1.0, 5.0, 5.0, 0.3, 2.0]]
ALIKE = [[1.0] * 8] * 3


def test_first_batches_are_of_all_shards_and_weighted_as_of_one_buffer():
    world = World(UNLIKE)
    for _ in range(9):
        sample = world.sample_soon()
        np.testing.assert_allclose(
            sample.weights, one_buffers_weights(world, sample, world.shards), rtol=1e-6
        )
    assert world.replay.next_index == 3 * 6


def test_rows_are_drawn_in_proportion_to_their_masses_whatever_shard_they_lie_in():
    """Batches of one: independent draws; pearson's chi-square at 1e-6."""
    world, counts = World(UNLIKE, batch_size=1, batches=4), np.zeros((3, 6))
    for _ in range(6000):
        rows = world.sample_soon().rows
        counts[rows["shard"], rows["row"]] += 1
    masses = np.array([mass for of_shard in UNLIKE for mass in of_shard])
    drawn = [counts[s, i] for s, of_shard in enumerate(UNLIKE) for i in range(len(of_shard))]
    assert chi_square_p_value(drawn, (masses / masses.sum() * sum(drawn)).tolist()) > LEAST


def test_rows_that_grow_too_old_before_they_are_used_are_not_always_those_of_the_last_slots():
    """A shard of little mass sends a row or two for batches that mostly take none, in the order of slots."""
    world, rng = World([[1.0] * 4, [100.0] * 10], batches=1), np.random.default_rng(0)
    for shard in world.shards:  # stratified, as a buffer draws
        shard.choose = lambda masses, count: np.floor(
            (np.arange(count) + rng.random(count)) / count * len(masses)
        ).astype(int)
    counts = np.zeros(4)
    for _ in range(10_000):
        rows = world.sample_soon().rows
        np.add.at(counts, rows["row"][rows["shard"] == 0], 1)
    assert chi_square_p_value(counts.tolist(), [counts.mean()] * 4) > LEAST


def test_batches_of_a_parcel_are_not_mixed_so_that_each_stays_stratified():
    world = World([[1.0] * BATCH], batches=3)
    world.shards[0].choose = lambda masses, count: np.tile(np.arange(BATCH), count // BATCH)
    for _ in range(9):
        assert sorted(world.sample_soon().rows["row"].tolist()) == list(range(BATCH))


def test_rows_that_were_drawn_for_another_beta_are_not_used():
    world = World(UNLIKE)
    world.sample_soon()
    world.deliver()
    for beta in (0.9, 0.9, 0.1):
        while (sample := world.replay.sample(BATCH, beta, 0.0)) is None:
            world.deliver()
        least = min(shard.totals().least for shard in world.shards)
        np.testing.assert_allclose(sample.weights, (least / sample.rows["mass"]) ** beta, rtol=1e-6)


def test_batch_that_is_dealt_to_a_late_shard_is_not_dealt_anew_to_those_that_are_there():
    """Else rows would be drawn as often as their shard is fast."""
    world = World([[1.0] * 8] * 2, batch_size=1)
    world.sample_soon()
    world.posts[0].at_once = True
    while world.sample() is not None:
        pass
    for _ in range(40):
        assert world.sample() is None
    world.deliver()
    assert shards_in(world.sample_soon()) == {1}


def test_parcels_are_asked_for_ahead_two_at_a_time_and_carry_several_batches():
    world = World(ALIKE, batches=4)
    first = world.sample_soon()
    calls = [len(post.asked) for post in world.posts]
    assert calls == [3, 3, 3]  # totals, and two parcels
    for _ in range(20):
        assert all(post.count("sample") <= 2 for post in world.posts)
        world.sample_soon()
    more = [len(post.asked) - before for post, before in zip(world.posts, calls, strict=True)]
    assert all(4 <= count <= 7 for count in more), more
    assert len(first.indexes) == BATCH


def test_parcel_is_asked_for_as_soon_as_one_is_used_up():
    """Of five rows of each shard, four go into each of these batches: the second uses the first parcel up."""
    world = World(ALIKE, batches=1)
    for post in world.posts:
        post.at_once = True
    while world.handed < 2:
        world.sample()
    assert [post.rows[1:] for post in world.posts] == [[5, 5, 5]] * 3
    assert [post.asked[1:] for post in world.posts] == [[0, 0, 1]] * 3


def test_shard_that_fails_is_left_out_at_once_and_asked_again_after_half_a_second():
    world = World(UNLIKE)
    which = world.until_asked(2)
    world.shards[2].die()
    world.posts[2].lose(which)
    others = world.shards[:2]
    for _ in range(6):
        sample = world.sample_soon()
        assert shards_in(sample) <= {0, 1}
        np.testing.assert_allclose(sample.weights, one_buffers_weights(world, sample, others), rtol=1e-6)
    asked = len(world.posts[2].asked)
    world.clock.now += ASK_AGAIN_SECONDS / 2
    world.sample_soon()
    assert len(world.posts[2].asked) == asked
    world.clock.now += ASK_AGAIN_SECONDS
    world.sample_soon()
    assert len(world.posts[2].asked) == asked + 1
    world.shards[2].add([50.0] * 4)
    world.clock.now += ASK_AGAIN_SECONDS
    found = [shards_in(world.sample_soon()) for _ in range(8)]
    assert 2 in found[-1]
    assert {life for _, life, _ in world.named.values()} == {0, 1}


def test_learner_waits_half_a_second_for_a_late_shard_and_then_not_at_all():
    world = World(ALIKE)
    for post in world.posts[:2]:
        post.at_once = True
    world.sample_soon()
    while world.sample() is not None:
        pass
    asked = len(world.posts[2].asked)
    assert world.posts[2].count("sample") == 2
    world.clock.now += 0.9 * PATIENCE_SECONDS
    assert world.sample() is None
    world.clock.now += 0.2 * PATIENCE_SECONDS
    for _ in range(10):
        assert [world.sample(), world.sample(), world.sample()] != [None] * 3
    assert world.posts[0].rows[-1] == BATCH // 2 + 1
    assert len(world.posts[2].asked) == asked, "a shard that owes answers was asked for more"
    world.deliver()
    for _ in range(4):
        found = shards_in(world.sample_soon())
    assert 2 in found


def test_late_shard_that_still_has_rows_here_gives_them_and_is_asked_for_no_more():
    world = World(ALIKE, batches=4)
    world.sample_soon()
    for post in world.posts[:2]:
        post.at_once = True
    while world.posts[2].count("sample") == 0:
        world.sample()
    asked = len(world.posts[2].asked)
    world.clock.now += 1.5 * PATIENCE_SECONDS
    found = [shards_in(sample) for _ in range(40) if (sample := world.sample()) is not None]
    assert (found[0], found[-1]) == ({0, 1, 2}, {0, 1})
    assert len(world.posts[2].asked) == asked


def test_answer_that_never_comes_is_given_up_and_the_shard_asked_again():
    world = World(ALIKE)
    world.until_asked(0)
    lost = world.posts[0].under_way[:]
    world.posts[0].under_way.clear()
    asked = world.posts[0].asked[:]
    world.clock.now += PARCEL_ANSWER_SECONDS
    for _ in range(3):
        world.sample()
        world.deliver()
    assert world.posts[0].asked == asked
    for _ in range(9):  # nor does the first call after that get through
        world.clock.now += PARCEL_ANSWER_SECONDS / 10
        world.sample()
    assert len(world.posts[0].asked) == len(asked) + 1
    world.posts[0].under_way.clear()
    world.clock.now += PARCEL_ANSWER_SECONDS
    world.sample()
    world.deliver()
    world.clock.now += ASK_AGAIN_SECONDS
    world.sample()
    assert world.posts[0].count("sample") == 1
    for _ in range(5):
        found = shards_in(world.sample_soon())
    assert 0 in found
    for _, do, answer in lost:  # after all, and for nothing
        answer.set_result(do())
    world.sample_soon()


def test_no_shard_gives_no_batch_and_no_error():
    world = World(ALIKE)
    for post in world.posts:
        post.at_once = True
    world.sample_soon()
    for post in world.posts:
        post.at_once = False
    for _ in range(40):
        world.sample()
        for post in world.posts:
            while post.under_way:
                post.lose(0)
        world.clock.now += 0.1
    assert world.sample() is None
    assert all(len(post.asked) < 15 for post in world.posts)
    world.clock.now += ASK_AGAIN_SECONDS
    world.sample_soon()


def test_waiting_ends_with_the_timeout_though_no_shard_answers():
    world = World(ALIKE)
    world.replay._clock = time.monotonic
    before = time.monotonic()
    assert world.replay.sample(BATCH, BETA, 0.15) is None
    assert 0.1 < time.monotonic() - before < 2.0


def test_error_of_a_shards_code_is_raised():
    for what in ("sample", "update"):
        world = World(ALIKE, batches=1)
        which = world.until_asked(1, what)
        world.posts[1].lose(which, error=ZeroDivisionError("a bug"))
        with pytest.raises(ZeroDivisionError, match="a bug"):
            for _ in range(5):
                world.update(world.sample_soon())


def test_shard_whose_share_has_grown_a_hundredfold_gives_whole_batches():
    world = World([[1.0], [1.0] * 40], batch_size=40, batches=1)
    world.sample_soon()
    world.deliver()
    world.shards[0].add([100.0] * 40)
    world.posts[1].lose(0) if world.posts[1].under_way else None
    world.posts[1].at_once = False
    for _ in range(10):
        sample = world.sample_soon(turns=12)
    assert 0 in shards_in(sample)


def test_empty_shard_is_asked_twice_a_second_and_joins_when_it_has_rows():
    world = World([[1.0] * 8, []])
    for _ in range(6):
        assert shards_in(world.sample_soon()) == {0}
    assert len(world.posts[1].asked) == 1
    world.shards[1].add([1.0] * 8)
    world.clock.now += ASK_AGAIN_SECONDS
    for _ in range(8):
        found = shards_in(world.sample_soon())
    assert found == {0, 1}


def test_priorities_are_sent_for_several_batches_at_once_and_arrive():
    world = World(ALIKE, batches=4)
    for turn in range(1, 9):
        world.update(world.sample_soon())
        world.deliver()
        assert sum(shard.arrived for shard in world.shards) == turn // 4 * 4 * BATCH
    assert world.replay.stale_updates == 0


def test_of_a_repeated_index_the_last_priority_is_sent_last():
    world, seen = World([[1.0]], batches=2, batch_size=1), []
    world.shards[0].update = lambda life, indexes, priorities: seen.extend(priorities.tolist()) or 0
    for _ in range(4):
        world.update(world.sample_soon())
        world.deliver()
    assert seen == [0.0, 1.0, 2.0, 3.0]


def test_no_more_than_16_updates_of_a_shard_wait_for_an_answer_and_the_others_are_counted():
    world = World(ALIKE, batches=1)
    for _ in range(40):
        sample = None
        while sample is None:
            world.deliver(what=["sample"])
            sample = world.sample()
        world.update(sample)
    assert [post.count("update") for post in world.posts] == [16] * 3
    dropped = world.replay.stale_updates
    assert dropped > 0
    world.deliver()
    assert sum(shard.arrived for shard in world.shards) + dropped == 40 * BATCH


def test_priorities_without_an_answer_are_counted_when_their_shard_is_given_up():
    world = World([[1.0] * 8], batches=1, batch_size=4)
    for _ in range(3):
        sample = world.sample_soon()
        world.update(sample)
    lost, world.posts[0].under_way = world.posts[0].under_way, []
    world.clock.now += PARCEL_ANSWER_SECONDS
    while not world.posts[0].under_way:
        world.sample()
        world.clock.now += ASK_AGAIN_SECONDS
    world.sample_soon()
    assert world.replay.stale_updates + world.shards[0].arrived == 12
    assert world.replay.stale_updates >= 4
    for what, _, answer in lost:  # and not once more when Ray says so
        answer.set_exception(Lost(what))
    world.update(world.sample_soon())
    world.deliver()
    assert world.replay.stale_updates + world.shards[0].arrived == 16


def test_priorities_that_get_lost_are_counted():
    world = World([[1.0] * 8], batches=1, batch_size=4)
    world.update(world.sample_soon())
    world.posts[0].lose([what for what, *_ in world.posts[0].under_way].index("update"))
    world.update(world.sample_soon())
    assert world.replay.stale_updates == 4


def test_last_words_of_a_shard_that_has_been_replaced_are_not_heard():
    world = World(ALIKE)
    world.sample_soon()
    while world.posts[1].count("sample") < 2:
        world.posts[0].at_once = world.posts[2].at_once = True
        assert world.sample() is not None
    world.posts[1].execute(0)
    world.shards[1].die()
    world.shards[1].add([1.0] * 8)
    world.posts[1].deliver(1)
    world.sample()
    world.posts[1].deliver(0)
    for _ in range(6):
        rows = world.sample_soon().rows
        assert set(rows["life"][rows["shard"] == 1].tolist()) == {1}


def test_priorities_for_rows_of_a_dead_shard_are_counted_and_hit_nothing():
    world = World([[1.0] * 8, [1.0] * 8], batches=1)
    sample = world.sample_soon()
    of_dead = int((sample.rows["shard"] == 1).sum())
    world.shards[1].die()
    world.shards[1].add([1.0] * 8)
    world.update(sample)
    world.deliver()
    for _ in range(3):
        world.update(world.sample_soon())
        world.deliver()
    assert world.replay.stale_updates >= of_dead
    assert {life for shard, life, _ in world.named.values() if shard == 1} == {0, 1}


@repeatable(150)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 12), st.integers(0, 2), st.integers(0, 5), st.sampled_from([0.0, 0.1, 0.6, 12.0])
        ),
        min_size=20,
        max_size=120,
    ),
    batches=st.integers(1, 3),
)
def test_no_priority_is_ever_on_another_row_whatever_happens_to_the_calls(steps, batches):
    """Calls late, lost, done though their answer is lost, repeated, in any order; shards dead and reborn."""
    world = World(UNLIKE, batches=batches)
    samples = []
    for action, number, which, seconds in steps:
        post, shard = world.posts[number], world.shards[number]
        which = which % max(1, len(post.under_way))
        if action <= 2:
            samples += [sample] if (sample := world.sample()) is not None else []
        elif action == 3 and samples:
            world.update(samples.pop(which % len(samples)))
        elif action in (4, 5) and post.under_way:
            post.deliver(which, times=1 + (which == 0))
        elif action == 12 and post.under_way:
            post.execute(which)
        elif action == 6 and post.under_way:
            post.lose(which, arrives=number == 0)
        elif action == 7 and post.under_way:
            post.under_way.pop(which)  # neither an answer nor an error
        elif action == 8:
            shard.die()
        elif action == 9:
            shard.add([0.5 + which] * 7)
        elif action == 10:
            world.clock.now += seconds
        elif action == 11:
            world.deliver()
    for shard in world.shards:
        shard.add([1.0] * 50)
    for _ in range(4):
        world.clock.now += PARCEL_ANSWER_SECONDS
        world.sample()
        world.deliver()
    found = set()
    for _ in range(8):
        sample = world.sample_soon()
        world.update(sample)
        found |= shards_in(sample)
    assert found == {0, 1, 2}, "a shard that answers was left out for good"


def test_one_thread_samples_while_another_updates_and_shards_answer_when_they_like():
    world = World(ALIKE, batches=2)
    world.replay._clock = time.monotonic
    stop, samples = threading.Event(), queue.Queue()

    def answer():
        rng = np.random.default_rng(0)
        while not stop.is_set():
            for post in world.posts:
                if post.under_way and rng.random() < 0.7:
                    post.deliver(0)
            time.sleep(0.0005)

    def update():
        for _ in range(60):
            world.update(samples.get(timeout=20))

    with ThreadPoolExecutor(2) as pool:
        answering, updating = pool.submit(answer), pool.submit(update)
        try:
            for _ in range(60):
                sample = world.sample(timeout=10.0)
                assert sample is not None
                samples.put(sample)
            updating.result(60)
        finally:
            stop.set()
        answering.result(60)
    assert sum(shard.arrived for shard in world.shards) > 0


def test_batch_is_the_callers_own_and_lies_in_the_arrays_that_it_gave():
    """Images and small fields of several parcels, as `Replay.sample` promises."""
    spaces = Spaces(Box(0, 255, (4, 40, 30), np.uint8), Discrete(3), stacked=True)
    config = replace(preset("CartPole-v1"), capacity=200, replay_start=10)
    frames = np.random.default_rng(0).integers(0, 256, (60, 40, 30), np.uint8)
    obs = np.stack([frames[i : i + 4] for i in range(50)])
    rows = {"obs": obs, "next_obs": np.stack([frames[i + 3 : i + 7] for i in range(50)])}
    rows |= {"act": np.arange(50) % 3, "rew": np.arange(50.0), "discount": np.ones(50)}
    rows |= {name: np.zeros(50, bool) for name in ("terminated", "truncated")}
    shards = [Shard(ShardPart(config, spaces, number, 2, 0)) for number in range(2)]
    for shard in shards:
        shard.buffer.add(**rows, priorities=1.0 + np.arange(50))
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e9)
    limiter.inserted(100)
    calls = [calls_of(shard) for shard in shards]
    replay = ShardedReplay(calls, limiter, is_lost, np.random.SeedSequence(0), 3)
    out = {}
    for turn in range(8):
        sample = replay.sample(32, BETA, 10.0, out)
        number = sample.rows["rew"].astype(int)
        assert set(sample.rows) == set(rows)
        for name, column in sample.rows.items():
            assert column.dtype == shards[0].buffer.sample(1)[name].dtype
            assert np.array_equal(column, rows[name][number])
            assert column.flags.writeable
            assert column.flags.c_contiguous
            assert name not in out or column is out[name]
        assert (sample.indexes // 2 == number).all()
        masses = (1.0 + np.arange(50) + 1e-4) ** config.alpha
        np.testing.assert_allclose(sample.weights, (masses[0] / masses[number]) ** BETA, rtol=1e-5)
        if turn == 2:
            out = {"obs": np.empty_like(sample.rows["obs"]), "rew": np.empty(32, np.float32)}
