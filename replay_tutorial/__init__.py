"""Experience replay, to read from the first line to the last, and then to import."""

from replay_tutorial.buffers import NStep, PrioritizedReplayBuffer, ReplayBuffer, fields_from_spaces

__all__ = ["NStep", "PrioritizedReplayBuffer", "ReplayBuffer", "fields_from_spaces"]
