"""Tools for the chapters: live source, checks, charts and drawings, and the measured ladders.

The package doesn't import this module.
"""

from importlib import import_module
from typing import Any

# Module → its names, imported on first access, so that a chapter without PyTorch doesn't wait for its import.
NAMES = {
    "call_trace": "calls interrupt_everywhere",
    "course": "check_written part",
    "drawings": "draw_checks draw_cliffwalk draw_frames draw_goals draw_layouts draw_masses draw_ring "
    "draw_roles draw_row draw_sequences draw_stamps draw_tree draw_waits draw_way draw_windows",
    "drawings_episodes": "draw_corridor draw_corridors draw_relabelled draw_unrolled",
    "drawings_processes": "draw_gauge draw_mailbox draw_processes draw_reordering",
    "drawings_learning": "draw_cart draw_ends draw_late_update draw_loop draw_weights draw_wide_node",
    "drawings_reading": "draw_batch draw_block draw_core draw_log draw_record draw_stamp",
    "edited_files": "edited_copy",
    "exercises": "CheckFailed compare",
    "exercises_apex": "check_mailbox",
    "exercises_shared": "check_shared",
    "exercises_sum_tree": "check_sum_tree",
    "exercises_uniform": "check_uniform",
    "killed_writer": "kill_a_writer",
    "ladder": "microseconds times_as_long",
    "ladder_sequences": "sequence_ladder",
    "ladder_shared": "race shared_ladder",
    "ladder_sum_tree": "slow_ladder sum_tree_ladder",
    "ladder_uniform": "uniform_ladder",
    "notebook_charts": "chart charts",
    "one_value": "learn_value",
    "playable": "Playable",
    "protocol_explorer": "explore_protocol",
    "record_files": "load_record",
    "source": "show",
    "your_agent": "agent_replay shared_replay",
}
MODULE_OF = {name: module for module, names in NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a name on first access."""
    if name not in MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """List all names, including those not imported yet."""
    return sorted({*globals(), *MODULE_OF})
