"""Gateways that are killed at each point of a send: the replay in shared memory stays whole."""

import itertools
import os
import pickle
import signal
import sys
from multiprocessing import get_context

import numpy as np
import pytest
from cluster_parts import gateway_of, made_context, report

from replay_tutorial.cluster.chunk import ChunkFormat

PICTURES = "small_environments:StackedPictures-v0"
CHUNK = 40  # rows


def pictures_context():
    return made_context(PICTURES, slack=10**9, capacity=200)


def pictures(first, count):
    """Rows of images, all new, that tell the row's number: most of the time of a `send` is spent on them."""
    numbers = np.arange(first, first + count)
    spread = (numbers[:, None] * 8 + np.arange(8)).astype(np.uint32)
    images = spread[:, :, None].repeat(600, axis=2).view(np.uint8).reshape(count, 8, 40, 60)
    rows = {"obs": images[:, :4], "next_obs": images[:, 4:], "reward": numbers, "action": numbers % 2}
    rows |= {name: numbers % 2 for name in ("terminated", "truncated", "discount")}
    return rows, np.ones(count, np.float32)


def assert_pictures(rows):
    for i, number in enumerate(np.asarray(rows["reward"]).ravel().astype(int)):
        expected, _ = pictures(number, 1)
        for name, values in expected.items():
            np.testing.assert_array_equal(np.asarray(rows[name][i]).squeeze(), values[0].squeeze(), name)


def assert_replay_is_whole(context, lives):
    """What is drawn is whole, and the next gateway may write to every slot."""
    for _ in range(20):
        assert_pictures(context.replay.sample(32, beta=0.4, timeout=0.0).rows)
    assert 0 <= context.replay.next_index - context.counters.steps <= lives * CHUNK
    gateway, _ = gateway_of(context)
    chunks = ChunkFormat(context.config, context.spaces)
    for first in range(0, 400, CHUNK):  # two laps
        gateway.send(chunks.pack(*pictures(first, CHUNK)), 0, report())
    stored = context.replay.buffer[:]
    assert stored["reward"].ravel().tolist() == list(range(200, 400))
    assert_pictures(stored)
    assert_pictures(context.replay.sample(64, beta=0.4, timeout=0.0).rows)


def die_in_send(pickled, point):
    """A life of a gateway that is killed inside its second `send`, at some call or return of Python."""
    context = pickle.loads(pickled)
    gateway, _ = gateway_of(context)
    chunks = [
        ChunkFormat(context.config, context.spaces).pack(*pictures(first, CHUNK)) for first in (0, CHUNK)
    ]
    gateway.send(chunks[0], 0, report())
    points = itertools.count()

    def kill_me(*_):
        if next(points) == point:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(kill_me)
    gateway.send(chunks[1], 0, report())
    sys.setprofile(None)


@pytest.mark.filterwarnings("ignore:The frames of .* are hardly shared")  # by rows that are sent again
@pytest.mark.skipif(sys.platform != "linux", reason="only there a pickle leads to memory without a name")
def test_gateways_are_killed_at_every_point_of_a_send_and_the_replay_stays_whole():
    context = pictures_context()
    context.replay.insert(*pictures(0, CHUNK), timeout=0.0)
    pickled, lives, added_only = pickle.dumps(context), 0, set()
    for lives in itertools.count():
        before = context.replay.next_index - context.counters.steps
        process = get_context("fork").Process(target=die_in_send, args=(pickled, 7 * lives), daemon=True)
        process.start()
        process.join()
        assert_pictures(context.replay.sample(32, beta=0.4, timeout=0.0).rows)
        added_only.add(context.replay.next_index - context.counters.steps - before)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert added_only == {0, CHUNK}, "some were killed between adding and counting"
    assert_replay_is_whole(context, lives)
