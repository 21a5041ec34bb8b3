"""The command line of the lab: `python -m benchmarks NAME`, in a clone of the repository.

Each command is a module of this package. It is imported only when it runs, because most need libraries of
`requirements.txt`.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

from replay_tutorial.__main__ import INTERRUPTED, print_log

COMMANDS = {  # name → module
    **{
        name: f"benchmarks.{name}"
        for name in (
            *("buffers", "article", "memory", "startup", "shared", "learning", "sb3", "cleanrl"),
            *("throughput", "tables", "tensors", "load", "transports", "cluster", "cluster_tables", "report"),
        )
    },
    "conformance": "benchmarks.conformance.command",
}


def main(argv: Sequence[str]) -> int:
    """Run a command and return its exit status.

    The command is `buffers` if there is no argument or the first is an option.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the buffers, compare them with other libraries, and measure training runs.",
        epilog="Run `python -m benchmarks NAME --help` for the options of a command.",
    )
    which = f"one of {', '.join(COMMANDS)} (default: buffers)"
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="buffers", metavar="NAME", help=which)
    named = argv and (not argv[0].startswith("-") or argv[0] in ("-h", "--help"))
    name = parser.parse_args(argv[:1] if named else []).command
    print_log()
    try:
        return importlib.import_module(COMMANDS[name]).main(argv[1:] if named else argv)
    except KeyboardInterrupt as error:
        if str(error):
            print(f"{name}: {error}", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
