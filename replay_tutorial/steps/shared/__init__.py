"""From a queue to stamps: six ways to collect the rows of many processes, and to draw some of them in one."""

from importlib import import_module
from typing import Any

# A rung is imported when it is asked for: a writer's process starts sooner with nothing else in it.
HOME = {
    "FineLocks": "fine_locks",
    "ManagerReplay": "manager_replay",
    "NoLock": "no_lock",
    "OneLock": "one_lock",
    "QueueReplay": "queue_replay",
    "StampedRows": "stamped_rows",
}


def __getattr__(name: str) -> Any:
    """Import a rung."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOME[name]}"), name)


def __dir__() -> list[str]:
    """List the rungs, also those that nobody has asked for yet."""
    return sorted({*globals(), *HOME})
