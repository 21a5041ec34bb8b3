"""A table of cases beside cpprb and learning libraries.

Each case is made from a module, ours or cpprb's, which have the same calls; beside them stand the calls of
Stable-Baselines3, tianshou and TorchRL. `inputs` and `pictures` have the cases; here they are measured in
turns and handed over.

Left out: the rows that all libraries take; `buffers` and `article` have them.
"""

import importlib
import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from replay_tutorial.bench.method.markdown import spread_text, table
from replay_tutorial.bench.method.output import add_count, add_outputs, hand_over, new_parser
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.timing import Workload, measure
from replay_tutorial.bench.one_process.buffers import lines_of
from replay_tutorial.bench.one_process.operations import Row, row_of
from replay_tutorial.bench.peers.lineup import PEERS
from replay_tutorial.bench.peers.ordinary import Ordinary, installed
from replay_tutorial.bench.peers.peer import CEILING, OURS

PEER = "cpprb"


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    operation: str
    make: Callable[[Any], Workload]  # from the module, whose buffers it makes and fills
    ceiling: Callable[[], Workload]  # the same bytes, by the barest NumPy calls
    beside: Callable[[type[Ordinary]], Workload | None]  # by a learning library; None if it has no such thing
    theirs: Callable[[Any], Workload] | None = None  # where cpprb has to be called in another way


def run(case: Case, rounds: int, libraries: Mapping[str, type[Ordinary]], slot_seconds: float = 0.005) -> Row:
    """Measure a case, each side in every round; its buffers are gone afterwards."""
    workloads = {OURS: case.make(importlib.import_module("replay_tutorial")), CEILING: case.ceiling()}
    if importlib.util.find_spec(PEER) is not None:
        workloads[PEER] = (case.theirs or case.make)(importlib.import_module(PEER))
    made = {name: case.beside(library) for name, library in libraries.items()}
    workloads |= {name: workload for name, workload in made.items() if workload is not None}
    return row_of(case.operation, measure(workloads, rounds=rounds, slot_seconds=slot_seconds))


def lines_beside(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return the table of learning libraries: empty where one can't do it, bold where we are slower."""

    def cell(row: Row, name: str) -> str:
        text = spread_text(row.ratios.get(name))
        return f"**{text}**" if text and row.ratios[name].median < 1 else text

    heads = ["operation", *(f"times faster than {name}" for name in names)]
    cells = [[row.operation, *(cell(row, name) for name in names)] for row in rows]
    return ["", *table(heads, cells)] if names else []


def run_all(name: str, description: str, cases: Sequence[Case], about: str, argv: Sequence[str]) -> int:
    """Run a benchmark of cases; return 1 if the table was not written, else 0."""
    parser = new_parser(name, description)
    add_count(parser, "--rounds", 40, "of every case")
    add_outputs(parser, name)
    arguments = parser.parse_args(argv)
    libraries, skipped = installed()
    if importlib.util.find_spec(PEER) is None:
        skipped = {PEER: f"No module named '{PEER}'", **skipped}
    for missing, reason in skipped.items():
        print(f"skipped {missing}: {reason}")
    rows: list[Row] = []
    for case in cases:
        rows.append(run(case, arguments.rounds, libraries))
        print(rows[-1], flush=True)
    names = [side for side in (OURS, PEER, CEILING) if side in rows[0].microseconds]
    text = (
        f"Medians of {arguments.rounds} interleaved rounds, quartiles in brackets; ratios are taken inside "
        f"each round, and those of both tables in the same rounds. {about}"
    )
    text += "".join(f" Skipped: {missing} ({reason})." for missing, reason in skipped.items())
    body = {"rounds": arguments.rounds, "skipped": skipped, "rows": rows}
    measured = [side for side in (PEER, *libraries) if side not in skipped]
    packages = itertools.chain.from_iterable(PEERS[side].distributions for side in measured)
    provenance = Provenance.of(name, argv, dict.fromkeys(packages))
    lines = [*lines_of(rows, names), *lines_beside(rows, list(libraries))]
    return hand_over(arguments, name, provenance, body, lines, text)
