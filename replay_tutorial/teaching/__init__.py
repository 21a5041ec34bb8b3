"""What the chapters use: live source, checks, drawings, and the tables of the ladders. Nothing imports it."""

from importlib import import_module
from typing import Any

# A name is looked up when it is first asked for: a chapter about a list need not wait for PyTorch.
HOME = {
    "NotYet": "exercises",
    "chart": "notebook_charts",
    "check_mailbox": "mailbox_check",
    "check_shared": "shared_check",
    "check_sum_tree": "sum_tree_check",
    "check_uniform": "uniform_check",
    "compare": "exercises",
    "draw_checks": "drawings",
    "draw_masses": "drawings",
    "draw_ring": "drawings",
    "draw_roles": "drawings",
    "draw_row": "drawings",
    "draw_stamps": "drawings",
    "draw_tree": "drawings",
    "draw_way": "drawings",
    "draw_windows": "drawings",
    "explore_protocol": "own_protocol",
    "fairness": "chi_square",
    "kill_a_writer": "killed_writer",
    "learn_value": "one_value",
    "microseconds": "ladder",
    "race": "ladder_shared",
    "shared_ladder": "ladder_shared",
    "show": "source",
    "slow_ladder": "ladder_sum_tree",
    "sum_tree_ladder": "ladder_sum_tree",
    "uniform_ladder": "ladder_uniform",
}


def __getattr__(name: str) -> Any:
    """Import what a chapter asks for."""
    if name not in HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOME[name]}"), name)


def __dir__() -> list[str]:
    """List what there is for chapters, also what nobody has asked for yet."""
    return sorted({*globals(), *HOME})
