"""Files of tensors: written by torch, read without pickle, and with the checksums compared.

torch writes a checksum of each part and doesn't compare it. A policy has no other: it lies alone in its run.
"""

import io
import zipfile
from pathlib import Path
from typing import Any, cast

import torch

from replay_tutorial.apex.runs.files import DamagedFile, first_line
from replay_tutorial.buffers import archive


def write_tensors(path: Path, contents: dict[str, Any]) -> None:
    """Write what `read_tensors` reads.

    Raises:
        OSError: If it can't be written; torch itself raises RuntimeError and doesn't mention the full disk.
    """
    memory = io.BytesIO()
    torch.save(contents, memory)
    # not getbuffer(): a view that an error keeps alive raises again when both are collected; neither copies
    path.write_bytes(memory.getvalue())


def read_tensors(path: Path) -> dict[str, Any]:
    """Read what `write_tensors` wrote.

    Raises:
        DamagedFile: If a bit of it has changed, or it is no such file.
        OSError: If it can't be read.
    """
    raw = path.read_bytes()
    try:
        compare_checksums(raw)
        contents: Any = torch.load(io.BytesIO(raw), weights_only=True, map_location="cpu")
    except (*archive.DAMAGE, ValueError, TypeError, IndexError) as error:
        raise DamagedFile(
            f"{path} is damaged, or not a file that a run wrote ({first_line(error)})."
        ) from None
    if not isinstance(contents, dict):
        raise DamagedFile(f"{path} holds no policy and no agent, but a {type(contents).__name__}.")
    return cast(dict[str, Any], contents)


def compare_checksums(raw: bytes) -> None:
    """Compare the lengths and checksums of a zip's members, which torch doesn't compress.

    Raises:
        ValueError: If one is wrong; or, if it is no whole zip, one of `archive.DAMAGE`.
    """
    with zipfile.ZipFile(io.BytesIO(raw)) as container:
        archive.check_directory(container)
        wrong = [part.filename for part in container.infolist() if part.file_size != part.compress_size]
        wrong = wrong or [container.testzip()]
    if wrong[0] is not None:
        raise ValueError(f"the length or the checksum of {wrong[0]} is wrong")
