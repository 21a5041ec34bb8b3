"""Tools for the chapters: live source, checks, charts and drawings, and the measured ladders.

The package doesn't import this module.
"""

from importlib import import_module
from typing import Any

# Imported on first access, so that a chapter without PyTorch doesn't wait for its import.
MODULE_OF = {
    "CheckFailed": "exercises",
    "Playable": "playable",
    "chart": "notebook_charts",
    "check_mailbox": "mailbox_check",
    "check_shared": "shared_check",
    "check_sum_tree": "sum_tree_check",
    "check_uniform": "uniform_check",
    "check_written": "exercises",
    "compare": "exercises",
    "draw_checks": "drawings",
    "draw_cliffwalk": "drawings",
    "draw_frames": "drawings",
    "draw_goals": "drawings",
    "draw_layouts": "drawings",
    "draw_masses": "drawings",
    "draw_ring": "drawings",
    "draw_roles": "drawings",
    "draw_row": "drawings",
    "draw_sequences": "drawings",
    "draw_stamps": "drawings",
    "draw_tree": "drawings",
    "draw_waits": "drawings",
    "draw_way": "drawings",
    "draw_windows": "drawings",
    "explore_protocol": "own_protocol",
    "kill_a_writer": "killed_writer",
    "learn_value": "one_value",
    "microseconds": "ladder",
    "race": "ladder_shared",
    "sequence_ladder": "ladder_sequences",
    "shared_ladder": "ladder_shared",
    "show": "source",
    "slow_ladder": "ladder_sum_tree",
    "sum_tree_ladder": "ladder_sum_tree",
    "uniform_ladder": "ladder_uniform",
}


def __getattr__(name: str) -> Any:
    """Import a name on first access."""
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """List all names, including those not imported yet."""
    return sorted({*globals(), *MODULE_OF})
