"""The rungs of the windows: each step shows its episode, so no window needs to be trusted."""

from typing import Any

import numpy as np
import pytest

from replay_course.exercises_sequences import check_windows
from replay_course.steps.sequences import WindowsOfEpisodes, WindowsOfRows, WindowsWithState

FIELDS: dict[str, Any] = {
    "obs": {"shape": (2,), "dtype": np.int64},  # (episode, step)
    "state": {"shape": (1,), "dtype": np.int64},  # 1000 * episode + step, in place of a recurrent state
}
CAPACITY, LENGTHS = 37, (5, 1, 3, 9, 2, 60, 4, 7)


def fill(buffer: Any) -> list[tuple[int, int]]:
    """Add episodes, of which the last is still running; return (episode, step) of each step."""
    steps = []
    for episode, count in enumerate(LENGTHS):
        for step in range(count):
            ends = step == count - 1 and episode < len(LENGTHS) - 1
            buffer.add(obs=(episode, step), state=(1000 * episode + step,), ends=ends)
            steps.append((episode, step))
    return steps


def test_windows_of_rows_are_consecutive_and_never_continue_from_the_newest_row_to_the_oldest() -> None:
    buffer = WindowsOfRows(CAPACITY, FIELDS, length=6)
    steps = fill(buffer)
    stored = [steps[at : at + 6] for at in range(len(steps) - CAPACITY, len(steps) - 5)]
    windows = [[tuple(entry) for entry in window] for window in buffer.sample(1_000)["obs"].tolist()]
    assert all(window in stored for window in windows)
    assert all(window in windows for window in stored)


def test_windows_of_episodes_pass_their_check() -> None:
    check_windows(WindowsOfEpisodes)


@pytest.mark.parametrize(("burn_in", "length"), [(0, 4), (3, 4), (9, 1)])
def test_windows_with_state_have_the_steps_the_masks_and_the_state_of_their_episode(
    burn_in: int, length: int
) -> None:
    buffer = WindowsWithState(CAPACITY, FIELDS, length, burn_in)
    steps = fill(buffer)
    stored = set(steps[-CAPACITY:])
    sample = buffer.sample(1_000)
    seen = set()
    for obs, state, valid, learn in zip(
        *(sample[name] for name in ("obs", "state", "valid", "learn")), strict=True
    ):
        episode, start = obs[burn_in].tolist()
        seen.add((episode, start))
        wanted = [(episode, step) for step in range(start - burn_in, start + length)]
        assert valid.tolist() == [each in stored for each in wanted]
        assert learn.tolist() == [each in stored and each[1] >= start for each in wanted]
        assert [tuple(each) for each in obs[valid].tolist()] == [each for each in wanted if each in stored]
        assert not obs[~valid].any()
        first = next(step for _, step in filter(stored.__contains__, wanted))
        assert state.tolist() == [1000 * episode + first]
    assert seen == stored
