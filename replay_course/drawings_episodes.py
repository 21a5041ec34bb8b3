"""Drawings of chapters 09 and 10: corridors with cues, an unrolled network, an episode relabelled.

All are at most `WIDTH` pixels wide and use no text below `SMALL`, so that they are readable on a phone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from replay_course.drawings import Drawing
from replay_course.drawings_reading import SMALL, WIDTH
from replay_course.steps.goals.bit_flip import GoalStep, reward


def draw_corridors(obs: NDArray[Any]) -> Drawing:
    """Draw the observations of corridors, one below the other, and the right action at their exits.

    Args:
        obs: float[corridors, steps, 2], the cue and whether the step is at the exit.
    """
    steps = obs.shape[1]
    title = f"Corridors of {steps} steps. The cue is visible in the first step only: "
    title += ", ".join(f"{cue:g}" for cue in obs[:, 0, 0]) + "; the observations at the exit are equal."
    drawing = Drawing(WIDTH, 34 + 96 * len(obs), title)
    wide = (WIDTH - 60) / steps
    drawing.text(52, 20, "step", size=SMALL, at="end")
    for step in range(steps):
        drawing.text(60 + wide * (step + 0.45), 20, step, size=SMALL)
    for corridor, seen in enumerate(obs):
        y = 30 + 96 * corridor
        drawing.text(52, y + 20, "cue", size=SMALL, at="end")
        drawing.text(52, y + 48, "exit", size=SMALL, at="end")
        for step, (cue, at_exit) in enumerate(seen):
            for row, value in enumerate((cue, at_exit)):
                drawing.box(
                    60 + wide * step, y + 28 * row, wide - 3, 26, f"{value:g}", lit=value != 0, size=SMALL
                )
        drawing.text(60, y + 74, "the agent sees the cue", size=SMALL, at="start")
        drawing.text(WIDTH - 6, y + 74, f"right: action {seen[0, 0] > 0:d}", size=SMALL, lit=True, at="end")
    return drawing


def draw_unrolled(steps: int, start: int, length: int, burn_in: int) -> Drawing:
    """Draw the states of a recurrent network in an episode, and a window that is cut out of it.

    Args:
        steps: Number of steps of the episode.
        start: The first step to learn from.
        length: Number of steps to learn from.
        burn_in: Number of steps before them, unrolled only to obtain a state.
    """
    first, end = start - burn_in, start + length
    title = (
        f"The network passes a state from each of {steps} steps to the next. A window of steps {first} to "
    )
    title += f"{end - 1} is cut out; the state before step {first} is missing."
    drawing = Drawing(WIDTH, 174, title)
    wide = (WIDTH - 64) / steps
    drawing.text(50, 56, "state", size=SMALL, at="end")
    drawing.text(50, 100, "obs", size=SMALL, at="end")
    for step in range(steps):
        x, learned = 58 + wide * step, start <= step < end
        drawing.box(x, 38, wide - 9, 28, lit=learned)
        drawing.line(x + wide - 9, 52, x + wide, 52)
        drawing.line(x + (wide - 9) / 2, 82, x + (wide - 9) / 2, 66)
        drawing.box(x, 82, wide - 9, 28, step, lit=learned, size=SMALL)
    drawing.text(58, 20, "zeros", size=SMALL, at="start")
    drawing.arrow(62, 24, 62, 36)
    left = 58 + wide * first - 5
    drawing.box(left, 30, wide * (burn_in + length) + 1, 88, dashed=True)
    drawing.arrow(left, 14, left, 50)
    drawing.text(left + 6, 20, "which state?", size=SMALL, lit=True, at="start")
    if burn_in:
        drawing.text(58 + wide * (first + burn_in / 2) - 4, 136, "burn-in", size=SMALL)
    drawing.text(58 + wide * (start + length / 2) - 4, 136, "learn", size=SMALL, lit=True)
    drawing.text(58, 160, "the cue", size=SMALL, at="start")
    drawing.arrow(66, 146, 66, 114)
    drawing.text(WIDTH - 6, 160, "the exit", size=SMALL, at="end")
    drawing.arrow(58 + wide * (steps - 0.7), 146, 58 + wide * (steps - 0.7), 114)
    return drawing


def draw_relabelled(episode: Sequence[GoalStep], goals: Sequence[NDArray[Any]]) -> Drawing:
    """Draw the states of an episode once for each goal, with the rewards for this goal; lit if reached.

    Args:
        episode: The steps, of states with a few bits.
        goals: The goals, such as the original one and an achieved one.
    """

    def bits(state: NDArray[Any]) -> str:
        return "".join(map(str, state))

    states = [episode[0].obs, *(step.next_obs for step in episode)]
    title = "The same states for each goal. " + " ".join(
        f"Goal {bits(goal)}: rewards {', '.join(f'{reward(state, goal):g}' for state in states[1:])}."
        for goal in goals
    )
    drawing = Drawing(WIDTH, 104 * len(goals), title)
    wide = (WIDTH - 94) / len(states)
    for place, goal in enumerate(goals):
        y = 104 * place
        for number, state in enumerate(states):
            x, is_goal = 6 + wide * number, np.array_equal(state, goal)
            drawing.box(x, y + 28, wide - 16, 32, bits(state), lit=is_goal, size=SMALL)
            if number:
                drawing.arrow(x - 15, y + 44, x - 1, y + 44)
                earned = reward(state, goal)
                drawing.text(x - 8, y + 80, f"{earned:g}".replace("-", "−"), lit=earned == 0)
        drawing.text(6, y + 18, "states", size=SMALL, at="start")
        drawing.text(6, y + 80, "reward", size=SMALL, at="start")
        drawing.text(WIDTH - 36, y + 18, "old goal" if not place else "new goal", size=SMALL)
        drawing.box(WIDTH - 72, y + 28, 66, 32, bits(goal), lit=bool(place), size=SMALL)
    return drawing


def draw_corridor() -> Drawing:
    """Draw the corridor that the reader of chapter 08 writes: eleven positions, the start and the exit."""
    title = "A corridor of positions from -5 to 5. Episodes start at 0; the exit is at 5; "
    drawing = Drawing(WIDTH, 106, title + "at -5, a move to the left changes nothing.")
    wide = (WIDTH - 16) / 11
    for place in range(11):
        position, x = place - 5, 8 + wide * place
        drawing.box(x, 30, wide - 3, 32, position, lit=position in (0, 5))
    for place, words in ((5, "start"), (10, "exit")):
        drawing.text(8 + wide * (place + 0.45), 20, words, size=SMALL, lit=True)
    middle = 8 + wide * 5.45
    drawing.arrow(middle - 6, 78, middle - wide, 78)
    drawing.arrow(middle + 6, 78, middle + wide, 78)
    drawing.text(middle - wide - 6, 82, "action 0", size=SMALL, at="end")
    drawing.text(middle + wide + 6, 82, "action 1", size=SMALL, at="start")
    drawing.text(8, 82, "a wall", size=SMALL, at="start")
    return drawing
