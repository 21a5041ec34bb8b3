"""Real signals at random moments leave no object half changed."""

import signal

import interrupt_storm
import pytest


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
def test_random_interrupts_do_no_harm() -> None:
    assert interrupt_storm.main(["--interrupts", "20000"]) == 0
