"""The mailbox holds the newest weights: never torn, never older than what a reader has."""

import multiprocessing
import os

import numpy as np
import pytest

from replay_tutorial import Mailbox

START_METHODS = ["fork", "spawn", "forkserver"] if os.name == "posix" else ["spawn"]
POLL_SECONDS = 300
LENGTH = 500_000  # 2 MB: long enough to be caught half written


def test_nothing_is_pulled_before_the_first_publication():
    mailbox = Mailbox(4)
    assert mailbox.version == 0
    assert mailbox.pull(0) is None


def test_newest_weights_are_pulled_once():
    mailbox = Mailbox(4)
    assert mailbox.publish(np.arange(4, dtype=np.float32)) == 1
    assert mailbox.publish(np.arange(4, 8, dtype=np.float32)) == 2
    version, weights = mailbox.pull(0)
    assert (version, mailbox.version) == (2, 2)
    assert weights.tolist() == [4, 5, 6, 7]
    assert mailbox.pull(version) is None
    assert mailbox.pull(1)[0] == 2


def test_pulled_weights_are_the_readers_own():
    mailbox = Mailbox(4)
    published = np.ones(4, np.float32)
    mailbox.publish(published)
    published[:] = 5
    _, weights = mailbox.pull(0)
    mailbox.publish(np.zeros(4, np.float32))
    assert weights.tolist() == [1, 1, 1, 1]
    weights[:] = 9
    assert mailbox.pull(1)[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int32])
def test_other_dtypes_come_back_as_they_were(dtype):
    mailbox = Mailbox(3, dtype)
    mailbox.publish(np.array([1, 2, 3], dtype))
    _, weights = mailbox.pull(0)
    assert weights.dtype == dtype
    assert weights.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "weights",
    [np.ones(3, np.float32), np.ones((2, 2), np.float32), np.ones(4, np.float64), np.ones(0, np.float32)],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(weights):
    mailbox = Mailbox(4)
    mailbox.publish(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match=r"float32\(4,\)"):
        mailbox.publish(weights)
    assert mailbox.version == 1
    assert mailbox.pull(0)[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("length", [0, -1])
def test_empty_mailbox_is_refused(length):
    with pytest.raises(ValueError, match=str(length)):
        Mailbox(length)


def read_until(mailbox, last_version, answers):
    """Pulls until it has seen the last version; tells what was wrong and how many versions it got."""
    known, seen, faults = 0, 0, []
    while known < last_version:
        pulled = mailbox.pull(known)
        if pulled is None:
            continue
        version, weights = pulled
        if version <= known:
            faults.append(f"{version} after {known}")
        if not np.all(weights == version):
            faults.append(f"version {version} is torn: {np.unique(weights)}")
        known, seen = version, seen + 1
    answers.put((seen, faults))


@pytest.mark.parametrize("start_method", START_METHODS)
def test_readers_get_whole_vectors_in_order_and_the_last_one(start_method):
    context = multiprocessing.get_context(start_method)
    mailbox, answers = Mailbox(LENGTH), context.Queue()
    readers = [
        context.Process(target=read_until, args=(mailbox, 300, answers), daemon=True) for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    try:
        for version in range(1, 301):
            assert mailbox.publish(np.full(LENGTH, version, np.float32)) == version
        told = [answers.get(timeout=POLL_SECONDS) for _ in readers]
        assert [faults for _, faults in told] == [[], []]
        assert all(1 <= seen <= 300 for seen, _ in told)
    finally:
        for reader in readers:
            reader.kill()
            reader.join()


def publish_one(mailbox):
    mailbox.publish(np.full(3, 8, np.float32))


def test_child_may_publish_to_its_parent():
    context = multiprocessing.get_context("spawn")
    mailbox = Mailbox(3)
    child = context.Process(target=publish_one, args=(mailbox,), daemon=True)
    child.start()
    child.join(POLL_SECONDS)
    assert child.exitcode == 0
    assert mailbox.pull(0)[1].tolist() == [8, 8, 8]
