"""Long runs: one that solves its environment, and some on pictures that are resumed four times."""

from dataclasses import replace

import pytest

from replay_course.steps.learning import one_file_dqn
from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.runs.checkpoint import newest_checkpoint
from replay_tutorial.apex.runs.run import resume, train
from replay_tutorial.apex.runs.run_folder import RunFolder
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.apex.storage import make_replay

CHANGES = {
    "capacity": 400,
    "replay_start": 100,
    "slack": 100,
    "batch_size": 4,
    "evaluation_episodes": 2,
    "confirmation_episodes": 2,
    "final_episodes": 2,
    "evaluation_interval": 20,
    "record_interval": 5,
    "hidden_sizes": (8,),
    "progress": False,
}


def test_cart_pole_is_solved(tmp_path):
    result = train(replace(preset("CartPole-v1"), seed=0, runs=tmp_path, progress=False))
    assert result.end == "solved"
    assert len(result.evaluation.returns) == 100
    assert result.evaluation.mean >= 475.0


def test_the_one_file_agent_solves_cart_pole_with_one_of_four_seeds():
    assert any(one_file_dqn.train(seed)[1][-1][1] >= one_file_dqn.SOLVED_AT for seed in range(4))


@pytest.mark.parametrize("actors", [1, 2])
def test_run_on_pictures_with_actors_is_resumed_four_times(tmp_path, actors):
    config = preset("small_environments:Film-v0")
    run = train(replace(config, runs=tmp_path, actors=actors, total_steps=600, **CHANGES))
    updates = run.updates
    for steps in (1_200, 1_800, 2_400, 3_000):
        run = resume(run.folder, total_steps=steps, progress=False)
        assert run.end == "budget spent" and run.steps >= steps and run.updates > updates
        updates = run.updates
        config = RunFolder.open(run.folder).config()
        with make_replay(config, spaces_of(config.environment), RunSeeds(config).replay) as replay:
            replay.load(newest_checkpoint(run.folder).path / "replay.npz")
            assert len(replay) == len(replay[:]["reward"]) > 0
