"""Properties of correct replay. Each is a short function that returns the first fault it finds, or None.

All faults are read off sampled rows, which `world` makes recognizable. Shares of draws are compared by
chi-square with a chance of about 1e-9 to reject a correct buffer.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from replay_tutorial.bench.conformance.library import Buffer, Library, Row
from replay_tutorial.bench.conformance.world import Id, Step, target, world

N, GAMMA, FRAMES = 3, 0.5, 3
DRAWS = 4000
SIGMAS = 6.0
STRATEGIES = ("future", "final", "episode")
Fault = str | None


class Property(NamedTuple):
    """A property: its group and sentence in the table, and the function that checks it."""

    group: str
    sentence: str
    check: Callable[[Library], Fault]


PROPERTIES: dict[str, Property] = {}


def holds(group: str, sentence: str) -> Callable[[Callable[[Library], Fault]], Callable[[Library], Fault]]:
    """Register a property under its function's name."""

    def register(check: Callable[[Library], Fault]) -> Callable[[Library], Fault]:
        PROPERTIES[check.__name__] = Property(group, sentence, check)
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
def newest_rows(library: Library) -> Fault:
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
def uniform(library: Library) -> Fault:
    """Check a buffer that is partly full, and one that has wrapped around."""
    for count in (5, 11):
        buffer = library.uniform(8)
        (stream,) = filled(buffer, count)
        if fault := not_in_proportion(buffer, {step.obs: 1.0 for step in stream[-8:]}):
            return f"{count} rows added: {fault}"
    return None


@holds("Rows", "A truncated episode bootstraps, a terminated one does not")
def truncation(library: Library) -> Fault:
    """Check the flags of sampled rows."""
    buffer = library.uniform(32)
    steps = by_obs(filled(buffer, 60))
    for row in buffer.sample(DRAWS // 4):
        if (row.discount == 0) != steps[row.obs].terminated:
            return f"{steps[row.obs]} has the discount {row.discount}"
    return None


@holds("Rows", "The final observation is kept, not replaced by the next reset")
def final_observation(library: Library) -> Fault:
    """Check the next observations of sampled rows."""
    buffer = library.uniform(32)
    steps = by_obs(filled(buffer, 60))
    return wrong_next(buffer.sample(DRAWS // 4), steps)


def shared_fault(library: Library, truncation: bool, checked: Callable[[Step, bool], bool]) -> Fault:
    """Return the fault of a next observation that is stored once; `checked` selects by step and newest."""
    buffer, added, drawn = library.shared(13, truncation), list[Step](), 0
    for (step,) in world(40, truncation=truncation):
        buffer.add([step])
        added.append(step)
        steps = by_obs([added])
        found = buffer.sample(100)
        drawn += len(found)
        for row in found:
            if checked(steps[row.obs], row.obs == step.obs) and (fault := wrong_next([row], steps)):
                return f"{len(added)} rows added: {fault}"
    return None if drawn else "no row is ever drawn"


@holds(
    "Rows", "With each observation stored once: next observations inside an episode and at its termination"
)
def shared_inside(library: Library) -> Fault:
    """Check all rows but the newest, while the buffer fills and wraps around."""
    return shared_fault(library, False, lambda step, newest: not newest)


@holds("Rows", "With each observation stored once: the next observation of the newest row")
def shared_newest(library: Library) -> Fault:
    """Check the newest row, which may be left out as long as its next observation isn't stored."""
    return shared_fault(library, False, lambda step, newest: newest)


@holds("Rows", "With each observation stored once: the next observation at a truncation")
def shared_truncated(library: Library) -> Fault:
    """Check the last rows of truncated episodes."""
    return shared_fault(library, True, lambda step, newest: step.truncated)


@holds("Rows", "Steps of several environments are not mixed")
def environments(library: Library) -> Fault:
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


def n_step_fault(library: Library, ends: Sequence[str], environments: int = 1) -> Fault:
    """Return the fault of a row whose window ends in one of these ways; see `world.target`."""
    for capacity in (16, 21):
        for count in (9, 30, 61):
            buffer = library.n_step(capacity * environments, N, GAMMA, environments)
            streams = filled(buffer, count, environments)
            places = {step.obs: (stream, i) for stream in streams for i, step in enumerate(stream)}
            for row in buffer.sample(DRAWS // 4):
                if row.obs not in places:
                    return f"capacity {capacity}, {count} steps: {row.obs} was never added"
                right = target(*places[row.obs], N, GAMMA)
                if right.end in ends and not is_target(row, *right[:3]):
                    return (
                        f"capacity {capacity}, {count} steps: for {row.obs}, {row.reward:g} + "
                        f"{row.discount:g} Q{row.next_obs} instead of {right.reward:g} + "
                        f"{right.discount:g} Q{right.next_obs}"
                    )
    return None


def is_target(row: Row, reward: float, next_obs: Id, discount: float) -> bool:
    """Return whether a row has this target."""
    exact = abs(row.reward - reward) < 1e-3 and abs(row.discount - discount) < 1e-5
    return exact and (discount == 0 or row.next_obs == next_obs)


@holds("n steps", "Inside an episode: n rewards, γⁿ, and the observation n steps later")
def n_step_inside(library: Library) -> Fault:
    """Check complete windows."""
    return n_step_fault(library, ["inside"])


@holds("n steps", "Windows stop at a terminal state and do not bootstrap from it")
def n_step_terminated(library: Library) -> Fault:
    """Check windows in which the episode terminates."""
    return n_step_fault(library, ["terminated"])


@holds("n steps", "Windows stop at a truncation and bootstrap from its observation, with γᵏ for k rewards")
def n_step_truncated(library: Library) -> Fault:
    """Check windows in which the episode is truncated."""
    return n_step_fault(library, ["truncated"])


@holds("n steps", "The last n − 1 steps of an episode are rows, too")
def n_step_tails(library: Library) -> Fault:
    """Check that every step but the newest is sampled."""
    buffer = library.n_step(64, N, GAMMA)
    (stream,) = filled(buffer, 25)
    seen = {row.obs for row in buffer.sample(DRAWS)}
    return first(f"{step.obs} is never drawn" for step in stream[: -N - 1] if step.obs not in seen)


@holds("n steps", "The newest steps are not joined with the oldest after a wrap-around")
def n_step_newest(library: Library) -> Fault:
    """Check windows that are cut by the newest step: left out, or bootstrapped from its next observation."""
    return n_step_fault(library, ["newest"])


@holds("n steps", "Several environments have a window each")
def n_step_environments(library: Library) -> Fault:
    """Check complete windows of three environments."""
    return n_step_fault(library, ["inside"], environments=3)


# Frame stacks


def stack_fault(library: Library, name: str) -> Fault:
    """Return the fault of a stack, a sequence of frames (environment, episode, step)."""
    for capacity in (8, 21):
        buffer, added = library.stacked(capacity, FRAMES), list[Step]()
        for (step,) in world(3 * capacity):
            buffer.add([step])
            added.append(step)
            stored, ends = {old.obs for old in added[-capacity:]}, {old.obs for old in added if old.ended}
            for row in buffer.sample(20):
                stack: Id = getattr(row, name)
                frames = [stack[i : i + 3] for i in range(0, len(stack), 3)]
                last = (*row.obs[-3:-1], row.obs[-1] + (name == "next_obs"))
                checked = name == "obs" or row.obs[-3:] not in ends | {added[-1].obs}
                if checked and not is_stack(frames, last, stored):
                    return f"capacity {capacity}, {len(added)} rows added: the stack of {last} is {frames}"
    return None


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
def stack(library: Library) -> Fault:
    """Check the stacks of observations."""
    return stack_fault(library, "obs")


@holds("Frame stacks", "Inside an episode, the next stack is the stack moved by one frame")
def next_stack(library: Library) -> Fault:
    """Check the stacks of next observations inside episodes; `shared_truncated` checks the ends."""
    return stack_fault(library, "next_obs")


# Priorities


def not_in_proportion(buffer: Buffer, masses: dict[Id, float]) -> Fault:
    """Return the fault if rows are not drawn in proportion to these masses."""
    counts = Counter(row.obs for row in buffer.sample(DRAWS))
    if strangers := counts.keys() - masses.keys():
        return f"{len(strangers)} rows that are not stored were drawn, such as {min(strangers)}"
    draws, total, degrees = sum(counts.values()), sum(masses.values()), len(masses) - 1
    expected = {obs: draws * mass / total for obs, mass in masses.items()}
    statistic = sum((counts[obs] - mean) ** 2 / mean for obs, mean in expected.items())
    limit = (
        degrees * (1 - 2 / (9 * degrees) + SIGMAS * (2 / (9 * degrees)) ** 0.5) ** 3
    )  # Wilson, Hilferty 1931
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
def proportional(library: Library) -> Fault:
    """Check α = 1/2 after a wrap-around."""
    buffer, priorities = library.prioritized(7, 0.5), [1.0, 4.0, 9.0, 1.0, 16.0, 4.0, 25.0]
    stored = with_priorities(buffer, 11, priorities)
    masses = [priority**0.5 for priority in priorities]
    return not_in_proportion(buffer, {step.obs: mass for step, mass in zip(stored, masses, strict=True)})


@holds("Priorities", "With β = 1, the weights correct the shares exactly")
def weights(library: Library) -> Fault:
    """Check that weight · priority^α is the same for all rows of a sample, so that weighted means agree."""
    buffer, priorities = library.prioritized(7, 0.5), [1.0, 4.0, 9.0, 1.0, 16.0, 4.0, 25.0]
    stored = with_priorities(buffer, 11, priorities)
    mass = {step.obs: priority**0.5 for step, priority in zip(stored, priorities, strict=True)}
    products = [row.weight * mass[row.obs] for row in buffer.sample(200)]
    if min(products) > 0 and max(products) <= 1.001 * min(products):
        return None
    return f"weight · mass is between {min(products):g} and {max(products):g}"


@holds("Priorities", "A new row has the largest priority so far")
def new_row(library: Library) -> Fault:
    """Check the share of a row added after a priority of 1.9, no whole number, was set."""
    buffer = library.initialized(8)
    stored = with_priorities(buffer, 8, [1, 1, 1, 1.9, 1, 1, 1, 1])
    (added,) = world(9)[-1]
    buffer.add([added])
    masses = {step.obs: 1.0 for step in stored[1:]} | {stored[3].obs: 1.9, added.obs: 1.9}
    return not_in_proportion(buffer, masses)


@holds("Priorities", "A new row does not inherit the priority of the row it replaces")
def replaced_row(library: Library) -> Fault:
    """Check the share of a row that replaces one of priority 1/100."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 8, [0.01, 1, 1, 1, 1, 1, 1, 1])
    (added,) = world(9)[-1]
    buffer.add([added])
    return not_in_proportion(buffer, {step.obs: 1.0 for step in [*stored[1:], added]})


@holds("Priorities", "Priorities of 0 are accepted, and the other rows keep their shares")
def zero(library: Library) -> Fault:
    """Check draws and weights in a buffer that is not full, with two rows of priority 0."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 5, [1, 0, 2, 1, 0])
    drawn = buffer.sample(200)
    if not all(0 < row.weight < float("inf") for row in drawn):
        return f"weights are {sorted({row.weight for row in drawn})}"
    zeros, positive = (
        {stored[1].obs, stored[4].obs},
        {stored[0].obs: 1.0, stored[2].obs: 2.0, stored[3].obs: 1.0},
    )
    if sum(row.obs in zeros for row in drawn) > len(drawn) // 20:
        return "rows of priority 0 are drawn too often"
    kept = _Only(buffer, zeros)
    return not_in_proportion(kept, positive)


class _Only(Buffer):
    """A buffer without some rows of its samples."""

    def __init__(self, buffer: Buffer, without: set[Id]) -> None:
        self.buffer, self.without = buffer, without

    def sample(self, count: int) -> list[Row]:
        return [row for row in self.buffer.sample(count) if row.obs not in self.without]


@holds("Priorities", "A repeated index in one update leaves one of its priorities")
def repeated_index(library: Library) -> Fault:
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
def large_priority(library: Library) -> Fault:
    """Check uniform shares after a priority of 1e8 was set and then replaced by 1."""
    buffer = library.prioritized(8, 1.0)
    stored = with_priorities(buffer, 8, [1.0] * 8)
    handle = {row.obs: row.handle for row in buffer.sample(DRAWS)}[stored[2].obs]
    buffer.update([handle], [1e8])
    buffer.update([handle], [1.0])
    return not_in_proportion(buffer, {step.obs: 1.0 for step in stored})


@holds("Priorities", "The late priority of a replaced row does not reach its successor")
def late_priority(library: Library) -> Fault:
    """Check an update for a row that was sampled and then replaced."""
    buffer = library.protected(8)
    stored = with_priorities(buffer, 8, [1.0] * 8)
    handle = {row.obs: row.handle for row in buffer.sample(DRAWS)}[stored[0].obs]
    (added,) = world(9)[-1]
    buffer.add([added])
    buffer.update([handle], [50.0])
    return not_in_proportion(buffer, {step.obs: 1.0 for step in [*stored[1:], added]})


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
            if padded and all(len(window) == length for window in drawn):
                return "episodes shorter than a window are left out"
    return None


@holds("Sequences", "A window contains consecutive steps of one episode")
def window(library: Library) -> Fault:
    """Check complete windows, before and after a wrap-around."""
    return window_fault(library, padded=False)


@holds("Sequences", "Padding is masked")
def padding(library: Library) -> Fault:
    """Check windows at the ends of episodes, without the steps that the mask excludes."""
    return window_fault(library, padded=True)


# Hindsight


def goal_fault(library: Library, strategies: Sequence[str], fault: Callable[[Row], bool]) -> Fault:
    """Return a fault among the rows with a new goal."""
    for strategy in strategies:
        for capacity in (21, 37):
            buffer, ended = library.hindsight(capacity, strategy), False
            for count, (step,) in enumerate(world(90), 1):
                buffer.add([step])
                ended = ended or step.ended
                relabelled = [row for row in buffer.sample(60) if row.goal[0] >= 0] if ended else []
                if wrong := next((row for row in relabelled if fault(row)), None):
                    return (
                        f"{strategy!r}, capacity {capacity}, {count} steps: {wrong.obs} has the goal "
                        f"{wrong.goal} and the reward {wrong.reward:g}"
                    )
    return None


@holds("Hindsight", "A new goal was achieved in the row's own episode, with the strategy future")
def goal_future(library: Library) -> Fault:
    """Check the environments and episodes of goals."""
    return goal_fault(library, ["future"], lambda row: row.goal[:2] != row.obs[:2])


@holds("Hindsight", "A new goal was achieved in the row's own episode, with the strategies final and episode")
def goal_others(library: Library) -> Fault:
    """Check the environments and episodes of goals."""
    return goal_fault(library, ["final", "episode"], lambda row: row.goal[:2] != row.obs[:2])


@holds("Hindsight", "A future goal was achieved after the row's action")
def goal_after(library: Library) -> Fault:
    """Check the steps of goals within their episode."""
    return goal_fault(
        library, ["future"], lambda row: row.goal[:2] == row.obs[:2] and row.goal[2] <= row.obs[2]
    )


@holds("Hindsight", "The reward is recomputed for the new goal")
def goal_reward(library: Library) -> Fault:
    """Check that the reward is 0 if the action achieved the goal, otherwise -1."""
    return goal_fault(
        library, ["future"], lambda row: row.reward != (0.0 if row.next_obs == row.goal else -1.0)
    )


# Saving


@holds("Saving", "A restored buffer continues exactly: rows, order, priorities and random state")
def restored(library: Library) -> Fault:
    """Compare samples of the original and the restored buffer, before and after further rows."""
    buffer = library.prioritized(7, 1.0)
    with_priorities(buffer, 11, [1, 2, 3, 4, 5, 6, 7])
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
