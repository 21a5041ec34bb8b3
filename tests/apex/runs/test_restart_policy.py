"""The restart policy: when a role is started again, which failures count, and when the run ends."""

import pytest

from replay_tutorial.apex.runs import restart_policy
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.restart_policy import RestartPolicy


class Clock:
    """In place of the module `time`."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(restart_policy, "time", clock)
    return clock


def run_once(policy, clock, seconds, waits=0.0, **how):
    """Start the role once and let it fail; return the pause before its next start."""
    policy.record_start(is_pending=waits > 0)
    clock.now += waits
    policy.mark_running(policy.starts - 1)
    clock.now += seconds
    policy.record_failure("died", **how)
    return policy.due - clock.now


def test_pause_doubles_with_each_short_life_until_the_run_ends(clock):
    policy = RestartPolicy("actor 0", 4)
    assert [run_once(policy, clock, 1.0) for _ in range(3)] == [0.5, 1.0, 2.0]
    with pytest.raises(ProcessDied, match="actor 0 died, 4 times in a row"):
        run_once(policy, clock, 1.0)


def test_long_life_makes_a_new_beginning(clock):
    policy = RestartPolicy("actor 0", 2)
    for _ in range(5):
        assert run_once(policy, clock, 1.0) == 0.5
        assert run_once(policy, clock, 60.0) == 0.5


def test_time_in_which_a_life_waits_for_its_place_is_none_of_it(clock):
    policy = RestartPolicy("actor 0", 2)
    run_once(policy, clock, 59.0, waits=600.0)
    with pytest.raises(ProcessDied, match="2 times in a row"):
        run_once(policy, clock, 59.0, waits=600.0)


def test_life_that_was_never_heard_is_a_short_one_however_long_it_waited(clock):
    policy = RestartPolicy("actor 0", 1)
    policy.record_start(is_pending=True)
    clock.now += 600.0
    with pytest.raises(ProcessDied):
        policy.record_failure("died")


def test_deaths_while_others_do_well_do_not_count_and_their_pause_grows_to_a_minute(clock):
    policy = RestartPolicy("actor 0", 2)
    pauses = [run_once(policy, clock, 1.0, forgiven=True) for _ in range(2000)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 64.0
    run_once(policy, clock, 1.0)
    run_once(policy, clock, 1.0, forgiven=True)  # the row of deaths is broken
    run_once(policy, clock, 1.0)
    with pytest.raises(ProcessDied, match="2 times in a row"):
        run_once(policy, clock, 1.0)


def test_life_whose_host_died_does_not_count_and_the_next_one_begins_at_once(clock):
    policy = RestartPolicy("actor 0", 2)
    for _ in range(5):
        policy.record_start(is_pending=True)
        policy.mark_running(policy.starts - 1)
        policy.restart_at_once()
        assert policy.is_due()
        assert not policy.is_running
    assert run_once(policy, clock, 1.0) == 0.5


def test_old_life_that_is_heard_late_is_not_taken_for_the_new_one(clock):
    policy = RestartPolicy("actor 0", 5)
    run_once(policy, clock, 1.0)
    policy.mark_running(0)
    assert not policy.is_running
    policy.record_start(is_pending=True)
    policy.mark_running(0)
    assert (policy.is_running, policy.restarts) == (False, 0)
    policy.mark_running(1)
    policy.mark_running(1)
    assert (policy.is_running, policy.restarts) == (True, 1)


def test_role_is_well_in_its_first_life_and_after_a_death_in_a_long_one(clock):
    policy = RestartPolicy("actor 0", 5)
    policy.record_start(is_pending=True)
    assert not policy.is_healthy
    policy.mark_running(0)
    assert policy.is_healthy
    policy.record_failure("died")
    assert not policy.is_healthy
    policy.record_start()
    assert not policy.is_healthy
    clock.now += 60.0
    assert policy.is_healthy
