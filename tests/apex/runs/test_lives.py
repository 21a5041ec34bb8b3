"""Lives: when the next one begins, which of them count, and when there is none."""

import pytest

from replay_tutorial.apex.runs import lives as lives_module
from replay_tutorial.apex.runs.engine import ProcessDied
from replay_tutorial.apex.runs.lives import Lives


class Clock:
    """In place of the module `time`."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(lives_module, "time", clock)
    return clock


def live(lives, clock, seconds, waits=0.0, **how):
    """One life, and how long it is until the next one."""
    lives.begin(waits=waits > 0)
    clock.now += waits
    lives.hear(lives.count - 1)
    clock.now += seconds
    lives.end("died", **how)
    return lives.due - clock.now


def test_pause_doubles_with_each_short_life_until_the_run_ends(clock):
    lives = Lives("actor 0", 4)
    assert [live(lives, clock, 1.0) for _ in range(3)] == [0.5, 1.0, 2.0]
    with pytest.raises(ProcessDied, match="actor 0 died, 4 times in a row"):
        live(lives, clock, 1.0)


def test_long_life_makes_a_new_beginning(clock):
    lives = Lives("actor 0", 2)
    for _ in range(5):
        assert live(lives, clock, 1.0) == 0.5
        assert live(lives, clock, 60.0) == 0.5


def test_time_in_which_a_life_waits_for_its_place_is_none_of_it(clock):
    lives = Lives("actor 0", 2)
    live(lives, clock, 59.0, waits=600.0)
    with pytest.raises(ProcessDied, match="2 times in a row"):
        live(lives, clock, 59.0, waits=600.0)


def test_life_that_was_never_heard_is_a_short_one_however_long_it_waited(clock):
    lives = Lives("actor 0", 1)
    lives.begin(waits=True)
    clock.now += 600.0
    with pytest.raises(ProcessDied):
        lives.end("died")


def test_deaths_while_others_do_well_do_not_count_and_their_pause_grows_to_a_minute(clock):
    lives = Lives("actor 0", 2)
    pauses = [live(lives, clock, 1.0, spared=True) for _ in range(2000)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 64.0
    live(lives, clock, 1.0)
    live(lives, clock, 1.0, spared=True)  # the row of deaths is broken
    live(lives, clock, 1.0)
    with pytest.raises(ProcessDied, match="2 times in a row"):
        live(lives, clock, 1.0)


def test_life_whose_host_died_does_not_count_and_the_next_one_begins_at_once(clock):
    lives = Lives("actor 0", 2)
    for _ in range(5):
        lives.begin(waits=True)
        lives.hear(lives.count - 1)
        lives.lose_place()
        assert lives.is_due()
        assert not lives.plays
    assert live(lives, clock, 1.0) == 0.5


def test_old_life_that_is_heard_late_is_not_taken_for_the_new_one(clock):
    lives = Lives("actor 0", 5)
    live(lives, clock, 1.0)
    lives.hear(0)
    assert not lives.plays
    lives.begin(waits=True)
    lives.hear(0)
    assert (lives.plays, lives.restarts) == (False, 0)
    lives.hear(1)
    lives.hear(1)
    assert (lives.plays, lives.restarts) == (True, 1)


def test_role_is_well_in_its_first_life_and_after_a_death_in_a_long_one(clock):
    lives = Lives("actor 0", 5)
    lives.begin(waits=True)
    assert not lives.are_well
    lives.hear(0)
    assert lives.are_well
    lives.end("died")
    assert not lives.are_well
    lives.begin()
    assert not lives.are_well
    clock.now += 60.0
    assert lives.are_well
