"""Runs of every kind of environment, in one process: what is shown and taken gets through the whole of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import small_environments  # noqa: F401 - registers MinAtar/Tiles-v0

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.run import resume, train

KINDS = {
    "Pendulum-v1": "dpg",  # flat observations, a Box of actions
    "small_environments:FromTen-v0": "dqn",  # actions that aren't counted from 0
    "small_environments:Nested-v0": "dqn",  # a Dict of observations
    "small_environments:ColourPictures-v0": "dqn",  # bytes through convolutions
    "small_environments:Grid-v0": "dqn",  # float64 observations
    "MinAtar/Tiles-v0": "dqn",  # small images of bits
    "small_environments:Levers-v0": "dpg",  # two numbers of different bounds, no end but the step limit
}
SMALL = {
    "actors": 0,
    "environments_per_actor": 2,
    "total_steps": 300,
    "replay_start": 100,
    "slack": 20,
    "batch_size": 16,
    "capacity": 1_000,
    "hidden_sizes": (16,),
    "policy_hidden_sizes": (16,),
    "evaluation_interval": 20,
    "evaluation_episodes": 2,
    "confirmation_episodes": 0,
    "final_episodes": 3,
    "evaluation_step_limit": 30,
    "record_interval": 10,
    "progress": False,
}


@pytest.mark.parametrize("environment", KINDS)
def test_environment_is_trained_on_from_the_first_step_to_the_result_and_resumed(environment, tmp_path):
    config = replace(preset(environment), runs=tmp_path, **SMALL)
    result = train(config)
    assert f"__apex_{KINDS[environment]}__0__" in result.folder.name
    settings = json.loads((result.folder / "config.json").read_text())["config"]
    assert settings["agent"] == KINDS[environment]
    assert result.updates >= 10
    assert np.isfinite(result.evaluation.returns).all()
    assert len(result.evaluation.returns) == 3
    endless = environment in ("Pendulum-v1", "small_environments:Levers-v0")
    assert result.evaluation.num_truncated == (3 if endless else 0)
    resumed = resume(result.folder, total_steps=400, progress=False)
    assert resumed.folder == result.folder
    assert 300 <= result.steps < 400 <= resumed.steps
    assert resumed.updates > result.updates
