"""The driver of a run on a cluster, without one: who plays, who begins anew, and when the run is over."""

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="needs the extra `cluster`")
from cluster_parts import made_context
from ray.exceptions import NodeDiedError, RayTaskError, WorkerCrashedError

from replay_tutorial.agents.environments import EnvironmentFailed
from replay_tutorial.apex.messages import Cluster, Note
from replay_tutorial.apex.runs import restart_policy
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.cluster import placement
from replay_tutorial.cluster import workers as workers_module
from replay_tutorial.cluster.gateway import PendingReports
from replay_tutorial.cluster.options import ClusterOptions
from replay_tutorial.cluster.workers import ClusterWorkers

LIMIT = 3


class Remote:
    """What Ray makes of a function: each call has a Future."""

    def __init__(self, answer=Future):
        self.answer = answer
        self.calls = []

    def remote(self, *arguments):
        self.calls.append(arguments)
        future = self.answer()
        return SimpleNamespace(future=lambda: future)


class Gateway:
    """Answers what it is given."""

    def __init__(self):
        self.reports, self.hosts = {}, {}
        self.is_there = True
        self.collect = Remote(self.answer)

    def answer(self):
        future = Future()
        if self.is_there:
            future.set_result(PendingReports([], dict(self.reports), dict(self.hosts)))
        self.reports.clear()
        self.hosts.clear()
        return future


class Run:
    """A run with some actors, whose clock is moved by hand."""

    def __init__(self, monkeypatch, actors):
        self.now = 1000.0
        for module in (workers_module, restart_policy):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        head = SimpleNamespace(
            addresses={"a": "10.0.0.1"}, free={"CPU": 0.5, "memory": 2.0**30}, answered=float("inf")
        )
        monkeypatch.setattr(placement, "HostMonitor", lambda: head)
        context = made_context()
        config = replace(context.config, actors=actors, restart_limit=LIMIT)
        setup = SimpleNamespace(
            context=replace(context, config=config),
            seeds=RunSeeds(config),
            initial_counters=SimpleNamespace(steps=0),
        )
        self.workers = ClusterWorkers(setup, ClusterOptions("auto"), [])
        self.gateway, self.play = Gateway(), Remote()
        self.workers.gateways = {self.gateway: None}
        self.workers._remote_play = self.play
        self.actors = self.workers.actors
        for actor in self.actors:
            actor.start(self.play, [], "")

    def wait(self, seconds, *heard):
        """Let time pass, while some actors are heard; return what was said."""
        said, end = [], self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.gateway.reports |= {
                (actor, self.actors[actor].restart_policy.starts - 1): 0 for actor in heard
            }
            said += self.workers.receive(0)
        return said

    def die(self, actor, error=None):
        self.actors[actor].end.set_exception(error or WorkerCrashedError())


@pytest.fixture
def run(monkeypatch):
    return Run(monkeypatch, 2)


def notes(said):
    return [message.text for message in said if isinstance(message, Note)]


def playing(said):
    return [message.actors for message in said if isinstance(message, Cluster)]


def test_host_of_each_actor_is_said_and_an_actor_without_a_place_once(run):
    run.gateway.hosts = {(0, 0): "host2 10.0.0.2", (1, 3): "a process of another run"}
    said = run.wait(58)
    assert notes(said) == ["starting actor 0 on host2 10.0.0.2"]
    assert set(playing(said)) == {0}, "its imports are still to be done"
    [said] = notes(run.wait(100, 0))
    assert said.startswith(
        "no room for actor 1: an actor needs 1 CPU and 415 MiB on one host. 0.5 CPUs and 1"
    )
    assert "MiB are free on 1 host. Add hosts, wait for other runs to end, or lower --actors" in said
    run.die(0)
    [said] = notes(run.wait(1, 0))
    assert said.startswith("actor 0 died: ")
    assert said.endswith("(on host2 10.0.0.2)")
    run.wait(30, 0)
    run.gateway.hosts = {(0, 1): "host3", (1, 0): "host3"}
    assert notes(run.wait(100, 0, 1)) == ["starting actors 0, 1 on host3"]


def test_what_a_gateway_tells_late_is_heard(run):
    answers = []

    def answer():
        answers.append(Future())
        return answers[-1]

    run.gateway.collect.answer = answer
    run.wait(12)
    assert len(answers) == 1, "it owes an answer"
    answers[0].set_result(PendingReports([Note("early")], {}, {(0, 0): "host2"}))
    assert notes(run.wait(1)) == ["early", "starting actor 0 on host2"]


def test_actor_in_a_long_step_is_counted_and_not_called_silent(run):
    assert playing(run.wait(3, 0, 1))[-1] == 2
    said = run.wait(700)
    assert set(playing(said)) == {2}
    assert notes(said) == []


def test_actor_whose_end_is_known_is_counted_no_more_until_its_next_life_is_heard(run):
    run.wait(3, 0, 1)
    run.die(1)
    run.now += 1.0
    run.gateway.reports[1, 0] = 0  # its last word comes late
    assert playing(run.workers.receive(0)) == [1]
    assert playing(run.wait(10, 0))[-1] == 1
    assert playing(run.wait(3, 1))[-1] == 2


def test_actor_that_lives_and_says_nothing_for_a_quarter_of_an_hour_is_named_once(run):
    run.wait(3, 0, 1)
    assert notes(run.wait(890, 0)) == []
    (said,) = notes(run.wait(900, 0))
    assert said == "actor 1: no report for 15 minutes, but alive; a step takes a long time or hangs"
    run.wait(3, 0, 1)
    assert len(notes(run.wait(1000, 0))) == 1
    assert playing(run.wait(3, 0))[-1] == 2


def test_run_that_nobody_plays_in_says_so_and_ends(run):
    said = notes(run.wait(100))
    assert said[0] == "no actor has reported for 60 s; the learner is waiting for rows"
    assert said[1].startswith("no room for actors 0, 1: an actor needs 1 CPU")
    assert len(said) == 2
    with pytest.raises(ProcessDied, match="no actor has reported for 600 s"):
        run.wait(600)


def test_actors_whose_gateway_is_silent_are_silent(run):
    run.wait(3, 0, 1)
    run.gateway.is_there = False
    assert "no actor has reported for 60 s; the learner is waiting for rows" in notes(run.wait(70))


def test_death_is_told_with_its_cause_and_the_replacement_when_it_is_heard(run):
    run.wait(3, 0, 1)
    run.die(1)
    (said,) = notes(run.wait(20, 0))
    assert said == "actor 1 died: The worker died unexpectedly while executing this task"
    assert len(run.play.calls) == 3
    assert run.workers.restarts == 0
    run.wait(2, 1)
    assert run.workers.restarts == 1


def test_environment_that_fails_ends_the_run_with_its_message_in_one_line(run):
    run.wait(3, 0, 1)
    run.die(1, RayTaskError("play", "a traceback", EnvironmentFailed("step 2 returned nan")))
    with pytest.raises(ProcessDied) as end:
        run.wait(1)
    assert str(end.value) == "actor 1 failed: step 2 returned nan"


def test_actor_on_a_bad_host_does_not_end_a_run_in_which_another_does_well(run):
    run.wait(3, 0, 1)
    for _ in range(4 * LIMIT):
        run.die(1)
        run.wait(70, 0)  # longer than any pause
    assert run.actors[1].restart_policy.starts == 4 * LIMIT + 1
    assert set(playing(run.wait(5, 0))) == {1}


def test_actors_that_all_die_again_and_again_end_the_run(run):
    def let_all_die():
        for _ in range(4 * LIMIT):
            run.die(0)
            run.die(1)
            run.wait(20)

    with pytest.raises(ProcessDied, match=f"actor . died: .*, {LIMIT} times in a row"):
        let_all_die()


def test_deaths_of_hosts_end_no_run_and_cost_no_pause(run):
    for restart_count in range(4 * LIMIT):
        for actor in (0, 1):
            run.die(actor, NodeDiedError("its host is gone. More of that is elsewhere."))
        assert notes(run.wait(1)) == ["actor 0 died: its host is gone", "actor 1 died: its host is gone"]
        assert len(run.play.calls) == 2 * (restart_count + 2)
