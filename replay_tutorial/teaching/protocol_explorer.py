"""An explorer of every state that the protocol's model can reach, the nearest first.

The way to the first violation is therefore as short as it can be, and it is told step by step.

Left out: which protocol (`protocol_model`), and how the reader takes one apart (`own_protocol`).
"""

from typing import NamedTuple

from replay_tutorial.shared.protocol import index_of, is_held
from replay_tutorial.teaching.protocol_model import Model, Violation
from replay_tutorial.teaching.protocol_states import (
    DEAD,
    DONE,
    FIRST,
    FREE,
    INHERIT,
    LOOK,
    NOTHING,
    RESERVE,
    STORE,
    SWAP,
    TEST_HOLDER,
    State,
)

# What a writer does with the slot of its row, in words.
DOES = {LOOK: "looks at the stamp of", SWAP: "fails to take", TEST_HOLDER: "asks who holds", FREE: "frees"}


class Report(NamedTuple):
    """What the explorer found: how many states, and the first violation with the way there."""

    states: int
    violation: str | None = None
    trail: tuple[str, ...] = ()
    last: tuple[str, ...] = ()  # the load that completes a wrong row, if that is what is wrong

    def __str__(self) -> str:
        found = self.violation or "in none of them a row that is torn, made up, or under a wrong index"
        return "\n".join(
            (f"{self.states:,} states, {found}", *(f"   {step}" for step in (*self.trail, *self.last)))
        )


def explore(model: Model) -> Report:
    """Visit every reachable state, the nearest first, until an invariant is found broken."""
    start = model.start()
    numbers = {start: 0}
    came_from = [0]
    # For each writer, the state that each state leads to if that writer alone goes on; itself where it has
    # ended.
    alone: list[list[int]] = [[] for _ in start.writers]
    at = 0
    states = [start]
    while at < len(states):
        state = states[at]
        try:
            model.check(state)
            if all(writer.step in (DONE, DEAD) for writer in state.writers):
                model.check_end(state)
            firsts: dict[int, int] = {}
            for writer, after in model.successors(state):
                number = numbers.setdefault(after, len(states))
                if number == len(states):
                    states.append(after)
                    came_from.append(at)
                firsts.setdefault(writer, number)
            for writer, ways in enumerate(alone):
                ways.append(firsts.get(writer, at))
        except Violation as violation:
            last = () if violation.after is None else (tell(state, violation.after),)
            return Report(len(states), str(violation), trail_to(at, states, came_from), last)
        at += 1
    for writer, ways in enumerate(alone):
        waits = first_that_never_ends(ways)
        if waits is not None:
            return Report(
                len(states), f"writer {writer} waits for another", trail_to(waits, states, came_from)
            )
    return Report(len(states))


def first_that_never_ends(ways: list[int]) -> int | None:
    """Find a state from which following the ways goes round in a circle."""
    ends = bytearray(len(ways))  # 1: leads to an end, 2: on the way that is being followed
    for start in range(len(ways)):
        way = [start]
        while not ends[way[-1]] and ways[way[-1]] != way[-1]:
            ends[way[-1]] = 2
            way.append(ways[way[-1]])
        if ends[way[-1]] == 2:
            return start
        for state in way:
            ends[state] = 1
    return None


def trail_to(number: int, states: list[State], came_from: list[int]) -> tuple[str, ...]:
    """Return the operations that lead from the start to a state."""
    told: list[str] = []
    while number:
        told.append(tell(states[came_from[number]], states[number]))
        number = came_from[number]
    return tuple(reversed(told))


def tell(before: State, after: State) -> str:
    """Say which operation leads from one state to the next."""
    if before.sampler != after.sampler:
        return "sampler " + tell_load(before, after)
    changed = [i for i, writer in enumerate(before.writers) if writer != after.writers[i]]
    if not changed:
        return "a new process with a dead one's number frees a slot that it held"
    number = changed[0]
    writer, then = before.writers[number], after.writers[number]
    if then.step == DEAD:
        return f"writer {number} is killed"
    if writer.step in (DEAD, INHERIT):
        return f"writer {number} is a new process, or begins"
    if writer.step == STORE:
        return f"writer {number}: others see {tell_store(before, after)}"
    if writer.step == RESERVE:
        return f"writer {number} reserves index {before.next_index}"
    slot = writer.reserved[0] % len(before.stamps)
    if writer.step == SWAP and then.step == STORE:
        return f"writer {number} takes slot {slot}: its swap succeeds"
    return f"writer {number} {DOES[writer.step]} slot {slot}"


def tell_store(before: State, after: State) -> str:
    """Say what became visible to the others."""
    for slot, (old, new) in enumerate(zip(before.stamps, after.stamps, strict=True)):
        if old != new:
            return f"the stamp '{tell_stamp(new)}' on slot {slot}"
    for place, (old, new) in enumerate(zip(before.words, after.words, strict=True)):
        if old != new:
            return f"{('word 1', 'word 2', 'the mass')[place % 3]} of row {new} in slot {place // 3}"
    return "nothing new"


def tell_load(before: State, after: State) -> str:
    """Say what the sampler has loaded."""
    if after.sampler is None:
        return "leaves this slot"
    slot, *now = after.sampler
    then = before.sampler[1:] if before.sampler else (NOTHING,) * len(now)
    load = next(i for i, (old, new) in enumerate(zip(then, now, strict=True)) if old != new)
    if load >= FIRST:
        return f"looks at the stamp of slot {slot}: '{tell_stamp(now[load])}'"
    return f"loads word {load + 1} of slot {slot}: " + (
        f"row {now[load]}" if now[load] >= 0 else "nothing there"
    )


def tell_stamp(stamp: int) -> str:
    """Say what a stamp says."""
    if stamp == 0:
        return "never written"
    return f"row {index_of(stamp)}, {'held' if is_held(stamp) else 'whole'}"
