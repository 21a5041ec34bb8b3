"""`python tests/stress/cluster_faults.py`: what is left of a run when hosts, cables, processes fail?

Three hosts train CartPole. Again and again something happens to them: an actor, a gateway, the learner or the
driver is killed, a host dies, a cable is cut, a host stands still, somebody presses Ctrl-C. After each fault
all actors must be heard again and the learner learn on, after those that end the run when it is resumed. In
the end no row may be in the replay twice, and the ratio of samples to inserts must be that of the settings.

Left out: a fault of the head's host alone, which is the driver's.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from os import kill
from pathlib import Path
from subprocess import TimeoutExpired

import numpy as np
from cluster_run import ACTORS, LEARNER, ClusterRun
from hosts import Hosts, why_not
from script import new_parser, provenance_of
from victim import wait_until

from benchmarks.measuring.output import add_count, add_outputs, write_results
from replay_course.number_tables import table
from replay_tutorial.apex.config import preset

PATIENCE_SECONDS = 120.0  # that anything may take on a busy machine
PAUSE_SECONDS = 5.0  # that a host stands still
CUT_SECONDS = (0.5, 15.0)  # that a cable is cut: shorter and longer than it takes to be noticed
REST_SECONDS = 3.0  # between two faults
RATIO, ENOUGH_STEPS = 0.01, 100_000  # by how much the ratio may be off, in a run that is not short
ENDS_RUN = ("learner", "driver", "ctrl-c")
OF_HOST = ("host", "cable", "pause")
FAULTS = ("actor", "gateway", *OF_HOST, *ENDS_RUN)
HEADS = (
    *("fault", "times", "detected after, s", "all actors run again after, s"),
    *("longest pause of the learner, s", "failed checks"),
)


@dataclass
class Outcome:
    """What came of one fault; times are in seconds since it happened."""

    fault: str
    actors: int = 0  # that were on the host it happened to; with all of them there, the learner has to wait
    noticed: float | None = None  # the driver says that something is gone
    whole: float | None = None  # all actors are heard, and the learner learns
    stall: float | None = None  # the longest time without an update, until then
    resumed: bool = False
    wrong: list[str] = field(default_factory=list[str])  # what must not happen


class Storm:
    """A run on three hosts, and what happens to it; two have a core for each actor, one the learner."""

    def __init__(self, hosts: Hosts, folder: Path, seed: int) -> None:
        self.hosts = hosts
        self.folder = folder
        self.seed = seed
        self.generator = np.random.default_rng(seed)
        self.run = ClusterRun(hosts, folder, seed)
        self.stall = 0.0  # the longest time without an update that was seen since the last fault

    def begin(self) -> float:
        if not self.run.wait_for(self.run.is_at_work, PATIENCE_SECONDS):
            raise RuntimeError(f"the run did not begin: {self.run.lines[-20:]}")
        return time.time() - self.run.started

    def let_happen(self, fault: str) -> Outcome:
        outcome, other = Outcome(fault), int(self.generator.integers(1, 3))
        begin, self.stall = time.time(), 0.0
        if fault in ENDS_RUN:
            self._end_run(fault, outcome)
        else:
            if fault in OF_HOST:
                outcome.actors = len(self.hosts.processes(other, "ray::play"))
            self._hit(fault, other)
        run = self.run
        there = run.wait_for(lambda: self._is_whole(outcome, begin), PATIENCE_SECONDS)
        if not there:
            last = [line for _, line in run.lines[-5:]]
            outcome.wrong.append(f"not at work again after {PATIENCE_SECONDS:g} s: {last}")
        outcome.whole = time.time() - begin
        noticed = run.printed(r"lost host|actor \d+ died", begin)
        outcome.noticed = None if noticed is None or fault in ENDS_RUN else noticed - begin
        outcome.stall = None if fault in ENDS_RUN else self.stall
        return outcome

    def _hit(self, fault: str, host: int) -> None:
        match fault:
            case "actor":
                players = [p for each in (1, 2) for p in self.hosts.processes(each, "ray::play")]
                kill(int(self.generator.choice(players)), signal.SIGKILL)
            case "gateway":
                self.hosts.kill(LEARNER, "ray::RemoteGateway")
            case "host":
                self.hosts.kill(host)
            case "cable":
                self.hosts.cut(host)
                self._watch(float(self.generator.uniform(*CUT_SECONDS)))
                self.hosts.heal(host)
            case _:
                still = self.hosts.processes(host)
                signal_all(still, signal.SIGSTOP)
                self._watch(PAUSE_SECONDS)
                signal_all(still, signal.SIGCONT)

    def _end_run(self, fault: str, outcome: Outcome) -> None:
        """Let a fault happen that ends the run, check its end, and resume it."""
        run = self.run
        if fault == "learner":
            learner = run.role("learner")
            assert learner is not None
            kill(learner, signal.SIGKILL)
        else:
            run.process.send_signal(signal.SIGKILL if fault == "driver" else signal.SIGINT)
        expected = {"learner": 1, "driver": -signal.SIGKILL, "ctrl-c": 130}[fault]
        try:
            status = run.process.wait(PATIENCE_SECONDS)
        except TimeoutExpired:
            status = None
        if status != expected:
            outcome.wrong.append(f"exit status {status}: {[line for _, line in run.lines[-5:]]}")
        if not wait_until(lambda: not self._ours(), PATIENCE_SECONDS):
            outcome.wrong.append(f"{len(self._ours())} processes of the run are left")
        self.run = ClusterRun(self.hosts, self.folder, self.seed)
        outcome.resumed = True

    def _ours(self) -> list[int]:
        """Return the processes of a run that must not outlive it."""
        names = ("ray::play", "ray::RemoteGateway", "forkserver")
        return [p for host in range(3) for name in names for p in self.hosts.processes(host, name)]

    def _is_whole(self, outcome: Outcome, begin: float) -> bool:
        """Return whether the run is as before the fault, or as whole as it can be without a dead host."""
        self._look()
        lost = outcome.fault == "actor" or (outcome.fault == "host" and outcome.actors > 0)
        if lost and self.run.printed("has been replaced", begin) is None:
            return False
        return self.run.is_at_work()

    def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(0.05)

    def _look(self) -> None:
        self.stall = max(self.stall, self.run.seconds_since_update())

    def mend(self) -> None:
        """Start Ray again on hosts that have died, or that Ray takes for dead, until all are there."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.run.records()[-1]["hosts"] != "3" and time.monotonic() < until:
            for host in (1, 2):
                if not self.hosts.processes(host, "raylet/raylet"):
                    self.hosts.kill(host)
                    self.hosts.start_ray({host: ACTORS})
            time.sleep(1.0)

    def finish(self) -> list[str]:
        """End the run; return what is wrong with what it leaves."""
        self.run.process.send_signal(signal.SIGINT)
        status, wrong = self.run.process.wait(PATIENCE_SECONDS), list[str]()
        if status != 130:
            wrong.append(f"exit status {status}")
        if twice := self.run.rows_twice():
            wrong.append(f"{twice} rows are in the replay twice")
        steps, ratio = self.run.ratio()
        asked = preset("CartPole-v1").samples_per_insert
        print(f"{steps:,} rows, {ratio:.4f} samples per insert (asked: {asked:g}), {twice} rows twice")
        if steps >= ENOUGH_STEPS and abs(ratio / asked - 1) > RATIO:
            wrong.append(f"{ratio:.4f} samples per insert")
        return wrong


def signal_all(numbers: Sequence[int], which: int) -> None:
    for number in numbers:
        with suppress(ProcessLookupError):
            kill(number, which)


def lines_of(outcomes: Sequence[Outcome]) -> list[str]:

    def worst(figures: list[float]) -> str:
        return f"{np.median(figures):.1f}, at most {max(figures):.1f}" if figures else ""

    rows: list[list[str]] = []
    for fault, all_actors in product(FAULTS, (False, True)):
        group = [each for each in outcomes if (each.fault, each.actors == ACTORS) == (fault, all_actors)]
        if group:
            times = [
                worst([t for each in group if (t := getattr(each, name)) is not None])
                for name in ("noticed", "whole", "stall")
            ]
            name = f"{fault} with all actors" if all_actors else fault
            rows.append([name, str(len(group)), *times, str(sum(bool(each.wrong) for each in group))])
    return table(HEADS, rows)


def main(argv: Sequence[str]) -> int:
    """Let the faults happen; return 1 if one left what it must not, or the table was not written, else 0."""
    parser = new_parser("cluster_faults", "Kill hosts, cables and processes of a run on three hosts.")
    add_count(parser, "--times", 20, "faults in all")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=FAULTS, help="which (default: all)")
    add_count(parser, "--seed", 0, "of the run and of the victims", minimum=0)
    add_outputs(parser, "cluster-faults")
    arguments = parser.parse_args(argv)
    if reason := why_not():
        print(f"cluster_faults.py: no hosts can be made here: {reason}.", file=sys.stderr)
        return 1
    outcomes: list[Outcome] = []
    with Hosts(3) as hosts, tempfile.TemporaryDirectory() as folder:
        hosts.start_ray({LEARNER: 0, 1: ACTORS, 2: ACTORS})
        storm = Storm(hosts, Path(folder), arguments.seed)
        print(f"three warm hosts: at work after {storm.begin():.1f} s", flush=True)
        for number in range(arguments.times):
            time.sleep(REST_SECONDS)  # in which Ray notices what it has not noticed yet
            storm.mend()
            fault = str(storm.generator.choice(arguments.faults))
            outcomes.append(storm.let_happen(fault))
            print(f"{number}: {outcomes[-1]}", flush=True)
            if outcomes[-1].wrong:
                break
        wrong = storm.finish()
    print("".join(f"WRONG: {each}\n" for each in wrong), end="")
    provenance = provenance_of("cluster_faults", argv, ("torch", "gymnasium", "ray"))
    about = f"Medians; {len(wrong)} faults of the whole." if wrong else "Medians."
    body = {"outcomes": outcomes, "wrong": wrong}
    status = write_results(arguments, "cluster-faults", provenance, body, lines_of(outcomes), about)
    return 1 if wrong or any(outcome.wrong for outcome in outcomes) else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
