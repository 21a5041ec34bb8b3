"""Files that are whole or not there: written beside their place, then moved into it in one step.

A crash leaves the old file or the new one; what a killed process left is written over by the next.

Left out: waiting until the disk has it; a writer that needs that calls `os.fsync` itself.
"""

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then move it there; if it raises, the old file stays."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
