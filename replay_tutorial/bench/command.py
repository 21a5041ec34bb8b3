"""The command line of the benchmarks: `python -m replay_tutorial bench NAME`.

Each benchmark is a module of this package. It is imported only when it runs, because some need the extra
`train`.
"""

import argparse
import importlib
from collections.abc import Sequence

BENCHMARKS = (
    *("buffers", "article", "memory", "startup", "shared", "learning", "sb3", "cleanrl"),
    *("throughput", "tables", "cluster", "report"),
)


def main(argv: Sequence[str]) -> int:
    """Run a benchmark and return its exit status.

    The benchmark is `buffers` if there is no argument or the first is an option.
    """
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial bench",
        description="Measure the buffers, compare them with other libraries, and measure training runs.",
        epilog="Run `bench NAME --help` for the options of a benchmark.",
    )
    which = f"one of {', '.join(BENCHMARKS)} (default: buffers)"
    parser.add_argument(
        "benchmark", nargs="?", choices=BENCHMARKS, default="buffers", metavar="NAME", help=which
    )
    named = argv and (not argv[0].startswith("-") or argv[0] in ("-h", "--help"))
    name = parser.parse_args(argv[:1] if named else []).benchmark
    module = importlib.import_module(f"replay_tutorial.bench.{name}")
    return module.main(argv[1:] if named else argv)
