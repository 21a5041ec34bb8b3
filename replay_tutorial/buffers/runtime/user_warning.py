"""Warnings at the line of the user's program, however many calls inside the package lie between."""

import os
import sys
import warnings
from pathlib import Path

PACKAGE = str(Path(__file__).parents[2]) + os.sep


def warn_user(message: str) -> None:
    """Warn at the nearest calling line outside this package, or else at the outermost line."""
    frame, level = sys._getframe(1), 2  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
