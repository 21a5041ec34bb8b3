"""Files that are whole or not there: written beside their place, then moved into it in one step.

A crash leaves the old file or the new one; what a killed process left is written over by the next.

Left out: waiting until the disk has it; a writer that needs that calls `os.fsync` itself.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then move it there; if it raises, the old file stays.

    Raises:
        OSError: If it can't be written; names the file, which the system doesn't if the disk is full.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "It is a folder; name a file", str(path))
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise named(error, path) from error
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def named(error: OSError, path: Path) -> OSError:
    """Return an error that says which file it is about; the library's own words are left alone."""
    if error.errno is None:
        return error
    return type(error)(error.errno, error.strerror, str(path))
