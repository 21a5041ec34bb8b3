"""Ctrl-C is held back while a block runs, and never after it, also if another signal's handler ended it."""

import signal
import sys

import pytest

from replay_tutorial.buffers.runtime.interrupts import defer_sigint


class TimeIsUp(Exception):
    """What the handler of another signal may raise, anywhere."""


def hold_back(depth, during=lambda: None):
    with defer_sigint():
        if depth:
            hold_back(depth - 1, during)
        else:
            during()


def raise_in(name, depth):
    """Run nested blocks; where the first `name` of one begins or returns, an exception is raised."""
    for moment in ("call", "return"):

        def watch(frame, event, _, moment=moment):
            if event == moment and frame.f_code is getattr(defer_sigint, name).__code__:
                sys.setprofile(None)
                raise TimeIsUp

        sys.setprofile(watch)
        try:
            with pytest.raises(TimeIsUp):
                hold_back(depth)
        finally:
            sys.setprofile(None)


@pytest.fixture(autouse=True)
def sigint_as_before():
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_comes_once_and_after_the_outermost_block():
    done = []

    def press():
        signal.raise_signal(signal.SIGINT)
        done.append(True)

    for depth in range(3):
        with pytest.raises(KeyboardInterrupt):
            hold_back(depth, press)
        assert len(done) == depth + 1
    hold_back(2)


@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
@pytest.mark.parametrize("depth", [0, 2])
def test_exception_at_the_edge_of_a_block_does_not_hold_ctrl_c_back_for_ever(name, depth):
    before = signal.getsignal(signal.SIGINT)
    raise_in(name, depth)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    raise_in(name, depth)
    hold_back(depth)  # gives back the handler from before the block that was left
    assert signal.getsignal(signal.SIGINT) is before
