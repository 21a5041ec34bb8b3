"""What chapter 09 rests on: the checks of its exercises, the corridors, and the record of ten seeds."""

import numpy as np
import pytest
import recurrent_state
import torch

from replay_course import cue_corridor, draw_sequences, load_record
from replay_course.cue_corridor import STARTS, discrepancy


@pytest.mark.learns
def test_a_stored_state_is_exact_until_the_network_changes() -> None:
    torch.manual_seed(0)
    network = cue_corridor.Network()
    steps = cue_corridor.walk(network, np.random.default_rng(0))
    for start, (stored, _) in STARTS.items():
        assert (discrepancy(network, steps, start).max() < 1e-6) == stored
    network.cell.bias_ih.data += 0.1
    assert discrepancy(network, steps, "stored").min() > 1e-4


def test_the_reward_of_a_corridor_depends_on_its_cue_and_no_window_contains_cue_and_exit() -> None:
    steps = cue_corridor.walk(cue_corridor.Network(), np.random.default_rng(0))
    cues, actions = steps["obs"][0, :, 0], steps["action"][-1]
    assert steps["reward"][-1].tolist() == np.where((actions == 1) == (cues == 1), 1, -1).tolist()
    assert not steps["obs"][1:, :, 0].any() and not steps["reward"][:-1].any()
    assert steps["obs"][:, :, 1].sum(axis=0).tolist() == [1] * cue_corridor.CORRIDORS
    assert cue_corridor.BURN_IN + cue_corridor.LENGTH < cue_corridor.STEPS


def test_a_record_has_the_discrepancy_of_every_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cue_corridor, "UPDATES", 100)
    gap, ages = recurrent_state.record_agent("50 walks", "stored, burn-in", 1)
    assert {start: np.shape(bins) for start, bins in ages.items()} == dict.fromkeys(STARTS, (1, 2))
    assert -2 < gap < 2


def test_the_record_says_what_the_chapter_says() -> None:
    record = load_record("recurrent_state")
    assert {kept: list(gaps) for kept, gaps in record["gaps"].items()} == recurrent_state.AGENTS
    assert all(len(seeds) == 10 for gaps in record["gaps"].values() for seeds in gaps.values())


def test_a_drawing_of_windows_has_every_entry() -> None:
    drawing = draw_sequences(steps=6, starts=[0, 4], length=4, burn_in=3).svg()
    assert drawing.count(">–<") == 3 + 2
    assert drawing.count("fill-opacity") == 4 + 2
