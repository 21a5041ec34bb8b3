"""A storage whose rows lie on a device: the design of the page *How a row travels*, to be tested on the CPU.

The ring, the sum tree and the random stream stay in host memory. A second copy of the ring's rows, and of the
log of frames, is a tensor on the device. Before a gather, the rows that were added since the last one are
copied to it, in at most two blocks; then one `index_select` gathers whole rows. The fields of a batch are
views of the result, as they are on the CPU.
"""

from typing import Any

import torch

from replay_tutorial import Batch, PrioritizedReplayBuffer, ReplayBuffer


class DeviceCopy:
    """The rows of a memory, uint8[length, bytes], on a device; row i lies in slot i % length."""

    def __init__(self) -> None:
        self._memory: Any = None
        self._tensor: Any = None
        self._copied = 0  # rows before this one are on the device
        self.rows_copied = 0

    def take(self, memory: Any, next_row: int, slots: torch.Tensor) -> torch.Tensor:
        """Return the rows in `slots`, int64[n]; `next_row` counts all rows ever written to the memory."""
        if memory is not self._memory:  # the first call, or `load` or the growth of a log replaced it
            self._memory, self._copied = memory, 0
            self._tensor = torch.empty(memory.shape, dtype=torch.uint8, device=slots.device)
        length = len(memory)
        first = max(self._copied, next_row - length)
        while first < next_row:
            slot = first % length
            count = min(next_row - first, length - slot)  # up to the wrap-around
            self._tensor[slot : slot + count].copy_(torch.from_numpy(memory[slot : slot + count]))
            self.rows_copied += count
            first += count
        self._copied = next_row
        return self._tensor.index_select(0, slots)


class OnDevice(ReplayBuffer):
    """Gathers batches of tensors on a device; everything else is inherited."""

    device = "cpu"
    _copies: dict[str, DeviceCopy]

    def _copy(self, rows: Any, others: Any) -> Batch:
        ring, stages, copies = self._ring, self._stages, self.__dict__.setdefault("_copies", {})
        slots = torch.from_numpy(rows).to(self.device)
        taken = copies.setdefault("rows", DeviceCopy()).take(ring.bytes, ring.next_index, slots)
        places: Any = ring.dtype.fields
        batch = Batch()
        for name in self._gather._names:
            dtype, offset = places[name]
            batch[name] = viewed(taken[:, offset : offset + dtype.itemsize], *(dtype.subdtype or (dtype, ())))
        for log in stages.frames.logs if stages is not None and stages.frames is not None else ():
            layout, copy = log.layout, copies.setdefault(log.layout.names[0], DeviceCopy())
            shape, dtype = list(layout.field.shape), layout.field.dtype
            if layout.axis is not None:
                del shape[layout.axis]
            for name in layout.names:
                numbers = (batch[name] % len(log.memory)).flatten()
                frames = viewed(copy.take(log.memory, log.frames_added, numbers), dtype, shape)
                stacks = frames.unflatten(0, (len(rows), layout.stack))
                batch[name] = stacks[:, 0] if layout.axis is None else stacks.movedim(1, layout.axis + 1)
        batch.update({name: torch.as_tensor(value, device=self.device) for name, value in others.items()})
        return batch


class PrioritizedOnDevice(OnDevice, PrioritizedReplayBuffer):
    """The same with priorities."""


def viewed(rows: torch.Tensor, dtype: Any, shape: Any) -> torch.Tensor:
    """View bytes, uint8[n, bytes], as n values of a dtype and shape."""
    return rows.view(getattr(torch, dtype.name)).view(len(rows), *shape)
