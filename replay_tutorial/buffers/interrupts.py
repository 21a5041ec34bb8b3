"""Ctrl-C: hold it back while something is changed that must not be left half done.

Python raises KeyboardInterrupt between any two instructions of the main thread.
"""

import signal
from threading import current_thread, main_thread
from types import FrameType
from typing import Any


class Undisturbed:
    """Holds Ctrl-C back for a moment: a change of tables that ends halfway would leave none of them whole."""

    def __enter__(self) -> None:
        self._came: tuple[int, FrameType | None] | None = None
        is_main = current_thread() is main_thread()  # Python raises it in no other one
        self._handler: Any = signal.getsignal(signal.SIGINT) if is_main else None
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame

    def __exit__(self, *_: object) -> None:
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
            if self._came is not None:
                self._handler(*self._came)
