"""Reads the files of a run; errors state which file is damaged and how.

A file may be truncated, changed, or written by another program. No file is read with pickle, so that a run
from an untrusted source can't execute code.
"""

import csv
import io
import json
import zlib
from pathlib import Path
from typing import Any, cast

CLUSTER_FILE = "cluster.json"  # the hosts and options of a run on a cluster
CSV_REMEDY = "Restore it from a backup, or remove it: `resume` then starts a new one."


class DamagedFile(ValueError):
    """A file of a run can't be used; the message states which file, why, and the remedy."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raise DamagedFile if the file is not valid JSON, or not an object."""
    try:
        contents: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: it is not valid JSON ({error}).") from None
    if not isinstance(contents, dict):
        raise DamagedFile(f"{path} is damaged: it contains a {type(contents).__name__}, not an object.")
    return cast(dict[str, Any], contents)


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file; raise DamagedFile if it isn't text or a row is too short.

    A last line without a line end is ignored, because its writer was killed.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            text = file.read()
        if "\0" in text:
            raise ValueError("it contains null bytes")
        whole = text[: text.rfind("\n") + 1] or text
        header, *rows = [row for row in csv.reader(io.StringIO(whole, newline="")) if row] or [[]]
        for number, row in enumerate(rows, start=1):
            if len(row) < len(header):
                raise ValueError(f"row {number} has {len(row)} columns instead of {len(header)}")
    except (ValueError, csv.Error) as error:
        raise DamagedFile(f"{path} is damaged ({first_line(error)}). {CSV_REMEDY}") from None
    return header, rows


def read_columns(path: Path, names: dict[str, type]) -> list[list[Any]]:
    """Return columns of a CSV file as lists, without the rows in which the last of these columns is empty.

    `names` maps the name of a column to the type of its cells. DamagedFile is raised if a column is missing,
    a cell has the wrong type, or `read_table` raises it.
    """
    header, rows = read_table(path)
    missing = [name for name in names if name not in header]
    if missing:
        raise DamagedFile(f"{path} has no column {', '.join(map(repr, missing))}. {CSV_REMEDY}")
    *_, last = names
    read: list[list[Any]] = []
    for number, row in enumerate(rows, start=1):
        cells = dict(zip(header, row, strict=False))
        try:
            values = [kind(cells[name]) for name, kind in names.items() if cells[name] or name != last]
        except ValueError as error:
            reason = f"is damaged: a cell of row {number} is not a number ({error})"
            raise DamagedFile(f"{path} {reason}. {CSV_REMEDY}") from None
        if len(values) == len(names):
            read.append(values)
    return [[values[place] for values in read] for place in range(len(names))]


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file: it detects damage, not deliberate changes."""
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def first_line(error: BaseException) -> str:
    """Return the type and the first line of an error, without its library's advice."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]
