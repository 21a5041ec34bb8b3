"""Options that Python would convert silently: a word that counts as true, a seed that is a bool."""

import numpy as np
import pytest

from replay_tutorial import (
    EpisodeReplayBuffer,
    MPPrioritizedReplayBuffer,
    MPReplayBuffer,
    NStepWindow,
    PrioritizedReplayBuffer,
    ReplayBuffer,
    SequenceReplayBuffer,
    laber,
)

STEP = {"obs": {}, "reward": {}, "next_obs": {}, "terminated": {"dtype": bool}}
TRANSITIONS = [ReplayBuffer, PrioritizedReplayBuffer, MPReplayBuffer, MPPrioritizedReplayBuffer]


@pytest.mark.parametrize("wrong", ["no", 1, None, 0.0])
def test_an_option_that_is_true_or_false_accepts_nothing_else(wrong):
    for kind in TRANSITIONS:
        for option in ("check_finite", "count_samples"):
            with pytest.raises(TypeError, match=rf"{option} must be True or False, not {wrong!r}"):
                kind(8, STEP, **{option: wrong})
    for make, option in (
        (lambda **o: EpisodeReplayBuffer(20, STEP, **o), "check_finite"),
        (lambda **o: SequenceReplayBuffer(20, STEP, 3, **o), "online"),
        (lambda **o: NStepWindow(STEP, 3, **o), "check_finite"),
    ):
        with pytest.raises(TypeError, match=f"{option} must be True or False"):
            make(**{option: wrong})
    assert len(ReplayBuffer(8, STEP, check_finite=np.bool_(True))) == 0


@pytest.mark.parametrize("kind", [*TRANSITIONS, EpisodeReplayBuffer])
def test_a_seed_is_no_bool(kind):
    with pytest.raises(TypeError, match="seed must be an integer or None, not True"):
        kind(20, STEP, seed=True)
    buffer = kind(20, STEP)
    with pytest.raises(TypeError, match="seed must be an integer or None, not False"):
        buffer.reseed(False)


def test_laber_requires_a_generator():
    with pytest.raises(TypeError, match=r"rng must be a generator, .*, not 0"):
        laber([1.0, 2.0], 1, 0)  # type: ignore[arg-type]
