"""From a linear scan to a tree that a batch descends together: five ways to sample by mass."""

from replay_course.steps.prioritized.compiled_sum_tree import CompiledSumTree
from replay_course.steps.prioritized.cumulative_sum import CumulativeSum
from replay_course.steps.prioritized.level_by_level import LevelByLevel
from replay_course.steps.prioritized.linear_scan import LinearScan
from replay_course.steps.prioritized.plain_sum_tree import PlainSumTree
from replay_course.steps.prioritized.tree_with_minimum import TreeWithMinimum

__all__ = [
    "CompiledSumTree",
    "CumulativeSum",
    "LevelByLevel",
    "LinearScan",
    "PlainSumTree",
    "TreeWithMinimum",
]
