"""Properties of correct replay. Each is a short function that returns the first fault it finds, or None.

The cases, the right rows and the reasons are data, in `cases.json`. All faults are read off sampled rows,
which `world` makes recognizable. Shares of draws are compared by chi-square with a chance of about 1e-9 to
reject a correct buffer.
"""

import multiprocessing
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.conformance.library import Buffer, Library, NotChecked, NotOffered, Row
from benchmarks.conformance.world import CASES, Id, Step, target, vector_steps, world

N: int = CASES["n"]
GAMMA: float = CASES["gamma"]
DRAWS = 4000
SIGMAS = 6.0
PATIENCE_SECONDS = 30.0
Fault = str | None
Case = dict[str, Any]
Check = Callable[[Library, list[Case]], Fault]


class Property(NamedTuple):
    """A property: its group and sentence in the table, its cases, and the function that checks it."""

    group: str
    sentence: str
    cases: list[Case]
    checked: Check

    def check(self, library: Library) -> Fault:
        """Return the first fault of a library."""
        return self.checked(library, self.cases)


PROPERTIES: dict[str, Property] = {}


def holds(check: Check) -> Check:
    """Register a property under its function's name, without `check_`."""
    name = check.__name__.removeprefix("check_")
    found = CASES["properties"][name]
    PROPERTIES[name] = Property(found["group"], found["property"], found["cases"], check)
    return check


def filled(buffer: Buffer, count: int, environments: int = 1, truncation: bool = True) -> list[list[Step]]:
    """Add `count` steps of every environment, and return them by environment."""
    ticks = world(count, environments, truncation)
    for tick in ticks:
        buffer.add(tick)
    return [list(stream) for stream in zip(*ticks, strict=True)]


def by_obs(streams: Iterable[Sequence[Step]]) -> dict[Id, Step]:
    """Return the steps by their observations."""
    return {step.obs: step for stream in streams for step in stream}


def first(faults: Iterable[Fault]) -> Fault:
    """Return the first fault."""
    return next((fault for fault in faults if fault), None)


# Rows


@holds
def check_newest_rows(library: Library, cases: list[Case]) -> Fault:
    """Check capacities that are no powers of two and no multiples of an episode, at several fill levels."""
    for case in cases:
        capacity: int = case["capacity"]
        ranges: dict[int, list[int]] = {int(count): stored for count, stored in case["stored"].items()}
        buffer, added = library.uniform(capacity), list[Step]()
        for (step,) in world(max(ranges)):
            buffer.add([step])
            added.append(step)
            if len(added) not in ranges:
                continue
            stored = {(old.obs, old.reward) for old in added[slice(*ranges[len(added)])]}
            seen = {(row.obs, row.reward) for row in buffer.sample(40 * capacity)}
            if seen != stored:
                wrong, missing = len(seen - stored), len(stored - seen)
                return (
                    f"capacity {capacity}, {len(added)} rows added: {wrong} wrong rows, {missing} never drawn"
                )
    return None


@holds
def check_uniform(library: Library, cases: list[Case]) -> Fault:
    """Check a buffer that is partly full, and one that has wrapped around."""
    for case in cases:
        buffer = library.uniform(case["capacity"])
        (stream,) = filled(buffer, case["steps"])
        if fault := not_in_proportion(buffer, {step.obs: 1.0 for step in stream[slice(*case["stored"])]}):
            return f"{case['steps']} rows added: {fault}"
    return None


@holds
def check_truncation(library: Library, cases: list[Case]) -> Fault:
    """Check the flags of sampled rows."""
    (case,) = cases
    buffer = library.uniform(case["capacity"])
    steps = by_obs(filled(buffer, case["steps"]))
    for row in buffer.sample(DRAWS // 4):
        if row.obs not in steps:
            return f"{row.obs} was never added"
        if (row.discount == 0) != steps[row.obs].terminated:
            return f"{steps[row.obs]} has the discount {row.discount}"
    return None


@holds
def check_final_observation(library: Library, cases: list[Case]) -> Fault:
    """Check the next observations of sampled rows."""
    (case,) = cases
    buffer = library.uniform(case["capacity"])
    steps = by_obs(filled(buffer, case["steps"]))
    return wrong_next(buffer.sample(DRAWS // 4), steps)


def stored_once_fault(
    library: Library, cases: list[Case], checked: Callable[[Step, bool], bool], may_be_left_out: bool = False
) -> Fault:
    """Return the fault of a next observation that is stored once; `checked` selects by step and newest."""
    (case,) = cases
    truncation = not case["terminating"]
    buffer, added, drawn = library.stored_once(case["capacity"], truncation), list[Step](), list[bool]()
    for (step,) in world(case["steps"], truncation=truncation):
        buffer.add([step])
        added.append(step)
        steps = by_obs([added])
        for row in buffer.sample(100):
            if row.obs not in steps:
                return f"{row.obs} was never added"
            drawn.append(checked(steps[row.obs], row.obs == step.obs))
            if drawn[-1] and (fault := wrong_next([row], steps)):
                return f"{len(added)} rows added: {fault}"
    return None if any(drawn) or (drawn and may_be_left_out) else "no such row is ever drawn"


@holds
def check_stored_once_inside(library: Library, cases: list[Case]) -> Fault:
    """Check all rows but the newest, while the buffer fills and wraps around."""
    return stored_once_fault(library, cases, lambda step, newest: not newest)


@holds
def check_stored_once_newest(library: Library, cases: list[Case]) -> Fault:
    """Check the newest row, which may be left out as long as its next observation isn't stored."""
    return stored_once_fault(library, cases, lambda step, newest: newest, may_be_left_out=True)


@holds
def check_stored_once_truncated(library: Library, cases: list[Case]) -> Fault:
    """Check the last rows of truncated episodes."""
    return stored_once_fault(library, cases, lambda step, newest: step.truncated)


@holds
def check_environments(library: Library, cases: list[Case]) -> Fault:
    """Check whole rows of three environments, whose episodes differ in length."""
    (case,) = cases
    environments: int = case["environments"]
    buffer = library.uniform(case["capacity"], environments)
    steps = by_obs(filled(buffer, case["steps"], environments))
    drawn = buffer.sample(DRAWS // 4)
    if {row.obs[0] for row in drawn} != {*range(environments)}:
        return f"only the environments { ({row.obs[0] for row in drawn}) } were drawn"
    wrong = (row for row in drawn if row.reward != steps[row.obs].reward)
    return wrong_next(drawn, steps) or first(f"{row} has another step's reward" for row in wrong)


def wrong_next(drawn: list[Row], steps: dict[Id, Step]) -> Fault:
    """Return the fault of a next observation that its target would use."""
    for row in drawn:
        if row.obs not in steps:
            return f"{row.obs} was never added"
        if row.discount and row.next_obs != steps[row.obs].next_obs:
            return f"{row.obs} is followed by {row.next_obs}"
    return None


# n-step rows


def n_step_fault(library: Library, cases: list[Case], end: str) -> Fault:
    """Return the fault of a row whose window ends in this way; see `world.target`.

    A window that is cut by the newest step may be left out, or end earlier.
    """
    checked = end == "newest"
    for case in cases:
        environments: int = case.get("environments", 1)
        buffer = library.n_step(case["capacity"], N, GAMMA, environments)
        streams = filled(buffer, case["steps"], environments)
        where = f"capacity {case['capacity'] // environments}, {case['steps']} steps"
        places = {step.obs: (stream, i) for stream in streams for i, step in enumerate(stream)}
        for row in buffer.sample(DRAWS // 4):
            if row.obs not in places:
                return f"{where}: {row.obs} was never added"
            right = target(*places[row.obs], N)
            checked = checked or right.end == end
            if right.end == end and (fault := wrong_target(row, *places[row.obs])):
                return f"{where}: {fault}"
    return None if checked else "no such row is ever drawn"


def wrong_target(row: Row, stream: list[Step], start: int) -> Fault:
    """Return the fault of an n-step row that begins with the step `stream[start]`."""
    right = target(stream, start, N)
    lengths = range(1, N + 1) if right.end == "newest" else [N]
    if any(is_target(row, *target(stream, start, n)[:3]) for n in lengths):
        return None
    return (
        f"for {row.obs}, {row.reward:g} + {row.discount:g} Q{row.next_obs} instead of "
        f"{right.reward:g} + {right.discount:g} Q{right.next_obs}"
    )


def is_target(row: Row, reward: float, next_obs: Id, discount: float) -> bool:
    """Return whether a row has this target."""
    exact = abs(row.reward - reward) < 1e-3 and abs(row.discount - discount) < 1e-5
    return exact and (discount == 0 or row.next_obs == next_obs)


@holds
def check_n_step_inside(library: Library, cases: list[Case]) -> Fault:
    """Check complete windows."""
    return n_step_fault(library, cases, "inside")


@holds
def check_n_step_terminated(library: Library, cases: list[Case]) -> Fault:
    """Check windows in which the episode terminates."""
    return n_step_fault(library, cases, "terminated")


@holds
def check_n_step_truncated(library: Library, cases: list[Case]) -> Fault:
    """Check windows in which the episode is truncated."""
    return n_step_fault(library, cases, "truncated")


@holds
def check_n_step_tails(library: Library, cases: list[Case]) -> Fault:
    """Check that every step is sampled, except the newest N + 1, whose windows may be incomplete."""
    (case,) = cases
    buffer = library.n_step(case["capacity"], N, GAMMA)
    (stream,) = filled(buffer, case["steps"])
    seen = {row.obs for row in buffer.sample(DRAWS)}
    return first(f"{step.obs} is never drawn" for step in stream[: -N - 1] if step.obs not in seen)


@holds
def check_n_step_newest(library: Library, cases: list[Case]) -> Fault:
    """Check windows that are cut by the newest step: left out, or bootstrapped from its next observation."""
    return n_step_fault(library, cases, "newest")


@holds
def check_n_step_environments(library: Library, cases: list[Case]) -> Fault:
    """Check complete windows of three environments."""
    return n_step_fault(library, cases, "inside")


@holds
def check_autoreset(library: Library, cases: list[Case]) -> Fault:
    """Check that the rows of three environments are their transitions, with final observations."""
    for case in cases:
        mode, environments = case["mode"], case["environments"]
        buffer = library.vectorized(case["capacity"], N, GAMMA, environments, mode)
        streams = [list(stream) for stream in zip(*world(case["steps"], environments), strict=True)]
        steps = vector_steps(streams, mode)
        for step in steps:
            buffer.add_vector_step(step)
        added = [len(steps) - sum(step.only_reset[i] for step in steps) for i in range(environments)]
        streams = [stream[:count] for stream, count in zip(streams, added, strict=True)]
        places = {step.obs: (stream, i) for stream in streams for i, step in enumerate(stream)}
        drawn = buffer.sample(DRAWS)
        for row in drawn:
            if row.obs not in places:
                return f"{mode}: {row.obs} is not an observation before an action"
            if fault := wrong_target(row, *places[row.obs]):
                return f"{mode}: {fault}"
        complete = {step.obs for stream in streams for step in stream[: -N - 1]}
        if missing := complete - {row.obs for row in drawn}:
            return f"{mode}: {min(missing)} is never drawn"
    return None


# Frame stacks


def stack_fault(
    library: Library, cases: list[Case], name: str, selected: Callable[[Step, bool], bool]
) -> Fault:
    """Return the fault of a stack of frames (environment, episode, step); `selected`: by step and newest."""
    checked = False
    for case in cases:
        capacity: int = case["capacity"]
        buffer, steps = library.stacked(capacity, case["frames"]), dict[Id, Step]()
        for (step,) in world(case["steps"]):
            buffer.add([step])
            steps[step.obs] = step
            stored = {*list(steps)[-capacity:]}
            for row in buffer.sample(20):
                if (place := row.obs[-3:]) not in steps:
                    return f"capacity {capacity}, {len(steps)} rows added: {place} was never added"
                if not selected(steps[place], place == step.obs):
                    continue
                checked = True
                stack: Id = getattr(row, name)
                frames = [stack[i : i + 3] for i in range(0, len(stack), 3)]
                last: Id = getattr(steps[place], name)
                if not is_stack(frames, last, stored):
                    return f"capacity {capacity}, {len(steps)} rows added: the stack of {last} is {frames}"
    return None if checked else "no such row is ever drawn"


def is_stack(frames: list[Id], last: Id, stored: set[Id]) -> bool:
    """Return whether `frames` end with `last`, and each follows the one before it.

    If there is no frame before one, because its episode begins there or the earlier row has been replaced,
    this frame or zeros take the place of all earlier ones.
    """
    frame = last
    for i in range(len(frames) - 1, -1, -1):
        if frames[i] != frame:
            after = frames[i + 1] if i + 1 < len(frames) else ()
            return (
                after[:2] == last[:2] and frame not in stored and set(frames[: i + 1]) <= {after, (0, 0, 0)}
            )
        frame = (*frame[:2], frame[2] - 1)
    return True


@holds
def check_stack(library: Library, cases: list[Case]) -> Fault:
    """Check the stacks of observations."""
    return stack_fault(library, cases, "obs", lambda step, newest: True)


@holds
def check_next_stack(library: Library, cases: list[Case]) -> Fault:
    """Check the stacks of next observations inside episodes, except that of the newest row."""
    return stack_fault(library, cases, "next_obs", lambda step, newest: not (step.ended or newest))


@holds
def check_next_stack_truncated(library: Library, cases: list[Case]) -> Fault:
    """Check the stacks of next observations at truncations; targets don't use those at terminations."""
    return stack_fault(library, cases, "next_obs", lambda step, newest: step.truncated)


# Priorities


def not_in_proportion(buffer: Buffer, masses: dict[Id, float], ignored: Collection[Id] = ()) -> Fault:
    """Return the fault if rows are not drawn in proportion to these masses."""
    counts = Counter(row.obs for row in buffer.sample(DRAWS) if row.obs not in ignored)
    if strangers := counts.keys() - masses.keys():
        return f"{len(strangers)} rows that are not stored were drawn, such as {min(strangers)}"
    draws, total, degrees = sum(counts.values()), sum(masses.values()), len(masses) - 1
    expected = {obs: draws * mass / total for obs, mass in masses.items()}
    statistic = sum((counts[obs] - mean) ** 2 / mean for obs, mean in expected.items())
    variance = 2 / (9 * degrees)
    limit = degrees * (1 - variance + SIGMAS * variance**0.5) ** 3  # Wilson, Hilferty 1931
    if statistic <= limit:
        return None
    worst = max(masses, key=lambda obs: abs(counts[obs] - expected[obs]) / expected[obs] ** 0.5)
    return f"{worst} was drawn {counts[worst]} times of {draws} instead of about {expected[worst]:.0f} times"


def with_priorities(buffer: Buffer, case: Case) -> list[Step]:
    """Add rows, set the priorities of the stored ones, and return these, from the oldest to the newest."""
    (stream,) = filled(buffer, case["steps"])
    stored = stream[-len(case["priorities"]) :]
    handles = {row.obs: row.handle for row in buffer.sample(DRAWS)}
    buffer.update([handles[step.obs] for step in stored], case["priorities"])
    return stored


def with_next(buffer: Buffer, case: Case, stored: list[Step]) -> list[Step]:
    """Add the row that follows, which replaces the oldest one; return the stored rows."""
    (added,) = world(case["steps"] + case["then_add"])[-1]
    buffer.add([added])
    return [*stored[1:], added]


def masses_of(stored: list[Step], masses: Sequence[float]) -> dict[Id, float]:
    """Return the masses of the stored rows by their observations."""
    return {step.obs: mass for step, mass in zip(stored, masses, strict=True)}


def handle_of(buffer: Buffer, step: Step) -> int:
    """Return the handle of a stored row."""
    return {row.obs: row.handle for row in buffer.sample(DRAWS)}[step.obs]


@holds
def check_proportional(library: Library, cases: list[Case]) -> Fault:
    """Check α = 1/2 after a wrap-around."""
    (case,) = cases
    buffer = library.prioritized(case["capacity"], case["alpha"])
    stored = with_priorities(buffer, case)
    return not_in_proportion(buffer, masses_of(stored, case["masses"]))


@holds
def check_weights(library: Library, cases: list[Case]) -> Fault:
    """Check that weight · priority^α is the same for all rows of a sample, so that weighted means agree."""
    (case,) = cases
    buffer = library.prioritized(case["capacity"], case["alpha"])
    mass = masses_of(with_priorities(buffer, case), case["masses"])
    products = [row.weight * mass[row.obs] for row in buffer.sample(200)]
    if min(products) > 0 and max(products) <= 1.001 * min(products):
        return None
    return f"weight · mass is between {min(products):g} and {max(products):g}"


@holds
def check_new_row(library: Library, cases: list[Case]) -> Fault:
    """Check the share of a row added after a priority of 1.9, no whole number, was set."""
    (case,) = cases
    buffer = library.initialized(case["capacity"])
    stored = with_next(buffer, case, with_priorities(buffer, case))
    return not_in_proportion(buffer, masses_of(stored, case["masses"]))


@holds
def check_replaced_row(library: Library, cases: list[Case]) -> Fault:
    """Check the share of a row that replaces one of priority 1/100."""
    (case,) = cases
    buffer = library.prioritized(case["capacity"], case["alpha"])
    stored = with_next(buffer, case, with_priorities(buffer, case))
    return not_in_proportion(buffer, masses_of(stored, case["masses"]))


@holds
def check_zero(library: Library, cases: list[Case]) -> Fault:
    """Check draws and weights in a buffer that is not full, with two rows of priority 0."""
    (case,) = cases
    buffer = library.prioritized(case["capacity"], case["alpha"])
    masses = masses_of(with_priorities(buffer, case), case["masses"])
    drawn = buffer.sample(200)
    if not all(0 < row.weight < float("inf") for row in drawn):
        return f"weights are {sorted({row.weight for row in drawn})}"
    zeros = {obs for obs, mass in masses.items() if mass == 0}
    if sum(row.obs in zeros for row in drawn) > len(drawn) // 20:
        return "rows of priority 0 are drawn too often"
    positive = {obs: mass for obs, mass in masses.items() if obs not in zeros}
    return not_in_proportion(buffer, positive, ignored=zeros)


@holds
def check_repeated_index(library: Library, cases: list[Case]) -> Fault:
    """Check that all shares agree with one of the priorities that were passed."""
    (case,) = cases
    buffer = library.prioritized(case["capacity"], case["alpha"])
    stored = with_priorities(buffer, case)
    handle = handle_of(buffer, stored[case["row"]])
    buffer.update([handle] * len(case["update"]), case["update"])
    faults = [not_in_proportion(buffer, masses_of(stored, masses)) for masses in case["one_of"]]
    return faults[-1] if all(faults) else None


@holds
def check_large_priority(library: Library, cases: list[Case]) -> Fault:
    """Check uniform shares after a priority of 1e8 was set and then replaced by 1."""
    (case,) = cases
    buffer = library.prioritized(case["capacity"], case["alpha"])
    stored = with_priorities(buffer, case)
    handle = handle_of(buffer, stored[case["row"]])
    for priority in case["update"]:
        buffer.update([handle], [priority])
    return not_in_proportion(buffer, masses_of(stored, case["masses"]))


@holds
def check_late_priority(library: Library, cases: list[Case]) -> Fault:
    """Check an update for a row that was sampled and then replaced."""
    (case,) = cases
    buffer = library.protected(case["capacity"])
    stored = with_priorities(buffer, case)
    handle = handle_of(buffer, stored[case["row"]])
    stored = with_next(buffer, case, stored)
    buffer.update([handle], case["update"])
    return not_in_proportion(buffer, masses_of(stored, case["masses"]))


# Several processes


class _Fatal(Step):
    """A step whose observation kills the process at a given conversion to an array."""

    conversions = 0

    @property
    def obs(self) -> Any:
        """The step itself, as an object with `__array__`."""
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if self.conversions == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.conversions -= 1
        return np.array(super().obs, dtype)


def in_a_process(call: Callable[[], Any]) -> tuple[int | None, Any]:
    """Call a function in a forked process; return the exit status, None if it hangs, and the result."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=lambda: results.put(call()))
    process.start()
    process.join(PATIENCE_SECONDS)
    status = process.exitcode
    process.kill()
    process.join()
    return status, None if results.empty() else results.get()


@holds
def check_killed_writer(library: Library, cases: list[Case]) -> Fault:
    """Kill a writer at each conversion of an observation in turn; another one adds, a third one samples."""
    if not hasattr(os, "fork"):
        raise NotChecked("processes can't be forked on this system")
    (case,) = cases
    buffer = library.across_processes(case["capacity"])
    ticks = world(case["steps"], truncation=not case["terminating"])
    right = {(step.obs, step.next_obs, step.reward) for (step,) in ticks}
    for conversions, (step,) in enumerate(ticks):
        fatal = _Fatal(*step)
        fatal.conversions = conversions
        status, _ = in_a_process(lambda: buffer.add([fatal]))  # noqa: B023
        if status != -signal.SIGKILL:
            if conversions == 0 or status != 0:
                raise NotChecked(f"the writer isn't killed; its exit status is {status}")
            return None
        place = f"a writer killed at conversion {conversions + 1} of its observation"
        if in_a_process(lambda: buffer.add([step]))[0] != 0:  # noqa: B023
            return f"{place} blocks the next writer"
        status, drawn = in_a_process(lambda: buffer.sample(64))
        if status != 0:
            return f"{place} blocks the sampler"
        if wrong := {(row.obs, row.next_obs, row.reward) for row in drawn} - right:
            return f"{place} leaves the row {min(wrong)}"
    return "every writer was killed"


# Sequences


def window_fault(library: Library, cases: list[Case], padded: bool) -> Fault:
    """Return the fault of a window that is no run of steps of one episode."""
    for case in cases:
        length, environments, count = case["length"], case["environments"], case["steps"]
        buffer = library.sequences(case["capacity"], length, environments, padded)
        filled(buffer, count, environments)
        drawn = buffer.windows(300)
        for window in drawn:
            run = [(*window[0][:2], window[0][2] + i) for i in range(len(window))] if window else []
            if not window or window != run or (len(window) < length and not padded):
                return f"{environments} environments, {count} steps: {window}"
        if not drawn:
            return f"{environments} environments, {count} steps: there is no window"
        if padded and all(len(window) == length for window in drawn):
            return "episodes shorter than a window are left out"
    return None


@holds
def check_window(library: Library, cases: list[Case]) -> Fault:
    """Check complete windows, before and after a wrap-around."""
    return window_fault(library, cases, padded=False)


@holds
def check_padding(library: Library, cases: list[Case]) -> Fault:
    """Check windows at the ends of episodes, without the steps that the mask excludes."""
    return window_fault(library, cases, padded=True)


# Hindsight


def goal_fault(library: Library, cases: list[Case], fault: Callable[[Row], bool]) -> Fault:
    """Return a fault among the rows with a new goal."""
    for case in cases:
        strategy, capacity = case["strategy"], case["capacity"]
        buffer, ended, seen = library.hindsight(capacity, strategy), False, False
        for count, (step,) in enumerate(world(case["steps"]), 1):
            buffer.add([step])
            ended = ended or step.ended
            relabelled = [row for row in buffer.sample(60) if row.goal[0] >= 0] if ended else []
            seen = seen or bool(relabelled)
            if wrong := next((row for row in relabelled if fault(row)), None):
                return (
                    f"{strategy!r}, capacity {capacity}, {count} steps: {wrong.obs} has the goal "
                    f"{wrong.goal} and the reward {wrong.reward:g}"
                )
        if not seen:
            return f"{strategy!r}, capacity {capacity}: no goal is ever replaced"
    return None


@holds
def check_goal_future(library: Library, cases: list[Case]) -> Fault:
    """Check the environments and episodes of goals."""
    return goal_fault(library, cases, lambda row: row.goal[:2] != row.obs[:2])


@holds
def check_goal_others(library: Library, cases: list[Case]) -> Fault:
    """Check the environments and episodes of goals."""
    return goal_fault(library, cases, lambda row: row.goal[:2] != row.obs[:2])


@holds
def check_goal_after(library: Library, cases: list[Case]) -> Fault:
    """Check the steps of goals within their episode."""
    return goal_fault(library, cases, lambda row: row.goal[:2] == row.obs[:2] and row.goal[2] <= row.obs[2])


@holds
def check_goal_reward(library: Library, cases: list[Case]) -> Fault:
    """Check that the reward is 0 if the action achieved the goal, otherwise -1."""
    return goal_fault(library, cases, lambda row: row.reward != (0.0 if row.next_obs == row.goal else -1.0))


# Saving


@holds
def check_restored(library: Library, cases: list[Case]) -> Fault:
    """Compare samples of the original and the restored buffer, before and after further rows."""
    (case,) = cases
    try:
        buffer = library.prioritized(case["capacity"], case["alpha"])
        with_priorities(buffer, case)
    except NotOffered:
        buffer = library.uniform(case["capacity"])
        filled(buffer, case["steps"])
    with tempfile.TemporaryDirectory() as folder:
        other = library.restored(buffer, folder)
        for tick in world(case["steps"] + case["then_add"])[case["steps"] :]:
            drawn: list[list[Row]] = []
            for one in (buffer, other):
                library.seed(1)
                drawn.append(one.sample(28))
                one.add(tick)
            if drawn[0] != drawn[1]:
                return "the samples differ"
    return None
