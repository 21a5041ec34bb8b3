"""A run on three hosts, all of them on this machine.

Host 0 is the learner's and Ray's head, and has no room for actors; they are on hosts 1 and 2. On the way the
first of these can be killed, and the cable of the second one cut: the actors begin anew on the other one, and
the learner goes on. After a while the host is there again, as if somebody had switched it on.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from hosts import HEAD_PORT, Hosts, why_not
from script import new_parser

from benchmarks.measuring.output import add_count

LEARNER, KILLED, CUT = 0, 1, 2  # hosts
BACK_SECONDS = 15.0  # after which a host is there again


class Fault(NamedTuple):
    kind: str
    after: float
    """Seconds after `train` was started."""


def main(argv: Sequence[str]) -> int:
    """Show a run on three hosts; return its exit status, or 1 if hosts can't be made here."""
    parser = new_parser("cluster_demo", "Train on three hosts, which are network namespaces of this machine.")
    parser.add_argument("--environment", default="CartPole-v1", help="default: %(default)s")
    add_count(parser, "--actors", 4, "on hosts 1 and 2; each of the two has room for all of them")
    for kind, what in ("kill", "kill host 1"), ("cut", "cut the cable of host 2"):
        text = f"{what} this long after train was started; {BACK_SECONDS:g} s later the host is back"
        parser.add_argument(f"--{kind}-after", type=seconds, metavar="SECONDS", help=text)
    parser.add_argument("options", nargs="*", help="other options of train, after --")
    arguments = parser.parse_args(argv)
    if reason := why_not():
        print(f"cluster_demo.py: no hosts can be made here: {reason}.", file=sys.stderr)
        return 1
    after = {"kill": arguments.kill_after, "cut": arguments.cut_after}
    faults = [Fault(kind, moment) for kind, moment in after.items() if moment is not None]
    train = [sys.executable, "-m", "replay_tutorial", "train", arguments.environment]
    train += [f"--cluster={Hosts.address(LEARNER)}:{HEAD_PORT}", f"--actors={arguments.actors}"]
    show = Show()
    with Hosts(3) as hosts:
        show("three hosts are there; this machine's own network knows nothing of them")
        cpus = {LEARNER: 0, KILLED: arguments.actors, CUT: arguments.actors}
        hosts.start_ray(cpus)
        show(f"Ray is up on all of them; its head is at {hosts.address(LEARNER)}:{HEAD_PORT}")
        show(f"on host {LEARNER}: {' '.join(['python', *train[1:], *arguments.options])}")
        process = hosts.run(LEARNER, [*train, *arguments.options])
        status = wait_with(faults, process, hosts, cpus, show)
        show(f"train ended with exit status {status}")
    show("the hosts are gone, with all that ran on them")
    return status


class Show:
    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start:5.1f} s] {text}", flush=True)


def wait_with(
    faults: Sequence[Fault], process: subprocess.Popen[Any], hosts: Hosts, cpus: dict[int, int], show: Show
) -> int:
    """Wait for the end of `train`, let the faults happen meanwhile, and return its exit status."""
    start = time.monotonic()
    moments = [(fault.after, carry_out, fault) for fault in faults]
    moments += [(fault.after + BACK_SECONDS, bring_back, fault) for fault in faults]
    try:
        for after, act, fault in sorted(moments, key=itemgetter(0)):
            try:
                return process.wait(max(0.0, start + after - time.monotonic()))
            except subprocess.TimeoutExpired:
                act(fault, hosts, cpus, show)
        return process.wait()
    except KeyboardInterrupt:
        return process.wait()  # it has heard the Ctrl-C, too; a second one ends the hosts


def carry_out(fault: Fault, hosts: Hosts, cpus: dict[int, int], show: Show) -> None:
    if fault.kind == "kill":
        show(f"host {KILLED} is killed: {len(hosts.kill(KILLED))} processes")
    else:
        hosts.cut(CUT)
        show(f"the cable of host {CUT} is cut; its {len(hosts.processes(CUT))} processes live on")


def bring_back(fault: Fault, hosts: Hosts, cpus: dict[int, int], show: Show) -> None:
    """Start Ray again on a host: one that was cut off has been given up by the others."""
    host = KILLED if fault.kind == "kill" else CUT
    hosts.heal(host)
    hosts.kill(host)
    hosts.start_ray({host: cpus[host]})
    show(f"host {host} is there again")


def seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no time to wait; it must be 0 or more")
    return number


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
