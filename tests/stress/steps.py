"""`python tests/stress/steps.py`: writers of the shared buffers are killed at each step of the protocol.

Random kills seldom hit the moment in which a row is written. Here a writer is a fork of this process whose
`add` runs as Python, the kernels' own source (`.py_func`) over the same shared memory, and which kills itself
(SIGKILL) after a chosen step. After each kill, what must hold is checked; one fault makes the exit status 1.

Left out: the orders of memory, which Python does not have; `test_ring_protocol` reads them in the kernels'
machine code.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from checked_rows import CheckedRows
from script import new_parser, provenance_of

from replay_tutorial import MPPrioritizedReplayBuffer, MPReplayBuffer
from replay_tutorial.buffers.jit import compile_now
from replay_tutorial.measuring.markdown import table
from replay_tutorial.measuring.output import add_count, add_outputs, hand_over
from replay_tutorial.shared import protocol, registry, shared_ring
from replay_tutorial.shared.protocol import COUNTER_WORDS, NEXT_INDEX, PUBLISHED, index_of, is_held

CLASSES = (MPReplayBuffer, MPPrioritizedReplayBuffer)
# Those between holding the slot and publishing the row: the writer is killed while it writes.
INSIDE = ("slot held", "half of the row copied", "row copied", "mass written")
# Those in which a writer finds a slot whose holder is dead.
TAKING_OVER = ("dead holder found", "slot released")
ONLY_PRIORITIZED = ("maximum priority raised",)
STEPS = (
    *("call begun", "process registered", *ONLY_PRIORITIZED, "indexes reserved", "stamp read"),
    *(*INSIDE, "row published", "rows counted", *TAKING_OVER),
)
ONCE = (*STEPS[: STEPS.index("stamp read")], "rows counted")  # in a call; the others once for each row
KILLS_PER_BUFFER = 50
FAULTS = (AssertionError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
SURVIVED, BROKEN = 0, 3  # exit statuses of a writer that was not killed


@dataclass
class Outcome:
    """What the kills at one step have done to the buffers of one class."""

    buffer: str
    step: str
    kills: int = 0
    faults: list[str] = field(default_factory=list[str])


class Killer:
    """Runs a writer's operations as Python, and kills the process at the `countdown`-th time of a step."""

    def __init__(self, step: str, countdown: int) -> None:
        self.step, self.countdown = step, countdown

    def at(self, step: str) -> None:
        """Die here, if it is time."""
        if step == self.step:
            self.countdown -= 1
            if self.countdown == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def take_over(self) -> None:
        """Replace the compiled kernels of this process by their sources, with these operations in them."""
        count, swap, raise_max = protocol.reserve, protocol.swap, protocol.raise_max

        def fetch_add(words: Any, place: int, value: int) -> int:
            before = count(words, place, value)
            if len(words) == COUNTER_WORDS:  # else it is a handle's own count
                self.at({NEXT_INDEX: "indexes reserved", PUBLISHED: "rows counted"}.get(place, ""))
            return before

        def load_acquire(words: Any, place: int) -> int:
            value = int(words[place])
            self.at("stamp read")
            return value

        def compare_and_swap(words: Any, place: int, expected: int, value: int) -> bool:
            done = swap(words, place, expected, value)
            self.at("slot held" if done else "")
            return done

        def copy_row(target: Any, place: int, source: Any, slot: int) -> None:
            half = source.shape[1] // 2
            target[place, :half] = source[slot, :half]
            self.at("half of the row copied")
            target[place, half:] = source[slot, half:]
            self.at("row copied")

        def store_release(words: Any, place: int, value: int) -> None:
            self.at("mass written")
            words[place] = value
            self.at("row published")

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
        shared_ring.reserve, registry.swap = fetch_add, swap_owner


class StepStorm:
    """One buffer, of a random size and filled to a random degree, and writers that are killed."""

    def __init__(self, buffer_class: type[Any], rng: np.random.Generator) -> None:
        self.capacity = int(rng.integers(1, 10))
        self.rows = CheckedRows(int(rng.choice([40, 1024])))
        self.rng = rng
        self.is_prioritized = buffer_class is MPPrioritizedReplayBuffer
        self.buffer = buffer_class(self.capacity, self.rows.env_dict, seed=int(rng.integers(1 << 30)))
        self.writers = 1
        self.add(int(rng.integers(0, 2 * self.capacity + 1)))

    @property
    def ring(self) -> shared_ring.SharedRing:
        """The ring of rows."""
        return self.buffer._ring

    def add(self, count: int) -> None:
        """Add rows as a new writer."""
        if count == 0:
            return
        self.writers += 1
        rows = self.rows.make(self.writers, 0, count)
        of_rows = {"priorities": self.priorities_of(rows)} if self.is_prioritized else {}
        self.buffer.add(**rows, **of_rows)

    def priorities_of(self, rows: Any) -> Any:
        """Return the priorities that rows were given: each grows with the number of its writer."""
        return rows["writer"][:, 0] + rows["number"][:, 0] / 1024

    def kill(self, step: str) -> bool:
        """Kill a writer after a step of its `add`, and return whether it got there."""
        if step in TAKING_OVER:
            self.kill("slot held")
        count = self.capacity if step in TAKING_OVER else int(self.rng.integers(1, 2 * self.capacity + 1))
        written = min(count, self.capacity)
        countdown = 1 if step in ONCE or step in TAKING_OVER else int(self.rng.integers(1, written + 1))
        self.writers += 1  # here, because what the child counts is lost
        self.before, self.next_index = self.ring.stamps.copy(), self.ring.next_index
        process = os.fork()
        if process == 0:
            self.write_and_die(step, countdown, count)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status == BROKEN:
            raise AssertionError(f"add failed in the writer, which was to be killed after: {step}")
        return status == -signal.SIGKILL

    def write_and_die(self, step: str, countdown: int, count: int) -> NoReturn:
        """Be the writer."""
        status = BROKEN
        try:
            killer = Killer(step, countdown)
            killer.take_over()
            killer.at("call begun")
            self.add(count)
            status = SURVIVED
        finally:
            if status == BROKEN:
                traceback.print_exc()
            os._exit(status)

    def check_kill(self, step: str) -> None:
        """Check what the kill has left, before anybody mends it.

        Raises:
            AssertionError: Of what must not be.
        """
        stamps = self.ring.stamps.copy()
        slots, held = np.arange(self.capacity), is_held(stamps)
        changed = stamps != self.before
        indexes = index_of(stamps)
        if step not in TAKING_OVER:  # a take-over changes one stamp by itself
            assert (held & changed).sum() == (step in INSIDE), "held slots"
        assert (indexes[stamps != 0] % self.capacity == slots[stamps != 0]).all(), "an index in a wrong slot"
        fresh = indexes[changed & ~held]
        assert ((fresh >= self.next_index) & (fresh < self.ring.next_index)).all(), "an index nobody reserved"
        self.check_rows()

    def check_rows(self) -> None:
        """Check every row that is published, and that the sampler draws nothing else."""
        slots, rows = self.ring.published_slots(), self.ring.all_rows()
        assert len(rows) == len(slots), "a published row can't be read"
        assert self.buffer.get_stored_size() == len(slots), "rows counted"
        if len(slots) == 0:
            return
        self.check_batch(batch := {name: rows[name] for name in self.rows.env_dict})
        self.check_batch(drawn := self.buffer.sample(16))
        if self.is_prioritized:
            masses = self.masses_of(batch)
            np.testing.assert_allclose(self.buffer._masses(slots), masses, rtol=1e-12)
            np.testing.assert_allclose(self.buffer.total_mass, masses.sum(), rtol=1e-9)
            self.buffer.update_priorities(drawn["indexes"], self.priorities_of(drawn))

    def masses_of(self, rows: Any) -> Any:
        """Return the masses of rows: (priority + eps) ** alpha."""
        return (self.priorities_of(rows) + 1e-4) ** 0.6

    def check_batch(self, batch: Any) -> None:
        """Check that rows are as they were written."""
        shaped = {name: np.reshape(values, (len(values), -1)) for name, values in batch.items()}
        faults = self.rows.check(shaped)
        assert faults == (0, 0), faults

    def go_on(self) -> None:
        """Let another writer add, a few rows or two laps; after those nothing of the dead is left."""
        if self.rng.random() < 0.5:
            self.add(int(self.rng.integers(1, self.capacity + 1)))
        else:
            for _ in range(2 * self.capacity):
                self.add(1)
            assert not is_held(self.ring.stamps).any(), "a slot is held after two laps"
            assert len(self.ring.published_slots()) == self.buffer.get_stored_size() == self.capacity
        self.check_rows()


def kill_at(buffer_class: type[Any], step: str, kills: int, seed: int) -> Outcome:
    """Kill writers after one step, over buffers of many sizes; stop at the first fault."""
    # here, or each writer would compile them after its fork
    compile_now(protocol.reserve, protocol.swap, protocol.raise_max)
    rng = np.random.default_rng((seed, CLASSES.index(buffer_class), STEPS.index(step)))
    outcome = Outcome(buffer_class.__name__, step)
    while outcome.kills < kills:
        storm = StepStorm(buffer_class, rng)
        for _ in range(min(KILLS_PER_BUFFER, kills - outcome.kills)):
            try:
                if storm.kill(step):
                    outcome.kills += 1
                    storm.check_kill(step)
                storm.go_on()
            except FAULTS as error:
                outcome.faults.append(f"kill {outcome.kills}: {type(error).__name__}: {error}")
                return outcome
    return outcome


def steps_of(buffer_class: type[Any]) -> list[str]:
    """List the steps of a class."""
    return [s for s in STEPS if buffer_class is MPPrioritizedReplayBuffer or s not in ONLY_PRIORITIZED]


def main(argv: Sequence[str]) -> int:
    """Kill at each step; return 1 after a fault, or if the table was not written, else 0."""
    parser = new_parser("steps", "Kill writers of the shared buffers at each step of the protocol.")
    add_count(parser, "--kills", 1000, "at each step, of each class")
    add_count(parser, "--processes", 1, "that kill side by side")
    add_count(parser, "--seed", 0, "of sizes, rows and moments", minimum=0)
    add_outputs(parser, "crash-steps")
    arguments = parser.parse_args(argv)
    if not hasattr(os, "fork"):
        print("steps.py needs a system with fork and signals: Linux or macOS.", file=sys.stderr)
        return 1
    outcomes: list[Outcome] = []
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("fork")) as pool:
        waiting = [
            pool.submit(kill_at, buffer_class, step, arguments.kills, arguments.seed)
            for buffer_class in CLASSES
            for step in steps_of(buffer_class)
        ]
        for each in waiting:
            outcomes.append(each.result())
            print(outcomes[-1], flush=True)
    rows = [
        [
            f"{step} (while writing)" if step in INSIDE else step,
            *(
                next((str(o.kills) for o in outcomes if (o.buffer, o.step) == (c.__name__, step)), "-")
                for c in CLASSES
            ),
            str(sum(len(o.faults) for o in outcomes if o.step == step)),
        ]
        for step in STEPS
    ]
    lines = table(("killed after", *(c.__name__ for c in CLASSES), "faults"), rows)
    inside = sum(o.kills for o in outcomes if o.step in INSIDE)
    about = f"{sum(o.kills for o in outcomes):,} kills, {inside:,} of them while a row was written."
    provenance = provenance_of("steps", argv)
    status = hand_over(
        arguments, "steps", provenance, {"outcomes": outcomes}, lines, about, mark="crash-steps"
    )
    return 1 if any(o.faults for o in outcomes) else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
