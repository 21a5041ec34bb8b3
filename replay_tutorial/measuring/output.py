"""How a benchmark is asked, and how it hands over what it has measured.

A benchmark prints what it measures as it goes. At the end it prints its table with where the figures come
from, writes that between its marks in a page, and writes the whole record as JSON: this is the part they
have in common.

Left out: what a record holds besides its provenance.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from replay_tutorial.buffers.atomic_file import replace_file
from replay_tutorial.measuring.markdown import put_table
from replay_tutorial.measuring.provenance import Provenance


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser for what follows the benchmark's name on the command line."""
    return argparse.ArgumentParser(prog=f"python -m replay_tutorial bench {name}", description=description)


def add_outputs(parser: argparse.ArgumentParser, mark: str, kept: str = "") -> None:
    """Add the options that say where the record and the table go; `kept` is what stays of an old record."""
    parser.add_argument("--json", type=new_file, metavar="FILE", help=f"write the whole record here{kept}")
    add_markdown(parser, mark)


def add_markdown(parser: argparse.ArgumentParser, mark: str) -> None:
    """Add the option that names a page."""
    marks = f"<!-- {mark}:begin --> and <!-- {mark}:end -->"
    parser.add_argument(
        "--markdown",
        type=page,
        metavar="FILE",
        help=f"write the table into this file, between its marks {marks}",
    )


def new_file(text: str) -> Path:
    """Read the name of a file that can be made, before hours are spent on what it will hold."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}; make it first")
    return path


def page(text: str) -> Path:
    """Read the name of a file that holds marks."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return path


def add_count(
    parser: argparse.ArgumentParser,
    option: str,
    default: int | None,
    text: str,
    minimum: int = 1,
    *,
    nargs: str | None = None,
) -> None:
    """Add an option for a whole number that is not below `minimum`, or for `nargs` of them."""

    def count(given: str) -> int:
        if (value := int(given)) < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {value}")
        return value

    shown = text if default is None else f"{text} (default: {default})"
    parser.add_argument(option, type=count, default=default, nargs=nargs, help=shown)


def hand_over(
    arguments: argparse.Namespace,
    name: str,
    provenance: Provenance,
    body: Mapping[str, object],
    lines: Sequence[str],
    about: str,
    *,
    mark: str | None = None,
) -> int:
    """Print the table, and write it and the record where they were asked.

    Args:
        arguments: With `json` and `markdown`, as `add_outputs` reads them.
        name: Of the benchmark.
        provenance: Stands in the record, and below the table.
        body: What the record holds besides.
        lines: The table's lines.
        about: How to read them; the provenance follows it.
        mark: Of the table in a page; the benchmark's name if it is None.

    Returns:
        The exit status: 0, or 1 if the table was not written.
    """
    text = "\n".join([*lines, "", f"{about} {provenance}".strip()]) + "\n"
    print(f"\n{text}", end="")
    if arguments.json is not None:
        write_record(arguments.json, {"benchmark": name, **provenance._asdict(), **body})
    return 0 if put_table(arguments.markdown, mark or name, text) else 1


def write_record(path: Path, record: Mapping[str, object], indent: int | None = 2) -> None:
    """Write a record, whose leaves may be dataclasses, as JSON, which has no NaN."""
    text = json.dumps(record, indent=indent, default=asdict, allow_nan=False) + "\n"
    replace_file(path, lambda unfinished: unfinished.write_text(text, encoding="utf-8"))
