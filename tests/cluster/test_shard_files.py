"""Shards saved and loaded piece by piece, over calls that may get lost; no Ray."""

import re
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tyro", reason="the configuration needs the extra `train`")

from cluster_parts import numbered_rows
from run_parts import context_of, parts
from shard_world import Lost, calls_of, done, failed, is_lost

from replay_tutorial import SamplesPerInsert
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.checkpoint import (
    newest_checkpoint,
    restore_learner,
    save_checkpoint,
    whole_checkpoints,
)
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.shards import shard as shard_file
from replay_tutorial.cluster.shards import shard_files
from replay_tutorial.cluster.shards.shard import Shard, ShardPart
from replay_tutorial.cluster.shards.shard_files import ShardLost, load_shard, load_shards, save_shards
from replay_tutorial.cluster.shards.sharded_learner import saved_chunks
from replay_tutorial.cluster.shards.sharded_replay import ShardedReplay

CONFIG = replace(preset("CartPole-v1"), capacity=300, replay_start=10)


def shards_of(counts, life=0, config=CONFIG):
    """Shards with so many rows, each row's reward its own."""
    spaces, shards = spaces_of("CartPole-v1"), []
    for number, count in enumerate(counts):
        shard = Shard(ShardPart(config, spaces, number, len(counts), life))
        if count:
            rewards = 1000.0 * number + np.arange(count)
            zeros = {name: np.zeros((count, 4)) for name in ("obs", "next_obs")}
            zeros |= {name: np.zeros(count) for name in ("act", "terminated", "truncated", "discount")}
            shard.buffer.add(**zeros, rew=rewards, priorities=1 + np.arange(count))
        shards.append(shard)
    return shards


def rewards_in(shards):
    return [shard.buffer.get_all_transitions()["rew"].tolist() for shard in shards]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    for file in (shard_file, shard_files):
        monkeypatch.setattr(file, "PIECE_BYTES", 2000)


def test_shards_are_loaded_as_they_were_saved(tmp_path):
    before, after = shards_of([50, 0, 120]), shards_of([0, 0, 0], life=1)
    save_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in before], is_lost)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"replay_{s}_of_3.npz" for s in range(3)]
    load_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in after], is_lost)
    assert rewards_in(after) == rewards_in(before)
    for old, new in zip(before, after, strict=True):
        assert new.sample(0, 1, 0.4).totals == pytest.approx(old.sample(0, 1, 0.4).totals, rel=1e-12)


@pytest.mark.parametrize("when", ["at once", "after some pieces"])
def test_shard_that_is_lost_has_no_file_and_begins_empty(tmp_path, when):
    before, after = shards_of([50, 80]), shards_of([0, 0], life=1)
    pieces = [] if when == "at once" else [done(piece) for piece in list(before[0].save())[:2]]
    lost = calls_of(before[0])._replace(save=lambda: iter([*pieces, failed(Lost("gone"))]))
    (tmp_path / "replay_0_of_2.npz").write_bytes(b"of an earlier moment")
    save_shards(tmp_path / "replay.npz", [lost, calls_of(before[1])], is_lost)
    assert [path.name for path in tmp_path.iterdir()] == ["replay_1_of_2.npz"]
    load_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in after], is_lost)
    assert rewards_in(after) == [[], rewards_in(before)[1]]


def test_no_shard_at_all_is_an_error_of_the_system(tmp_path):
    lost = calls_of(shards_of([5])[0])._replace(save=lambda: iter([failed(Lost("gone"))]))
    with pytest.raises(OSError, match=re.escape("a shard does not answer (gone)")):
        save_shards(tmp_path / "replay.npz", [lost, lost], is_lost)
    assert not list(tmp_path.iterdir())


def test_silent_shard_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_files, "FILE_ANSWER_SECONDS", 0.05)
    shard = shards_of([5])[0]
    silent = calls_of(shard)._replace(save=lambda: iter([Future()]), load=lambda piece: Future())
    with pytest.raises(ShardLost, match="not answered"):
        save_shards(tmp_path / "replay.npz", [silent], is_lost)
    save_shards(tmp_path / "replay.npz", [calls_of(shard)], is_lost)
    with pytest.raises(ShardLost, match="not answered"):
        load_shards(tmp_path / "replay.npz", [silent], is_lost)


def answers_when_awaited(monkeypatch, is_lost=lambda number: False):
    """A call, and its answers: each comes when it is waited for, and no more than two may be owed."""
    sent = []

    def call(_):
        assert sum(not answer.done() for answer in sent) <= 2
        sent.append(Future())
        return sent[-1]

    def wait(answers, _):
        (answer,) = answers
        if is_lost(sent.index(answer)):
            answer.set_exception(Lost("gone"))
        else:
            answer.set_result(None)

    monkeypatch.setattr(shard_files, "futures", SimpleNamespace(wait=wait))
    return call, sent


def test_no_more_than_two_pieces_are_on_their_way_and_each_is_awaited(tmp_path, monkeypatch):
    shard = shards_of([150])[0]
    save_shards(tmp_path / "replay.npz", [calls_of(shard)], is_lost)
    load, sent = answers_when_awaited(monkeypatch)
    load_shards(tmp_path / "replay.npz", [calls_of(shard)._replace(load=load)], is_lost)
    assert len(sent) > 4
    assert all(answer.done() for answer in sent)


def test_error_of_a_shards_code_is_raised_and_leaves_no_file(tmp_path):
    wrong = calls_of(shards_of([5])[0])._replace(save=lambda: iter([failed(ZeroDivisionError("a bug"))]))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        save_shards(tmp_path / "replay.npz", [wrong], is_lost)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_rows_of_another_number_of_shards_are_added_again_with_their_masses(tmp_path, shards):
    before, spaces = shards_of([50, 0, 120]), spaces_of("CartPole-v1")
    save_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in before], is_lost)
    after = shards_of([0] * shards, life=1)
    calls, saved = [calls_of(shard) for shard in after], partial(saved_chunks, CONFIG, spaces)
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e9)
    replay = ShardedReplay(calls, limiter, is_lost, np.random.SeedSequence(0), saved=saved)
    replay.load(tmp_path / "replay.npz")
    assert sorted(chain(*rewards_in(after))) == sorted(chain(*rewards_in(before)))
    assert limiter.inserts == 0  # they were counted when they came
    told = [[shard.sample(0, 1, 0.4).totals for shard in some] for some in (before, after)]
    old, new = (sum(totals.mass for totals in some) for some in told)
    assert new == pytest.approx(old, rel=1e-6)
    if shards == 5:  # more than there are chunks
        assert [totals.stored for totals in told[1]] == [50, 50, 50, 0, 0]


def test_no_more_than_two_chunks_are_on_their_way_when_rows_are_added_again(tmp_path, monkeypatch):
    """And each is awaited: the last one gets lost."""
    save_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in shards_of([300])], is_lost)
    saved = partial(saved_chunks, CONFIG, spaces_of("CartPole-v1"))
    add, sent = answers_when_awaited(monkeypatch, is_lost=lambda number: number == 5)
    calls = [calls_of(shard)._replace(add=add) for shard in shards_of([0, 0])]
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e9)
    replay = ShardedReplay(calls, limiter, is_lost, np.random.SeedSequence(0), saved=saved)
    with pytest.raises(ShardLost, match="gone"):
        replay.load(tmp_path / "replay.npz")
    assert len(sent) == 6


def test_rows_go_from_one_machine_to_shards_and_back(tmp_path):
    context, _ = parts(rows=80)
    context.replay.save(tmp_path / "replay.npz")
    shards, spaces = shards_of([0, 0]), spaces_of("CartPole-v1")
    config = context.config
    limiter = context.replay.limiter
    calls = [calls_of(shard) for shard in shards]
    saved = partial(saved_chunks, config, spaces)
    replay = ShardedReplay(calls, limiter, is_lost, np.random.SeedSequence(0), saved=saved)
    replay.load(tmp_path / "replay.npz")
    there = context.replay.buffer.get_all_transitions()["rew"].tolist()
    assert list(chain(*rewards_in(shards))) == there
    (tmp_path / "replay.npz").unlink()
    halves = shards_of([30, 40], config=config)
    save_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in halves], is_lost)
    back = context_of(config)
    back.replay.load(tmp_path / "replay.npz")
    assert back.replay.buffer.get_all_transitions()["rew"].tolist() == list(chain(*rewards_in(halves)))
    mass = sum(shard.buffer.total_mass for shard in halves)
    assert back.replay.buffer.total_mass == pytest.approx(mass, rel=1e-6)
    assert back.pace.steps == 0


@pytest.mark.parametrize("saved_by", [2, 3])
def test_resumed_learner_waits_for_a_shard_that_has_no_place_as_long_as_that_takes(
    tmp_path, monkeypatch, saved_by
):
    """Its calls wait with it, as Ray's do; there is a limit for those that come later only."""
    monkeypatch.setattr(shard_files, "FILE_ANSWER_SECONDS", 0.05)
    before, after = shards_of([50] * saved_by), shards_of([0, 0], life=1)
    save_shards(tmp_path / "replay.npz", [calls_of(shard) for shard in before], is_lost)
    place = Future()

    def when_it_has_its_place(call):
        def wait(*arguments):
            answer = Future()
            place.add_done_callback(lambda _: answer.set_result(call(*arguments).result()))
            return answer

        return wait

    calls = [calls_of(shard) for shard in after]
    calls[1] = calls[1]._replace(
        **{name: when_it_has_its_place(getattr(calls[1], name)) for name in ("add", "sample", "load")}
    )
    limiter = SamplesPerInsert(1.0, min_size=1, error_buffer=1e9)
    saved = partial(saved_chunks, CONFIG, spaces_of("CartPole-v1"))
    replay = ShardedReplay(calls, limiter, is_lost, np.random.SeedSequence(0), saved=saved)
    threading.Timer(0.5, place.set_result, [True]).start()
    replay.load(tmp_path / "replay.npz")
    assert sorted(chain(*rewards_in(after))) == sorted(chain(*rewards_in(before)))


def test_shard_that_is_being_filled_takes_no_rows_and_is_not_saved(tmp_path):
    full, spaces = shards_of([50, 60]), spaces_of("CartPole-v1")
    place = tmp_path / "replay.npz"
    save_shards(place, [calls_of(shard) for shard in full], is_lost)
    filling = Shard(ShardPart(CONFIG, spaces, 1, 2, 1, filling=True))
    rows, priorities = numbered_rows(0, 5)
    chunk = ChunkFormat(CONFIG, spaces).pack(rows, priorities)
    assert filling.add(chunk) == 0
    with pytest.raises(ShardLost, match="being filled"):
        list(filling.save())
    load_shard(place.with_name("replay_1_of_2.npz"), calls_of(filling), is_lost)
    assert filling.add(chunk) == 0
    filling.open()
    assert rewards_in([filling]) == rewards_in(full[1:])
    assert filling.add(chunk) == 5


def test_checkpoint_holds_the_rows_of_every_shard_and_notices_a_change_in_each(tmp_path):
    context, agent = parts()
    shards = shards_of([50, 80])
    limiter = context.replay.limiter

    def replay_of(some):
        return ShardedReplay([calls_of(s) for s in some], limiter, is_lost, np.random.SeedSequence(0))

    sharded = replace(context, replay=replay_of(shards))
    assert save_checkpoint(tmp_path, sharded, agent).error is None
    limiter.inserted(10)
    assert save_checkpoint(tmp_path, sharded, agent).error is None
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint.step == 60
    after = shards_of([0, 0], life=1)
    restore_learner(checkpoint, agent, replay_of(after))
    assert rewards_in(after) == rewards_in(shards)
    rows = checkpoint.path / "replay_1_of_2.npz"
    rows.write_bytes(rows.read_bytes()[:-100])
    older = newest_checkpoint(tmp_path)
    assert older.step == 50
    assert "replay_1_of_2.npz" in older.damaged[0]


def test_checkpoint_has_the_newest_whole_rows_of_a_shard_that_does_not_answer_and_says_so(tmp_path):
    context, agent = parts()
    shards = shards_of([50, 80])
    calls = [calls_of(shard) for shard in shards]
    gone = calls[0]._replace(save=lambda: iter([failed(Lost("gone"))]))
    lost = calls[1]._replace(save=gone.save)

    def replay_of(calls):
        return ShardedReplay(calls, context.replay.limiter, is_lost, np.random.SeedSequence(0))

    def save(*calls):
        saved = save_checkpoint(tmp_path, replace(context, replay=replay_of(calls)), agent)
        return saved.error, saved.missing

    def rewards_when_resumed():
        after = shards_of([0, 0], life=1)
        restore_learner(newest_checkpoint(tmp_path), agent, replay_of(list(map(calls_of, after))))
        return rewards_in(after)

    def damage(number):
        (folder,) = (tmp_path / "checkpoints").glob(f"{number:04d}_*")
        (folder / "replay_0_of_2.npz").write_bytes(b"of another disk")

    assert save(gone, calls[1]) == (None, "replay_0_of_2.npz")
    assert rewards_when_resumed() == [[], rewards_in(shards)[1]]  # there was none
    for first in (0, 5):
        assert save(*calls) == (None, "")
        before = rewards_in(shards)
        for shard in shards:
            rows, priorities = numbered_rows(first, 5)
            shard.buffer.add(**rows, priorities=priorities)
    for _ in range(3):
        assert save(gone, calls[1]) == (None, "replay_0_of_2.npz")
        assert rewards_when_resumed() == [before[0], rewards_in(shards)[1]]
    assert save(calls[0], lost) == (None, "replay_1_of_2.npz")
    assert rewards_when_resumed() == rewards_in(shards)
    damage(7)
    assert save(gone, calls[1]) == (None, "replay_0_of_2.npz")
    assert rewards_when_resumed() == [before[0], rewards_in(shards)[1]]
    for number in (7, 8):
        damage(number)
    assert save(gone, calls[1]) == (None, "replay_0_of_2.npz")
    assert rewards_when_resumed() == [[], rewards_in(shards)[1]]
    assert [number for number, _ in whole_checkpoints(tmp_path)] == [8, 9]
