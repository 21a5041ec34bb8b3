"""What a state of the protocol's model consists of: the stamps, the words, each writer, and the sampler.

A row's words and mass are just its index. A writer stands between two memory operations; what it has stored
and others can't see yet is its own.

Left out: how one state follows another (`protocol_model`).
"""

from typing import Any, NamedTuple

from replay_tutorial.shared.protocol import NOBODY, is_held, owner_of, published_stamp

NOTHING = -1  # a word never written, a load not yet done

# What a writer does next.
RESERVE, LOOK, SWAP, TEST_HOLDER, FREE, STORE, DONE, DEAD, INHERIT = (
    "reserve", "look", "swap", "test_holder", "free", "store", "done", "dead", "inherit",
)  # fmt: skip
# What a writer stores, and what the sampler loads.
HOLD, WORD_1, WORD_2, MASS, PUBLISH = "hold", 0, 1, 2, "publish"
FIRST, SECOND = 2, 3  # the sampler's two looks at the stamp; its loads of words are WORD_1 and WORD_2

# What can be taken out of the protocol, one at a time, to see whether the explorer finds what goes wrong.
MUTATIONS = (
    "publish without release",
    "publish before the words",
    "mass after publication",
    "no fence after the swap",
    "first look without acquire",
    "no second look",
    "no fence before the second look",
    "second look before the words",
    "take what a living writer holds",
    "held stamp without owner",
    "number inherited without freeing",
    "dead writers' slots are passed over",
    "no test for being lapped",
    "free by a store instead of a swap",
    "wait for the holder",
)


class Configuration(NamedTuple):
    """How large a world is explored.

    Attributes:
        capacity: Number of slots.
        adds: For each writer, the number of rows of each of its calls of `append`.
        crashes: How many writers may be killed.
        heirs: How many of the killed are replaced by a new process that takes the number over.
        heir_adds: What such a process adds.
        masses: Whether a row has a mass; without it there are fewer states, so that more rows can be written.
    """

    capacity: int
    adds: tuple[tuple[int, ...], ...]
    crashes: int = 0
    heirs: int = 0
    heir_adds: tuple[int, ...] = (1,)
    masses: bool = True


class Writer(NamedTuple):
    """A writer between two memory operations."""

    step: str
    adds: tuple[int, ...] = ()  # rows of each call that is still to come
    reserved: tuple[int, ...] = ()  # indexes still to be written; the first is being worked on
    passed: int = 0  # rows of this call whose slot another held
    seen: int = 0  # the stamp at the last look
    pending: tuple[tuple[str | int, ...], ...] = ()  # stores not yet visible


class State(NamedTuple):
    """Everything at one moment."""

    next_index: int
    stamps: tuple[int, ...]
    words: tuple[int, ...]  # [capacity * 3]: the two words and the mass of each slot
    writers: tuple[Writer, ...]
    sampler: tuple[int, ...] | None  # slot, words 1 and 2, first and second look; None between rows
    crashes: int
    heirs: int


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """Replace one element."""
    return (*values[:place], value, *values[place + 1 :])


def after_look(stamp: int, index: int) -> str:
    """Return what a writer does next where it saw this stamp; DONE: leave the row out."""
    if stamp >= published_stamp(index):
        return DONE
    return TEST_HOLDER if is_held(stamp) and owner_of(stamp) != NOBODY else SWAP


def may_be_read(stamp: int) -> bool:
    """Return whether a reader that saw this stamp may go on to the words."""
    return not is_held(stamp) and stamp > 0
