"""What a client and the tables' server say to each other: values of Python, taken apart and put together.

A value is taken apart as its type says, and a NamedTuple as the annotations of its fields say:

    int                            a number                               Message(writer=7, sequence=2, ...)
    array                          an array; dtype and shape in the text   numbers  7, 2
    list, dict, NamedTuple         its parts, one after the other          text     "obs", ["f",[1,3]], ...
    str, float, Layout, ...        stands in the text                      arrays   the values of obs

The other side knows the type from the name of the call, and takes no other: so a call that comes in is a
method of the list below, with arguments of its types, or it is refused. What they mean is checked by the
server itself, as if the call had been made in its process.

Left out: bytes (`framing`), and who calls (`endpoint`, `remote_server`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import repeat
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from replay_tutorial.tables.cells import CapacityError
from replay_tutorial.tables.framing import (
    Array,
    BadFrame,
    Frame,
    Specs,
    Words,
    expect,
    keep,
    pack,
    words_in,
    words_of,
)
from replay_tutorial.tables.message import Layout, Message, Part, UnknownWriter
from replay_tutorial.tables.rate_limiters import MinSize, Queue, RateLimiter, SampleToInsertRatio, Stack
from replay_tutorial.tables.sampled import Sample, TableInfo
from replay_tutorial.tables.waiting import Closed

# What may be called: the types of the arguments, and of what comes back.
CALLS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "hello 1": ((int, int, int), tuple[int, dict[str, Array]]),
    "insert": ((Message,), list[int]),
    "close_writer": ((int,), None),
    "sample": ((str, int), Sample),
    "mutate_priorities": ((str, tuple[Array, Array], Array), int),
    "reset": ((str,), None),
    "replace_limiter": ((str, RateLimiter), None),
    "items": ((str,), Sample),
    "info": ((), dict[str, TableInfo]),
    "save": ((str,), None),
    "load": ((str,), None),
}
HELLO = "hello 1"  # with the version of what is said
LIMITERS = {kind.__name__: kind for kind in (RateLimiter, MinSize, SampleToInsertRatio, Queue, Stack)}
ERRORS: dict[str, type[Exception]] = {  # of the server, that its client is told; the first that fits
    kind.__name__: kind
    for kind in (
        *(CapacityError, UnknownWriter, Closed, BadFrame, TimeoutError, KeyError, IndexError, TypeError),
        *(ValueError, MemoryError, OverflowError, OSError, RuntimeError),
    )
}


Take = Callable[[], Any]  # the next number, or array, of what came
Put = Callable[[Any], None]  # one behind the others of what is said
Split = Callable[[Any], Any] | None
TEXT, NUMBER, ARRAY, PARTS = range(4)  # where a value stands: in the text, or behind it; or it has parts


class Form(NamedTuple):
    """How values of a type are said.

    Attributes:
        where: TEXT, NUMBER, ARRAY or PARTS.
        say: Of a value in the text, returns its word; of one with parts, says them all. None if
            the word is the value itself.
        hear: Checks a word. Of a value in the text, returns it; of one with parts, what makes it of the next
            numbers and arrays.
    """

    where: int
    say: Any
    hear: Callable[[Any, Specs], Any]


def parts_form(
    forms: Iterable[Form], split: Callable[[Any], Any] | None, make: Callable[[list[Any]], Any]
) -> Form:
    """Say a value part by part.

    Args:
        forms: Of the parts; `repeat` if there are any number of the same.
        split: Returns a value's parts; None if they are the value.
        make: Makes a value of its parts.
    """
    count = None if isinstance(forms, repeat) else len(list(forms))

    def say(value: Any, number: Put, array: Put) -> Words:
        words: list[Any] = []
        for (where, say, _), part in zip(forms, value if split is None else split(value), strict=False):
            if where == TEXT:
                words.append(part if say is None else say(part))
            elif where == NUMBER:
                words.append(number(part))
            elif where == ARRAY:
                array(part)
                words.append((part.dtype.char, part.shape))
            else:
                words.append(say(part, number, array))
        return tuple(words)

    def hear(word: Any, specs: Specs) -> Callable[[Take, Take], Any]:
        pairs = zip(forms, words_in(word, count), strict=False)
        heard = [(form.where, form.hear(word, specs)) for form, word in pairs]

        def build(number: Take, array: Take) -> Any:
            parts: list[Any] = []
            for where, part in heard:
                if where == TEXT:
                    parts.append(part)
                elif where == NUMBER:
                    parts.append(number())
                else:
                    parts.append(array() if where == ARRAY else part(number, array))
            return make(parts)

        return build

    return Form(PARTS, say, hear)


def hear_number(word: Any, _: Specs) -> None:
    """Check what stands in the place of a number."""
    expect(word is None, f"{word!r:.80} is in the place of a number")


def hear_array(word: Any, specs: Specs) -> None:
    """Note an array."""
    specs.add(word)


@cache
def form_of(kind: Any) -> Form:
    """Return how values of a type are said."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in TEXTS_OF:
        return Form(TEXT, *TEXTS_OF[kind])
    if kind is int:
        return Form(NUMBER, None, hear_number)
    if origin in (np.ndarray, get_origin(Array)):
        return Form(ARRAY, None, hear_array)
    if kind == list[int]:
        return parts_form(
            [form_of(Array)], lambda value: [np.array(value, np.int64)], lambda a: a[0].tolist()
        )
    if NoneType in inner:
        form = form_of(inner[0])
        return parts_form(
            repeat(form), lambda value: () if value is None else (value,), lambda p: p[0] if p else None
        )
    if origin in (list, Sequence):
        return parts_form(repeat(form_of(inner[0])), None, list)
    if origin is dict:
        forms = [form_of(tuple[str, ...]), form_of(list[inner[1]])]
        return parts_form(
            forms, lambda value: (tuple(value), value.values()), lambda p: dict(zip(*p, strict=True))
        )
    fields = inner if origin is tuple else get_type_hints(kind).values()
    return parts_form([form_of(field) for field in fields], None, tuple if origin is tuple else kind._make)


# What stands in the text


def plain(*kinds: type) -> tuple[None, Callable[[Any, Specs], Any]]:
    """Say a value as it is; hear one of these types."""

    def hear(word: Any, _: Specs) -> Any:
        expect(type(word) in kinds, f"{word!r:.80} is no {kinds[0].__name__}")
        return word

    return None, hear


def hear_names(word: Any, _: Specs) -> tuple[str, ...]:
    """Return words."""
    expect(all(type(name) is str for name in words_in(word)), "names are words")
    return word


def hear_layout(word: Any, _: Specs) -> Layout:
    """Return the parts of a trajectory."""
    parts = [Part(*words_in(part, 4)) for part in words_in(word)]
    for part in parts:
        kinds = [type(value) for value in part]
        expect(kinds == [str, str, int, bool], "a part is a name, a column, a length, and if it is squeezed")
    return tuple(parts)


def say_limiter(limiter: RateLimiter) -> Words:
    """Say what a limiter is.

    Raises:
        TypeError: If it is of a kind that only this process knows.
    """
    kind = type(limiter).__name__
    if LIMITERS.get(kind) is not type(limiter):
        raise TypeError(f"Of limiters {list(LIMITERS)} can be sent, not {limiter!r}.")
    return kind, limiter.samples_per_insert, limiter.min_size, limiter.min_diff, limiter.max_diff


def hear_limiter(word: Any, _: Specs) -> RateLimiter:
    """Return a limiter; a ValueError says that it can't be."""
    kind, *numbers = words_in(word, 5)
    expect(type(kind) is str and kind in LIMITERS, f"there is no limiter {kind!r:.80}")
    expect(all(type(number) in (int, float) for number in numbers), "a limiter has four numbers")
    limiter = RateLimiter.__new__(LIMITERS[kind])
    RateLimiter.__init__(limiter, *numbers)  # its four numbers, however they were found
    return limiter


TEXTS_OF: dict[Any, tuple[Callable[[Any], Any] | None, Callable[[Any, Specs], Any]]] = {
    None: plain(NoneType),
    str: plain(str),
    float: plain(float, int),
    tuple[str, ...]: (None, hear_names),
    frozenset[str]: (lambda names: tuple(sorted(names)), lambda word, _: frozenset(hear_names(word, _))),
    Layout: (None, hear_layout),
    RateLimiter: (say_limiter, hear_limiter),
}

# Calls and answers, as frames

FORMS: dict[Any, Form] = {("call", name): form_of(tuple[takes]) for name, (takes, _) in CALLS.items()}
FORMS.update({("answer", name): form_of(tuple[gives]) for name, (_, gives) in CALLS.items()})
FORMS["answer", "error"] = form_of(tuple[str, str])


class Heard(NamedTuple):
    """A frame that has been understood.

    Attributes:
        what: "call" or "answer".
        name: Of the method; of an answer "error" if there is nothing else to say.
        values: Arguments, or what came back.
    """

    what: str
    name: str
    values: tuple[Any, ...]


def say(what: str, name: str, values: Sequence[Any], timeout: float | None = None) -> bytes:
    """Make a frame of a call or an answer."""
    numbers, arrays = list[int](), list[Array]()
    words = (what, name, *FORMS[what, name].say(values, numbers.append, arrays.append))
    return pack(words, numbers, arrays, timeout)


def hear(frame: Frame) -> Heard:
    """Put a call or an answer together; arrays are views of the frame's bytes.

    Raises:
        BadFrame: If it is none.
    """
    what, name, build, specs = KNOWN.get(frame.text) or understood(frame.text)
    numbers, arrays = frame.numbers[::-1], specs.arrays_of(frame)[::-1]
    try:
        values = build(numbers.pop, arrays.pop)
    except IndexError:
        raise BadFrame("There are fewer numbers than the text says.") from None
    expect(not numbers, "there are more numbers than the text says")
    return Heard(what, name, values)


Text = tuple[str, str, Any, Specs]
KNOWN: dict[bytes, Text] = {}


def understood(text: bytes) -> Text:
    """Read and check a text."""
    words = words_in(words_of(text))
    expect(words[:2] in FORMS, f"{words[:2]!r:.80} is none")
    specs = Specs()
    build = FORMS[words[:2]].hear(words[2:], specs)
    return keep(KNOWN, text, (*words[:2], build, specs), len(text))
