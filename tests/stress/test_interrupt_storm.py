"""Calls of buffers, `NStepWindow`, mailbox and limiter are interrupted by real signals, at random moments.

Each call is made on an object whose states before and after it are known. After the interrupt the object must
be in one of them, no lock may be held, and now and then the next calls are tried. An object that is still in
its state before is interrupted again.
"""

import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from interrupts import SUBJECTS, Subject

INTERRUPTS = 20_000
FILE_CALLS = ("save", "load")  # take long: they are made less often
FILE_SHARE = 0.1
FAULTS = (AssertionError, ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError)
CHECK_SHARE, FILE_CHECK_SHARE = 0.05, 0.005


class Case:
    """A call of an object, and the states that an interrupt may leave."""

    def __init__(self, make: type[Subject], kind: str, option: str, name: str, folder: Path) -> None:
        self.make, self.kind, self.option, self.name, self.folder = make, kind, option, name, folder
        self.renew()
        self.subject.calls[name]()
        self.renew()
        self.states = [self.subject.see()]
        start = time.perf_counter()
        self.subject.calls[name]()
        self.seconds = time.perf_counter() - start
        self.states.append(self.subject.see())
        self.subject.check()
        self.renew()

    def renew(self) -> None:
        self.subject = self.make(self.kind, self.option, self.folder)
        self.subject.prepare(self.name)
        self.next: Any = getattr(self.subject, "next", None)

    def interrupt(self, rng: random.Random) -> bool:
        """Make the call, and interrupt it; return whether the signal came before its end."""
        armed = True

        def press(*_: object) -> None:
            if armed:
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, press)
        interrupted = False
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 1.2 * self.seconds))
            self.subject.calls[self.name]()
            armed = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return interrupted

    def fault(self, rng: random.Random) -> str | None:
        try:
            seen = self.subject.see()
            assert seen in self.states, "half happened"
            self.subject.check_locks()
            if rng.random() < CHECK_SHARE:
                self.subject.check(files=rng.random() < FILE_CHECK_SHARE / CHECK_SHARE)
                self.renew()
        except FAULTS as error:
            self.renew()
            return f"{self.kind} {self.option}, {self.name}: {error!r}"
        if seen != self.states[0] or rng.random() < CHECK_SHARE:
            self.renew()
        elif self.next is not None:
            self.subject.next = self.next
        return None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
def test_random_interrupts_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # an interrupt that a finalizer swallows
    rng, interrupts, faults = random.Random(0), 0, Counter[str]()
    cases = [
        Case(make, kind, option, name, tmp_path)
        for make, kind, option in SUBJECTS
        for name in make(kind, option, tmp_path).calls
    ]
    weights = [FILE_SHARE if case.name in FILE_CALLS else 1.0 for case in cases]
    while interrupts < INTERRUPTS:
        (case,) = rng.choices(cases, weights)
        if case.interrupt(rng):
            interrupts += 1
            faults.update(filter(None, [case.fault(rng)]))
        else:
            case.renew()
    assert not faults
