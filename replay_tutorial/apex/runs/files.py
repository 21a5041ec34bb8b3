"""The files of a run, and what may be wrong with them when they are read.

A file may be cut, changed or another program's: then the error names it, and says what is wrong with it.
Nothing is read by pickle, so that a stranger's run can't run a stranger's code.

Left out: how a file is written as a whole (`atomic_file`), and files of tensors (`tensor_files`).
"""

import csv
import io
import json
import zlib
from pathlib import Path
from typing import Any, cast

CLUSTER_FILE = "cluster.json"  # of a run on many machines: which, and how they are used
CSV_REMEDY = "Restore it from a backup, or remove it: `resume` begins a new one."


class DamagedFile(ValueError):
    """A file of a run can't be used; the message says which one, why, and what helps."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        DamagedFile: If it is none.
        OSError: If it can't be read.
    """
    try:
        contents: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{path} is damaged: it is no JSON ({error}).") from None
    if not isinstance(contents, dict):
        raise DamagedFile(f"{path} is damaged: it holds a {type(contents).__name__}, not an object.")
    return cast(dict[str, Any], contents)


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Read the header and the rows of a CSV file, except a last line that has no end: its writer was killed.

    Raises:
        DamagedFile: If it is no text, or a row is too short.
        OSError: If it can't be read.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            text = file.read()
        if "\0" in text:
            raise ValueError("it holds zero bytes")
        whole = text[: text.rfind("\n") + 1] or text
        header, *rows = [row for row in csv.reader(io.StringIO(whole, newline="")) if row] or [[]]
        for number, row in enumerate(rows, start=1):
            if len(row) < len(header):
                raise ValueError(f"row {number} is too short")
    except (ValueError, csv.Error) as error:
        raise DamagedFile(f"{path} is damaged ({first_line(error)}). {CSV_REMEDY}") from None
    return header, rows


def read_columns(path: Path, names: dict[str, type]) -> list[list[Any]]:
    """Read columns of a CSV file, the rows in which the last of them is not empty.

    Args:
        path: The file.
        names: Each column's name, and what its cells are.

    Returns:
        A list for each column.

    Raises:
        DamagedFile: If a column is missing, or a cell is not of its type; and as for `read_table`.
        OSError: If it can't be read.
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
            reason = f"is damaged: a cell of row {number} is no number ({error})"
            raise DamagedFile(f"{path} {reason}. {CSV_REMEDY}") from None
        if len(values) == len(names):
            read.append(values)
    return [[values[place] for values in read] for place in range(len(names))]


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file's bytes, which notices damage but not a forger."""
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def first_line(error: BaseException) -> str:
    """Return what an error says, without the advice of the library that it comes from."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]
