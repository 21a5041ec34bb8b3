"""Experience replay, to read from the first line to the last, and then to import."""

from replay_tutorial.buffers import NStep, PrioritizedReplayBuffer, ReplayBuffer, fields_from_spaces
from replay_tutorial.shared import Mailbox, MPPrioritizedReplayBuffer, MPReplayBuffer, SamplesPerInsert

__all__ = [
    "MPPrioritizedReplayBuffer",
    "MPReplayBuffer",
    "Mailbox",
    "NStep",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "SamplesPerInsert",
    "fields_from_spaces",
]
