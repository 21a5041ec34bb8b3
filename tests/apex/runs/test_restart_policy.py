"""The restart policy: when a role is started again, which failures count, and when the run ends."""

from types import SimpleNamespace

import pytest

from replay_tutorial.apex.runs import restart_policy
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.restart_policy import RestartPolicy


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
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


def test_pause_doubles_with_each_early_failure_until_the_run_ends(clock):
    policy = RestartPolicy("actor 0", 4)
    assert [run_once(policy, clock, 1.0) for _ in range(3)] == [0.5, 1.0, 2.0]
    with pytest.raises(ProcessDied, match="actor 0 died, 4 times in a row"):
        run_once(policy, clock, 1.0)


def test_long_run_resets_pause_and_failures(clock):
    policy = RestartPolicy("actor 0", 2)
    for _ in range(5):
        assert run_once(policy, clock, 1.0) == 0.5
        assert run_once(policy, clock, 60.0) == 0.5


def test_time_before_the_first_report_is_no_running_time(clock):
    policy = RestartPolicy("actor 0", 2)
    run_once(policy, clock, 59.0, waits=600.0)
    with pytest.raises(ProcessDied, match="2 times in a row"):
        run_once(policy, clock, 59.0, waits=600.0)


def test_process_that_never_reported_failed_early_however_long_it_was_pending(clock):
    policy = RestartPolicy("actor 0", 1)
    policy.record_start(is_pending=True)
    clock.now += 600.0
    with pytest.raises(ProcessDied):
        policy.record_failure("died")


def test_forgiven_failures_do_not_count_and_their_pause_grows_to_a_minute(clock):
    policy = RestartPolicy("actor 0", 2)
    pauses = [run_once(policy, clock, 1.0, forgiven=True) for _ in range(2000)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 64.0
    run_once(policy, clock, 1.0)
    run_once(policy, clock, 1.0, forgiven=True)  # resets the count
    run_once(policy, clock, 1.0)
    with pytest.raises(ProcessDied, match="2 times in a row"):
        run_once(policy, clock, 1.0)


def test_loss_of_the_host_does_not_count_and_the_restart_is_due_at_once(clock):
    policy = RestartPolicy("actor 0", 2)
    for _ in range(5):
        policy.record_start(is_pending=True)
        policy.mark_running(policy.starts - 1)
        policy.restart_at_once()
        assert policy.is_due()
        assert not policy.is_running
    assert run_once(policy, clock, 1.0) == 0.5


def test_late_report_of_an_old_process_is_ignored(clock):
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


def test_role_is_healthy_in_its_first_process_and_after_a_failure_in_a_long_one(clock):
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
