"""Interrupt calls of buffers, `NStep`, mailbox and limiter by real signals, at random moments.

Each call is made on an object whose states before and after it are known. After the interrupt the object must
be in one of them, no lock may be held, and now and then the next calls are tried. An object that is still in
its state before is interrupted again.
"""

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from interrupts import SUBJECTS, Subject
from script import new_parser

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
        """Begin with an object that has not been interrupted."""
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
        except SystemError:  # what Numba makes of it where it turns a kernel's result into arrays
            interrupted = True
        finally:
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return interrupted

    def fault(self, rng: random.Random) -> str | None:
        """Say what is wrong after the interrupt."""
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


def main(argv: Sequence[str]) -> int:
    """Interrupt as often as asked for; return 1 if there was a fault."""
    parser = new_parser("interrupt_storm", "Interrupt calls at random moments.")
    parser.add_argument("--interrupts", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    rng, counts, faults = random.Random(arguments.seed), Counter[str](), Counter[str]()
    sys.unraisablehook = lambda _: counts.update(["swallowed by a finalizer"])
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            Case(make, kind, option, name, Path(folder))
            for make, kind, option in SUBJECTS
            for name in make(kind, option, Path(folder)).calls
        ]
        weights = [FILE_SHARE if case.name in FILE_CALLS else 1.0 for case in cases]
        while counts["interrupted"] < arguments.interrupts:
            (case,) = rng.choices(cases, weights)
            if case.interrupt(rng):
                counts["interrupted"] += 1
                fault = case.fault(rng)
                if fault:
                    faults[fault] += 1
                elif counts["interrupted"] % 10_000 == 0:
                    seconds = time.monotonic() - start
                    print(f"{counts['interrupted']:,} interrupts in {seconds:.0f} s", flush=True)
            else:
                counts["too late"] += 1
                case.renew()
    print(f"{len(cases)} calls, {dict(counts)}, {sum(faults.values())} faults")
    for fault, times in faults.most_common(20):
        print(f"{times} times {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
