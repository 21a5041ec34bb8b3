"""Breadth-first search of all states that a model of the protocol can reach.

The search returns the first violation of an invariant, with a shortest sequence of operations that leads to
it. `explore` takes a model, and `explore_protocol` a protocol of your own:

    explore_protocol(writer=["hold", "fence", "words", "fence", "publish"],
                     sampler=["check", "fence", "words", "fence", "check"])
"""

from collections.abc import Sequence
from typing import NamedTuple

from replay_course.protocol_model import (
    DEAD,
    DONE,
    FIRST,
    FREE,
    HOLD,
    INHERIT,
    NOTHING,
    PUBLISH,
    READ_STAMP,
    RESERVE,
    SECOND,
    STORE,
    SWAP,
    TEST_HOLDER,
    WORD_1,
    WORD_2,
    Configuration,
    Model,
    State,
    Violation,
)
from replay_tutorial.shared.protocol import index_of, is_held

# The operations of a writer on the slot of its row.
OPERATIONS = {
    READ_STAMP: "checks the stamp of slot {}",
    SWAP: "fails to swap the stamp of slot {}, which has changed",
    TEST_HOLDER: "checks whether the holder of slot {} is alive",
    FREE: "frees slot {}",
}
# The order in which a writer and the sampler access a slot in the package.
WRITER = ("hold", "fence", "words", "fence", "publish")
SAMPLER = ("check", "fence", "words", "fence", "check")
STORES: dict[str, tuple[str | int, ...]] = {"hold": (HOLD,), "words": (WORD_1, WORD_2), "publish": (PUBLISH,)}
SHIFT = " " * 16  # before the steps of the sampler, so that they form a second column


class Report(NamedTuple):
    """The number of states visited, and the first violation with the operations that lead to it."""

    states: int
    violation: str | None = None
    trail: tuple[str, ...] = ()
    last: tuple[str, ...] = ()  # the load that completes an incorrect row, if that is the violation

    def __str__(self) -> str:
        found = self.violation or "no violation; every returned row is complete and has its own index"
        steps = (*self.trail, *self.last)
        lines = (f"{'' if step.startswith('writer') else SHIFT}   {step}" for step in steps)
        return "\n".join((f"{self.states:,} states: {found}", *lines))


def explore(model: Model) -> Report:
    """Visit every reachable state, nearest first, until an invariant is violated."""
    start = model.start()
    numbers = {start: 0}
    came_from = [0]
    # For each writer, the successor of each state if only that writer runs; the state itself if the writer
    # has ended.
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
            for writer, next_states in enumerate(alone):
                next_states.append(firsts.get(writer, at))
        except Violation as violation:
            last = () if violation.after is None else (describe(state, violation.after),)
            return Report(len(states), str(violation), trail_to(at, states, came_from), last)
        at += 1
    for writer, next_states in enumerate(alone):
        waits = find_cycle(next_states)
        if waits is not None:
            trail = trail_to(waits, states, came_from)
            return Report(len(states), f"writer {writer} waits for another writer", trail)
    return Report(len(states))


def find_cycle(next_states: list[int]) -> int | None:
    """Return a state from which the successors form a cycle, or None."""
    ends = bytearray(len(next_states))  # 1: leads to an end, 2: on the current path
    for start in range(len(next_states)):
        path = [start]
        while not ends[path[-1]] and next_states[path[-1]] != path[-1]:
            ends[path[-1]] = 2
            path.append(next_states[path[-1]])
        if ends[path[-1]] == 2:
            return start
        for state in path:
            ends[state] = 1
    return None


def trail_to(number: int, states: list[State], came_from: list[int]) -> tuple[str, ...]:
    """Return descriptions of the operations that lead from the initial state to a state."""
    lines: list[str] = []
    while number:
        lines.append(describe(states[came_from[number]], states[number]))
        number = came_from[number]
    return tuple(reversed(lines))


def describe(before: State, after: State) -> str:
    """Describe the operation that leads from one state to the next."""
    if before.sampler != after.sampler:
        return "sampler " + describe_load(before, after)
    changed = [i for i, writer in enumerate(before.writers) if writer != after.writers[i]]
    if not changed:
        return "a new process frees a slot held under its number"
    number = changed[0]
    writer, then = before.writers[number], after.writers[number]
    if then.step == DEAD:
        return f"writer {number} is killed"
    if writer.step in (DEAD, INHERIT):
        return f"writer {number}: a new process starts, or starts to add"
    if writer.step == STORE:
        return f"writer {number}: {describe_store(before, after)} becomes visible"
    if writer.step == RESERVE:
        return f"writer {number} reserves index {before.next_index}"
    slot = writer.reserved[0] % len(before.stamps)
    if writer.step == SWAP and then.step == STORE:
        return f"writer {number} swaps its stamp into slot {slot}"
    return f"writer {number} {OPERATIONS[writer.step].format(slot)}"


def describe_store(before: State, after: State) -> str:
    """Describe the store that became visible."""
    for slot, (old, new) in enumerate(zip(before.stamps, after.stamps, strict=True)):
        if old != new:
            return f"the stamp '{describe_stamp(new)}' of slot {slot}"
    for place, (old, new) in enumerate(zip(before.words, after.words, strict=True)):
        if old != new:
            return f"{('word 1', 'word 2', 'the mass')[place % 3]} of row {new} in slot {place // 3}"
    return "an unchanged value"


def describe_load(before: State, after: State) -> str:
    """Describe the sampler's load."""
    if after.sampler is None:
        return "is done with this slot"
    slot, *now = after.sampler
    then = before.sampler[1:] if before.sampler else (NOTHING,) * len(now)
    load = next(i for i, (old, new) in enumerate(zip(then, now, strict=True)) if old != new)
    if load >= FIRST:
        return f"checks the stamp of slot {slot}: '{describe_stamp(now[load])}'"
    value = f"from row {now[load]}" if now[load] >= 0 else "never written"
    return f"loads word {load + 1} of slot {slot}: {value}"


def describe_stamp(stamp: int) -> str:
    """Describe a stamp."""
    if stamp == 0:
        return "never written"
    return f"row {index_of(stamp)}, {'held' if is_held(stamp) else 'published'}"


def explore_protocol(writer: Sequence[str] = WRITER, sampler: Sequence[str] = SAMPLER) -> Report:
    """Explore a protocol of your own, in which one writer adds two rows to a ring of one slot.

    Between two fences, operations may be reordered, as a compiler or an Arm processor may reorder them. The
    explorer tries every order in which they can become visible.

    Args:
        writer: Order of a writer's stores after its swap, "hold", "words" and "publish", with any number of
            "fence".
        sampler: Order of the sampler's loads, "words" and one or two "check", with any number of "fence".

    Returns:
        The number of states, and the first violation.

    Raises:
        ValueError: If an operation is missing, repeated or unknown.
    """
    model = Model(Configuration(capacity=1, adds=((1, 1),), masses=False))
    model.stores, model.loads_before = stores_of(writer), loads_of(sampler)
    return explore(model)


def stores_of(writer: Sequence[str]) -> tuple[tuple[str | int, ...], ...]:
    """Return the stores of a writer, in groups separated by fences."""
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
    """Return the loads of the sampler, and for each the loads that must come before it."""
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
