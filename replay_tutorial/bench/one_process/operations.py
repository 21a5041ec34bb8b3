"""The operations that are measured: add, sample and update of buffers in one process.

Each case is one row of the table of `buffers`. A library may put work off until later (cpprb repairs its
tree in the next `sample`), so what belongs together is also timed together: `sample` with its
`update_priorities`, and `add` with the `sample` that follows it.

Left out: many processes on one buffer, memory, start-up time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from replay_tutorial.bench.method.markdown import figure
from replay_tutorial.bench.method.timing import FloatArray, Spread, Workload, measure
from replay_tutorial.bench.peers.peer import OURS, Peer, random_rows

BATCH_SIZES = (32, 64, 256, 512)
CHUNK = 101  # rows of a batched add: the most of cpprb's own benchmark
LEARNER_BATCH = 512  # Ape-X's batch


@dataclass(frozen=True)
class Case:
    """One row of the table: an operation, and how a peer makes a workload of it."""

    operation: str
    prepare: Callable[[Peer], Workload | None]  # None: the peer can't do it


@dataclass(frozen=True)
class Row:
    """What was measured of one operation."""

    operation: str
    microseconds: dict[str, Spread]  # peer → time of one call
    ratios: dict[str, Spread]  # peer → its time / our time, taken round by round

    def __str__(self) -> str:
        """Return one line, for those who wait."""
        return f"{self.operation}: {medians_of(self.microseconds)}"


def sample_cases() -> list[Case]:
    """Return uniform `sample`, and prioritized `sample` + `update_priorities`, at each batch size."""
    uniform = [
        Case(f"sample {size}, uniform", lambda peer, size=size: peer.sampling(size, prioritized=False))
        for size in BATCH_SIZES
    ]
    prioritized = [
        Case(f"sample {size} + update {size}, prioritized", lambda peer, size=size: peer.updating(size))
        for size in BATCH_SIZES
    ]
    size = LEARNER_BATCH
    return [
        *uniform,
        Case(f"sample {size}, uniform, each field copied", lambda peer: sampling_copied(peer, size)),
        *prioritized,
    ]


def sampling_copied(peer: Peer, size: int) -> Workload | None:
    """Return a `sample` with each field in an array of its own: ours are views of rows, copied here."""
    sample: Any = peer.sampling(size, prioritized=False)
    if peer.name != OURS:
        return sample
    return lambda: {name: np.ascontiguousarray(field) for name, field in sample().items()}


def add_cases(count: int | None) -> list[Case]:
    """Return `add` of one transition (`count` None) or a batch, without and with priorities."""
    rng = np.random.default_rng(2)
    rows = random_rows(rng, count)
    priorities = rng.exponential(size=count or 1).astype(np.float32)
    add = f"add {count or 1}"
    return [
        Case(f"{add}, uniform", lambda peer: peer.adding(rows, prioritized=False)),
        Case(f"{add}, prioritized", lambda peer: peer.adding(rows, prioritized=True)),
        Case(
            f"{add}, prioritized, priorities given",
            lambda peer: peer.adding(rows, prioritized=True, priorities=priorities),
        ),
    ]


def add_then_sample_cases() -> list[Case]:
    """Return the batched prioritized `add` with the `sample` after it: nothing can be put off."""

    def prepare(add: Case, peer: Peer) -> Workload | None:
        adding, sampling = add.prepare(peer), peer.sampling(LEARNER_BATCH, prioritized=True)
        if adding is None or sampling is None:
            return None

        def add_then_sample() -> None:
            adding()
            sampling()

        return add_then_sample

    return [
        Case(
            add.operation.replace(",", f" + sample {LEARNER_BATCH},", 1),
            lambda peer, add=add: prepare(add, peer),
        )
        for add in add_cases(CHUNK)[1:]
    ]


def all_cases() -> list[Case]:
    """Return every row of the table, in its order."""
    return [*sample_cases(), *add_cases(None), *add_cases(CHUNK), *add_then_sample_cases()]


def row_of(operation: str, seconds: dict[str, FloatArray]) -> Row:
    """Sum up the rounds: medians, quartiles, and ratios that were taken inside each round."""
    return Row(operation, *times_and_ratios(seconds))


def times_and_ratios(seconds: dict[str, FloatArray]) -> tuple[dict[str, Spread], dict[str, Spread]]:
    """Return the microseconds of each peer, and the time of each of the others over ours, round by round."""
    return (
        {name: Spread.of(rounds * 1e6) for name, rounds in seconds.items()},
        {name: Spread.of(rounds / seconds[OURS]) for name, rounds in seconds.items() if name != OURS},
    )


def medians_of(microseconds: dict[str, Spread]) -> str:
    """Return the medians in one line."""
    return ", ".join(f"{name} {figure(spread.median)}" for name, spread in microseconds.items()) + " µs"


def workloads_of(make: Callable[[Peer], Workload | None], peers: Sequence[Peer]) -> dict[str, Workload]:
    """Let each peer make its workload; those that can't are left out."""
    made = {peer.name: make(peer) for peer in peers}
    return {name: workload for name, workload in made.items() if workload is not None}


def run(peers: Sequence[Peer], *, rounds: int, slot_seconds: float = 0.005) -> Iterator[Row]:
    """Measure case after case, every peer in every round.

    Args:
        peers: Who is measured; one of them is named "ours".
        rounds: Slots of each peer in each case.
        slot_seconds: The length of a slot.

    Yields:
        A row as soon as it is measured.
    """
    for case in all_cases():
        workloads = workloads_of(case.prepare, peers)
        yield row_of(case.operation, measure(workloads, rounds=rounds, slot_seconds=slot_seconds))
