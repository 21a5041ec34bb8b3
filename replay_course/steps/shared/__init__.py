"""From a queue to stamps: ways to collect rows from many processes and sample them in one."""

from importlib import import_module
from typing import Any

# Versions are imported on first access, so that a writer process starts sooner.
HOME = {
    "FineLocks": "fine_locks",
    "ManagerReplay": "manager_replay",
    "NoLock": "no_lock",
    "OneLock": "one_lock",
    "QueueReplay": "queue_replay",
    "StampedPriorities": "stamped_priorities",
    "StampedRows": "stamped_rows",
}


def __getattr__(name: str) -> Any:
    """Import a version."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOME[name]}"), name)


def __dir__() -> list[str]:
    """List all versions, including those not imported yet."""
    return sorted({*globals(), *HOME})
