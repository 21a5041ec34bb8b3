"""Archives: a buffer's whole state in one file, without pickle.

The file is a zip of `.npy` arrays and one JSON text, so `numpy.load` opens it and loading it runs no code of
a stranger. It is written beside its place and moved there when it is complete: a crash leaves the old file
whole. Every member carries a checksum, and the text says which buffer wrote it.

A checksum is right in a forged file too. So a file can't choose how much memory it takes: each array must be
as long as the buffer that loads it expects; the numbers in it are checked by those whose they are.

Left out: compression. Observations that compress well are better kept small in memory too (`frames`).
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

from replay_tutorial.buffers.atomic_file import atomic_write

STATE = "state.json"  # the member with the text
FORMAT = "replay_tutorial buffer"
VERSION = 2
PIECE = 1 << 20  # bytes written, or read, at once
HEADER = 1 << 10  # bytes that the header of an array has at most; NumPy's have 128
TEXT = 1 << 20  # bytes that the text has at most, beside the layout
MOST = 1 << 51  # no count in a file is larger: a loaded buffer has as many indexes again to give out
# Pieces of one array, laid end to end along axis 0.
Segments = Sequence[npt.NDArray[Any]]
# By name; a function is called when those before are written.
Arrays = dict[str, Segments | Callable[[], Segments]]


class Damaged(Exception):
    """A file says what can't be; `open_archive` adds the file's name."""


# What reading a zip with flipped bits may raise.
DAMAGE = (
    *(Damaged, zipfile.BadZipFile, zlib.error, struct.error, UnicodeDecodeError),
    *(ArithmeticError, EOFError, LookupError, OSError, RuntimeError),
)


def save(
    path: str | PathLike[str], layout: Mapping[str, Any], counters: Mapping[str, Any], arrays: Arrays
) -> None:
    """Write a file, and put it in its place when it is complete; `layout` and `counters` are JSON."""
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
        finally:  # closing it after an interrupt would raise a ValueError instead: a member may be open
            container.fp = None
        file.flush()
        os.fsync(file.fileno())


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


class Reader:
    """Reads the arrays of an open archive."""

    def __init__(self, container: zipfile.ZipFile) -> None:
        """Read nothing yet."""
        self._container = container

    def check(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Refuse an array of another shape or dtype, before there is memory for it."""
        self._open(name, shape, np.dtype(dtype)).close()

    def read_into(self, name: str, segments: Segments) -> None:
        """Read an array into pieces of memory that it fills exactly."""
        shape = (sum(len(segment) for segment in segments), *segments[0].shape[1:])
        with self._open(name, shape, segments[0].dtype) as member:
            for segment in segments:
                memory = memoryview(segment.reshape(-1).view(np.uint8).data) if segment.size else b""
                while len(memory):
                    count = member.readinto(memory[:PIECE])  # type: ignore[attr-defined]
                    if not count:
                        raise EOFError(f"{name} ends too early")
                    memory = memory[count:]
            if member.read(1):  # reading to the end also compares the checksum
                raise Damaged(f"{name} is too long")

    def read_text(self, most: int) -> Any:
        """Read the text, of at most so many bytes."""
        size = stored_size(self._container.getinfo(STATE))
        if size > most:
            raise Damaged(f"{STATE} has {size:,} bytes, more than the {most:,} that this buffer's can have")
        try:
            return json.loads(self._container.read(STATE))
        except (ValueError, RecursionError) as error:
            raise Damaged(f"{STATE} is no such text as `save` writes ({error})") from error

    def _open(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> IO[bytes]:
        """Open an array and go to its first element."""
        info = self._container.getinfo(f"{name}.npy")
        header = stored_size(info) - math.prod(shape) * dtype.itemsize
        if not 0 < header <= HEADER:  # NumPy reads what is announced before it compares it with its limit
            raise Damaged(f"{name} is not {dtype}{list(shape)}, as this buffer needs it")
        member = self._container.open(info)
        with suppress(Exception):  # NumPy raises errors of many kinds at a header that is none
            version = np.lib.format.read_magic(member)
            found = np.lib.format.read_array_header_2_0(member, max_header_size=HEADER)
            if (version, found, member.tell()) == ((2, 0), (shape, False, dtype), header):
                return member
        member.close()
        raise Damaged(f"{name} is not {dtype}{list(shape)}, as this buffer needs it")


def check_directory(container: zipfile.ZipFile) -> None:
    """Refuse a zip with two members that begin at the same byte; `open` warns of some from Python 3.13 on."""
    members = container.infolist()
    if len({info.header_offset for info in members}) < len(members):
        raise Damaged("two of its members begin at the same byte")


def stored_size(info: zipfile.ZipInfo) -> int:
    """Return how many bytes a member has; refuse one that unpacks to more than lies in the file."""
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise Damaged(f"{info.filename} is compressed, as `save` never does it")
    return info.file_size


@contextmanager
def open_archive(
    path: str | PathLike[str], layout: Mapping[str, Any]
) -> Generator[tuple[dict[str, Any], Reader]]:
    """Open a file that a buffer of this layout wrote; yield its counters, and a reader of the arrays."""
    path = checked_path(path)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        text = "There is no such file to load; `save` writes one"
        raise FileNotFoundError(errno.ENOENT, text, str(path)) from None
    if not stat.S_ISREG(mode):  # a pipe would be waited for
        raise OSError(errno.EINVAL, "This is no regular file", str(path))
    with open(path, "rb") as file:  # a file that can't be opened is not a damaged one
        try:
            with zipfile.ZipFile(file) as container:
                check_directory(container)
                reader, ours = Reader(container), json.dumps(layout, indent=1)
                state = reader.read_text(most=TEXT + 2 * len(ours))
                yield counters_of(state, path, json.loads(ours)), reader
        except DAMAGE as error:
            raise ValueError(
                f"{path} is damaged, or not a file that `save` wrote: {error}. Load another one."
            ) from error


def checked_path(path: str | PathLike[str]) -> Path:
    """Return a path; refuse a number, which the system would take for an open file."""
    try:
        return Path(path)
    except TypeError:
        raise TypeError(f"A file is named by a string or a path, not by {path!r:.60}.") from None


def counters_of(state: Any, path: object, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counters of a file; refuse one that another kind of buffer, or another version, wrote."""
    known = checked_dict(state, STATE)
    if known.get("format") != FORMAT:
        raise Damaged(f"its format is not {FORMAT!r}")
    if known["version"] != VERSION:
        raise ValueError(
            f"{path} has version {known['version']!r:.60}; this package reads version {VERSION}. "
            "Load it with the package that wrote it."
        )
    theirs = checked_dict(known["layout"], "the layout")
    differences = [
        f"{key} is {theirs.get(key)!r} there, {layout.get(key)!r} here"
        for key in sorted({*theirs, *layout})
        if theirs.get(key) != layout.get(key)
    ]
    if differences:
        raise ValueError(f"{path} is of another layout: {'; '.join(differences)}. Build the buffer alike.")
    return checked_dict(known["counters"], "counters")


def checked_dict(value: Any, name: str) -> dict[str, Any]:
    """Return what must be a dict."""
    if type(value) is not dict:
        raise Damaged(f"{name} is {value!r:.60}, not a dict")
    return value  # pyright: ignore[reportUnknownVariableType]


def checked_parts(counters: Mapping[str, Any], name: str, count: int) -> list[dict[str, Any]]:
    """Return the counters of `count` parts, such as rings of frames."""
    parts: Any = counters[name]
    if type(parts) is not list or len(parts) != count:  # pyright: ignore[reportUnknownArgumentType]
        raise Damaged(f"{name} is {parts!r:.60}, not a list of {count}")
    return [checked_dict(part, name) for part in parts]  # pyright: ignore[reportUnknownVariableType]


def checked_count(counters: Mapping[str, Any], name: str, most: int = MOST) -> int:
    """Return a counter; refuse one that no buffer can have."""
    count = counters[name]
    if type(count) is not int or not 0 <= count <= min(most, MOST):
        raise Damaged(f"{name} is {count!r:.60}, not an integer between 0 and {min(most, MOST)}")
    return count


def checked_generator(counters: Mapping[str, Any]) -> np.random.Generator:
    """Make a generator of random numbers that goes on where the saved one stood."""
    generator, state = np.random.default_rng(), counters["random_state"]
    try:
        generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise Damaged(f"random_state is no state of a generator ({error!r})") from error
    if generator.bit_generator.state != state:
        raise Damaged("random_state is no state of a generator")
    return generator
