"""The command line of the benchmark: `python -m replay_tutorial bench`.

Parses the arguments, gathers the peers, prints each row as it comes, and writes the record where it was asked.
"""

import argparse
import importlib
from collections.abc import Callable, Sequence

from replay_tutorial.bench import report_all
from replay_tutorial.bench.many_processes import crash, shared
from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.record import add_outputs, at_least
from replay_tutorial.bench.method.report import Report, heading_line, put_table, text_line
from replay_tutorial.bench.one_process import article, buffers, ceiling, memory, scale, startup
from replay_tutorial.bench.peers import contenders
from replay_tutorial.bench.peers.lineup import FIELDS, OURS, Company
from replay_tutorial.bench.training import cliffwalk

PROGRAM = "python -m replay_tutorial bench"


def training(name: str) -> Callable[[Sequence[str]], int]:
    """Makes what runs a benchmark that needs the extra `train`, which is imported only then."""
    return lambda argv: importlib.import_module(f"replay_tutorial.bench.training.{name}").main(argv)


# benchmarks with a command line of their own
OTHERS = {
    "article": article.main,
    "ceiling": ceiling.main,
    "scale": scale.main,
    "memory": memory.main,
    "startup": startup.main,
    "shared": shared.main,
    "crash": crash.main,
    "cliffwalk": cliffwalk.main,
    **{name: training(name) for name in ("ablations", "faults", "learning", "throughput")},
    "report": report_all.main,
}


def parser() -> argparse.ArgumentParser:
    """Describes the arguments."""
    arguments = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure the buffers beside cpprb, in one run, with the machine's ceiling.",
        epilog=f"Others, each with its own --help: {', '.join(OTHERS)}.",
    )
    arguments.add_argument(
        "benchmark",
        nargs="?",
        choices=["buffers"],
        default="buffers",
        help="what to measure (default: buffers)",
    )
    arguments.add_argument(
        "--capacity",
        type=at_least(buffers.CHUNK),
        default=2**20,
        help="rows in every buffer (default: %(default)s)",
    )
    arguments.add_argument(
        "--rounds", type=at_least(1), default=100, help="rounds of every operation (default: %(default)s)"
    )
    arguments.add_argument(
        "--peers",
        nargs="+",
        choices=[name for name in contenders.CONTENDERS if name != OURS],
        default=["cpprb"],
        help="who is measured beside ours (default: cpprb)",
    )
    add_outputs(arguments, "bench")
    return arguments


def main(argv: Sequence[str]) -> int:
    """Runs a benchmark.

    Args:
        argv: what follows `bench` on the command line.

    Returns:
        The exit status: 0, or 1 if the table could not be written where it was asked.
    """
    if argv and argv[0] in OTHERS:
        return OTHERS[argv[0]](argv[1:])
    arguments = parser().parse_args(argv)
    company = contenders.gather(arguments.capacity, names=[OURS, *arguments.peers])
    for name, reason in company.skipped.items():
        print(f"skipped {name}: {reason}")
    print(heading_line([peer.name for peer in company.peers]))
    rows: list[buffers.Row] = []
    try:
        for row in buffers.run(company.peers, rounds=arguments.rounds):
            print(text_line(row, [peer.name for peer in company.peers]), flush=True)
            rows.append(row)
    finally:
        contenders.close(company.peers)
    report = report_of(argv, arguments.capacity, arguments.rounds, company, rows)
    print(f"\n{report.about()}")
    if arguments.json is not None:
        arguments.json.write_text(report.to_json(), encoding="utf-8")
    return 0 if put_table(arguments.markdown, "bench", report.to_markdown()) else 1


def report_of(
    argv: Sequence[str], capacity: int, rounds: int, company: Company, rows: list[buffers.Row]
) -> Report:
    """Puts the rows and where they come from into one record."""
    fields = " + ".join(str(shape) for shape in FIELDS.values())
    return Report(
        benchmark="buffers",
        provenance=Provenance.of(
            PROGRAM,
            argv,
            contenders.versions_of(company.peers),
        ),
        capacity=capacity,
        rounds=rounds,
        row=f"rows of {fields} float32 ({'/'.join(FIELDS)})",
        skipped=company.skipped,
        rows=rows,
    )
