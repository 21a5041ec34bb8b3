"""A protocol of the reader's own: in which order writer and sampler touch a slot, and what comes of it.

    explore_protocol(writer=["hold", "fence", "words", "fence", "publish"],
                     sampler=["look", "fence", "words", "fence", "look"])

Between two fences the order is free, as it is for a compiler and an Arm processor. One writer adds two rows
to a ring of one slot, and every order in which the others may see that is tried.

Left out: everything else that a writer does (`protocol_model`).
"""

from collections.abc import Sequence

from replay_tutorial.teaching.protocol_explorer import Report, explore
from replay_tutorial.teaching.protocol_model import Model
from replay_tutorial.teaching.protocol_states import (
    FIRST,
    HOLD,
    PUBLISH,
    SECOND,
    WORD_1,
    WORD_2,
    Configuration,
)

WRITER = ("hold", "fence", "words", "fence", "publish")
SAMPLER = ("look", "fence", "words", "fence", "look")
STORES: dict[str, tuple[str | int, ...]] = {"hold": (HOLD,), "words": (WORD_1, WORD_2), "publish": (PUBLISH,)}


class OwnProtocol(Model):
    """The protocol with another order of stores and loads."""

    def __init__(self, writer: Sequence[str], sampler: Sequence[str]) -> None:
        """Take what a writer stores once it may, and what the sampler loads, with fences between."""
        super().__init__(Configuration(capacity=1, adds=((1, 1),), masses=False))
        self.stores = stores_of(writer)
        self.loads_before = loads_of(sampler)


def stores_of(writer: Sequence[str]) -> tuple[tuple[str | int, ...], ...]:
    """Return what is stored, in groups with a fence between.

    Raises:
        ValueError: If something is missing, twice there, or unknown.
    """
    if sorted(step for step in writer if step != "fence") != sorted(STORES):
        raise ValueError(f"a writer does 'hold', 'words' and 'publish' once each, and 'fence'; not {writer}")
    groups: list[tuple[str | int, ...]] = [()]
    for step in writer:
        if step == "fence":
            groups.append(())
        else:
            groups[-1] += STORES[step]
    return tuple(group for group in groups if group)


def loads_of(sampler: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Return what is loaded, and which loads must have happened before each.

    Raises:
        ValueError: If there is not one `words`, or not one or two looks.
    """
    steps = [step for step in sampler if step != "fence"]
    if sorted(steps) not in (["look", "words"], ["look", "look", "words"]):
        raise ValueError(f"a sampler does 'words' once, 'look' once or twice, and 'fence'; not {sampler}")
    before: dict[int, tuple[int, ...]] = {}
    done: tuple[int, ...] = ()  # before the last fence
    since: tuple[int, ...] = ()
    looks = iter((FIRST, SECOND))
    for step in sampler:
        if step == "fence":
            done, since = done + since, ()
            continue
        loads = (WORD_1, WORD_2) if step == "words" else (next(looks),)
        before |= dict.fromkeys(loads, done)
        since += loads
    return before


def explore_protocol(writer: Sequence[str] = WRITER, sampler: Sequence[str] = SAMPLER) -> Report:
    """Try every order that the fences allow, and return what was found."""
    return explore(OwnProtocol(writer, sampler))
