"""Batches for the learner, sampled on demand or in advance by a thread.

With a GPU, a thread samples rows and copies them to pinned memory, and from there to the device, while the
learner computes, so that the GPU doesn't wait for the CPU. Prefetched batches don't reflect the newest
priorities; the paper's learner prefetches up to 16 batches. On a CPU, prefetching gains nothing, because
thread and learner compete for the same cores.

Paper: Horgan et al. 2018, appendix F.
"""

import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from replay_tutorial.agents.td_error import Transitions
from replay_tutorial.apex.context import POLL_SECONDS, Context, Sample
from replay_tutorial.apex.parts import learner_device

PREFETCH_ON_GPU = 4

NextSample = Callable[[float], Sample | None]  # timeout in seconds → a batch, or None on timeout


@contextmanager
def batch_source(context: Context) -> Generator[NextSample]:
    """Yield a function that returns the next batch; with `prefetch`, start a thread that samples ahead."""
    config, device = context.config, learner_device(context.config)

    def sample(timeout: float) -> Sample | None:
        return context.replay.sample(config.batch_size, config.beta, timeout)

    ahead = config.prefetch
    if ahead is None:
        ahead = PREFETCH_ON_GPU if device.startswith("cuda") else 0
    if ahead == 0:
        yield sample
        return
    prefetcher = Prefetcher(sample, device, ahead)
    try:
        yield prefetcher.next_sample
    finally:
        prefetcher.close()


def to_device(rows: Mapping[str, Any], device: str) -> dict[str, torch.Tensor]:
    """Return the arrays of a batch as tensors: copies on a GPU, the same memory on a CPU.

    A copy from pinned memory to a GPU is asynchronous. PyTorch keeps pinned memory for later batches, because
    allocating it takes long, and reuses it only once the copy from it is complete.
    """
    tensors = {name: torch.as_tensor(rows[name]) for name in Transitions._fields}
    if device.startswith("cuda"):
        for name, tensor in tensors.items():
            tensors[name] = tensor.contiguous().pin_memory().to(device, non_blocking=True)
    return tensors


class Prefetcher:
    """A thread that prefetches batches to a device.

    `sample` samples a batch, or returns None if no batch is due within its timeout. At most `ahead` batches
    are in the queue; the thread holds one more.
    """

    def __init__(self, sample: NextSample, device: str, ahead: int) -> None:
        self.sample, self.device = sample, device
        self.ready: queue.Queue[Sample | BaseException] = queue.Queue(ahead)
        self.closing = False
        self.thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self.thread.start()

    def next_sample(self, timeout: float) -> Sample | None:
        """Return the next batch, or None if there is none within `timeout` seconds.

        Raises:
            Exception: The exception that ended the thread.
        """
        try:
            ready = self.ready.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(ready, BaseException):
            self.ready.put(ready)  # for the next call
            raise ready
        return ready

    def close(self) -> None:
        """Stop the thread and drop its batches."""
        self.closing = True
        self.thread.join()

    def _work(self) -> None:
        try:
            while not self.closing:
                sample = self.sample(POLL_SECONDS)
                if sample is not None:
                    self._put(sample._replace(rows=to_device(sample.rows, self.device)))
        except BaseException as error:  # noqa: BLE001 - re-raised in the learner, which waits for a batch
            self._put(error)

    def _put(self, sample: Sample | BaseException) -> None:
        while not self.closing:
            try:
                return self.ready.put(sample, timeout=POLL_SECONDS)
            except queue.Full:
                continue
