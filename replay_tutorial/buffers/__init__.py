"""Replay buffers for a single process."""

from replay_tutorial.buffers.episodes.episode_replay import EpisodeReplayBuffer
from replay_tutorial.buffers.episodes.hindsight import HindsightReplayBuffer
from replay_tutorial.buffers.episodes.sequences import SequenceReplayBuffer, sequence_priorities
from replay_tutorial.buffers.n_step.windows import NStep
from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
from replay_tutorial.buffers.schemes.laber import laber
from replay_tutorial.buffers.schemes.mixture import Mixture
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
