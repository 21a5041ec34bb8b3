"""Batches for the learner: sampled when it asks, or by a thread that is a few batches ahead.

A GPU would idle while the processor gathers the next rows and sends them over. So a thread does that
meanwhile: it samples rows into pinned memory, from where they travel without the processor, and keeps a few
batches ready. The memory is used again in turns, because new pages for each batch would cost more than the
copying. The batches were sampled before the last priorities came in; the paper's learner is as many as 16
batches ahead. On the processor there is nothing to gain: both would want the same cores.

Left out: more than one thread.

Paper: Horgan et al. 2018, appendix F.
"""

import itertools
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray

from replay_tutorial.agents.td_error import Transitions
from replay_tutorial.apex.context import POLL_SECONDS, Context, Sample
from replay_tutorial.apex.parts import learner_device
from replay_tutorial.buffers.fields import LARGE

PREFETCH_ON_GPU = 4

Arrays = dict[str, NDArray[Any]]  # to sample into, by field
NextSample = Callable[[float], Sample | None]  # seconds to wait at most → None if none was due


@contextmanager
def batch_source(context: Context) -> Generator[NextSample]:
    """Return the function that gets the next sample, with a thread ahead of it if the settings say so."""
    config, device = context.config, learner_device(context.config)

    def sample(out: Arrays) -> Sample | None:
        return context.replay.sample(config.batch_size, config.beta, POLL_SECONDS, out)

    kept: Arrays = {}

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
    prefetcher = Prefetcher(sample, device, ahead)
    try:
        yield prefetcher.next_sample
    finally:
        prefetcher.close()


class PinnedBatch:
    """Memory for one batch, used again and again; pinned, if the batch goes on to a GPU from here."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: Arrays = {}  # the same memory, to sample into; empty before the first batch
        self.sent = torch.cuda.Event() if device.type == "cuda" else None

    def wait(self) -> None:
        """Wait until the last batch has left: on its way to a GPU it must not be written over."""
        if self.sent is not None:
            self.sent.synchronize()

    def on_device(self, rows: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return the batch in `arrays` on the device: to a GPU a copy, on the processor the same memory."""
        if not self.arrays:
            for name in Transitions._fields:
                like = torch.as_tensor(rows[name])
                tensor = torch.empty(like.shape, dtype=like.dtype, pin_memory=self.sent is not None)
                self.tensors[name], self.arrays[name] = tensor.copy_(like), tensor.numpy()
        if self.sent is None:
            return self.tensors
        moved = {name: tensor.to(self.device, non_blocking=True) for name, tensor in self.tensors.items()}
        self.sent.record(torch.cuda.current_stream(self.device))
        return moved


class Prefetcher:
    """A thread that keeps batches ready on a device.

    Args:
        sample: Returns a batch, or None if none is due; fields are to be in the arrays given, if there are.
        device: Where to.
        ahead: Batches that wait at most; the thread holds one more.
    """

    def __init__(self, sample: Callable[[Arrays], Sample | None], device: str, ahead: int) -> None:
        self.sample = sample
        # On the processor one is in use, one in the thread's hand, and the others wait. A GPU has copies.
        count = 2 if torch.device(device).type == "cuda" else ahead + 2
        self.batches = [PinnedBatch(torch.device(device)) for _ in range(count)]
        self.ready: queue.Queue[Sample | BaseException] = queue.Queue(ahead)
        self.closing = False
        self.thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self.thread.start()

    def next_sample(self, timeout: float) -> Sample | None:
        """Return the next batch; None if there is none within `timeout` seconds.

        The batch before may be written over from now on.

        Raises:
            Exception: What the thread failed with.
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
        """End the thread; what it holds is dropped."""
        self.closing = True
        self.thread.join()

    def _work(self) -> None:
        try:
            for batch in itertools.cycle(self.batches):
                batch.wait()
                sample = None
                while sample is None:
                    if self.closing:
                        return
                    sample = self.sample(batch.arrays)
                self._put(sample._replace(rows=batch.on_device(sample.rows)))
        except BaseException as error:  # noqa: BLE001 - re-raised in the learner, which would wait forever
            self._put(error)

    def _put(self, sample: Sample | BaseException) -> None:
        while not self.closing:
            try:
                return self.ready.put(sample, timeout=POLL_SECONDS)
            except queue.Full:
                continue
