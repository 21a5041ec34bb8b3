"""The files of a run, and what may be wrong with them when they are read.

A file may be cut, changed or another program's: then the error names it, and says what is wrong with it.
Nothing is read by pickle, so that a stranger's run can't run a stranger's code.

Left out: how a file is written as a whole (`whole_file`), and files of tensors (`tensor_files`).
"""

import csv
import hashlib
import json
import zipfile
from pathlib import Path
from typing import IO, Any, cast


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
    except ValueError as error:
        raise DamagedFile(f"{path} is damaged: it is no JSON ({error}).") from None
    if not isinstance(contents, dict):
        raise DamagedFile(f"{path} is damaged: it holds a {type(contents).__name__}, not an object.")
    return cast(dict[str, Any], contents)


def read_columns(path: Path, names: dict[str, type]) -> list[list[Any]]:
    """Read columns of a CSV file, the rows in which the last of them is not empty.

    Args:
        path: The file.
        names: Each column's name, and what its cells are.

    Returns:
        A list for each column.

    Raises:
        DamagedFile: If a column is missing, or a cell is not of its type.
        OSError: If it can't be read.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            missing = [name for name in names if name not in (reader.fieldnames or [])]
            if missing:
                raise DamagedFile(f"{path} has no column {', '.join(map(repr, missing))}.")
            rows = [row for row in reader if row[next(reversed(names))]]
            return [[kind(row[name]) for row in rows] for name, kind in names.items()]
    except (UnicodeDecodeError, csv.Error, TypeError) as error:
        raise DamagedFile(f"{path} is damaged ({first_line(error)}).") from None
    except DamagedFile:
        raise
    except ValueError as error:
        raise DamagedFile(f"{path} is damaged: a cell is no number ({error}).") from None


def digest_of(path: Path) -> str:
    """Return a digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def compare_checksums(file: Path | IO[bytes]) -> None:
    """Read a zip whose members aren't compressed to its end, and compare their lengths and checksums.

    Raises:
        ValueError: If one is wrong; or, if it is no whole zip, one of `archive.DAMAGE`.
    """
    with zipfile.ZipFile(file) as container:
        wrong = [part.filename for part in container.infolist() if part.file_size != part.compress_size]
        wrong = wrong or [container.testzip()]
    if wrong[0] is not None:
        raise ValueError(f"the length or the checksum of {wrong[0]} is wrong")


def first_line(error: BaseException) -> str:
    """Return what an error says, without the advice of the library that it comes from."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]
