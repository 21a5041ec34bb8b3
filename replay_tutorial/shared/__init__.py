"""Data structures that the processes of one machine share: replay buffers, a mailbox and a limiter."""

from replay_tutorial.shared.limiter import SamplesPerInsert
from replay_tutorial.shared.mailbox import Mailbox
from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer
from replay_tutorial.shared.mp_uniform import MPReplayBuffer

__all__ = ["MPPrioritizedReplayBuffer", "MPReplayBuffer", "Mailbox", "SamplesPerInsert"]
