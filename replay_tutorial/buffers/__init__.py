"""Replay buffers for a single process."""

from replay_tutorial.buffers.episodes import EpisodeReplayBuffer
from replay_tutorial.buffers.hindsight import HindsightReplayBuffer
from replay_tutorial.buffers.laber import laber
from replay_tutorial.buffers.mixture import Mixture
from replay_tutorial.buffers.n_step_windows import NStep
from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
from replay_tutorial.buffers.sequences import SequenceReplayBuffer, sequence_priorities
from replay_tutorial.buffers.spaces import fields_from_spaces
from replay_tutorial.buffers.uniform import ReplayBuffer

__all__ = [
    "EpisodeReplayBuffer",
    "HindsightReplayBuffer",
    "Mixture",
    "NStep",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "SequenceReplayBuffer",
    "fields_from_spaces",
    "laber",
    "sequence_priorities",
]
