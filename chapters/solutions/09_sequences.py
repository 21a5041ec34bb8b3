"""Solutions of chapter 09: the windows of one episode, and the exercises."""

import numpy as np

from replay_course.steps.sequences import WindowsOfEpisodes

# The windows: the class that the chapter shows.
MyWindows = WindowsOfEpisodes

# 1. Windows start at steps 0, 2, 4, 6 and 8. The last one learns from steps 8 and 9, and its burn-in is steps
# 5, 6 and 7, so two of its entries are padding. Step 5 is learned by the windows that start at steps 2 and 4.
my_windows, my_padding, my_learned = 5, 2, 2


def my_priorities(td_errors, learn, eta):
    """2. Select the learned steps before taking the maximum and the sum; divide by their number."""
    magnitudes = np.where(learn, np.abs(td_errors), 0.0)
    mean = magnitudes.sum(axis=1) / learn.sum(axis=1)
    return eta * magnitudes.max(axis=1) + (1 - eta) * mean


def my_rows(cell, steps):
    """3. Store the state before it changes, and start each episode with zeros."""
    state, rows = np.zeros(3), []
    for obs, ends in steps:
        rows.append((obs, state))
        state = np.zeros(3) if ends else cell(obs, state)
    return rows
