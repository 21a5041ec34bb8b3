"""States of the model of the ring's protocol: the stamps, the words, each writer, and the sampler.

The words and the mass of a row all equal its index. `protocol_model` defines the transitions between states.
"""

from typing import Any, NamedTuple

from replay_tutorial.shared.protocol import NOBODY, is_held, owner_of, published_stamp

NOTHING = -1  # a word never written, or a load not yet made

# The next operation of a writer.
RESERVE, READ_STAMP, SWAP, TEST_HOLDER, FREE, STORE, DONE, DEAD, INHERIT = (
    "reserve", "read_stamp", "swap", "test_holder", "free", "store", "done", "dead", "inherit",
)  # fmt: skip
# The stores of a writer, and the loads of the sampler.
HOLD, WORD_1, WORD_2, MASS, PUBLISH = "hold", 0, 1, 2, "publish"
FIRST, SECOND = 2, 3  # the sampler's two checks of the stamp; it also loads WORD_1 and WORD_2

# Each mutation removes one precaution from the protocol; the explorer must find a violation.
MUTATIONS = (
    "publish without release",
    "publish before the words",
    "mass after publication",
    "no fence after the swap",
    "first check without acquire",
    "no second check",
    "no fence before the second check",
    "second check before the words",
    "take slots of living writers",
    "held stamp without owner",
    "number reused without freeing",
    "slots of dead writers are skipped",
    "no test for a newer index",
    "free by a store instead of a swap",
    "wait for the holder",
)


class Configuration(NamedTuple):
    """Size of the model to explore.

    Attributes:
        capacity: Number of slots.
        adds: For each writer, the number of rows in each of its calls of `append`.
        crashes: Maximum number of writers that are killed.
        heirs: Maximum number of killed writers that are replaced by a new process with the same number.
        heir_adds: Number of rows in each call of such a process.
        masses: Whether rows have a mass. Without masses there are fewer states, so more rows can be explored.
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
    adds: tuple[int, ...] = ()  # rows in each of the remaining calls
    reserved: tuple[int, ...] = ()  # indexes of the current row and of the remaining rows of this call
    skipped: int = 0  # rows of this call whose slot was held by another writer
    seen: int = 0  # the stamp when it was last read
    pending: tuple[tuple[str | int, ...], ...] = ()  # stores not yet visible


class State(NamedTuple):
    """The complete state of the model."""

    next_index: int
    stamps: tuple[int, ...]
    words: tuple[int, ...]  # [capacity * 3]: the two words and the mass of each slot
    writers: tuple[Writer, ...]
    sampler: tuple[int, ...] | None  # slot, words 1 and 2, first and second check; None between rows
    crashes: int
    heirs: int


def replace_item(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """Return a copy of the tuple with one item replaced."""
    return (*values[:place], value, *values[place + 1 :])


def step_after_read(stamp: int, index: int) -> str:
    """Return the next operation of a writer that has read this stamp, or DONE if it must drop its row."""
    if stamp >= published_stamp(index):
        return DONE
    return TEST_HOLDER if is_held(stamp) and owner_of(stamp) != NOBODY else SWAP


def may_be_read(stamp: int) -> bool:
    """Return whether the stamp is that of a published row."""
    return not is_held(stamp) and stamp > 0
