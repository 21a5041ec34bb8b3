"""The processes of a run on a cluster, as seen by the driver.

Learner and evaluator are processes of this host, as in a run on one machine. Actors are Ray tasks on any
host; gateways are Ray actors on this host. The driver restarts an actor that dies, wherever there is room;
Ray itself restarts a gateway, which opens the same shared memory.

    actors ── Report ──▶ gateways ◀── collect ── driver ◀── messages ── learner, evaluator
"""

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Self

import ray
from ray.exceptions import ActorDiedError, NodeDiedError, RayError, RayTaskError

from replay_tutorial.agents.environments import EnvironmentFailed
from replay_tutorial.apex.messages import Cluster, Message, Note
from replay_tutorial.apex.runs.engine import ProcessDied, Workers
from replay_tutorial.apex.runs.restart_policy import RestartPolicy
from replay_tutorial.apex.runs.run_provenance import digest_of_sources
from replay_tutorial.apex.runs.setup import RunSetup
from replay_tutorial.cluster import placement
from replay_tutorial.cluster.gateway import PendingReports
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.cluster.ray_processes import CODE_ERRORS, ActorTask, RemoteGateway, is_lost, play
from replay_tutorial.local.supervisor import SHUTDOWN_SECONDS, Role, Supervisor

COLLECT_SECONDS = 0.5  # between two calls to a gateway
COUNT_SECONDS = 1.0  # between two reports of the numbers of hosts and actors
SILENT_SECONDS = 60.0  # without a report of any actor, until a line is printed
GIVE_UP_SECONDS = 600.0  # without a report of any actor, until the run ends
ACTOR_SILENT_SECONDS = 900.0  # without a report of a running actor, until a line is printed
HEAD_TIMEOUT_SECONDS = 20.0  # without a reply of the head; after 60, Ray kills this process silently
COLOURS = re.compile("\x1b\\[\\d+m")  # ANSI colours in Ray's tracebacks


class RemoteRole:
    """One actor, and the task in which it currently runs."""

    def __init__(self, setup: RunSetup, number: int) -> None:
        self.setup = setup
        self.number = number
        self.restart_policy = RestartPolicy(f"actor {number}", setup.context.config.restart_limit)
        self.task: Any = None
        self.end: Future[None] | None = None  # the task's result
        self.last_report = 0.0
        self.host = ""  # the host on which the task runs; empty while the task is not placed
        self.pending_since: float | None = None  # time since which it waits to be placed; None once placed

    def start(self, remote_play: Any, gateways: Iterable[Any], sources: str) -> None:
        """Start the next task."""
        setup, restart_count = self.setup, self.restart_policy.starts
        seed = setup.seeds.actor(self.number, setup.initial_counters.steps, restart_count)
        config, spaces = setup.context.config, setup.context.spaces
        path = tuple(os.path.abspath(place) for place in sys.path)
        task = ActorTask(config, spaces, self.number, restart_count, seed, sources, path)
        self.task = remote_play.remote(task, [*gateways])
        self.end = self.task.future()
        self.host, self.pending_since = "", time.monotonic()
        self.restart_policy.record_start(is_pending=True)

    def check(self, all_actors: Sequence["RemoteRole"]) -> str | None:
        """Return a line about how the task ended, or None if it has not ended.

        Raise ProcessDied if the actor's code failed, or it has died too often and no other actor is healthy.
        """
        if self.end is None or not self.end.done():
            return None
        error, self.end, self.pending_since = self.end.exception(), None, None
        if isinstance(error, RayTaskError) and isinstance(error.cause, EnvironmentFailed):
            raise ProcessDied(f"{self.restart_policy.name} failed: {error.cause}")
        if isinstance(error, CODE_ERRORS):
            raise ProcessDied(f"{self.restart_policy.name} failed: \n\n{COLOURS.sub('', str(error))}")
        cause = f"died: {str(error).strip() or type(error).__name__}" if error else "ended unexpectedly"
        if isinstance(error, NodeDiedError):
            self.restart_policy.restart_at_once()
        else:
            others = (actor.restart_policy for actor in all_actors if actor is not self)
            self.restart_policy.record_failure(cause, forgiven=any(policy.is_healthy for policy in others))
        place = f" (on {self.host})" if self.host else ""
        return f"{self.restart_policy.name} {cause.splitlines()[0].partition('. ')[0]}{place}"


def names_of(actors: Sequence[RemoteRole]) -> str:
    """Return actors as text: "actor 0" or "actors 0, 2"."""
    return f"actor{'s' * (len(actors) > 1)} {', '.join(str(actor.number) for actor in actors)}"


class ClusterWorkers(Workers):
    """The processes of a run; a context manager that ends them. Ray itself keeps running.

    The context in `setup` is in this host's shared memory; `central` are learner and evaluator.
    """

    def __init__(self, setup: RunSetup, options: ClusterOptions, central: Sequence[Role]) -> None:
        self.setup = setup
        self.options = options
        self.local = Supervisor(central, setup.context.stop.request)
        self.actors = [RemoteRole(setup, number) for number in range(setup.context.config.actors)]
        self.stopping = False
        self.rows_lost: dict[tuple[int, int], int] = {}  # keyed by (actor, restart_count)
        self.host_monitor = placement.HostMonitor()
        self.hosts = self.host_monitor.addresses
        self.gateways: dict[Any, Future[PendingReports] | None] = {}  # gateway → its call in flight
        self.sources = digest_of_sources()
        self._remote_play: Any = ray.remote(**placement.actor_options(options))(play)
        self._last_collect = self._last_count = 0.0
        self._last_report = time.monotonic()
        self._known: dict[str, list[Any]] = {}  # message → the actors it was printed for

    def __enter__(self) -> Self:
        """Start all processes, those on other hosts first, because their imports take longest."""
        try:
            self._start_remote()
            self.local.__enter__()
        except BaseException:
            self._end_remote(0.0)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Request all processes to stop, and kill the rest; after a second Ctrl-C, kill all immediately."""
        self.stopping = True
        try:
            self.local.__exit__(kind, *rest)
        finally:
            at_once = kind is not None and issubclass(kind, KeyboardInterrupt)
            self._end_remote(0.0 if at_once else SHUTDOWN_SECONDS)

    @property
    def restarts(self) -> int:
        return sum(actor.restart_policy.restarts for actor in self.actors)

    def collect_messages(self, received: list[Message], timeout: float) -> None:
        received += self.local.receive(timeout)
        self._collect(received)
        if not self.stopping:
            self._check_remote(received)
            self._count(received)

    def stop(self, last_evaluation: bool = False) -> None:
        self.stopping = True
        self.local.stop(last_evaluation)

    def is_working(self, role: str) -> bool:
        return self.local.is_working(role)

    def _start_remote(self) -> None:
        """Start gateways and actors."""
        packed = RemoteGateway.pack(self.setup.context)
        remote_gateway: Any = ray.remote(**placement.gateway_options())(RemoteGateway)
        self.gateways = {remote_gateway.remote(packed): None for _ in range(self.options.gateways)}
        for actor in self.actors:
            actor.start(self._remote_play, self.gateways, self.sources)

    def _collect(self, received: list[Message]) -> None:
        """Receive the reports that gateways have collected, and call those without a call in flight again."""
        now = time.monotonic()
        is_due = now - self._last_collect >= COLLECT_SECONDS
        if is_due:
            self._last_collect = now
        for gateway, answer in self.gateways.items():
            if answer is not None and answer.done():
                self.gateways[gateway] = None
                if (error := answer.exception()) is None:
                    self._handle_reports(answer.result(), received, now)
                elif isinstance(error, ActorDiedError) or not is_lost(error):
                    raise ProcessDied(f"a gateway failed: \n\n{error}")
            if is_due and self.gateways[gateway] is None:
                self.gateways[gateway] = gateway.collect.remote().future()

    def _handle_reports(self, reports: PendingReports, received: list[Message], now: float) -> None:
        received.extend(reports.messages)
        self._note_hosts(reports, received)
        for (actor, restart_count), rows in reports.rows_lost.items():
            self.rows_lost[actor, restart_count] = max(rows, self.rows_lost.get((actor, restart_count), 0))
            self.actors[actor].restart_policy.mark_running(restart_count)
            self.actors[actor].last_report, self.actors[actor].pending_since = now, None
        # A running actor doesn't report during a long step.
        if any(actor.restart_policy.is_running for actor in self.actors):
            self._last_report = now

    def _note_hosts(self, reports: PendingReports, received: list[Message]) -> None:
        """Print which actors start on which host."""
        on: dict[str, list[RemoteRole]] = {}
        for (number, restart_count), host in reports.hosts.items():
            actor = self.actors[number]
            if restart_count == actor.restart_policy.starts - 1:
                actor.host, actor.pending_since = host, None
                on.setdefault(host, []).append(actor)
        received.extend(Note(f"starting {names_of(actors)} on {host}") for host, actors in on.items())

    def _check_remote(self, received: list[Message]) -> None:
        """Restart the actors that are due, and print why they ended."""
        for actor in self.actors:
            if (end := actor.check(self.actors)) is not None:
                received.append(Note(end))
            if actor.restart_policy.is_due():
                actor.start(self._remote_play, self.gateways, self.sources)

    def _count(self, received: list[Message]) -> None:
        """Report the numbers of hosts and actors; raise if the head or all actors are lost."""
        now = time.monotonic()
        if now - self._last_count < COUNT_SECONDS:
            return
        self._last_count = now
        if now - self.host_monitor.answered >= HEAD_TIMEOUT_SECONDS:
            raise ProcessDied(f"the head of the cluster has not responded for {HEAD_TIMEOUT_SECONDS:g} s")
        hosts = self.host_monitor.addresses
        for host in self.hosts.keys() - hosts.keys():
            left, remedy = placement.host_count(len(hosts)), "Start Ray on it again when it is back."
            received.append(Note(f"lost host {self.hosts[host]}; {left} left. {remedy}"))
        for host in hosts.keys() - self.hosts.keys():
            received.append(Note(f"host {hosts[host]} has joined; {placement.host_count(len(hosts))} now"))
        self.hosts = hosts
        playing = sum(actor.restart_policy.is_running for actor in self.actors)
        received.append(Cluster(len(hosts), playing, sum(self.rows_lost.values())))
        self._check_silence(received, now)

    def _check_silence(self, received: list[Message], now: float) -> None:
        """Report each actor that has no room or is silent, once; raise if all are silent for too long."""
        silence = now - self._last_report
        if silence >= GIVE_UP_SECONDS:
            raise ProcessDied(f"no actor has reported for {silence:.0f} s")
        if self._newly("no reports", ["learner"] if silence >= SILENT_SECONDS else []):
            text = f"no actor has reported for {silence:.0f} s; the learner is waiting for rows"
            received.append(Note(text))
        waits = [a for a in self.actors if a.pending_since and now - a.pending_since >= SILENT_SECONDS]
        if unplaced := self._newly("no room", waits):
            text = placement.capacity_message(
                names_of(unplaced), self.options, self.host_monitor.free, len(self.hosts)
            )
            received.append(Note(text))
        silent = [
            a
            for a in self.actors
            if a.restart_policy.is_running and now - a.last_report >= ACTOR_SILENT_SECONDS
        ]
        if stuck := self._newly("silent", silent):
            silence = f"no report for {ACTOR_SILENT_SECONDS / 60:.0f} minutes, but alive"
            received.append(Note(f"{names_of(stuck)}: {silence}; a step takes a long time or hangs"))

    def _newly(self, message: str, subjects: list[Any]) -> list[Any]:
        """Return the subjects that were not passed with the last call for this message."""
        known = self._known.get(message, [])
        self._known[message] = subjects
        return [subject for subject in subjects if subject not in known]

    def _end_remote(self, seconds: float) -> None:
        """Stop actors and gateways: wait until the actors see that the run is over, then kill the rest."""
        self.host_monitor.closing.set()
        self.host_monitor.thread.join(SHUTDOWN_SECONDS)  # else it would call Ray after the shutdown
        ends = [actor.end for actor in self.actors if actor.end is not None]
        wait(ends, seconds)
        for actor in self.actors:
            if actor.end is not None and not actor.end.done():
                with suppress(RayError):  # the cluster may be gone; the run ends for another reason
                    ray.cancel(actor.task, force=True)
        for gateway in self.gateways:
            with suppress(RayError):
                ray.kill(gateway)
