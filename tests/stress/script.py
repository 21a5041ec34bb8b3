"""Command-line helpers of the stress tests, which run as `python tests/stress/NAME.py`."""

import argparse
import shlex
from collections.abc import Iterable, Sequence

from benchmarks.measuring.provenance import Provenance


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"python tests/stress/{name}.py", description=description)


def provenance_of(name: str, argv: Sequence[str], packages: Iterable[str] = ()) -> Provenance:
    command = shlex.join(["python", f"tests/stress/{name}.py", *argv])
    return Provenance.of(name, argv, packages)._replace(command=command)
