"""Properties of correct replay. Each is a short function that returns the first fault it finds, or None.

All faults are read off sampled rows, which `world` makes recognizable. Shares of draws are compared by
chi-square with a chance of about 1e-9 to reject a correct buffer.
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
from benchmarks.conformance.world import MODES, Id, Step, target, vector_steps, world

N, GAMMA, FRAMES = 3, 0.5, 3
DRAWS = 4000
SIGMAS = 6.0
PATIENCE_SECONDS = 30.0
Fault = str | None
Check = Callable[[Library], Fault]


class Property(NamedTuple):
    """A property: its group and sentence in the table, and the function that checks it."""

    group: str
    sentence: str
    check: Check


PROPERTIES: dict[str, Property] = {}


def holds(group: str, sentence: str) -> Callable[[Check], Check]:
    """Register a property under its function's name, without `check_`."""

    def register(check: Check) -> Check:
        PROPERTIES[check.__name__.removeprefix("check_")] = Property(group, sentence, check)
        return check

    return register


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


@holds("Rows", "At every capacity, a sample contains exactly the newest rows")
def check_newest_rows(library: Library) -> Fault:
    """Check capacities that are no powers of two and no multiples of an episode, at several fill levels."""
    for capacity in (1, 2, 7, 16, 21):
        buffer, added = library.uniform(capacity), list[Step]()
        for (step,) in world(2 * capacity + 3):
            buffer.add([step])
            added.append(step)
            if len(added) not in {1, capacity - 1, capacity, capacity + 1, 2 * capacity + 3}:
                continue
            stored = {(old.obs, old.reward) for old in added[-capacity:]}
            seen = {(row.obs, row.reward) for row in buffer.sample(40 * capacity)}
            if seen != stored:
                wrong, missing = len(seen - stored), len(stored - seen)
                return (
                    f"capacity {capacity}, {len(added)} rows added: {wrong} wrong rows, {missing} never drawn"
                )
    return None


@holds("Rows", "All rows are drawn equally often")
def check_uniform(library: Library) -> Fault:
    """Check a buffer that is partly full, and one that has wrapped around."""
    for count in (5, 11):
        buffer = library.uniform(8)
        (stream,) = filled(buffer, count)
        if fault := not_in_proportion(buffer, {step.obs: 1.0 for step in stream[-8:]}):
            return f"{count} rows added: {fault}"
    return None


@holds("Rows", "A truncated episode bootstraps, a terminated one does not")
def check_truncation(library: Library) -> Fault:
    """Check the flags of sampled rows."""
    buffer = library.uniform(32)
    steps = by_obs(filled(buffer, 60))
    for row in buffer.sample(DRAWS // 4):
        if row.obs not in steps:
            return f"{row.obs} was never added"
        if (row.discount == 0) != steps[row.obs].terminated:
            return f"{steps[row.obs]} has the discount {row.discount}"
    return None


@holds("Rows", "The final observation is kept, not replaced by the next reset")
def check_final_observation(library: Library) -> Fault:
    """Check the next observations of sampled rows."""
    buffer = library.uniform(32)
    steps = by_obs(filled(buffer, 60))
    return wrong_next(buffer.sample(DRAWS // 4), steps)


def stored_once_fault(
    library: Library, truncation: bool, checked: Callable[[Step, bool], bool], may_be_left_out: bool = False
) -> Fault:
    """Return the fault of a next observation that is stored once; `checked` selects by step and newest."""
    buffer, added, drawn = library.stored_once(13, truncation), list[Step](), list[bool]()
    for (step,) in world(40, truncation=truncation):
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


@holds(
    "Rows", "With each observation stored once: next observations inside an episode and at its termination"
)
def check_stored_once_inside(library: Library) -> Fault:
    """Check all rows but the newest, while the buffer fills and wraps around."""
    return stored_once_fault(library, False, lambda step, newest: not newest)


@holds("Rows", "With each observation stored once: the next observation of the newest row")
def check_stored_once_newest(library: Library) -> Fault:
    """Check the newest row, which may be left out as long as its next observation isn't stored."""
    return stored_once_fault(library, False, lambda step, newest: newest, may_be_left_out=True)


@holds("Rows", "With each observation stored once: the next observation at a truncation")
def check_stored_once_truncated(library: Library) -> Fault:
    """Check the last rows of truncated episodes."""
    return stored_once_fault(library, True, lambda step, newest: step.truncated)


@holds("Rows", "Steps of several environments are not mixed")
def check_environments(library: Library) -> Fault:
    """Check whole rows of three environments, whose episodes differ in length."""
    buffer = library.uniform(33, environments=3)
    steps = by_obs(filled(buffer, 25, environments=3))
    drawn = buffer.sample(DRAWS // 4)
    if {row.obs[0] for row in drawn} != {0, 1, 2}:
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


def n_step_fault(library: Library, end: str, environments: int = 1) -> Fault:
    """Return the fault of a row whose window ends in this way; see `world.target`.

    A window that is cut by the newest step may be left out, or end earlier.
    """
    checked = end == "newest"
    for capacity in (16, 21):
        for count in (9, 30, 61):
            buffer = library.n_step(capacity * environments, N, GAMMA, environments)
            streams = filled(buffer, count, environments)
            places = {step.obs: (stream, i) for stream in streams for i, step in enumerate(stream)}
            for row in buffer.sample(DRAWS // 4):
                if row.obs not in places:
                    return f"capacity {capacity}, {count} steps: {row.obs} was never added"
                right = target(*places[row.obs], N, GAMMA)
                checked = checked or right.end == end
                if right.end == end and (fault := wrong_target(row, *places[row.obs])):
                    return f"capacity {capacity}, {count} steps: {fault}"
    return None if checked else "no such row is ever drawn"


def wrong_target(row: Row, stream: list[Step], start: int) -> Fault:
    """Return the fault of an n-step row that begins with the step `stream[start]`."""
    right = target(stream, start, N, GAMMA)
    lengths = range(1, N + 1) if right.end == "newest" else [N]
    if any(is_target(row, *target(stream, start, n, GAMMA)[:3]) for n in lengths):
        return None
    return (
        f"for {row.obs}, {row.reward:g} + {row.discount:g} Q{row.next_obs} instead of "
        f"{right.reward:g} + {right.discount:g} Q{right.next_obs}"
    )


def is_target(row: Row, reward: float, next_obs: Id, discount: float) -> bool:
    """Return whether a row has this target."""
    exact = abs(row.reward - reward) < 1e-3 and abs(row.discount - discount) < 1e-5
    return exact and (discount == 0 or row.next_obs == next_obs)


@holds("n steps", "Inside an episode: n rewards, γⁿ, and the observation n steps later")
def check_n_step_inside(library: Library) -> Fault:
    """Check complete windows."""
    return n_step_fault(library, "inside")


@holds("n steps", "Windows stop at a terminal state and do not bootstrap from it")
def check_n_step_terminated(library: Library) -> Fault:
    """Check windows in which the episode terminates."""
    return n_step_fault(library, "terminated")


@holds("n steps", "Windows stop at a truncation and bootstrap from its observation, with γᵏ for k rewards")
def check_n_step_truncated(library: Library) -> Fault:
    """Check windows in which the episode is truncated."""
    return n_step_fault(library, "truncated")


@holds("n steps", "The last n − 1 steps of an episode are rows, too")
def check_n_step_tails(library: Library) -> Fault:
    """Check that every step is sampled, except the newest N + 1, whose windows may be incomplete."""
    buffer = library.n_step(64, N, GAMMA)
    (stream,) = filled(buffer, 25)
    seen = {row.obs for row in buffer.sample(DRAWS)}
    return first(f"{step.obs} is never drawn" for step in stream[: -N - 1] if step.obs not in seen)


@holds("n steps", "The newest steps are not joined with the oldest after a wrap-around")
def check_n_step_newest(library: Library) -> Fault:
    """Check windows that are cut by the newest step: left out, or bootstrapped from its next observation."""
    return n_step_fault(library, "newest")


@holds("n steps", "Several environments have a window each")
def check_n_step_environments(library: Library) -> Fault:
    """Check complete windows of three environments."""
    return n_step_fault(library, "inside", environments=3)


@holds("n steps", "In each autoreset mode of gymnasium's vector environments, no row contains a reset")
def check_autoreset(library: Library) -> Fault:
    """Check that the rows of three environments are their transitions, with final observations."""
    for mode in MODES:
        buffer = library.vectorized(3 * 64, N, GAMMA, 3, mode)
        streams = [list(stream) for stream in zip(*world(40, 3), strict=True)]
        steps = vector_steps(streams, mode)
        for step in steps:
            buffer.add_vector_step(step)
        added = [len(steps) - sum(step.only_reset[i] for step in steps) for i in range(3)]
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


def stack_fault(library: Library, name: str, selected: Callable[[Step, bool], bool]) -> Fault:
    """Return the fault of a stack of frames (environment, episode, step); `selected`: by step and newest."""
    checked = False
    for capacity in (8, 21):
        buffer, steps = library.stacked(capacity, FRAMES), dict[Id, Step]()
        for (step,) in world(3 * capacity):
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


@holds("Frame stacks", "A stack contains no frame of another episode")
def check_stack(library: Library) -> Fault:
    """Check the stacks of observations."""
    return stack_fault(library, "obs", lambda step, newest: True)


@holds("Frame stacks", "Inside an episode, the next stack is the stack moved by one frame")
def check_next_stack(library: Library) -> Fault:
    """Check the stacks of next observations inside episodes, except that of the newest row."""
    return stack_fault(library, "next_obs", lambda step, newest: not (step.ended or newest))


@holds("Frame stacks", "At a truncation, the next stack ends with the final frame of its episode")
def check_next_stack_truncated(library: Library) -> Fault:
    """Check the stacks of next observations at truncations; targets don't use those at terminations."""
    return stack_fault(library, "next_obs", lambda step, newest: step.truncated)


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


def with_priorities(buffer: Buffer, count: int, priorities: Sequence[float]) -> list[Step]:
    """Add rows, set the priorities of the stored ones, and return these, from the oldest to the newest."""
    (stream,) = filled(buffer, count)
    stored = stream[-len(priorities) :]
    handles = {row.obs: row.handle for row in buffer.sample(DRAWS)}
    buffer.update([handles[step.obs] for step in stored], priorities)
    return stored


@holds("Priorities", "Rows are drawn in proportion to priority^α")
def check_proportional(library: Library) -> Fault:
    """Check α = 1/2 after a wrap-around."""
    buffer, priorities = library.prioritized(7, 0.5), [1.0, 4.0, 9.0, 1.0, 16.0, 4.0, 25.0]
    stored = with_priorities(buffer, 11, priorities)
    masses = [priority**0.5 for priority in priorities]
    return not_in_proportion(buffer, {step.obs: mass for step, mass in zip(stored, masses, strict=True)})


@holds("Priorities", "With β = 1, the weights correct the shares exactly")
def check_weights(library: Library) -> Fault:
    """Check that weight · priority^α is the same for all rows of a sample, so that weighted means agree."""
    buffer, priorities = library.prioritized(7, 0.5), [1.0, 4.0, 9.0, 1.0, 16.0, 4.0, 25.0]
    stored = with_priorities(buffer, 11, priorities)
    mass = {step.obs: priority**0.5 for step, priority in zip(stored, priorities, strict=True)}
    products = [row.weight * mass[row.obs] for row in buffer.sample(200)]
    if min(products) > 0 and max(products) <= 1.001 * min(products):
        return None
    return f"weight · mass is between {min(products):g} and {max(products):g}"


@holds("Priorities", "A new row has the largest priority so far")
def check_new_row(library: Library) -> Fault:
    """Check the share of a row added after a priority of 1.9, no whole number, was set."""
    buffer = library.initialized(8)
    stored = with_priorities(buffer, 8, [1, 1, 1, 1.9, 1, 1, 1, 1])
    (added,) = world(9)[-1]
    buffer.add([added])
    masses = {step.obs: 1.0 for step in stored[1:]} | {stored[3].obs: 1.9, added.obs: 1.9}
    return not_in_proportion(buffer, masses)


@holds("Priorities", "A new row does not inherit the priority of the row it replaces")
def check_replaced_row(library: Library) -> Fault:
    """Check the share of a row that replaces one of priority 1/100."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 8, [0.01, 1, 1, 1, 1, 1, 1, 1])
    (added,) = world(9)[-1]
    buffer.add([added])
    return not_in_proportion(buffer, {step.obs: 1.0 for step in [*stored[1:], added]})


@holds("Priorities", "Priorities of 0 are accepted, and the other rows keep their shares")
def check_zero(library: Library) -> Fault:
    """Check draws and weights in a buffer that is not full, with two rows of priority 0."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 5, [1, 0, 2, 1, 0])
    drawn = buffer.sample(200)
    if not all(0 < row.weight < float("inf") for row in drawn):
        return f"weights are {sorted({row.weight for row in drawn})}"
    zeros = {stored[1].obs, stored[4].obs}
    if sum(row.obs in zeros for row in drawn) > len(drawn) // 20:
        return "rows of priority 0 are drawn too often"
    positive = {stored[0].obs: 1.0, stored[2].obs: 2.0, stored[3].obs: 1.0}
    return not_in_proportion(buffer, positive, ignored=zeros)


@holds("Priorities", "A repeated index in one update leaves one of its priorities")
def check_repeated_index(library: Library) -> Fault:
    """Check that all shares agree with one of the priorities that were passed."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 8, [1.0] * 8)
    handle = {row.obs: row.handle for row in buffer.sample(DRAWS)}[stored[2].obs]
    given = [9.0, 1.0, 4.0]
    buffer.update([handle] * 3, given)
    masses = [{step.obs: 1.0 for step in stored} | {stored[2].obs: priority} for priority in given]
    faults = [not_in_proportion(buffer, mass) for mass in masses]
    return faults[-1] if all(faults) else None


@holds("Priorities", "A priority of 10⁸ leaves no error in the sums once it is replaced")
def check_large_priority(library: Library) -> Fault:
    """Check uniform shares after a priority of 1e8 was set and then replaced by 1."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 8, [1.0] * 8)
    handle = {row.obs: row.handle for row in buffer.sample(DRAWS)}[stored[2].obs]
    buffer.update([handle], [1e8])
    buffer.update([handle], [1.0])
    return not_in_proportion(buffer, {step.obs: 1.0 for step in stored})


@holds("Priorities", "The late priority of a replaced row does not reach its successor")
def check_late_priority(library: Library) -> Fault:
    """Check an update for a row that was sampled and then replaced."""
    buffer = library.protected(8)
    stored = with_priorities(buffer, 8, [1.0] * 8)
    handle = {row.obs: row.handle for row in buffer.sample(DRAWS)}[stored[0].obs]
    (added,) = world(9)[-1]
    buffer.add([added])
    buffer.update([handle], [50.0])
    return not_in_proportion(buffer, {step.obs: 1.0 for step in [*stored[1:], added]})


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


@holds(
    "Several processes",
    "A writer killed while `add` converts a value blocks no other process and leaves no incomplete row",
)
def check_killed_writer(library: Library) -> Fault:
    """Kill a writer at each conversion of an observation in turn; another one adds, a third one samples."""
    if not hasattr(os, "fork"):
        raise NotChecked("processes can't be forked on this system")
    buffer = library.across_processes(16)
    ticks = world(12, truncation=False)
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


def window_fault(library: Library, padded: bool) -> Fault:
    """Return the fault of a window that is no run of steps of one episode."""
    length = 3
    for environments in (1, 2):
        for count in (20, 47, 95):
            buffer = library.sequences(41, length, environments, padded)
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


@holds("Sequences", "A window contains consecutive steps of one episode")
def check_window(library: Library) -> Fault:
    """Check complete windows, before and after a wrap-around."""
    return window_fault(library, padded=False)


@holds("Sequences", "Padding is masked")
def check_padding(library: Library) -> Fault:
    """Check windows at the ends of episodes, without the steps that the mask excludes."""
    return window_fault(library, padded=True)


# Hindsight


def goal_fault(library: Library, strategies: Sequence[str], fault: Callable[[Row], bool]) -> Fault:
    """Return a fault among the rows with a new goal."""
    for strategy in strategies:
        for capacity in (21, 37):
            buffer, ended, seen = library.hindsight(capacity, strategy), False, False
            for count, (step,) in enumerate(world(90), 1):
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


@holds("Hindsight", "A new goal was achieved in the row's own episode, with the strategy future")
def check_goal_future(library: Library) -> Fault:
    """Check the environments and episodes of goals."""
    return goal_fault(library, ["future"], lambda row: row.goal[:2] != row.obs[:2])


@holds("Hindsight", "A new goal was achieved in the row's own episode, with the strategies final and episode")
def check_goal_others(library: Library) -> Fault:
    """Check the environments and episodes of goals."""
    return goal_fault(library, ["final", "episode"], lambda row: row.goal[:2] != row.obs[:2])


@holds("Hindsight", "A future goal was achieved after the row's action")
def check_goal_after(library: Library) -> Fault:
    """Check the steps of goals within their episode."""
    return goal_fault(
        library, ["future"], lambda row: row.goal[:2] == row.obs[:2] and row.goal[2] <= row.obs[2]
    )


@holds("Hindsight", "The reward is recomputed for the new goal")
def check_goal_reward(library: Library) -> Fault:
    """Check that the reward is 0 if the action achieved the goal, otherwise -1."""
    return goal_fault(
        library, ["future"], lambda row: row.reward != (0.0 if row.next_obs == row.goal else -1.0)
    )


# Saving


@holds(
    "Saving",
    "With the same random state, a restored buffer continues exactly: rows, order and any priorities",
)
def check_restored(library: Library) -> Fault:
    """Compare samples of the original and the restored buffer, before and after further rows."""
    try:
        buffer = library.prioritized(7, 1.0)
        with_priorities(buffer, 11, [1, 2, 3, 4, 5, 6, 7])
    except NotOffered:
        buffer = library.uniform(7)
        filled(buffer, 11)
    with tempfile.TemporaryDirectory() as folder:
        other = library.restored(buffer, folder)
        for tick in world(16)[11:]:
            drawn: list[list[Row]] = []
            for one in (buffer, other):
                library.seed(1)
                drawn.append(one.sample(28))
                one.add(tick)
            if drawn[0] != drawn[1]:
                return "the samples differ"
    return None
