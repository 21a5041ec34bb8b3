"""The functions of the package that a call runs, in their order, and what an interrupt of the call leaves.

    calls(lambda: buffer.add(obs=1.0))

lists the functions. `interrupt_everywhere` raises KeyboardInterrupt, as Ctrl-C does, before each instruction
of the package, or of the versions in `steps`, in turn, and compares what it finds afterwards. A kernel is a
single step for Python, so it is never interrupted.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import replay_tutorial

PACKAGE = Path(replay_tutorial.__file__).parent
STEPS = Path(__file__).parent / "steps"


def file_of(frame: FrameType) -> str:
    """Return the file of a frame of the package, relative to the package; "" for other code."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def depth_of(frame: FrameType) -> int:
    """Return how many functions of the package a frame was called from."""
    depth, caller = 0, frame.f_back
    while caller is not None:
        depth += bool(file_of(caller))
        caller = caller.f_back
    return depth


class Calls(list[tuple[int, str, str]]):
    """Functions that have run: depth, file and name of each; printed as an indented list."""

    def __repr__(self) -> str:
        width = max((len(file) for _, file, _ in self), default=0)
        return "\n".join(f"{file:{width}}  {'  ' * depth}{name}" for depth, file, name in self)


def calls(call: Callable[[], object]) -> Calls:
    """Return the functions of the package that a call runs, kernels included.

    The call is made twice, and the second one is listed, because the first may compile kernels.
    """
    found = Calls()

    def on_event(frame: FrameType, event: str, _: object) -> None:
        # The caller, if a kernel is called, because it has no frame of its own.
        running = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if event == "call" and (file := file_of(frame)) and "<" not in frame.f_code.co_qualname:
            is_kernel = running is not frame
            name = f"{frame.f_code.co_qualname}{' (kernel)' * is_kernel}"
            found.append((depth_of(running) + is_kernel, file, name))

    call()
    sys.setprofile(on_event)
    try:
        call()
    finally:
        sys.setprofile(None)
    outermost = found[0][0]  # the frame of this function counts, too
    return Calls((depth - outermost, file, name) for depth, file, name in found)


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame is one of the package, or of a version that precedes it."""
    return bool(file_of(frame)) or Path(frame.f_code.co_filename).is_relative_to(STEPS)


def interrupt(call: Callable[[], object], number: int) -> bool:
    """Make a call, and interrupt it before its instruction `number`; return whether it has so many."""
    left = [number]

    def on_instruction(frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
        return on_instruction

    previous = sys.gettrace()
    sys.settrace(lambda frame, event, _: on_instruction(frame, event, _) if is_ours(frame) else None)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(previous)
    return False


def interrupt_everywhere(
    new: Callable[[], Any], call: Callable[[Any], object], state: Callable[[Any], object]
) -> dict[str, int]:
    """Interrupt a call before each of its instructions in turn, each time with a new buffer.

    Args:
        new: Returns a buffer; equal ones each time.
        call: What is interrupted, such as `lambda buffer: buffer.add(obs=1.0)`.
        state: Returns what the buffer contains, as something that can be compared.

    Returns:
        The number of interrupts after which the state was that "before" the call, that "after" it, or
        "neither".
    """
    before, finished = new(), new()
    call(finished)
    known = {"before": state(before), "after": state(finished)}
    counts = Counter(before=0, after=0, neither=0)
    for number in range(100_000):
        buffer = new()
        if not interrupt(lambda buffer=buffer: call(buffer), number):
            break
        found = state(buffer)
        counts[next((name for name in known if known[name] == found), "neither")] += 1
    return dict(counts)
