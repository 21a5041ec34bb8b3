"""Explore a protocol of your own: the order in which a writer and the sampler access a slot.

    explore_protocol(writer=["hold", "fence", "words", "fence", "publish"],
                     sampler=["check", "fence", "words", "fence", "check"])

Between two fences, operations may be reordered, as a compiler or an Arm processor may reorder them. One
writer adds two rows to a ring of one slot, and the explorer tries every order in which the operations can
become visible. All other operations of a writer are those of `protocol_model`.
"""

from collections.abc import Sequence

from replay_tutorial.teaching.protocol_explorer import Report, explore
from replay_tutorial.teaching.protocol_model import (
    FIRST,
    HOLD,
    PUBLISH,
    SECOND,
    WORD_1,
    WORD_2,
    Configuration,
    Model,
)

WRITER = ("hold", "fence", "words", "fence", "publish")
SAMPLER = ("check", "fence", "words", "fence", "check")
STORES: dict[str, tuple[str | int, ...]] = {"hold": (HOLD,), "words": (WORD_1, WORD_2), "publish": (PUBLISH,)}


class OwnProtocol(Model):
    """The protocol with a given order of stores and loads."""

    def __init__(self, writer: Sequence[str], sampler: Sequence[str]) -> None:
        """Set the writer's stores after its swap and the sampler's loads, each with fences."""
        super().__init__(Configuration(capacity=1, adds=((1, 1),), masses=False))
        self.stores = stores_of(writer)
        self.loads_before = loads_of(sampler)


def stores_of(writer: Sequence[str]) -> tuple[tuple[str | int, ...], ...]:
    """Return the stores of a writer, in groups separated by fences.

    Raises:
        ValueError: If a store is missing, repeated or unknown.
    """
    if sorted(step for step in writer if step != "fence") != sorted(STORES):
        raise ValueError(
            f"a writer needs 'hold', 'words' and 'publish' once each, and any number of 'fence'; not {writer}"
        )
    groups: list[tuple[str | int, ...]] = [()]
    for step in writer:
        if step == "fence":
            groups.append(())
        else:
            groups[-1] += STORES[step]
    return tuple(group for group in groups if group)


def loads_of(sampler: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Return the loads of the sampler, and for each the loads that must come before it.

    Raises:
        ValueError: Unless there is one "words" and one or two "check".
    """
    steps = [step for step in sampler if step != "fence"]
    if sorted(steps) not in (["check", "words"], ["check", "check", "words"]):
        raise ValueError(
            f"a sampler needs 'words' once, 'check' once or twice, and any number of 'fence'; not {sampler}"
        )
    before: dict[int, tuple[int, ...]] = {}
    done: tuple[int, ...] = ()  # loads before the last fence
    since: tuple[int, ...] = ()  # loads after that fence
    checks = iter((FIRST, SECOND))
    for step in sampler:
        if step == "fence":
            done, since = done + since, ()
            continue
        loads = (WORD_1, WORD_2) if step == "words" else (next(checks),)
        before |= dict.fromkeys(loads, done)
        since += loads
    return before


def explore_protocol(writer: Sequence[str] = WRITER, sampler: Sequence[str] = SAMPLER) -> Report:
    """Explore every order that the fences allow; return the number of states and the first violation."""
    return explore(OwnProtocol(writer, sampler))
