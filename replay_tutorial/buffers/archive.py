"""Archives: a buffer's whole state in one file, without pickle.

The file is a zip of `.npy` arrays and one JSON text, so `numpy.load` opens it and loading it runs no code of
a stranger. It is written beside its place and moved there when it is complete: a crash leaves the old file
whole. Every member carries a checksum, and the text says which buffer wrote it.

Left out: compression. Observations that compress well are better kept small in memory too (`frames`).
"""

import json
import math
import os
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

FORMAT = "replay_tutorial buffer"
VERSION = 1
PIECE = 1 << 20  # bytes written at once
# Pieces of one array, laid end to end along axis 0.
Segments = Sequence[npt.NDArray[Any]]
# By name; a function is called when those before are written.
Arrays = dict[str, Segments | Callable[[], Segments]]
ReadInto = Callable[[str, Segments], None]

# What reading a zip with flipped bits may raise.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    json.JSONDecodeError,
    UnicodeDecodeError,
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
)


def save(
    path: str | PathLike[str], layout: Mapping[str, Any], counters: Mapping[str, Any], arrays: Arrays
) -> None:
    """Write a file, and put it in its place when it is complete.

    Args:
        path: Where it belongs.
        layout: What a buffer must agree with to load it; JSON.
        counters: Numbers and states; JSON.
        arrays: The arrays, in pieces, by name.
    """
    place = Path(path)
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "layout": layout, "counters": counters}, indent=1
    )
    # Two that save to one path at the same time must not write into one file; the later one wins.
    part = place.with_name(f".{place.name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as container:
                container.writestr("state.json", text)
                for array, segments in arrays.items():
                    with container.open(f"{array}.npy", "w", force_zip64=True) as member:
                        write_npy(member, segments() if callable(segments) else segments)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_npy(member: IO[bytes], segments: Segments) -> None:
    """Write pieces as one `.npy` array."""
    shape = (sum(len(segment) for segment in segments), *segments[0].shape[1:])
    header = {"descr": segments[0].dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(member, header)
    for segment in segments:
        if segment.size:
            raw = np.ascontiguousarray(segment).reshape(-1).view(np.uint8)
            for first in range(0, len(raw), PIECE):
                # a copy, because shared memory may change between the checksum and the file
                member.write(raw[first : first + PIECE].tobytes())


@contextmanager
def reading(
    path: str | PathLike[str], layout: Mapping[str, Any]
) -> Generator[tuple[dict[str, Any], ReadInto]]:
    """Open a file for reading.

    Args:
        path: The file.
        layout: The layout of the buffer that loads it.

    Yields:
        The counters, and a function that reads the array of a name into pieces of memory.

    Raises:
        OSError: If it can't be read.
        ValueError: If it is no such file, is damaged, or has another layout or version.
    """
    with open(path, "rb") as file:  # a file that can't be opened is not a damaged one
        try:
            with zipfile.ZipFile(file) as container:
                state = json.loads(container.read("state.json"))
                check_state(state, path, json.loads(json.dumps(layout)))

                def read_into(name: str, segments: Segments) -> None:
                    with container.open(f"{name}.npy") as member:
                        read_npy(member, name, segments)

                yield state["counters"], read_into
        except DAMAGE as error:
            raise ValueError(f"{path} is damaged, or not a file that `save` wrote: {error}") from error


def check_state(state: Any, path: object, layout: Mapping[str, Any]) -> None:
    """Refuse a file that another kind of buffer, or another version, has written."""
    known: dict[str, Any] = dict(state) if type(state) is dict else {}  # pyright: ignore[reportUnknownArgumentType]
    if known.get("format") != FORMAT:
        raise ValueError(f"{path} is not a file that `save` wrote.")
    if known["version"] != VERSION:
        raise ValueError(f"{path} has version {known['version']}; this package reads version {VERSION}.")
    theirs: dict[str, Any] = known["layout"]
    differences = [
        f"{key} is {theirs.get(key)!r} there, {layout.get(key)!r} here"
        for key in sorted({*theirs, *layout})
        if theirs.get(key) != layout.get(key)
    ]
    if differences:
        raise ValueError(f"{path} is of another layout: {'; '.join(differences)}. Build the buffer alike.")


def read_npy(member: IO[bytes], name: str, segments: Segments) -> None:
    """Read one `.npy` array into pieces of memory that it fills exactly."""
    version = np.lib.format.read_magic(member)
    if version != (2, 0):
        raise zipfile.BadZipFile(f"{name} has the .npy version {version}")
    shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(member)
    wanted = (sum(len(segment) for segment in segments), *segments[0].shape[1:])
    if fortran_order or dtype != segments[0].dtype or shape != wanted:
        raise zipfile.BadZipFile(f"{name} is {dtype}{list(shape)}, not {segments[0].dtype}{list(wanted)}")
    for segment in segments:
        if not segment.size:
            continue
        memory = memoryview(segment.reshape(-1).view(np.uint8).data)
        while len(memory):
            count = member.readinto(memory)  # type: ignore[attr-defined]
            if not count:
                raise EOFError(f"{name} ends too early")
            memory = memory[count:]
    if member.read(1):  # reading to the end also compares the checksum
        raise zipfile.BadZipFile(f"{name} is too long")


def checked_count(counters: Mapping[str, Any], name: str, most: float = math.inf) -> int:
    """Read a counter, and refuse one that no buffer can have."""
    count = counters[name]
    if type(count) is not int or not 0 <= count <= most:
        raise zipfile.BadZipFile(f"{name} is {count!r}, not an integer between 0 and {most}")
    return count
