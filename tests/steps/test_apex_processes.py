"""Ape-X as processes: the program ends and leaves nothing behind, also when its processes are killed."""

import gc
import multiprocessing
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from programs import run_python
from shared_rows import shared_memory_in_use

from replay_course.steps.learning import apex_processes
from replay_tutorial.agents.dqn import DQNPolicy, td_errors
from replay_tutorial.agents.td_error import Transitions


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compile before actors start: while the learner did it, they would fill the ring."""
    replay = apex_processes.make_shared(capacity=2_000).replay
    values, obs = {name: np.zeros(64, np.int64) for name in apex_processes.ROW}, np.zeros((64, 4))
    replay.add(**{**values, "obs": obs, "next_obs": obs, "ended": np.zeros(64, bool)}, priorities=np.ones(64))
    replay.update_priorities(replay.sample(8, 0.4)["indexes"], np.ones(8))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No actor is killed because a busy machine delays its end."""
    monkeypatch.setattr(apex_processes, "STOP_SECONDS", 300.0)


def test_the_program_ends_and_leaves_no_process_and_no_shared_memory() -> None:
    gc.collect()
    before = shared_memory_in_use()
    shared = apex_processes.make_shared(seed=1)
    learner = apex_processes.Learner(shared, seed=1)
    with apex_processes.running_actors(shared, 2, seed=1) as actors:
        learner.learn(30)
    assert [actor.exitcode for actor in actors] == [0, 0]
    assert not multiprocessing.active_children()
    rows = shared.replay[:]
    counts = np.bincount(rows["actor"], minlength=2)
    assert counts.sum() == shared.replay.statistics().rows_added >= apex_processes.WARM_UP
    assert not (counts % apex_processes.CHUNK).any(), "rows are added one local buffer at a time"
    assert shared.parameters.version == 1 + 30 // apex_processes.PUBLISH_INTERVAL
    # A row's discount is 0 exactly where its episode terminated, and each episode's score counts its rows.
    assert set(np.unique(rows["discount"]).tolist()) <= {0.0, np.float32(apex_processes.GAMMA)}
    assert (rows["score"][rows["discount"] == 0] < 500).all() and rows["ended"][rows["discount"] == 0].all()
    for number in range(2):
        own = rows["actor"] == number
        scores, ended = rows["score"][own], rows["ended"][own]
        np.testing.assert_array_equal(scores[1:], np.where(ended[:-1], 1, scores[:-1] + 1))
        at, returns = apex_processes.episodes(shared, number)
        np.testing.assert_array_equal(returns, scores[ended])
        np.testing.assert_array_equal(rows["actor"][at - 1], number)
    assert shared_memory_in_use() - before or sys.platform != "linux"
    del shared, learner, actors, rows
    gc.collect()
    assert not shared_memory_in_use() - before


def test_initial_priorities_are_the_actors_own_errors() -> None:
    shared = apex_processes.make_shared()
    learner = apex_processes.Learner(shared)  # publishes parameters, and then makes no update
    with apex_processes.running_actors(shared, 1):
        pass
    rows = shared.replay[:]
    network = learner.agent.online
    errors, _ = td_errors(network, network, Transitions.from_batch(rows))
    priorities = DQNPolicy(network).priorities(rows)
    np.testing.assert_allclose(priorities, errors.detach().abs().numpy(), rtol=1e-4, atol=1e-4)
    masses = (priorities + 1e-4) ** apex_processes.ALPHA
    assert shared.replay.total_mass == pytest.approx(masses.sum(), rel=1e-3)


def test_the_program_ends_when_its_actors_are_killed() -> None:
    shared = apex_processes.make_shared(capacity=2_000)
    learner = apex_processes.Learner(shared)
    with apex_processes.running_actors(shared, 2) as actors:
        learner.learn(10)
        actors[0].kill()
        actors[0].join()
        learner.learn(10)
        actors[1].kill()
        actors[1].join()
        added = shared.replay.statistics().rows_added
        learner.learn(10)
        assert shared.replay.statistics().rows_added == added
    assert learner.agent.updates == 30
    assert all(actor.exitcode not in (0, None) for actor in actors)
    assert not multiprocessing.active_children()


def test_an_error_of_the_learner_stops_the_actors() -> None:
    shared = apex_processes.make_shared()
    learner = apex_processes.Learner(shared)
    with pytest.raises(KeyboardInterrupt), apex_processes.running_actors(shared, 1) as actors:
        learner.learn(1)
        raise KeyboardInterrupt
    assert [actor.exitcode for actor in actors] == [0]


def test_actors_that_fail_at_once_are_reported() -> None:
    shared = apex_processes.make_shared()
    apex_processes.Learner(shared)
    with (
        pytest.raises(RuntimeError, match="all actors died"),
        apex_processes.running_actors(shared, 2, seed=-1),  # not a seed for NumPy
    ):
        pytest.fail("no actor can run")
    assert not multiprocessing.active_children()


KILLED = """
import os, signal
from replay_course.steps.learning import apex_processes
if __name__ == "__main__":
    shared = apex_processes.make_shared()
    learner = apex_processes.Learner(shared)
    with apex_processes.running_actors(shared, 2) as actors:
        print(*(actor.pid for actor in actors), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_actors_end_when_the_program_is_killed() -> None:
    killed = run_python("-c", KILLED)
    actors = killed.stdout.split()
    assert len(actors) == 2, killed.stderr
    deadline = time.monotonic() + 300
    while any(Path("/proc", actor).exists() for actor in actors):
        assert time.monotonic() < deadline, f"still running: {actors}"
        time.sleep(0.05)


def test_the_program_prints_what_its_actors_reached(capsys: pytest.CaptureFixture[str]) -> None:
    apex_processes.main(actors=1, updates=3)
    printed = capsys.readouterr().out
    assert re.search(r"rows, 3 updates\nactor 0: mean return \d+ at first, \d+ at last", printed)
