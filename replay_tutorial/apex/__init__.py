"""Ape-X: actors, a learner and an evaluator that share one prioritized replay.

An engine decides where these roles run: as processes of this machine, or on a Ray cluster. Requires the extra
`train`: `pip install "replay_tutorial[train]"`.

Paper: Horgan et al. 2018, "Distributed Prioritized Experience Replay".
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replay_tutorial.apex.config import Config, preset
    from replay_tutorial.apex.runs.run import Result, resume, train

__all__ = ["Config", "Result", "preset", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import a public name on first access, because most of them load torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "config" if name in ("Config", "preset") else "runs.run"
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    """List the public names, including those not yet imported."""
    return sorted({*globals(), *__all__})
