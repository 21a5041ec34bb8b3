"""How a benchmark hands over what it has measured: where to, and in which form.

Every benchmark prints a Markdown table as it goes, and at the end writes the whole record as JSON and the table between
the marks of its name in a page. This is the part that they have in common.

Left out: the table of `bench buffers`, which has a form of its own (`report`).
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from replay_tutorial.bench.method.provenance import Provenance
from replay_tutorial.bench.method.report import put_table


def add_outputs(arguments: argparse.ArgumentParser, name: str, kept: str = "") -> None:
    """Add the options that say where the record and the table go; `kept` is what stays of an old record."""
    arguments.add_argument("--json", type=new_file, metavar="FILE", help=f"write the whole record here{kept}")
    arguments.add_argument(
        "--markdown",
        type=page,
        metavar="FILE",
        help=f"write the table into this file, between its marks <!-- {name}:begin --> and <!-- {name}:end -->",
    )


def new_file(text: str) -> Path:
    """Read the name of a file that can be made, before hours are spent on what it is to hold."""
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


def at_least(least: int) -> Callable[[str], int]:
    """Make a reader of whole numbers that are not below `least`."""

    def whole_number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return whole_number


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """Lay a Markdown table out; all but its first `words` columns hold figures and end on the right.

    Example:
        >>> table(["work", "µs"], [["add", "2.1"]])
        ['| work | µs |', '| --- | ---: |', '| add | 2.1 |']
    """
    rules = ["---" if column < words else "---:" for column in range(len(heads))]
    return ["| " + " | ".join(cells) + " |" for cells in (heads, rules, *rows)]


def hand_over(
    arguments: argparse.Namespace,
    name: str,
    provenance: Provenance,
    body: Mapping[str, object],
    lines: Sequence[str],
) -> int:
    """Print the table, and write it and the record where they were asked.

    Args:
        arguments: With `json` and `markdown`, as `add_outputs` reads them.
        name: Of the benchmark, and of its marks.
        provenance: Stands in the record, and below the table.
        body: What the record holds besides.
        lines: The page's lines, up to the provenance, which follows on the last of them.

    Returns:
        The exit status: 0, or 1 if the table could not be written.
    """
    text = "\n".join([*lines[:-1], f"{lines[-1]} {provenance}"]) + "\n"
    print(text, end="")
    if arguments.json is not None:
        whole = {"benchmark": name, **provenance._asdict(), **body}
        arguments.json.write_text(json.dumps(whole, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return 0 if put_table(arguments.markdown, name, text) else 1
