"""A forger of archives: every file that it makes has right checksums, and says what no `save` would write.

`forgeries` takes a whole file apart and yields one file for each lie: about counts, states, shapes, headers,
numbers, and in the zip's own directory. What is made depends on nothing but the file.
"""

import copy
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

Members = dict[str, bytes]

LIES: list[Any] = [
    *(-1, 0, 1, 2, 1000, 2**31, 2**51, 2**52, 2**63, 10**30),
    *(1.5, float("nan"), float("inf"), True, None, "3", [], [1], {}, {"a": 1}, [[]]),
]
HEADERS = [b"", b"{", b"(" * 5000, b"9**9**9", b"\xff\xfe\x00", b"{'descr': '<f8', 'fortran_order': False}"]
NUMBERS = {
    "<f8": [float("nan"), float("inf"), -float("inf"), -1.0, -0.5, -0.0, 0.0, 5e-324, 1e200, 1.7e308],
    "<i8": [-(2**63), -2, -1, 0, 1, 5, 1000, 2**40, 2**62, 2**63 - 1],
    "<i4": [-(2**31), -1, 0, 1, 1000, 2**31 - 1],
    "|u1": [0, 1, 255],
}


def forgeries(whole: Path) -> Iterator[tuple[str, bytes]]:
    """Yield forged files, each with a word on what is wrong."""
    with zipfile.ZipFile(whole) as container:
        members = {name: container.read(name) for name in container.namelist()}
    for kind in (lying_texts, lying_members, lying_headers, lying_numbers):
        for label, forged in kind(members):
            yield label, packed(forged)
    yield from lying_directories(members)


def packed(members: Members, method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as container:
        for name, content in members.items():
            container.writestr(name, content)
    return file.getvalue()


def lying_texts(members: Members) -> Iterator[tuple[str, Members]]:
    state = json.loads(members["state.json"])
    for place in places_in(state):
        for lie in ["gone", *LIES, Ellipsis]:
            changed = copy.deepcopy(state)
            inside = changed
            for key in place[:-1]:
                inside = inside[key]
            if lie == "gone":
                del inside[place[-1]]
            else:
                inside[place[-1]] = repeated(inside[place[-1]]) if lie is Ellipsis else lie
            yield f"text {place} is {lie!r}", members | {"state.json": json.dumps(changed).encode()}
    number = b'{"counters": ' + b"9" * 100_000 + b"}"
    for text in (b"[" * 100_000, b'{"a":' * 100_000, number, b"", b"\xff", b"null", b"7", b"[]"):
        yield f"text {text[:20]!r}", members | {"state.json": text}
    text = members["state.json"] + b" " * 20_000_000
    yield "text of 20 MB", members | {"state.json": text}


def repeated(value: Any) -> Any:
    """The same once more: a list twice as long, a number one higher."""
    return value + 1 if type(value) is int else value + value if type(value) in (str, list) else [value]


def places_in(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from places_in(inside, (*place, key))
    elif isinstance(value, list):
        for i, inside in enumerate(value):
            yield from places_in(inside, (*place, i))


def lying_members(members: Members) -> Iterator[tuple[str, Members]]:
    for name, content in members.items():
        yield f"{name} gone", {key: value for key, value in members.items() if key != name}
        for other in members:
            if other != name:
                yield f"{other} in the place of {name}", members | {name: members[other]}
        half = content[: len(content) // 2]
        for part in (b"", content[:1], half, content[:-1], content + b"\0", content * 2):
            yield f"{name} of {len(part)} bytes", members | {name: part}
    for extra in ("more.npy", "../outside.npy", "/etc/nothing", "rows.npy/rows.npy", "é" * 100):
        yield f"{extra} more", members | {extra: b"more"}


def array_of(content: bytes) -> tuple[bytes, bytes]:
    """The text of a `.npy` header and the elements."""
    (length,) = struct.unpack("<I", content[8:12])
    return content[12 : 12 + length], content[12 + length :]


def with_header(text: bytes, elements: bytes, version: int = 2) -> bytes:
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<I", len(text)) + text + elements


def lying_headers(members: Members) -> Iterator[tuple[str, Members]]:
    for name, content in members.items():
        if name == "state.json":
            continue
        text, elements = array_of(content)
        header = eval(text)
        shape = header["shape"]
        shapes = [(), (-1,), (10**12,), (*shape, 1), shape[1:], (shape[0] + 1, *shape[1:]), ("3",), None]
        changes = [{"shape": lie} for lie in shapes] + [{"fortran_order": True}, {"more": 1}, {3: 4}]
        changes += [{"descr": lie} for lie in ("|O", ">f8", "|V1000000000", [])]
        for change in changes:
            lie = repr(header | change).encode()
            yield f"{name} with {change}", members | {name: with_header(lie, elements)}
        for lie in HEADERS:
            yield f"{name} headed {lie[:30]!r}", members | {name: with_header(lie, elements)}
        yield f"{name} version 3", members | {name: with_header(text, elements, 3)}
        for length in (0, 2**16, 2**32 - 1):
            yield f"{name} length {length}", members | {name: content[:8] + struct.pack("<I", length) + text}


def lying_numbers(members: Members) -> Iterator[tuple[str, Members]]:
    for name, content in members.items():
        if name == "state.json":
            continue
        text, elements = array_of(content)
        array: Any = np.frombuffer(elements, eval(text)["descr"])
        if not len(array) or array.dtype.kind not in "iufV":
            continue
        if name in ("rows.npy", "waiting.npy"):  # records: every word may be a frame's number
            array = (
                array[: len(array) // 8 * 8].view("<i8") if array.dtype.itemsize == 1 else array.view("<i8")
            )
        for lie in NUMBERS.get(array.dtype.str, [0, 2**62, 2**64 - 1]):
            for place in sorted(
                {len(array) // 2, len(array) - 1, *range(0, len(array), 1 + len(array) // 8)}
            ):
                changed = array.copy()
                changed[place] = lie
                forged = changed.tobytes() + elements[changed.nbytes :]
                yield f"{name}[{place}] is {lie}", members | {name: with_header(text, forged)}
            forged = np.full_like(array, lie).tobytes() + elements[array.nbytes :]
            yield f"all {name} {lie}", members | {name: with_header(text, forged)}


def lying_directories(members: Members) -> Iterator[tuple[str, bytes]]:
    """Lies that stand in the zip's own directory, and members that are compressed."""
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield f"compressed by {method}", packed(members, method)
    plain = packed(members)
    entries = []
    place = plain.index(b"PK\x01\x02")
    while plain[place : place + 4] == b"PK\x01\x02":
        entries.append(place)
        place += 46 + sum(struct.unpack("<HHH", plain[place + 28 : place + 34]))
    lies = {"<H": [0, 1, 8, 12, 93, 0x800, 0x7FFF, 0xFFFF], "<I": [0, 1, 10_000, 2**31, 2**32 - 1]}
    # flags, method, checksum, two sizes, lengths of name, extra field and comment, disk, offset
    entry = dict(zip((8, 10, 16, 20, 24, 28, 30, 32, 34, 42), "HHIIIHHHHI", strict=True))
    end = dict(zip((4, 8, 10, 12, 16, 20), "HHHIIH", strict=True))
    for start, fields in [*((start, entry) for start in entries), (plain.rindex(b"PK\x05\x06"), end)]:
        for offset, letter in fields.items():
            for lie in lies[f"<{letter}"]:
                changed = bytearray(plain)
                struct.pack_into(f"<{letter}", changed, start + offset, lie)
                yield f"directory at {start}: byte {offset} is {lie}", bytes(changed)


def trial(
    whole: Path,
    fresh: Callable[[], Any],
    seen: Callable[[Any], Any],
    use: Callable[[Any], None],
    step: int = 1 if "EXPLORE" in os.environ else 3,
) -> int:
    """Load every forgery, or one of `step`: it is refused and changes nothing, or makes a buffer that works.

    Args:
        whole: A file that `save` wrote.
        fresh: Makes a buffer to load into.
        seen: Returns all that there is to a buffer, to compare.
        use: Works with a buffer that was loaded, and raises if anything is amiss.
        step: How many forgeries there are for each that is loaded.

    Returns:
        How many were refused.
    """
    path = whole.with_name("forged")
    target = fresh()
    before, refused = seen(target), 0
    for label, content in islice(forgeries(whole), 0, None, step):
        print(label)  # the last one printed is the one that got through
        path.write_bytes(content)
        try:
            target.load(path)
        except ValueError as error:
            refused += 1
            assert str(path) in str(error)
            assert seen(target) == before, "refused, and changed"
        else:
            use(target)
            target = fresh()
            before = seen(target)
    return refused
