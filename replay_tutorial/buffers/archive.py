"""Archives: the complete state of a buffer in one file, without pickle.

The file is a zip of `.npy` arrays and a JSON text, with a checksum for each member. `numpy.load` can open it,
and loading it executes no code from the file. It is written atomically: a crash leaves the old file intact.
The JSON describes the buffer that wrote the file.

Checksums don't protect against forged files. A file therefore can't determine how much memory is allocated:
each array must have the length that the loading buffer expects, and each loader checks the values. Files are
not compressed; for observations that compress well, `frames` saves memory as well as disk space.
"""

import errno
import json
import math
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from replay_tutorial.buffers.runtime.atomic_file import atomic_write
from replay_tutorial.buffers.streams import Stream

STATE = "state.json"  # the JSON member
FORMAT = "replay_tutorial buffer"
VERSION = 2
CHUNK = 1 << 20  # bytes per read or write
MAX_HEADER = 1 << 10  # maximum size of an array's header, in bytes; NumPy's have 128
ARGUMENTS = {"size": "capacity", "environments": "num_envs"}  # the arguments of entries of a layout
MAX_TEXT = 1 << 20  # maximum size of the JSON in bytes, in addition to the layout
MAX_COUNT = 1 << 51  # maximum count in a file; leaves room for as many further indexes after loading
# Parts of one array, concatenated along axis 0.
Segments = Sequence[npt.NDArray[Any]]
# Keyed by name. A function is called only after the arrays before it have been written.
Arrays = dict[str, Segments | Callable[[], Segments]]


class Damaged(Exception):
    """The contents of a file are invalid; `open_archive` adds the path to the message."""


# Exceptions that reading a corrupted zip file may raise.
DAMAGE = (
    *(Damaged, zipfile.BadZipFile, zlib.error, struct.error, UnicodeDecodeError),
    *(ArithmeticError, EOFError, LookupError, OSError, RuntimeError),
)


def save(
    path: str | PathLike[str], layout: Mapping[str, Any], counters: Mapping[str, Any], arrays: Arrays
) -> None:
    """Write an archive atomically; `layout` and `counters` must be JSON."""
    place = checked_path(path)
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "layout": layout, "counters": counters}, indent=1
    )
    with atomic_write(place) as file:
        container = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        try:
            container.writestr(STATE, text)
            for array, segments in arrays.items():
                with container.open(f"{array}.npy", "w", force_zip64=True) as member:
                    write_npy(member, segments() if callable(segments) else segments)
            container.close()
        finally:  # prevents a ValueError from `close` if Ctrl-C leaves a member open
            container.fp = None
        file.flush()
        os.fsync(file.fileno())


def write_npy(member: IO[bytes], segments: Segments) -> None:
    """Write segments as one `.npy` array."""
    shape = (sum(len(segment) for segment in segments), *segments[0].shape[1:])
    header = {"descr": segments[0].dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(member, header)
    for segment in segments:
        if segment.size:
            raw = np.ascontiguousarray(segment).reshape(-1).view(np.uint8)
            for first in range(0, len(raw), CHUNK):
                # a copy, because shared memory may change between the checksum and the write
                member.write(raw[first : first + CHUNK].tobytes())


class Reader:
    """Reads the arrays of an open archive."""

    def __init__(self, container: zipfile.ZipFile) -> None:
        """Prepare to read an open zip file."""
        self._container = container

    def check(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Raise Damaged if an array has another shape or dtype; call it before allocating memory."""
        self._open(name, shape, np.dtype(dtype)).close()

    def read_into(self, name: str, segments: Segments) -> None:
        """Read an array into segments, whose total length must match."""
        shape = (sum(len(segment) for segment in segments), *segments[0].shape[1:])
        with self._open(name, shape, segments[0].dtype) as member:
            for segment in segments:
                memory = memoryview(segment.reshape(-1).view(np.uint8).data) if segment.size else b""
                while len(memory):
                    count = member.readinto(memory[:CHUNK])  # type: ignore[attr-defined]
                    if not count:
                        raise EOFError(f"{name} is too short")
                    memory = memory[count:]
            if member.read(1):  # reading to the end also verifies the checksum
                raise Damaged(f"{name} is too long")

    def read_text(self, most: int) -> Any:
        """Read the JSON, which may have at most `most` bytes."""
        size = stored_size(self._container.getinfo(STATE))
        if size > most:
            raise Damaged(f"{STATE} has {size:,} bytes, more than the maximum of {most:,} for this buffer")
        try:
            return json.loads(self._container.read(STATE))
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{STATE} is not valid JSON ({error})") from error

    def _open(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> IO[bytes]:
        """Open an array, positioned at its first element."""
        info = self._container.getinfo(f"{name}.npy")
        header = stored_size(info) - math.prod(shape) * dtype.itemsize
        if not 0 < header <= MAX_HEADER:  # NumPy reads a header of any size before it checks its own limit
            raise Damaged(f"{name} does not contain {dtype}{list(shape)}, which this buffer requires")
        member = self._container.open(info)
        with suppress(Exception):  # NumPy raises many kinds of errors for an invalid header
            version = np.lib.format.read_magic(member)
            found = np.lib.format.read_array_header_2_0(member, max_header_size=MAX_HEADER)
            if (version, found, member.tell()) == ((2, 0), (shape, False, dtype), header):
                return member
        member.close()
        raise Damaged(f"{name} does not contain {dtype}{list(shape)}, which this buffer requires")


def check_directory(container: zipfile.ZipFile) -> None:
    """Raise Damaged if two members begin at the same byte; `open` detects some cases from Python 3.13 on."""
    members = container.infolist()
    if len({info.header_offset for info in members}) < len(members):
        raise Damaged("two members begin at the same byte")


def stored_size(info: zipfile.ZipInfo) -> int:
    """Return the size of a member in bytes; raise Damaged if it is compressed, because it could be huge."""
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise Damaged(f"{info.filename} is compressed, but `save` never compresses")
    return info.file_size


@contextmanager
def open_archive(
    path: str | PathLike[str], layout: Mapping[str, Any]
) -> Generator[tuple[dict[str, Any], Reader]]:
    """Open an archive and yield its counters and a reader of its arrays; the layouts must be equal."""
    path = checked_path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        text = "No such file"
        raise FileNotFoundError(errno.ENOENT, text, str(path)) from None
    if not stat.S_ISREG(mode):  # opening a pipe would block
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    with open(path, "rb") as file:  # outside `try`: a file that can't be opened is not damaged
        try:
            with zipfile.ZipFile(file) as container:
                check_directory(container)
                reader, ours = Reader(container), json.dumps(layout, indent=1)
                state = reader.read_text(most=MAX_TEXT + 2 * len(ours))
                yield counters_of(state, path, json.loads(ours)), reader
        except DAMAGE as error:
            raise ValueError(
                f"{path} is damaged, or was not written by `save`: {error}. Load another file."
            ) from error


def checked_path(path: str | PathLike[str]) -> Path:
    """Convert to a Path; raise TypeError for a number, which `open` would treat as a file descriptor."""
    try:
        return Path(path)
    except TypeError:
        raise TypeError(f"path must be a string or a path, not {path!r:.60}.") from None


def counters_of(state: Any, path: object, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters of a file; raise ValueError if its version or layout differs."""
    known = checked_dict(state, STATE)
    if known.get("format") != FORMAT:
        raise Damaged(f"its format is not {FORMAT!r}")
    if known["version"] != VERSION:
        raise ValueError(
            f"{path} has version {known['version']!r:.60}; this package reads version {VERSION}. "
            "Load it with the version of the package that wrote it."
        )
    theirs = checked_dict(known["layout"], "the layout")
    changed = [  # compared as text, because the order of the fields counts
        key
        for key in sorted({*theirs, *layout})
        if json.dumps(theirs.get(key)) != json.dumps(layout.get(key))
    ]
    if changed:
        differences = [
            f"{ARGUMENTS.get(key, key)} is {theirs.get(key)!r} in the file and {layout.get(key)!r} here"
            for key in changed
        ]
        remedy = ""
        if {"size", "alpha", "eps"}.intersection(changed):
            remedy = " To change the capacity or alpha, copy the rows: see the recipe 'Saving and resuming'."
        raise ValueError(
            f"{path} has a different layout: {'; '.join(differences)}. Load it into a buffer or server that "
            "was constructed with the same arguments as the one that saved it, its fields in the same order."
            + remedy
        )
    return checked_dict(known["counters"], "counters")


def checked_dict(value: Any, name: str) -> dict[str, Any]:
    """Return a value that must be a dict; raise Damaged otherwise."""
    if type(value) is not dict:
        raise Damaged(f"{name} is {value!r:.60}, not a dict")
    return value  # pyright: ignore[reportUnknownVariableType]


def checked_parts(counters: Mapping[str, Any], name: str, count: int) -> list[dict[str, Any]]:
    """Return a list of `count` dicts of counters, such as one per frame log."""
    parts: Any = counters[name]
    if type(parts) is not list or len(parts) != count:  # pyright: ignore[reportUnknownArgumentType]
        raise Damaged(f"{name} is {parts!r:.60}, not a list of {count} dicts")
    return [checked_dict(part, name) for part in parts]  # pyright: ignore[reportUnknownVariableType]


def checked_count(counters: Mapping[str, Any], name: str, most: int = MAX_COUNT) -> int:
    """Return a counter; raise Damaged if it is not an integer from 0 to `most`."""
    count = counters[name]
    if type(count) is not int or not 0 <= count <= min(most, MAX_COUNT):
        raise Damaged(f"{name} is {count!r:.60}, not an integer between 0 and {min(most, MAX_COUNT)}")
    return count


def checked_generator(counters: Mapping[str, Any]) -> Stream:
    """Return a random generator in the saved state."""
    stream, state = Stream(), counters["random_state"]
    try:
        stream.bit_generator.state = state
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise Damaged(f"random_state is not a valid generator state ({error!r})") from error
    if "copies" in state:  # not saved by a server, whose generator is not copied
        stream.copies = checked_count(state, "copies")
    if stream.state | state != stream.state:
        raise Damaged("random_state is not a valid generator state")
    return stream
