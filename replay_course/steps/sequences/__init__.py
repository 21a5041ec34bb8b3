"""From windows of consecutive rows to windows of one episode, with masks, burn-in and stored states."""

from replay_course.steps.sequences.windows_of_episodes import WindowsOfEpisodes
from replay_course.steps.sequences.windows_of_rows import WindowsOfRows
from replay_course.steps.sequences.windows_with_state import WindowsWithState

__all__ = ["WindowsOfEpisodes", "WindowsOfRows", "WindowsWithState"]
