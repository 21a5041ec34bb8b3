"""Batches for the learner: sampled when it asks, or by a thread that is a few batches ahead.

A GPU would idle while the processor gathers the next rows and sends them over. So a thread does that
meanwhile: it samples rows, lays them into pinned memory, from where they travel without the processor, and
keeps a few batches ready. They were sampled before the last priorities came in; the paper's learner is as
many as 16 batches ahead. On the processor there is nothing to gain: both would want the same cores.

Left out: more than one thread.

Paper: Horgan et al. 2018, appendix F.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray

from replay_tutorial.agents.td_error import Transitions
from replay_tutorial.apex.context import POLL_SECONDS, Context, Sample
from replay_tutorial.apex.parts import learner_device
from replay_tutorial.buffers.gather import LARGE

PREFETCH_ON_GPU = 4

NextSample = Callable[[float], Sample | None]  # seconds to wait at most → None if none was due


@contextmanager
def batch_source(context: Context) -> Generator[NextSample]:
    """Return the function that gets the next sample, with a thread ahead of it if the settings say so."""
    config, device = context.config, learner_device(context.config)

    def sample(timeout: float) -> Sample | None:
        return context.replay.sample(config.batch_size, config.beta, timeout)

    kept: dict[str, NDArray[Any]] = {}

    def sample_into_kept(timeout: float) -> Sample | None:
        # The learner is done with a batch when it asks for the next one, so that its memory is used again.
        drawn = context.replay.sample(config.batch_size, config.beta, timeout, kept)
        if drawn is not None and not kept:
            large = {n: rows for n, rows in drawn.rows.items() if rows.nbytes >= LARGE * len(rows)}
            kept.update({name: rows for name, rows in large.items() if rows.flags.c_contiguous})
        return drawn

    ahead = config.prefetch
    if ahead is None:
        ahead = PREFETCH_ON_GPU if device.startswith("cuda") else 0
    if ahead == 0:
        yield sample_into_kept
        return
    prefetcher = Prefetcher(lambda: sample(POLL_SECONDS), device, ahead)
    try:
        yield prefetcher.next_sample
    finally:
        prefetcher.close()


class Prefetcher:
    """A thread that keeps batches ready on a device.

    Args:
        sample: Returns a batch, or None if none is due.
        device: Where to.
        ahead: Batches that wait at most; the thread holds one more.
    """

    def __init__(self, sample: Callable[[], Sample | None], device: str, ahead: int) -> None:
        self.sample = sample
        self.device = torch.device(device)
        self.ready: queue.Queue[Sample] = queue.Queue(ahead)
        self.error: BaseException | None = None
        self.closing = False
        self.thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self.thread.start()

    def next_sample(self, timeout: float) -> Sample | None:
        """Return the next batch; None if there is none within `timeout` seconds.

        Raises:
            Exception: What the thread failed with.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self.ready.get(timeout=max(0.0, min(POLL_SECONDS, deadline - time.monotonic())))
            except queue.Empty:
                if self.error is not None:
                    raise self.error from None
                if time.monotonic() >= deadline:
                    return None

    def close(self) -> None:
        """End the thread; what it holds is dropped."""
        self.closing = True
        self.thread.join()

    def _work(self) -> None:
        try:
            while not self.closing:
                sample = self.sample()
                if sample is not None:
                    self._hand_over(sample._replace(rows=self._on_device(sample.rows)))
        except BaseException as error:  # noqa: BLE001 - the learner shall fail with it, not wait forever
            self.error = error

    def _hand_over(self, sample: Sample) -> None:
        while not self.closing:
            try:
                return self.ready.put(sample, timeout=POLL_SECONDS)
            except queue.Full:
                continue

    def _on_device(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        moved: dict[str, Any] = {}
        for name in Transitions._fields:
            tensor = torch.as_tensor(rows[name])
            if self.device.type == "cuda":
                pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                tensor = pinned.copy_(tensor).to(self.device, non_blocking=True)
            moved[name] = tensor
        return moved
