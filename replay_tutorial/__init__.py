"""Replay buffers for reinforcement learning: uniform, prioritized and shared between processes.

    from replay_tutorial import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer.for_env(env, 100_000, n_step=3, gamma=0.99)  # or a vector environment
    buffer.add(
        obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated, truncated=truncated
    )
    batch = buffer.sample(64, beta=0.4).to_torch()  # batch.obs, …, batch.discount, batch.weights
    buffer.update_priorities(batch.indexes, td_error.abs())

Begin with `help(PrioritizedReplayBuffer.for_env)`. All public names:

Rows of one process
    PrioritizedReplayBuffer     samples rows by priority
    ReplayBuffer                samples rows uniformly
    EpisodeReplayBuffer         stores whole episodes, each observation once
    SequenceReplayBuffer        samples windows of steps for recurrent networks
    sequence_priorities         computes the priorities of windows from those of their steps, as in R2D2
    HindsightReplayBuffer       replaces goals with achieved ones (HER)
    Mixture                     takes a fixed share of each batch from each of several buffers
    laber                       draws a batch from a larger one by the current network's priorities
Arguments and results
    Batch                       the result of `sample`: a dict with attributes, and `to_torch`
    NStep                       configures n-step returns for fields with other names; otherwise pass a number
    fields_from_spaces          declares fields from gymnasium's spaces, as `for_env` does
    with_final_obs              returns the true next observations in the autoreset mode "same_step"
    Checkpoints                 writes a buffer, networks and counters as one atomic checkpoint
Processes of one machine
    MPPrioritizedReplayBuffer   samples shared rows by priority
    MPReplayBuffer              samples shared rows uniformly
    NStepWindow                 builds n-step rows in an actor
    Mailbox                     passes parameters to the actors
    SamplesPerInsert            limits the number of samples per added row

In the source code, the chapters build two folders, which you should read first:
    buffers/          uniform and prioritized replay in one process; its folders contain options
    shared/           the same buffers for several processes of one machine
Agents and training runs:
    agents/           environments, networks, DQN and DPG; adapters for Stable-Baselines3 and CleanRL
    apex/             Ape-X; local/ runs it as processes of one machine, cluster/ on several hosts
Tables of trajectories, with Reverb's semantics:
    tables/
The names of cpprb, for programs that were written for it:
    cpprb.py
The package `replay_course`, which is installed with this one, contains the exercises of the chapters.
"""

from importlib import import_module

TYPE_CHECKING = False  # type checkers recognize the name; importing `typing` would slow down the import
if TYPE_CHECKING:
    from typing import Any

    from replay_tutorial.buffers.batch import Batch
    from replay_tutorial.buffers.episodes.episode_replay import EpisodeReplayBuffer
    from replay_tutorial.buffers.episodes.hindsight import HindsightReplayBuffer
    from replay_tutorial.buffers.episodes.sequences import SequenceReplayBuffer, sequence_priorities
    from replay_tutorial.buffers.n_step.autoreset import with_final_obs
    from replay_tutorial.buffers.n_step.settings import NStep
    from replay_tutorial.buffers.n_step.windows import NStepWindow
    from replay_tutorial.buffers.prioritized import PrioritizedReplayBuffer
    from replay_tutorial.buffers.runtime.checkpoints import Checkpoints
    from replay_tutorial.buffers.schemes.laber import laber
    from replay_tutorial.buffers.schemes.mixture import Mixture
    from replay_tutorial.buffers.spaces import fields_from_spaces
    from replay_tutorial.buffers.uniform import ReplayBuffer
    from replay_tutorial.shared.limiter import SamplesPerInsert
    from replay_tutorial.shared.mailbox import Mailbox
    from replay_tutorial.shared.mp_prioritized import MPPrioritizedReplayBuffer
    from replay_tutorial.shared.mp_uniform import MPReplayBuffer

__version__ = "1.0.0"
__all__ = [
    "Batch",
    "Checkpoints",
    "EpisodeReplayBuffer",
    "HindsightReplayBuffer",
    "MPPrioritizedReplayBuffer",
    "MPReplayBuffer",
    "Mailbox",
    "Mixture",
    "NStep",
    "NStepWindow",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "SamplesPerInsert",
    "SequenceReplayBuffer",
    "fields_from_spaces",
    "laber",
    "sequence_priorities",
    "with_final_obs",
]
MODULES = {
    "Batch": "buffers.batch",
    "Checkpoints": "buffers.runtime.checkpoints",
    "EpisodeReplayBuffer": "buffers.episodes.episode_replay",
    "HindsightReplayBuffer": "buffers.episodes.hindsight",
    "MPPrioritizedReplayBuffer": "shared.mp_prioritized",
    "MPReplayBuffer": "shared.mp_uniform",
    "Mailbox": "shared.mailbox",
    "Mixture": "buffers.schemes.mixture",
    "NStep": "buffers.n_step.settings",
    "NStepWindow": "buffers.n_step.windows",
    "PrioritizedReplayBuffer": "buffers.prioritized",
    "ReplayBuffer": "buffers.uniform",
    "SamplesPerInsert": "shared.limiter",
    "SequenceReplayBuffer": "buffers.episodes.sequences",
    "fields_from_spaces": "buffers.spaces",
    "laber": "buffers.schemes.laber",
    "sequence_priorities": "buffers.episodes.sequences",
    "with_final_obs": "buffers.n_step.autoreset",
}


def __getattr__(name: str) -> "Any":
    """Import a public name on first access, so that a program loads only the modules that it uses."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names, including those not imported yet, and no others."""
    return [*__all__, "__all__", "__doc__", "__version__"]
