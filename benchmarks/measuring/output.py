"""Command-line options and output formats common to the benchmarks.

A benchmark ends by printing its table with a caption. It can also write them into a page, between the table's
markers, and write all figures to a JSON file (the record). Benchmarks that draw charts have the option
`--output FOLDER` instead of `--json FILE`.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.measuring.pages import write_table
from benchmarks.measuring.provenance import Provenance
from replay_tutorial.buffers.runtime.atomic_file import replace_file


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser for the arguments of the benchmark `name`."""
    return argparse.ArgumentParser(prog=f"python -m benchmarks {name}", description=description)


def add_outputs(parser: argparse.ArgumentParser, mark: str) -> None:
    """Add the options `--json` and `--markdown`."""
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all figures to this file")
    add_markdown(parser, mark)


def add_markdown(parser: argparse.ArgumentParser, mark: str) -> None:
    """Add the option `--markdown`; `mark` completes the sentence "NAME is …" on the table's markers."""
    markers = f"<!-- NAME:begin --> and <!-- NAME:end -->; NAME is {mark}"
    help_text = f"write the table into these files, between the markers {markers}"
    parser.add_argument("--markdown", type=page, nargs="+", default=[], metavar="FILE", help=help_text)


def new_file(text: str) -> Path:
    """Parse an argument as the path of a file to write, and check that its folder exists."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}; create it first")
    return path


def page(text: str) -> Path:
    """Parse an argument as the path of an existing page."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}; create it with the table's markers")
    return path


def positive(text: str) -> float:
    """Parse an argument as a positive, finite number."""
    if not 0 < (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"must be positive and finite, not {text}")
    return value


def add_seconds(
    parser: argparse.ArgumentParser, default: float, text: str, option: str = "--seconds"
) -> None:
    """Add an option for a duration."""
    parser.add_argument(option, type=positive, default=default, help=f"{text} (default: {default:g})")


def add_count(
    parser: argparse.ArgumentParser,
    option: str,
    default: int | None,
    text: str,
    minimum: int = 1,
    *,
    nargs: str | None = None,
) -> None:
    """Add an option for an integer of at least `minimum`, or for several if `nargs` is passed."""

    def count(given: str) -> int:
        if (value := int(given)) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {value}")
        return value

    shown = text if default is None else f"{text} (default: {default})"
    parser.add_argument(option, type=count, default=default, nargs=nargs, help=shown)


def write_results(
    arguments: argparse.Namespace,
    name: str,
    provenance: Provenance,
    body: Mapping[str, object],
    lines: Sequence[str],
    about: str,
    *,
    mark: str | None = None,
) -> int:
    """Print the table, and write the table and the record to the files of the options.

    Args:
        arguments: Parsed arguments with `json` and `markdown`.
        name: Name of the benchmark.
        provenance: Included in the record and in the caption.
        body: The other entries of the record.
        lines: Lines of the table.
        about: Caption, followed by the provenance.
        mark: Name of the markers in the page (default: `name`).

    Returns:
        Exit status: 0, or 1 if the table could not be written.
    """
    text = "\n".join([*lines, "", f"{about} {provenance}".strip()]) + "\n"
    print(f"\n{text}", end="")
    if arguments.json is not None:
        write_record(arguments.json, {"benchmark": name, **provenance._asdict(), **body})
    return 0 if write_table(arguments.markdown, mark or name, text) else 1


def write_record(path: Path, record: Mapping[str, object]) -> None:
    """Write a record as JSON; its values may be dataclasses, but not NaN or infinity."""
    text = json.dumps(record, indent=2, default=asdict, allow_nan=False) + "\n"
    replace_file(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))
