"""`python tests/stress/steps.py`: kill writers and updaters after each step of the ring's protocol.

Random kills rarely hit the write of a row or a frame. Here the victim is a child process that runs the
kernels' Python source (`.py_func`) on the same shared memory, and kills itself after a chosen step: with
SIGKILL, or on Windows with TerminateProcess. The script exits with status 1 if an invariant is violated.
Python source has no memory ordering; `test_ring_protocol` checks the ordering in the kernels' machine code.
"""

import copy
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn
from unittest.mock import patch

import numpy as np
from checked_rows import CheckedRows
from script import new_parser, provenance_of

from benchmarks.measuring.output import add_count, add_outputs, write_results
from replay_course.number_tables import table
from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer
from replay_tutorial.buffers.runtime.jit import compile_now, kernels
from replay_tutorial.shared import protocol, registry, sampler, shared_frames, shared_ring
from replay_tutorial.shared.protocol import (
    COUNTER_WORDS,
    LOG_BEGUN,
    LOG_END,
    NEXT_INDEX,
    PUBLISHED,
    abandoned,
    index_of,
    is_held,
)
from replay_tutorial.shared.shared_frames import SharedFrames

CLASSES = (MPReplayBuffer, MPPrioritizedReplayBuffer)
# Those between holding the slot and publishing the row: the writer is killed while it writes.
INSIDE = ("slot held", "half of the row copied", "row copied", "mass written")
# Those in which a writer finds a slot whose holder is dead.
TAKING_OVER = ("dead holder found", "slot released")
# Of a frame, in the ring of frames; the writer's rows come after all their frames.
FRAME_INSIDE = ("frame's slot held", "half of the frame copied", "frame copied")
FRAME_STEPS = ("frame's index reserved", *FRAME_INSIDE, "frame published", "frames written")
# Of the updater, whose changes other processes follow, or the next updater. Only the first update of a row
# clears the index that its slot's mass belongs to.
FIRST_UPDATE = ("mass in the tree", "index cleared")
UPDATER_STEPS = ("log begun", *FIRST_UPDATE, "mass changed", "index restored", "masses logged", "log ended")
ONLY_PRIORITIZED = ("maximum priority raised", *UPDATER_STEPS)
STEPS = (
    *("call started", "process registered", "maximum priority raised", "indexes reserved", "stamp read"),
    *(*INSIDE, "row published", "rows counted", *TAKING_OVER, *FRAME_STEPS, *UPDATER_STEPS),
)
# in a call; the others once for each row, or frame
ONCE = (*STEPS[: STEPS.index("stamp read")], "rows counted", *TAKING_OVER, "frames written")
ONCE += ("log begun", "masses logged", "log ended")
KILLS_PER_BUFFER = 50
FAULTS = (AssertionError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
SURVIVED, BROKEN = 0, 3  # exit statuses of a writer that was not killed
FORKS = hasattr(os, "fork")
CONTEXT = multiprocessing.get_context("fork" if FORKS else "spawn")
# On Windows, os.kill calls TerminateProcess with the number as the exit status.
KILL, KILLED = (signal.SIGKILL, -signal.SIGKILL) if FORKS else (signal.SIGTERM, signal.SIGTERM)

SMALL_RINGS: dict[str, Any] = {"SPARE": 4, "ROOM": 8}  # of frames: they are lapped often
if not FORKS and multiprocessing.parent_process() is not None:
    vars(shared_frames).update(SMALL_RINGS)  # a victim that was spawned


@dataclass
class Outcome:
    buffer: str
    step: str
    kills: int = 0
    faults: list[str] = field(default_factory=list[str])


class Killer:
    """Runs a victim's operations as Python, and kills the process at the `countdown`-th time of a step."""

    def __init__(self, step: str, countdown: int) -> None:
        self.step, self.countdown = step, countdown
        self.thing = "row"  # that is being written

    def at(self, step: str) -> None:
        """Kill this process if this is the chosen step and the countdown has reached 0."""
        if step == self.step:
            self.countdown -= 1
            if self.countdown == 0:
                os.kill(os.getpid(), KILL)

    def of_thing(self, of_row: str, of_frame: str) -> str:
        """Return the name of the step for a row or for a frame, depending on what is being written."""
        return of_row if self.thing == "row" else of_frame

    def take_over(self) -> None:
        """Replace the compiled kernels of this process by their sources, with these operations in them."""
        count, swap, raise_max = protocol.add_to_counter, protocol.swap, protocol.raise_max
        number_rows = SharedFrames.number
        number_in_ring = shared_frames.number_in_ring.py_func

        def fetch_add(words: Any, place: int, value: int) -> int:
            before = count(words, place, value)
            if len(words) == COUNTER_WORDS:  # else it is a handle's own count
                reserved = self.of_thing("indexes reserved", "frame's index reserved")
                self.at({NEXT_INDEX: reserved, PUBLISHED: "rows counted"}.get(place, ""))
            return before

        def load_acquire(words: Any, place: int) -> int:
            value = int(words[place])
            self.at("stamp read")
            return value

        def compare_and_swap(words: Any, place: int, expected: int, value: int) -> bool:
            done = swap(words, place, expected, value)
            self.at(self.of_thing("slot held", "frame's slot held") if done else "")
            return done

        def copy_row(target: Any, place: int, source: Any, slot: int) -> None:
            half = source.shape[1] // 2
            target[place, :half] = source[slot, :half]
            self.at(f"half of the {self.thing} copied")
            target[place, half:] = source[slot, half:]
            self.at(f"{self.thing} copied")

        def store_release(words: Any, place: int, value: int) -> None:
            self.at(self.of_thing("mass written", ""))
            words[place] = value
            self.at(f"{self.thing} published")

        def leave_mass(words: Any, place: int, value: int) -> None:
            if len(words) == COUNTER_WORDS:
                before, after = {LOG_BEGUN: ("", "log begun"), LOG_END: ("masses logged", "log ended")}[place]
            else:
                before, after = ("mass changed", "index restored") if value else FIRST_UPDATE
            self.at(before)
            words[place] = value
            self.at(after)

        def number_frames(*arguments: Any) -> int:
            self.thing = "frame"
            end = number_in_ring(*arguments)
            self.thing = "row"
            return end

        def number(frames: Any, *arguments: Any) -> Any:
            numbered = number_rows(frames, *arguments)
            self.at("frames written")
            return numbered

        def swap_owner(words: Any, place: int, expected: int, value: int) -> bool:
            releases = is_held(value)  # a stamp: the numbers of processes are even
            self.at("dead holder found" if releases else "")
            done = swap(words, place, expected, value)
            self.at("slot released" if releases else "process registered")
            return done

        def raise_and_die(bits: Any, value: float) -> None:
            before = int(bits[0])
            raise_max(bits, value)
            self.at("maximum priority raised" if bits[0] > before else "")

        operations = (fetch_add, load_acquire, compare_and_swap, copy_row, store_release)
        vars(protocol).update({operation.__name__: operation for operation in operations})
        vars(protocol).update({"fence_release": lambda: None, "raise_max": raise_and_die})
        vars(protocol)["write_rows"] = shared_ring.write_rows = protocol.write_rows.py_func
        shared_ring.append_rows = protocol.append_rows.py_func
        shared_ring.add_to_counter, registry.swap = fetch_add, swap_owner
        shared_frames.fetch_add, shared_frames.load_acquire = fetch_add, load_acquire
        shared_frames.number_in_ring, shared_frames.write_rows = number_frames, protocol.write_rows
        shared_frames.fence_acquire = lambda: None
        SharedFrames.number = number
        sampler.update_rows = sampler.update_rows.py_func
        vars(sampler).update(
            load_acquire=load_acquire,
            fetch_add=fetch_add,
            store_release=leave_mass,
            fence_release=lambda: None,
            raise_max=raise_and_die,
        )


class StepStorm:
    """One buffer, of a random size and filled to a random degree, and processes that are killed."""

    def __init__(self, buffer_class: type[Any], step: str, rng: np.random.Generator) -> None:
        self.step = step
        self.capacity = int(rng.integers(1, 10))
        self.rows = CheckedRows(int(rng.choice([40, 1024])))
        self.rng = rng
        self.is_prioritized = buffer_class is MPPrioritizedReplayBuffer
        self.in_frames = step in FRAME_STEPS
        fields, options = self.rows.fields, {}
        if self.in_frames:
            fields["next_obs"], options = fields["obs"], {"dedupe_next": "obs"}
        self.buffer = buffer_class(self.capacity, fields, seed=int(rng.integers(1 << 30)), **options)
        self.other = copy.copy(self.buffer)  # a handle with a tree of its own
        self.writers = 1
        self.add(int(rng.integers(self.step in UPDATER_STEPS, 2 * self.capacity + 1)))

    @property
    def ring(self) -> shared_ring.SharedRing:
        """The ring in which the victim is killed: that of the rows, or of their frames."""
        return self.buffer._stages.rings[0].ring if self.in_frames else self.buffer._ring

    def add(self, count: int) -> None:
        if count == 0:
            return
        self.writers += 1
        rows = self.rows.make(self.writers, 0, count)
        if self.in_frames:
            rows["next_obs"] = self.rows.make(self.writers, 1, count)["obs"]
        of_rows = {"priorities": self.priorities_of(rows)} if self.is_prioritized else {}
        self.buffer.add(**rows, **of_rows)

    def priorities_of(self, rows: Any) -> Any:
        """Return the priorities that rows were given: each grows with the number of its writer."""
        return rows["writer"][:, 0] + rows["number"][:, 0] / 1024

    def update(self, factor: float) -> None:
        """Give every row `factor` times the priority that its writer gave it."""
        slots, rows = self.buffer._ring.published_slots(), self.buffer[:]
        self.buffer.update_priorities(self.buffer._ring.indexes(slots), factor * self.priorities_of(rows))

    def kill(self, step: str) -> bool:
        """Kill a victim after a step of its call, and return whether it got there."""
        if step in TAKING_OVER:
            self.kill("slot held")
        count = self.capacity if step in TAKING_OVER else int(self.rng.integers(1, 2 * self.capacity + 1))
        times = min(count, self.capacity)
        if step in UPDATER_STEPS:
            if step in FIRST_UPDATE:
                self.add(self.capacity)
            self.buffer._lease.release()
            times = len(self.buffer)
        countdown = 1 if step in ONCE else int(self.rng.integers(1, times + 1))
        self.writers += 1  # here, because what the child counts is lost
        self.before, self.next_index = self.ring.stamps.copy(), self.ring.next_index
        process = CONTEXT.Process(target=self.work_and_die, args=(step, countdown, count))
        process.start()
        process.join()
        if process.exitcode not in (SURVIVED, KILLED):
            raise AssertionError(f"the call failed in the process that was to be killed after: {step}")
        return process.exitcode == KILLED

    def work_and_die(self, step: str, countdown: int, count: int) -> NoReturn:
        status = BROKEN
        try:
            load_kernels()
            killer = Killer(step, countdown)
            killer.take_over()
            killer.at("call started")
            if step in UPDATER_STEPS:
                self.update(factor=3.0)
            else:
                self.add(count)
            status = SURVIVED
        finally:
            if status == BROKEN:
                traceback.print_exc()
            os._exit(status)

    def check_kill(self) -> None:
        """Check what the kill has left, before anybody mends it."""
        stamps = self.ring.stamps.copy()
        slots, held = np.arange(len(stamps)), is_held(stamps)
        changed = stamps != self.before
        indexes = index_of(stamps)
        if self.step not in TAKING_OVER:  # a take-over changes one stamp by itself
            own = held & changed & (stamps != abandoned(self.before))  # not one whose dead holder it found
            assert own.sum() == (self.step in INSIDE + FRAME_INSIDE), "held slots"
        assert (indexes[stamps != 0] % len(stamps) == slots[stamps != 0]).all(), "an index in a wrong slot"
        fresh = indexes[changed & ~held]
        assert ((fresh >= self.next_index) & (fresh < self.ring.next_index)).all(), "an index nobody reserved"
        self.check_rows(factors=(1.0, 3.0) if self.step in UPDATER_STEPS else (1.0,))

    def check_rows(self, factors: Sequence[float] = (1.0,)) -> None:
        """Check every row that is published, and that two samplers draw nothing else.

        The priority of each must be one of those that it was given, by its writer and by an updater.
        """
        slots, rows = self.buffer._ring.published_slots(), self.buffer[:]
        assert len(rows["writer"]) == len(slots), "a published row can't be read"
        assert len(self.buffer) == len(slots), "rows counted"
        if len(slots) == 0:
            return
        self.check_batch(rows)
        for handle in (self.buffer, self.other):
            self.check_batch(handle.sample(16))
        if self.is_prioritized:
            masses, given = self.buffer._masses(slots), self.priorities_of(rows)
            followed = self.other._sampler.tree.leaves[slots]  # may lack masses that were not logged
            for each in (masses, followed):
                right = [np.isclose(each, (factor * given + 1e-4) ** 0.6, rtol=1e-12) for factor in factors]
                assert np.any(right, axis=0).all(), f"masses {each} of {given}"
            self.buffer.update_priorities([], [])  # all trees then follow what a dead updater left
            np.testing.assert_allclose(self.buffer.total_mass, masses.sum(), rtol=1e-9)
            np.testing.assert_allclose(self.other.total_mass, masses.sum(), rtol=1e-9)
            self.update(factor=1.0)
            np.testing.assert_allclose(self.other.total_mass, self.buffer.total_mass, rtol=1e-9)

    def check_batch(self, batch: Any) -> None:
        shaped = {name: np.reshape(values, (len(values), -1)) for name, values in batch.items()}
        faults = self.rows.check(shaped)
        assert faults == (0, 0), faults
        if self.in_frames:
            following = self.rows._stretch(shaped["writer"], shaped["number"] + 1)
            assert (shaped["next_obs"] == following).all(), "a wrong picture"

    def go_on(self) -> None:
        """Let another writer add, a few rows or two laps; after those nothing of the dead is left."""
        if self.rng.random() < 0.5:
            self.add(int(self.rng.integers(1, self.capacity + 1)))
        else:
            end = self.ring.next_index + 2 * len(self.ring.stamps)
            while self.ring.next_index < end:
                self.add(self.capacity if self.in_frames else 1)
            assert not is_held(self.ring.stamps).any(), "a slot is held after two laps"
            assert len(self.buffer._ring.published_slots()) == len(self.buffer) == self.capacity
        self.check_rows()


def load_kernels() -> None:
    """Load all kernels from the cache, or compile them: with a Killer's functions in them they can't be."""
    compile_now(*(each for each in kernels if each.__module__.startswith("replay_tutorial.")))


def kill_at(buffer_class: type[Any], step: str, kills: int, seed: int) -> Outcome:
    """Kill after one step, over buffers of many sizes; stop at the first fault."""
    load_kernels()  # here, or each victim would load them after its fork
    rng = np.random.default_rng((seed, CLASSES.index(buffer_class), STEPS.index(step)))
    outcome = Outcome(buffer_class.__name__, step)
    while outcome.kills < kills:
        with patch.multiple(shared_frames, **SMALL_RINGS):
            storm = StepStorm(buffer_class, step, rng)
        for _ in range(min(KILLS_PER_BUFFER, kills - outcome.kills)):
            try:
                if storm.kill(step):
                    outcome.kills += 1
                    storm.check_kill()
                storm.go_on()
            except FAULTS as error:
                outcome.faults.append(f"kill {outcome.kills}: {type(error).__name__}: {error}")
                return outcome
    return outcome


def steps_of(buffer_class: type[Any]) -> list[str]:
    return [s for s in STEPS if buffer_class is MPPrioritizedReplayBuffer or s not in ONLY_PRIORITIZED]


def main(argv: Sequence[str]) -> int:
    """Kill at each step; return 1 after a fault, or if the table was not written, else 0."""
    parser = new_parser("steps", "Kill writers and updaters of the shared buffers at each step.")
    add_count(parser, "--kills", 1000, "kills per step and class")
    add_count(parser, "--processes", 1, "number of parallel processes")
    add_count(parser, "--seed", 0, "seed of sizes, rows and moments", minimum=0)
    add_outputs(parser, "crash-steps")
    arguments = parser.parse_args(argv)
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(arguments.processes, CONTEXT) as pool:
        waiting = [
            pool.submit(kill_at, buffer_class, step, arguments.kills, arguments.seed)
            for buffer_class in CLASSES
            for step in steps_of(buffer_class)
        ]
        for each in waiting:
            outcomes.append(each.result())
            print(outcomes[-1], flush=True)
    rows: list[list[str]] = []
    for step in STEPS:
        kills = {o.buffer: str(o.kills) for o in outcomes if o.step == step}
        faults = sum(len(o.faults) for o in outcomes if o.step == step)
        name = f"{step} (while writing)" if step in INSIDE + FRAME_INSIDE else step
        rows.append([name, *(kills.get(c.__name__, "-") for c in CLASSES), str(faults)])
    lines = table(("killed after", *(c.__name__ for c in CLASSES), "faults"), rows)
    inside = sum(o.kills for o in outcomes if o.step in INSIDE + FRAME_INSIDE)
    total = sum(o.kills for o in outcomes)
    about = f"{total:,} kills, {inside:,} of them during the write of a row or a frame."
    body, provenance = {"outcomes": outcomes}, provenance_of("steps", argv)
    status = write_results(arguments, "steps", provenance, body, lines, about, mark="crash-steps")
    return 1 if any(o.faults for o in outcomes) else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
