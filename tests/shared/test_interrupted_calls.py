"""An interrupted call has either happened or not, and no lock stays held: at every line, and at every check.

The objects and their calls are in `interrupts`. `tests/stress/test_interrupt_storm.py` sends real signals.
With EXPLORE set, as in `make stress`, every line is tried in every call that reaches it.
"""

import gc
import os
from pathlib import Path

import pytest
from interrupts import SUBJECTS, Subject, interrupt_at

# Every line is tried in the first call that reaches it, and one in so many other points; of long calls, one
# in 40 points.
FILE_CALLS = ("save", "load")
SOME, OTHERS = 40, 4 if "EXPLORE" in os.environ else 8
# The next calls, which take long, too, are tried after one interrupt in so many.
CHECKS, FILE_CHECKS = (8, 40) if "EXPLORE" in os.environ else (24, 48)


# A file that an interrupted `save` had just opened is closed when it is deleted, and Python warns of that.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("make", "kind", "option"), SUBJECTS)
def test_interrupted_call_has_happened_or_not(
    make: type[Subject], kind: str, option: str, tmp_path: Path
) -> None:
    tried: set[tuple[str, int]] = set()
    for name in make(kind, option, tmp_path).calls:

        def subject_of(name: str = name) -> Subject:
            subject = make(kind, option, tmp_path)
            subject.prepare(name)
            return subject

        subject_of().calls[name]()  # compiles and imports what is missing
        subject = subject_of()
        states = [subject.see()]
        gc.collect()
        points = sorted(interrupt_at(None, subject.calls[name]))
        states.append(subject.see())
        subject.check()
        for number, point in enumerate(points):
            is_new_line = point[1] < 0 and ("EXPLORE" in os.environ or point not in tried)
            if number % (SOME if name in FILE_CALLS else 1 if is_new_line else OTHERS):
                continue
            tried.add(point)
            subject = subject_of()
            with pytest.raises(KeyboardInterrupt):
                interrupt_at((*point, 1), subject.calls[name])
            assert subject.see() in states, f"{name}, interrupted at {point}, has half happened"
            subject.check_locks()
            if number % CHECKS == 0:
                subject.check(files=number % FILE_CHECKS == 0)
