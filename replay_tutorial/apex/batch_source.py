"""Batches for the learner, sampled on demand or in advance by a thread.

With a GPU, a thread samples rows into pinned memory and copies them to the device while the learner computes,
so that the GPU doesn't wait for the CPU. The pinned buffers are reused in turn, because allocating new pages
for each batch would cost more than the copy. Prefetched batches don't reflect the newest priorities; the
paper's learner prefetches up to 16 batches. On a CPU, prefetching gains nothing, because thread and learner
compete for the same cores.

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

Arrays = dict[str, NDArray[Any]]  # field → array to sample into
NextSample = Callable[[float], Sample | None]  # timeout in seconds → a batch, or None on timeout


@contextmanager
def batch_source(context: Context) -> Generator[NextSample]:
    """Yield a function that returns the next batch; with `prefetch`, start a thread that samples ahead."""
    config, device = context.config, learner_device(context.config)

    def sample(out: Arrays) -> Sample | None:
        return context.replay.sample(config.batch_size, config.beta, POLL_SECONDS, out)

    kept: Arrays = {}

    def sample_into_kept(timeout: float) -> Sample | None:
        # The learner has finished with a batch when it requests the next one, so the memory is reused.
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
    """Reusable memory for one batch; pinned if the batch is then copied to a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: Arrays = {}  # the same memory as NumPy arrays; empty before the first batch
        self.sent = torch.cuda.Event() if device.type == "cuda" else None

    def wait(self) -> None:
        """Block until the last batch has been copied to the GPU, so that it can be overwritten."""
        if self.sent is not None:
            self.sent.synchronize()

    def on_device(self, rows: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return `arrays` as tensors on the device: a copy on a GPU, the same memory on a CPU."""
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
    """A thread that prefetches batches to a device.

    `sample` samples a batch into the arrays that it is passed, if there are any; it returns None if no batch
    is due. At most `ahead` batches are in the queue; the thread holds one more.
    """

    def __init__(self, sample: Callable[[Arrays], Sample | None], device: str, ahead: int) -> None:
        self.sample = sample
        # On a CPU, the learner uses one batch, the thread fills one, and the others are in the queue. On a
        # GPU, the learner and the queue have copies.
        count = 2 if torch.device(device).type == "cuda" else ahead + 2
        self.batches = [PinnedBatch(torch.device(device)) for _ in range(count)]
        self.ready: queue.Queue[Sample | BaseException] = queue.Queue(ahead)
        self.closing = False
        self.thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self.thread.start()

    def next_sample(self, timeout: float) -> Sample | None:
        """Return the next batch, or None if there is none within `timeout` seconds.

        The previous batch may be overwritten from now on.

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
            for batch in itertools.cycle(self.batches):
                batch.wait()
                sample = None
                while sample is None:
                    if self.closing:
                        return
                    sample = self.sample(batch.arrays)
                self._put(sample._replace(rows=batch.on_device(sample.rows)))
        except BaseException as error:  # noqa: BLE001 - re-raised in the learner, which waits for a batch
            self._put(error)

    def _put(self, sample: Sample | BaseException) -> None:
        while not self.closing:
            try:
                return self.ready.put(sample, timeout=POLL_SECONDS)
            except queue.Full:
                continue
