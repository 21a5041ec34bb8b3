"""A table of cases beside cpprb: each case is made from a library's module, ours or cpprb's.

`inputs` and `pictures` have the cases; here they are measured in turns and handed over.

Left out: other libraries; `buffers` and `article` have them, with the rows that all of them take.
"""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replay_tutorial.bench.method.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.timing import Workload, measure
from replay_tutorial.bench.one_process.buffers import lines_of
from replay_tutorial.bench.one_process.operations import Row, row_of
from replay_tutorial.bench.peers.peer import CEILING, OURS

PEER = "cpprb"


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    operation: str
    make: Callable[[Any], Workload]  # from the module, whose buffers it makes and fills
    ceiling: Callable[[], Workload]  # the same bytes, by the barest NumPy calls
    theirs: Callable[[Any], Workload] | None = None  # where cpprb has to be called in another way


def run(case: Case, rounds: int, slot_seconds: float = 0.005) -> Row:
    """Measure a case, each side in every round; its buffers are gone afterwards."""
    workloads = {OURS: case.make(importlib.import_module("replay_tutorial")), CEILING: case.ceiling()}
    if importlib.util.find_spec(PEER) is not None:
        workloads[PEER] = (case.theirs or case.make)(importlib.import_module(PEER))
    return row_of(case.operation, measure(workloads, rounds=rounds, slot_seconds=slot_seconds))


def run_all(name: str, description: str, cases: Sequence[Case], about: str, argv: Sequence[str]) -> int:
    """Run a benchmark of cases; return 1 if the table was not written, else 0."""
    parser = new_parser(name, description)
    add_count(parser, "--rounds", 40, "of every case")
    add_outputs(parser, name)
    arguments = parser.parse_args(argv)
    rows: list[Row] = []
    for case in cases:
        rows.append(run(case, arguments.rounds))
        print(rows[-1], flush=True)
    names = [side for side in (OURS, PEER, CEILING) if side in rows[0].microseconds]
    text = (
        f"Medians of {arguments.rounds} interleaved rounds, quartiles in brackets; ratios are taken inside "
        f"each round. {about}"
    )
    body = {"rounds": arguments.rounds, "rows": rows}
    provenance = Provenance.of(name, argv, [PEER] if PEER in names else [])
    return hand_over(arguments, name, provenance, body, lines_of(rows, names), text)
