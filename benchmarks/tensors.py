"""`python -m benchmarks tensors`: `Batch.to_torch` beside its floor, `torch.from_numpy` of the same arrays.

Prints the thread CPU time of a call and the ratio in each round: median and range.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import thread_time
from typing import Any

import numpy as np
import torch

from benchmarks.measuring.output import new_parser
from benchmarks.peers.buffer import FIELDS
from replay_tutorial import PrioritizedReplayBuffer, ReplayBuffer

CALLS, ROUNDS, BATCH_SIZE = 1_000, 15, 64


def main(argv: Sequence[str]) -> int:
    """Measure all ways in turns, for a uniform and a prioritized buffer."""
    new_parser("tensors", "Measure the conversion of a batch to tensors.").parse_args(argv)
    for kind in (ReplayBuffer, PrioritizedReplayBuffer):
        ways = ways_for(kind)
        rounds = [{name: microseconds(way) for name, way in ways.items()} for _ in range(1 + ROUNDS)][1:]
        for name in ways:
            times = [each[name] for each in rounds]
            ratios = [each[name] / each["from_numpy"] for each in rounds]
            print(f"{kind.__name__:24} {name:11} {spread(times)} µs   {spread(ratios)} times the floor")
    return 0


def ways_for(kind: Any) -> Mapping[str, Callable[[], Any]]:
    """Return each way to convert a sample of a buffer of this kind."""
    buffer = kind(1_000, {name: {"shape": length} for name, length in FIELDS.items()}, seed=0)
    buffer.add(**{name: np.ones((1_000, length)) for name, length in FIELDS.items()})
    batch = buffer.sample(BATCH_SIZE)
    arrays: list[Any] = list(batch.values())
    fields = arrays[: len(FIELDS)]
    width = fields[0].strides[0] // 4  # all fields are views of a block of float32
    block = np.lib.stride_tricks.as_strided(fields[0], (BATCH_SIZE, width))
    starts = [(each.ctypes.data - fields[0].ctypes.data) // 4 for each in fields]
    from_numpy: Any = torch.from_numpy  # pyright: ignore[reportUnknownMemberType]

    def as_strided() -> list[Any]:
        whole = from_numpy(block)
        parts = zip(FIELDS.values(), starts, strict=True)
        views = [torch.as_strided(whole, (BATCH_SIZE, length), (width, 1), start) for length, start in parts]
        return [*views, *map(from_numpy, arrays[len(fields) :])]

    return {
        "to_torch": batch.to_torch,
        "from_numpy": lambda: [from_numpy(array) for array in arrays],
        "as_strided": as_strided,
        "dlpack": lambda: [torch.from_dlpack(array) for array in arrays],
    }


def microseconds(call: Callable[[], Any]) -> float:
    """Return the thread CPU time of a call in µs, the mean of `CALLS`."""
    start = thread_time()
    for _ in range(CALLS):
        call()
    return (thread_time() - start) / CALLS * 1e6


def spread(values: Sequence[float]) -> str:
    """Format the median and the range."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
