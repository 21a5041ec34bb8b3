"""Buffers in the memory of one process: a copy in another process warns when rows are added to it.

A process that receives such a buffer, by a fork or through `multiprocessing`, has a copy: the original never
receives the rows that are added there. The warning is installed once, in the other process, as an attribute
of the copy that hides its method `add` until the first call, so that `add` needs no check.
"""

import os
import weakref
from functools import partial
from multiprocessing import parent_process
from typing import Any, NoReturn, Self

from replay_tutorial.buffers.base import BaseBuffer

ADDING = ("add", "add_step")  # the methods that add rows

_buffers: weakref.WeakSet["PrivateBuffer"] = weakref.WeakSet()


class PrivateBuffer(BaseBuffer):
    """Base class of the buffers that only one process can use."""

    def __new__(cls, *_: Any, **keywords: Any) -> Self:
        """Remember the buffer, because a fork may copy it."""
        buffer = super().__new__(cls, **keywords)
        _buffers.add(buffer)
        return buffer

    def __copy__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} can't be copied by copy.copy, because the copy would share rows, but not the counters. "
            "For independent rows, use copy.deepcopy. For handles on the same rows, use MPReplayBuffer or "
            "MPPrioritizedReplayBuffer."
        )

    def _with_shared_parts(self) -> Self:
        """Return another buffer that consists of the same parts, which the caller replaces."""
        buffer = type(self).__new__(type(self))
        buffer.__setstate__(self.__getstate__())
        return buffer

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in (*ADDING, "_iterators")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if (sender := self._rng.sender) not in (None, os.getpid()):
            warn_at_first_add(self, sender)
        if sender is not None:  # another process draws batches of its own
            self._loaded_ahead = ()


def warn_at_first_add(buffer: PrivateBuffer, origin: int) -> None:
    """Make the next `add` warn that this buffer is a copy of one in the process `origin`."""
    for name in ADDING:
        if hasattr(buffer, name):
            buffer.__dict__[name] = partial(add_with_warning, weakref.ref(buffer), name, origin)


def add_with_warning(
    reference: weakref.ref[PrivateBuffer], method: str, origin: int, /, *args: Any, **fields: Any
) -> Any:
    """Warn, restore the methods, and add.

    The main process doesn't warn if another process has sent it the buffer, for example as a result.
    """
    buffer: Any = reference()
    for name in ADDING:
        buffer.__dict__.pop(name, None)
    if parent_process() is None and os.getppid() != origin:
        return getattr(buffer, method)(*args, **fields)
    kind = type(buffer).__name__
    from replay_tutorial.buffers.runtime.user_warning import warn_user

    warn_user(
        f"Rows are added to a copy of a {kind}; the original, in process {origin}, doesn't receive them. "
        "To add to one buffer from several processes, use MPReplayBuffer or MPPrioritizedReplayBuffer. If "
        "only this process uses the buffer, construct it here."
    )
    return getattr(buffer, method)(*args, **fields)


def warn_in_forked_child() -> None:
    """Install the warning in all buffers that a forked child inherited."""
    for buffer in list(_buffers):
        warn_at_first_add(buffer, os.getppid())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=warn_in_forked_child)
