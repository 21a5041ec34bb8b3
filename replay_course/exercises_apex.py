"""Checks of chapter 07: a mailbox, a limiter, its error, the epsilons of actors, n-step windows.

In `check_mailbox`, another process publishes as fast as it can while this one pulls. Every number in the
vector of version v is v, so a vector with two numbers is torn. The death of a publisher isn't tested.
`OnePlace` is an incorrect first attempt.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_course.answers import array_of, call, lines_run, numbers
from replay_course.exercises import CheckFailed, Hints, NotYet
from replay_course.writers import START_SECONDS, running
from replay_tutorial.local.supervisor import start_context
from replay_tutorial.shared.memory import SharedArrays

LENGTH = 100_000  # numbers per vector, as in a small network
# The first exercise: actors, rows per chunk, samples per insert, error buffer.
ACTORS, ROWS, RATIO, BAND = 4, 32, 4, 512

PATIENCE = 2.0  # seconds after which a call that should decide at once has failed
MOST_CHECKS = 80  # in a call that waits for 0.05 s; with time.sleep(0.001), there are at most 50
LEAST_LINES = 10  # of one check, for a call that returns early if its timeout is 0
TRIES = 3  # on a busy machine, a loop that doesn't sleep may not run for most of the 0.05 s

Steps = list[tuple[int, float]]  # (environment, reward), in order of arrival

limiter_hints = Hints(
    "Write the error first: (inserts - min_size) * samples_per_insert - samples.",
    "Inserting count rows raises the error by count * samples_per_insert. Sampling them lowers it by count.",
    "Up to min_size rows: inserts + count <= min_size is enough to admit an insert.",
    "A sample needs two conditions: inserts >= min_size, and error - count >= -error_buffer.",
    "deadline = time.monotonic() + timeout; check, return False after the deadline, else sleep for 1 ms.",
)


class OnePlace:
    """A mailbox with a single vector. A reader can't detect that a writer is changing it."""

    def __init__(self, length: int) -> None:
        """Allocate the vector in shared memory."""
        vector, number = np.dtype(np.float32), np.dtype(np.int64)
        self.arrays = SharedArrays({"vector": ((length,), vector), "version": ((1,), number)})

    def publish(self, vector: npt.NDArray[np.float32]) -> None:
        """Overwrite the vector, and increment its version."""
        self.arrays["vector"][:] = vector
        self.arrays["version"][0] += 1

    def pull(self, known_version: int) -> tuple[int, npt.NDArray[np.float32]] | None:
        """Return the version and a copy of the vector, or None if the caller already has it."""
        version = int(self.arrays["version"][0])
        return None if version == known_version else (version, self.arrays["vector"].copy())


def publish(mailbox: Any) -> None:
    """Publish vectors of 1, 2, 3, … until the process is killed: the main function of the publisher."""
    for version in itertools.count(1):
        mailbox.publish(np.full(LENGTH, version, np.float32))


def check_mailbox(kind: Any, seconds: float = 1.0) -> None:
    """Check a mailbox while another process publishes.

    Args:
        kind: Class of the mailbox: `kind(length)`, with the methods `publish` and `pull` of `Mailbox`.
        seconds: Length of the check.

    Raises:
        CheckFailed: If a vector is torn, or older than its predecessor.
        TimeoutError: If no vector is published.
    """
    mailbox = kind(LENGTH)
    with running(start_context().Process(target=publish, args=(mailbox,), daemon=True)):
        pulls, skipped = pull_for(mailbox, seconds)
    name = getattr(kind, "__name__", str(kind))
    print(f"{name}: {pulls:,} vectors pulled, all complete; {skipped:,} versions skipped")


def pull_for(mailbox: Any, seconds: float) -> tuple[int, int]:
    """Pull and check vectors for some seconds after the first; return the numbers pulled and skipped."""
    known, newest, pulls, skipped = 0, 0.0, 0, 0
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        pulled = mailbox.pull(known)
        if pulled is None:
            continue
        if not pulls:
            end = time.monotonic() + seconds
        version, vector = pulled
        low, high = float(vector.min()), float(vector.max())
        if low != high:
            share = float(np.mean(vector == high))
            raise CheckFailed(
                f"pull {pulls + 1:,}: {share:.0%} of the vector is {high:.0f}, and the rest is older"
            )
        if low < newest:
            raise CheckFailed(f"pull {pulls + 1:,} returned {low:.0f} after {newest:.0f}")
        pulls, skipped = pulls + 1, skipped + (version - known - 1 if known else 0)
        known, newest = version, low
    if not pulls:
        raise TimeoutError(f"no vector was published within {START_SECONDS:g} s")
    return pulls, skipped


def check_limiter(kind: Callable[..., Any]) -> None:
    """Check a class of limiters `kind(samples_per_insert, min_size, error_buffer)`.

    Its methods are those of `SamplesPerInsert`. With a timeout of 0, each decision is compared with the
    equation; then another thread releases a waiting call.
    """
    check_timeout(kind)
    rng, decisions = np.random.default_rng(0), 0
    for ratio, start, band in (
        (4.0, 1, 1_000.0),
        (2.0, 200, 1_000.0),
        (8.0, 100, 800.0),
        (4.0, 300, 512.0),  # when it is empty, the error is below the band
        (0.5, 10, 20.0),
        (1.0, 50, 64.0),
    ):
        limiter, inserts, samples = kind(ratio, start, band), 0, 0
        for turn in range(600):
            inserting = rng.random() < (0.8 if turn // 100 % 2 == 0 else 0.2)
            count = int(rng.integers(1, 1 + int(min(32, band // ratio if inserting else band))))
            error = (inserts - start) * ratio - samples
            if inserting:
                right = inserts + count <= start or error + count * ratio <= band
                given = limiter.await_can_insert(count, timeout=0.0)
            else:
                right = inserts >= start and error - count >= -band
                given = limiter.await_can_sample(count, timeout=0.0)
            if given is None or bool(given) != right:
                raise NotYet(
                    f"samples_per_insert {ratio:g}, min_size {start}, error_buffer {band:g}: after {inserts} "
                    f"inserts and {samples} samples the error is {error:g}. May {count} rows be "
                    f"{'inserted' if inserting else 'sampled'}? Expected {right}, not {given}"
                )
            decisions += 1
            if right and inserting:
                inserts += count
                limiter.inserted(count)
            elif right:
                samples += count
                limiter.sampled(count)
    check_edge(kind)
    check_waiting(kind)
    print(f"right: {decisions:,} decisions, and calls that wait for another thread's count or time out")


def check_timeout(kind: Callable[..., Any]) -> None:
    """Check that a refused call with a timeout of 0 returns, in threads that can be left behind."""
    for what, inserts in (("await_can_sample", 0), ("await_can_insert", 12)):
        limiter = kind(1.0, 1, 10.0)
        limiter.inserted(inserts)
        call = threading.Thread(target=getattr(limiter, what), args=(5, 0.0), daemon=True)
        call.start()
        call.join(timeout=PATIENCE)
        if call.is_alive():
            raise NotYet(
                f"{what}(5, timeout=0.0) has not returned after {PATIENCE:g} s. Return False when the "
                "timeout is over; with a timeout of 0, decide at once"
            )


def check_edge(kind: Callable[..., Any]) -> None:
    """Check that sampling starts with exactly `min_size` rows, not one row earlier or later."""
    limiter = kind(4.0, 20, 100.0)
    for inserts, right in ((19, False), (20, True)):
        limiter.inserted(19 if inserts == 19 else 1)
        if bool(limiter.await_can_sample(5, timeout=0.0)) != right:
            raise NotYet(
                f"min_size 20: after {inserts} inserts, 5 rows may {'' if right else 'not '}be sampled. "
                f"Expected {right}"
            )
    limiter = kind(4.0, 10, 20.0)
    limiter.inserted(8)
    try:
        given = limiter.await_can_insert(8, timeout=0.0)
    except ValueError:  # the package's limiter rejects more rows than the band holds
        given = False
    if given is None or given:
        raise NotYet(
            "samples_per_insert 4, min_size 10, error_buffer 20: after 8 inserts, 8 more rows would take the "
            "error to (16 - 10) * 4 = 24. Only rows up to min_size are exempt; the others in the same call "
            f"count. Expected False, not {given}"
        )


def check_waiting(kind: Callable[..., Any]) -> None:
    """Check that calls wait for the other side, without keeping a core busy, and not beyond their timeout."""
    for what, other in (("await_can_insert", "sampled"), ("await_can_sample", "inserted")):
        limiter = kind(1.0, 1, 10.0)
        limiter.inserted(11 if what == "await_can_insert" else 1)
        if what == "await_can_sample":
            limiter.sampled(10)
        call = getattr(limiter, what)
        one_check = max(lines_run(lambda call=call: call(5, timeout=0.0)), LEAST_LINES)
        lines, given = list[int](), list[Any]()
        for _ in range(TRIES):
            begin = time.monotonic()
            lines.append(lines_run(lambda call=call, given=given: given.append(call(5, timeout=0.05))))
            if any(given) or time.monotonic() - begin < 0.05:
                raise NotYet(f"{what}(5, timeout=0.05) should wait for 0.05 s and return False")
        if max(lines) > MOST_CHECKS * one_check:
            raise NotYet(
                f"{what}(5, timeout=0.05) ran {max(lines):,} lines while it waited, and kept a core busy "
                "that other processes need. Sleep for a millisecond between two checks: time.sleep(0.001)"
            )
        thread = threading.Timer(0.1, getattr(limiter, other), args=(5,))
        thread.start()
        begin = time.monotonic()
        if not getattr(limiter, what)(5, timeout=20.0):
            raise NotYet(f"{what} returned False, although another thread counted rows before its timeout")
        if time.monotonic() - begin > 10.0:
            raise NotYet(f"{what} must return as soon as another thread has counted rows, not at its timeout")
        thread.join()


def check_error(error: Any) -> None:
    """Check the largest error when all actors query the limiter before any of them reports its rows."""
    one = ROWS * RATIO
    [error] = numbers([error], 1, "write a number: the error after all actors have inserted their rows")
    if error == BAND:
        raise NotYet(f"a single actor can reach {BAND}; here, {ACTORS} actors ask at the same moment")
    if error == BAND + ACTORS * one:
        raise NotYet(f"{error:g} is too large: the limiter includes an actor's own {one} when it decides")
    if error != BAND + (ACTORS - 1) * one:
        raise NotYet(
            f"not {error:g}: a chunk of {ROWS} rows raises the error by {one}. How large may the error be, "
            "at most, if the limiter admits all of them?"
        )
    print(f"right: at most {BAND - one} when they asked, plus {ACTORS} · {one}")


def check_epsilons(epsilons: Callable[[int], Any]) -> None:
    """Check a function that returns the ε of each actor, by comparing the exponents with the paper's."""
    for actors in (8, 2, 3, 360, 1):
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                given = array_of(epsilons(actors), (actors,), f"{actors} actors")
        except ZeroDivisionError:
            raise NotYet(
                f"{actors} actor: division by zero. A single actor has the ε of the first actor"
            ) from None
        if np.any(given <= 0):
            raise NotYet(f"{actors} actors: every ε must be above 0, but the smallest is {given.min()}")
        # ε = 0.4^x, where x rises from 1 for the first actor to 8 for the last in equal steps.
        exponents = np.log(given) / np.log(0.4)
        for place, wanted in ((0, 1.0), (actors - 1, 8.0 if actors > 1 else 1.0)):
            if not abs(exponents[place] - wanted) <= 1e-6:
                raise NotYet(
                    f"{actors} actors: actor {place} has ε = {given[place]:.5f}, which is 0.4 to the power "
                    f"{exponents[place]:.2f}; its exponent should be {wanted:g}"
                )
        if actors > 2 and np.ptp(np.diff(exponents)) > 1e-6:
            raise NotYet(
                f"{actors} actors: the first and last ε are right, but the exponents are not evenly spaced"
            )
    print("right: for 8, 2 and 360 actors, and for a single one")


def sums_by_hand(steps: Sequence[tuple[int, float]], n: int) -> Steps:
    """Return the n-step sums by definition: for each step, the last n rewards of its environment."""
    sums: Steps = []
    for place, (environment, _) in enumerate(steps):
        own = [reward for other, reward in steps[: place + 1] if other == environment]
        if len(own) >= n:
            sums.append((environment, sum(own[-n:])))
    return sums


def check_sums(sums: Callable[..., Any]) -> None:
    """Check a function `sums(steps, n)` that returns the n-step sums of several environments in order."""
    for order in ([0] * 5, [0, 1] * 5, [0, 0, 1, 0, 2, 1, 1, 2, 0, 2, 2, 1], [5, 0, 5, 5, 0, 0, 5]):
        for n in (3, 2, 1):
            # The rewards of environment e are 1, 2, 3, ... times 100^e, so a sum reveals its rewards.
            steps = [
                (each, (order[: place + 1].count(each)) * 100.0**each) for place, each in enumerate(order)
            ]
            where = f"{len(set(order))} environments, n = {n}"
            given, wanted = call(sums, steps, n), sums_by_hand(steps, n)
            if not isinstance(given, Iterable):
                raise NotYet(f"{where}: return a list of pairs (environment, sum), not {given!r:.40}")
            pairs = list(given)
            for pair, right in zip(pairs, wanted, strict=False):
                environment, reward = numbers(
                    pair, 2, f"{where}: {pair!r:.40} is not a pair (environment, sum)"
                )
                if (environment, reward) != right:
                    raise NotYet(
                        f"{where}: ({environment:g}, {reward:g}) should be {right}. The rewards of "
                        f"environment {right[0]} are {100 ** right[0]} times 1, 2, 3 and so on. Which of "
                        "them are in the sum?"
                    )
            if len(pairs) != len(wanted):
                raise NotYet(
                    f"{where}: {len(pairs)} sums, not {len(wanted)}. From its step {n} on, every step of an "
                    "environment completes a sum"
                )
    print("right: with one, two and three environments, in any order")
