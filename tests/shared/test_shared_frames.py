"""Frames in shared memory: a compressed buffer of many processes gives what a plain one of one process gives.

The oracle is `ReplayBuffer` without compression. Where several processes write, a row says which pictures it
must show: each follows from its writer, environment and number.
"""

import multiprocessing
import os

import numpy as np
import pytest
import shared_rows
from histories import History
from oracles import assert_same_columns
from shared_rows import POLL_SECONDS, every_buffer, running

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer, ReplayBuffer
from replay_tutorial.shared.protocol import held_stamp, index_of, is_held
from replay_tutorial.shared.shared_frames import ROOM

impatience = shared_rows.impatience

ATARI = {
    "obs": {"shape": (4, 84, 84), "dtype": np.uint8},
    "action": {"dtype": np.int64},
    "reward": {},
    "terminated": {"dtype": bool},
}
SOON = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")  # processes that start fast


@every_buffer
def test_a_memory_that_lies_harms_nobody(buffer_class):
    """What a writer remembers of its frames may be out of date, or spoilt by a thread: the bytes decide."""
    for seed in range(5):
        history = History(seed, "dedupe_next+dedupe_frames", size=20, kind=buffer_class)
        (frames,) = history.buffer._stages.rings
        for _ in range(40):
            history.add(5, single=False)
            there = frames.remembered >= 0
            frames.remembered[there] = history.rng.permutation(frames.remembered[there])
            history.compare_rows()


@pytest.mark.parametrize(("shape", "axis"), [((4, 5, 7), 0), ((5, 7, 4), 2), ((4, 8, 8), 0), ((5, 4, 6), 1)])
def test_any_axis_may_be_the_stacks_and_arrays_need_not_be_contiguous_aligned_or_writable(shape, axis):
    rng = np.random.default_rng(0)
    fields = {"obs": {"shape": shape, "dtype": np.uint8}, "next_obs": {"shape": shape, "dtype": np.uint8}}
    stack = {"obs": axis} if axis == 1 else "obs"  # of the others the shorter is taken
    buffer = MPReplayBuffer(100, fields, dedupe_next="obs", dedupe_frames=stack)
    plain = ReplayBuffer(100, fields)
    whole = rng.integers(0, 256, (20, *shape)).astype(np.uint8)
    shifted = np.frombuffer(b"x" + whole.tobytes(), np.uint8, offset=1).reshape(whole.shape)  # and read-only
    for obs in (whole[::2], shifted, np.asfortranarray(whole), np.broadcast_to(whole[:1], whole.shape)):
        for each in (buffer, plain):
            each.add(obs=obs, next_obs=obs[::-1])
    assert_same_columns(buffer[:], plain[:])


# Actors: pictures that follow from who shows them.


def fields_of(side):
    integer = {"dtype": np.int64}
    return {
        "obs": {"shape": (4, side, side), "dtype": np.uint8},
        "next_obs": {"shape": (4, side, side), "dtype": np.uint8},
        **dict.fromkeys(["writer", "env", "first", "steps"], integer),
    }


def pictures(writer, env, number, side):
    """uint8[n, side, side]: each picture another, and every pixel of it."""
    seed = np.asarray(writer) * 1_000_003 + np.asarray(env) * 7919 + np.asarray(number) * 104_729
    code = np.uint64(0x9E3779B97F4A7C15) * (seed + 1).astype(np.uint64)
    place = np.arange(-(-side * side // 8), dtype=np.uint64) * np.uint64(0x0101010101010101)
    pixels = (code[..., np.newaxis] ^ place).view(np.uint8)[..., : side * side]
    return pixels.reshape(*seed.shape, side, side)


def stacks(writer, env, first, side):
    """uint8[n, 4, side, side]: the four pictures from `first` on."""
    number = np.asarray(first)[:, np.newaxis] + np.arange(4)
    return pictures(np.asarray(writer)[:, np.newaxis], np.asarray(env)[:, np.newaxis], number, side)


def rows_of_steps(writer, env, first, steps, side):
    """Rows that lead from the stack at `first` to that `steps` later."""
    env, first, steps = (np.asarray(part) for part in (env, first, steps))
    writer = np.broadcast_to(writer, first.shape)
    return {
        "obs": stacks(writer, env, first, side),
        "next_obs": stacks(writer, env, first + steps, side),
        "writer": writer,
        "env": env,
        "first": first,
        "steps": steps,
    }


def rows_apart(writer, first, count, side=6):
    """Rows of 8 frames each, none of which another row shows."""
    return rows_of_steps(
        writer, np.zeros(count, np.int64), 20 * (first + np.arange(count)), np.full(count, 10), side
    )


def add_apart(buffer, count):
    """Add rows that share no frame, 50 at a time."""
    for first in range(0, count, 50):
        buffer.add(**rows_apart(1, first, 50))


def compressed(buffer_class, size, **options):
    return buffer_class(size, fields_of(6), dedupe_next="obs", dedupe_frames="obs", seed=1, **options)


def assert_pictures(batch):
    side, writer, env, first = batch["obs"].shape[-1], batch["writer"], batch["env"], batch["first"]
    assert batch["steps"].min(initial=1) >= 1, "a row that nobody wrote"
    assert np.array_equal(batch["obs"], stacks(writer, env, first, side)), "a wrong picture"
    assert np.array_equal(batch["next_obs"], stacks(writer, env, first + batch["steps"], side)), (
        "a wrong picture"
    )


def actor_steps(environments, episode, n=3, seed=0):
    """Yields (env, first, steps) of n-step rows, environments in turns, episodes of about the same length."""
    rng = np.random.default_rng(seed)
    position, left = np.zeros(environments, np.int64), rng.integers(1, episode + 1, environments)
    while True:
        for env in range(environments):
            yield env, position[env], min(n, left[env])
            position[env] += 1
            left[env] -= 1
            if left[env] == 0:
                position[env] += 10  # the next episode shows other pictures
                left[env] = rng.integers(episode // 2, episode * 3 // 2 + 1)


def act(buffer, writer, rows, side=6, environments=4, episode=40, chunk=25, n=3):
    """Adds an actor's rows, chunk by chunk."""
    steps = actor_steps(environments, episode, n, seed=writer)
    for _ in range(0, rows, chunk):
        env, first, count = zip(*(next(steps) for _ in range(chunk)), strict=True)
        buffer.add(**rows_of_steps(writer, env, first, count, side))


def rows_there(buffer):
    batch = buffer[:]
    assert_pictures(batch)
    return len(batch["first"])


@every_buffer
@pytest.mark.parametrize(("environments", "chunk"), [(1, 50), (4, 12), (16, 50)])
def test_an_actors_rows_outlive_no_frame_and_need_little_more_than_one_each(
    buffer_class, environments, chunk
):
    buffer = compressed(buffer_class, 1000)
    act(buffer, 1, 10_000, environments=environments, episode=100, chunk=chunk)
    assert rows_there(buffer) == 1000
    for _ in range(20):
        assert_pictures(buffer.sample(64))
    told = buffer.statistics()
    assert told.rows_rejected == 0 and told.rows_sampled == 20 * 64
    # an episode of L steps begins with 4 frames and adds one a step: (L + 4) / L, with L about 100
    assert told.frames_added / told.rows_added < 1.06


@every_buffer
@pytest.mark.parametrize(("size", "n", "chunk"), [(4000, 5, 64), (4000, 5, 16), (1000, 3, 64)])
def test_frames_of_64_environments_are_shared_from_the_first_step_on(buffer_class, size, n, chunk):
    """Two frames a row, because none is young when it comes again, keep it so: each is older by the other."""
    buffer = compressed(buffer_class, size)
    act(buffer, 1, 2 * size, environments=64, episode=500, chunk=chunk, n=n)
    assert rows_there(buffer) == len(buffer) == size


@every_buffer
def test_a_picture_that_is_shown_for_ever_is_written_anew_before_it_is_too_old(buffer_class):
    buffer, plain = compressed(buffer_class, 1000), ReplayBuffer(1000, fields_of(6))
    for first in range(0, 6000, 25):
        rows = rows_of_steps(1, np.zeros(25, np.int64), first + np.arange(25), np.full(25, 1), 6)
        rows["obs"][:, 0] = 200  # a score board, say
        for each in (buffer, plain):
            each.add(**rows)
    assert_same_columns(buffer[:], plain[:])
    assert buffer.statistics().frames_added < 1.03 * 6000


@every_buffer
def test_rows_that_share_nothing_outlive_their_frames_and_count_as_replaced(buffer_class):
    buffer = compressed(buffer_class, 1000)
    room = buffer._stages.rings[0].ring.capacity
    with pytest.warns(UserWarning) as caught:
        add_apart(buffer, 5000)
    lost = f"1,000 transitions added 8,000 frames, but there is room for {room:,}, so about "
    lost += f"{1000 - room / 8:,.0f} of the transitions have lost frames and cannot be sampled. "
    remedy = "To keep them, pass frames_per_transition=10.34."
    assert any(lost + remedy in str(each.message) for each in caught)
    assert len(caught) == 2 and caught[0].filename == caught[1].filename == __file__
    told = buffer.statistics()
    assert told.frames_added == 8 * told.rows_added, "this tells which frames_per_transition is needed"
    there = buffer[:]
    assert_pictures(there)
    newest = buffer._stages.rings[0].ring.capacity // 8
    assert newest - 50 < len(there["first"]) <= newest
    assert there["first"].max() == 4999 * 20
    for _ in range(30):
        assert_pictures(buffer.sample(32))
    told = buffer.statistics()
    assert told.rows_sampled == 30 * 32 and told.rows_rejected > 0
    if buffer_class is MPPrioritizedReplayBuffer:
        rejected = told.rows_rejected
        for _ in range(300):
            buffer.sample(32)
        first = buffer.statistics().rows_rejected
        for _ in range(300):
            buffer.sample(32)
        assert rejected < 3000 and buffer.statistics().rows_rejected == first, "they have left the tree"
    enough = compressed(buffer_class, 100, frames_per_transition=11)
    add_apart(enough, 500)
    assert rows_there(enough) == 100


def overwrite_frames(buffer):
    """Write frames without rows, as writers do that are killed before they add their rows."""
    (frames,) = buffer._stages.rings
    for some in np.array_split(np.arange(frames.ring.capacity), 20):
        frames.number([stacks(np.full(len(some), 9), np.zeros(len(some), int), 20 * some, 6)])


@every_buffer
def test_if_no_row_has_its_frames_the_error_names_the_remedy(buffer_class):
    buffer = compressed(buffer_class, 50)
    act(buffer, 1, 50)
    overwrite_frames(buffer)
    assert rows_there(buffer) == 0
    with pytest.raises(RuntimeError, match="frames_per_transition"):
        buffer.sample(8)
    act(buffer, 2, 25)
    batch = buffer.sample(8)
    assert_pictures(batch)
    assert (batch["writer"] == 2).all()


def test_a_priority_for_a_row_without_frames_brings_nothing_back():
    buffer = compressed(MPPrioritizedReplayBuffer, 50)
    act(buffer, 1, 50)
    indexes = buffer.sample(20)["indexes"]
    overwrite_frames(buffer)
    act(buffer, 2, 25)
    buffer.update_priorities(indexes, np.full(20, 1000.0))
    batch = buffer.sample(200, beta=1.0)
    assert_pictures(batch)
    assert (batch["writer"] == 2).all() and batch["indexes"].min() >= 50
    assert len(np.unique(batch["indexes"])) == 25


@every_buffer
def test_rows_without_their_next_observation_are_refused_before_a_frame_is_written(buffer_class):
    buffer = buffer_class(10, ATARI, dedupe_next="obs")
    with pytest.raises(KeyError, match="next_obs"):
        buffer.add(obs=np.zeros((4, 84, 84), np.uint8), action=0, reward=0.0, terminated=False)
    assert buffer.statistics().frames_added == 0


# Many processes.


@pytest.mark.parametrize(
    ("buffer_class", "context"),
    [
        (MPReplayBuffer, SOON),
        (MPPrioritizedReplayBuffer, SOON),
        (MPPrioritizedReplayBuffer, multiprocessing.get_context("spawn")),
    ],
)
def test_rows_of_several_actors_arrive_with_their_pictures(buffer_class, context):
    buffer = buffer_class(1500, fields_of(12), dedupe_next="obs", dedupe_frames="obs", seed=1)
    act(buffer, 0, 50, 12)  # what this process remembers of it, a forked child remembers, too
    with running(context, act, [(buffer, writer, 6000, 12) for writer in (1, 2, 3)]):
        assert buffer.wait_for(500, timeout=POLL_SECONDS)
        while buffer.next_index < 18_000:
            assert_pictures(buffer.sample(32))
    act(buffer, 0, 50, 12)
    # A writer that waits long for the processor, between its frames and its rows, adds rows that lack some.
    assert 1000 < rows_there(buffer) <= 1500
    told = buffer.statistics()
    assert told.rows_added == told.rows_dropped + 18_100
    assert told.frames_added / told.rows_added < 1.2


def test_a_frame_whose_slot_is_held_by_a_living_writer_gets_another():
    buffer = compressed(MPReplayBuffer, 20)
    act(buffer, 1, 25)
    ring = buffer._stages.rings[0].ring
    slot = ring.next_index % ring.capacity
    # a thread of this process, stopped in the middle
    ring.stamps[slot] = held_stamp(index_of(ring.stamps[slot]), ring.writers.writer_number())
    act(buffer, 2, 5 * ring.capacity)
    assert is_held(ring.stamps[slot])
    assert rows_there(buffer) == 20
    assert (buffer[:]["writer"] == 2).all()


# Files, copies, addresses.


@every_buffer
def test_a_file_of_another_layout_is_refused(buffer_class, tmp_path):
    saved = compressed(buffer_class, 300)
    act(saved, 1, 25)
    saved.save(tmp_path / "buffer")
    for other in (
        buffer_class(300, fields_of(6)),
        buffer_class(300, fields_of(6), dedupe_next="obs"),
        buffer_class(300, fields_of(6), dedupe_next="obs", dedupe_frames={"obs": 2}),
        compressed(buffer_class, 300, frames_per_transition=2.0),
    ):
        with pytest.raises(ValueError, match="layout"):
            other.load(tmp_path / "buffer")
    orphaned = compressed(buffer_class, 300)
    overwrite_frames(orphaned)
    with pytest.raises(ValueError, match="load requires a new buffer"):
        orphaned.load(tmp_path / "buffer")
    assert orphaned.next_index == len(orphaned) == 0, "nothing has changed"


@every_buffer
def test_a_buffer_that_others_write_to_is_saved_with_its_pictures(buffer_class, tmp_path):
    buffer, kept = compressed(buffer_class, 300), []
    act(buffer, 1, 700)
    with running(SOON, act, [(buffer, 2, 20_000)]):
        while buffer.next_index < 20_000:
            buffer.save(tmp_path / "buffer")
            loaded = compressed(buffer_class, 300)
            loaded.load(tmp_path / "buffer")
            kept.append(rows_there(loaded))
            if kept[-1]:
                assert_pictures(loaded.sample(32))
    assert max(kept) > 0


def test_a_million_atari_transitions_take_1_3_times_their_frames():
    small = MPReplayBuffer(1000, ATARI, dedupe_next="obs", dedupe_frames="obs")
    assert small.bytes_per_transition == small.nbytes / 1000
    (frames,) = small._stages.rings
    fixed = (ROOM + 8 * 32) * (84 * 84 + 16) / 1000  # of a thousand it is much, of a million nothing
    assert frames.ring.capacity == 1250 + ROOM + 8 * 32
    assert small.bytes_per_transition - fixed < 1.3 * 84 * 84
    try:
        million = MPPrioritizedReplayBuffer(1_000_000, ATARI, dedupe_next="obs", dedupe_frames="obs")
    except MemoryError:
        pytest.skip("this system has no 9 GB of memory")
    assert million.bytes_per_transition < 1.3 * 84 * 84
    assert MPReplayBuffer(1000, ATARI).bytes_per_transition > 28_000
