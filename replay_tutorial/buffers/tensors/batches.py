"""Batches: an endless iterator over batches of tensors, drawn and copied ahead of the learner.

    next:  draw the batch that is `prefetch` further on ──▶ thread: copy its rows, and copy them to the device
           return the oldest batch, whose copies are usually finished

Only the thread that calls `next` draws, so that a seed determines all batches; the other thread only copies
the drawn rows. `add` could replace them meanwhile, so it first waits for the copies. `save` stores the
batches that have been drawn but not returned, so that a loop resumes exactly. A copy of an iterator
in another process draws batches of its own, as its copy of the buffer does.
"""

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from replay_tutorial.buffers.batch import Batch, pytorch
from replay_tutorial.buffers.runtime.interrupts import defer_sigint

if TYPE_CHECKING:  # loaded when a buffer is saved or loaded
    from replay_tutorial.buffers.archive import Arrays, Reader

DTYPES = {np.dtype(code).str[1:] for code in np.typecodes["All"] if np.dtype(code).kind in "biufc"}
SERIALS = count()  # of the iterators, in the order of their creation

Finish = Callable[[], Batch]  # copies the rows of a batch that has been drawn


class Batches(Iterator[Batch]):
    """An endless iterator over batches of tensors; the method `batches` of a buffer creates it.

    A `with` statement closes it. An error doesn't end it, so that `next` can be called again. PyTorch treats
    it as an `IterableDataset`: `DataLoader(batches, batch_size=None)`.
    """

    def __init__(
        self,
        buffer: Any,
        batch_size: int,
        device: Any,
        beta: float | Callable[[int], float] | None,
        prefetch: int,
        start: int,
        options: Mapping[str, Any],
    ) -> None:
        self._buffer, self._batch_size, self._device = buffer, batch_size, device
        self._beta, self._prefetch, self._options = beta, prefetch, dict(options)
        self._ahead: deque[Future[OnDevice]] = deque()  # drawn and not returned yet, oldest first
        self._number = start  # of the next batch to draw
        self._source: Any = None  # of the batches in `_ahead`
        self._copier = new_copier()
        self._num_submitted, self._num_copied = 0, [0]  # batches; the second is changed by the thread only
        self._stream = cuda_stream(device)
        self._is_closed = False
        for each in buffer._buffers():
            each._iterators = weakref.WeakSet() if each._iterators is None else each._iterators
        self.serial = next(SERIALS)
        _iterators.add(self)
        register_dataset()

    def __reduce__(self) -> tuple[Any, ...]:
        number = self._number - len(self._ahead)
        options = self._batch_size, self._device, self._beta, self._prefetch, number, self._options
        return Batches, (self._buffer, *options)

    def __next__(self) -> Batch:
        """Return the next batch.

        Raises:
            ValueError: If the buffer is empty, or for another reason for which `sample` raises it.
        """
        if self._is_closed:
            raise StopIteration
        source = self._buffer._source()
        if self._source != source:  # this is the first call, or the buffer was cleared, loaded or reseeded
            self._start(source)
        if not self._ahead and not self._prefetch:
            batch = self._buffer.sample(self._batch_size, **self._arguments())
            self._number += 1
            return batch.to_torch(self._device)
        with defer_sigint():  # it could leave a lock of the executor or of a future locked
            while len(self._ahead) <= self._prefetch:
                self._submit(self._buffer._draw_batch(self._batch_size, self._arguments())[0])
            wait([self._ahead[0]])
        ready = self._ahead.popleft().result()  # may be an error
        return ready.received()

    def close(self) -> None:
        """Stop the thread, and discard the batches that have not been returned."""
        self._is_closed = True
        with defer_sigint():
            self._copier.shutdown(cancel_futures=True)
        self._ahead.clear()
        for each in self._buffer._buffers():
            each._iterators.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def finish_copies(self) -> None:
        """Wait until all rows that have been drawn are copied."""
        if self._num_copied[0] < self._num_submitted:
            with defer_sigint():
                wait(self._ahead)

    def drawn_ahead(self, buffer: Any) -> list[Batch]:
        """Return the batches of this buffer, as arrays, that have been drawn and will be returned."""
        if self._buffer is not buffer:
            return []  # of a mixture of this buffer and others
        if self._source != buffer._source():
            return []  # `next` will discard them
        with defer_sigint():
            copied = [future.result() for future in self._ahead if future.exception() is None]
        return [
            Batch({name: tensor.numpy(force=True) for name, tensor in each.received().items()})
            for each in copied
        ]

    def restart_in_child(self) -> None:
        """Discard the batches of the parent process, and its thread, which doesn't exist in this one."""
        self._number -= len(self._ahead)
        self._ahead, self._copier, self._source = deque(), new_copier(), None
        self._num_submitted, self._num_copied = 0, [0]

    def _start(self, source: Any) -> None:
        """Discard the batches of another source, and begin with those that were loaded with this one."""
        self._ahead.clear()
        self._source = source
        if loaded := self._buffer._loaded_ahead:
            sizes = {len(batch.get("indexes", next(iter(batch.values())))) for batch in loaded[0]}
            if sizes != {self._batch_size}:
                self._source = None
                raise ValueError(
                    f"The loaded file contains batches of {max(sizes)} rows, which were drawn in advance "
                    f"when it was saved; pass batch_size={max(sizes)}, or call reseed() to discard them."
                )
            for batch in loaded.pop(0):
                self._submit(batch.copy)

    def _arguments(self) -> dict[str, Any]:
        """Return the further arguments of `sample` for the next batch."""
        if self._beta is None:
            return self._options
        return {**self._options, "beta": self._beta(self._number) if callable(self._beta) else self._beta}

    def _submit(self, finish: Finish) -> None:
        """Let the thread copy a batch that has been drawn."""
        job = copy_to_device, finish, self._device, self._stream
        self._ahead.append(self._copier.submit(count_copied, self._num_copied, *job))
        self._num_submitted += 1
        self._number += 1
        for each in self._buffer._buffers():
            each._iterators.add(self)


class OnDevice(NamedTuple):
    """A batch of tensors, and the CUDA event after the copies to it; None on another device."""

    batch: Batch
    copied: Any

    def received(self) -> Batch:
        """Return the batch; what the caller's CUDA stream computes with it waits for the copies."""
        if self.copied is not None:
            for tensor in self.batch.values():
                stream = pytorch().cuda.current_stream(tensor.device)
                stream.wait_event(self.copied)
                tensor.record_stream(stream)  # so that its memory isn't reused before this stream is done
        return self.batch


def new_copier() -> ThreadPoolExecutor:
    """Return an executor of one thread, which starts at the first batch that is drawn ahead."""
    return ThreadPoolExecutor(1, "batches")


def cuda_stream(device: Any) -> Any:
    """Return a new stream for copies to a CUDA device; None for another device."""
    torch = pytorch()
    is_cuda = device is not None and torch.device(device).type == "cuda"
    return torch.cuda.Stream(device) if is_cuda else None


def count_copied(num_copied: list[int], copy: Callable[..., "OnDevice"], *arguments: Any) -> "OnDevice":
    """Call `copy`, and increment `num_copied` when it returns or fails."""
    try:
        return copy(*arguments)
    finally:
        num_copied[0] += 1


def copy_to_device(finish: Finish, device: Any, stream: Any) -> OnDevice:
    """Copy the rows of a batch, and then to the device if it isn't the CPU."""
    rows = finish()
    if stream is None:
        return OnDevice(rows.to_torch(device), None)
    torch = pytorch()
    with torch.cuda.stream(stream):
        waiting = {name: pinned(tensor) for name, tensor in rows.to_torch().items()}
        copies = {name: tensor.to(device, non_blocking=True) for name, tensor in waiting.items()}
        return OnDevice(Batch(copies), stream.record_event())


def pinned(tensor: Any) -> Any:
    """Return a contiguous copy in pinned memory, which PyTorch reuses only after the copy from it."""
    return pytorch().empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def state_ahead(buffer: Any) -> "tuple[list[Any], Arrays]":
    """Return the batches that the iterators of a buffer have drawn ahead: the fields as JSON, and arrays."""
    iterators = sorted(buffer._iterators or (), key=lambda each: each.serial)
    lists = [drawn for each in iterators if (drawn := each.drawn_ahead(buffer))]
    lists += buffer._loaded_ahead
    described, arrays = list[Any](), dict[str, Any]()
    for i, batches in enumerate(lists):
        described.append(
            [
                {name: [list(array.shape), array.dtype.str] for name, array in batch.items()}
                for batch in batches
            ]
        )
        for j, batch in enumerate(batches):
            arrays |= {f"ahead/{i}/{j}/{name}": [array] for name, array in batch.items()}
    return described, arrays


def read_ahead(buffer: Any, described: Any, reader: "Reader") -> list[list[Batch]]:
    """Read the batches that `state_ahead` returned; raise Damaged if the description is not one of them."""
    from replay_tutorial.buffers.archive import Damaged, checked_dict

    def read(name: str, shape: Any, dtype: Any) -> Any:
        if not {type(length) for length in shape} <= {int} or min(shape) < 0 or dtype[1:] not in DTYPES:
            raise Damaged(f"{name} is described as {dtype!r:.60}{shape!r:.60}")
        reader.check(name, tuple(shape), dtype)  # before memory is allocated
        array = np.empty(shape, dtype)
        reader.read_into(name, [array])
        return array

    _loaded.add(buffer)
    try:
        return [
            [
                Batch(
                    {
                        name: read(f"ahead/{i}/{j}/{name}", *spec)
                        for name, spec in checked_dict(batch, "ahead").items()
                    }
                )
                for j, batch in enumerate(batches)
            ]
            for i, batches in enumerate(described)
        ]
    except (TypeError, ValueError) as error:
        raise Damaged(f"the description of the batches drawn ahead is invalid ({error})") from None


@cache
def register_dataset() -> None:
    """Let PyTorch's `DataLoader` accept an iterator as a dataset, but not combine its batches."""
    import_module("torch.utils.data").IterableDataset.register(Batches)
    import_module("torch.utils.data._utils.collate").default_collate_fn_map[Batch] = refuse_to_stack


def refuse_to_stack(batches: list[Batch], **_: Any) -> None:
    """Raise TypeError, because a DataLoader would make arrays of shape (1, B, ...) of a batch."""
    raise TypeError(
        f"The dataset already yields batches, of which DataLoader would stack {len(batches)}. Pass "
        "batch_size=None, or a collate_fn of your own."
    )


_iterators: weakref.WeakSet[Batches] = weakref.WeakSet()
_loaded: weakref.WeakSet[Any] = weakref.WeakSet()  # buffers whose file contained batches drawn ahead


def draw_own_batches() -> None:
    """Let a forked child draw batches of its own, instead of those of its parent."""
    for batches in list(_iterators):
        batches.restart_in_child()
    for buffer in list(_loaded):
        buffer._loaded_ahead = ()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=draw_own_batches)
