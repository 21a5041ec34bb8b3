"""Files that are whole or not there: written beside their place, then moved into it in one step.

A crash leaves the old file or the new one, never half of one. What a killed process left beside the place is
written over by the next one.

Left out: waiting until the disk has it; a writer that needs that calls `os.fsync` itself.
"""

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then move it there.

    Args:
        path: Where the file belongs.
        write: Writes the file whose path it gets. If it raises, the old file stays.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
