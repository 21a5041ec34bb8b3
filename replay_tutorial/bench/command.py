"""The command line of the benchmarks: `python -m replay_tutorial bench NAME`.

A benchmark is a module of this folder, imported only when it is called: some need the extra `train`.
"""

import argparse
import importlib
from collections.abc import Sequence

BENCHMARKS = (
    *("buffers", "article", "memory", "startup", "shared", "learning", "throughput", "tables", "cluster"),
    "report",
)


def main(argv: Sequence[str]) -> int:
    """Run a benchmark.

    Args:
        argv: What follows `bench` on the command line; without a name, the arguments of `buffers`.

    Returns:
        The benchmark's exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial bench",
        description="Measure the buffers beside other libraries, what they cost, and whole training runs.",
        epilog="`bench NAME --help` shows the options of one of them.",
    )
    which = f"one of {', '.join(BENCHMARKS)} (default: buffers)"
    parser.add_argument(
        "benchmark", nargs="?", choices=BENCHMARKS, default="buffers", metavar="NAME", help=which
    )
    named = argv and (not argv[0].startswith("-") or argv[0] in ("-h", "--help"))
    name = parser.parse_args(argv[:1] if named else []).benchmark
    module = importlib.import_module(f"replay_tutorial.bench.{name}")
    return module.main(argv[1:] if named else argv)
