"""Learning curves: what is drawn of one run and of several seeds."""

import numpy as np
import pytest

from replay_tutorial.apex.config import Config
from replay_tutorial.apex.runs.learning_curve import band_of_the_mean, draw_curves, on_common_steps
from replay_tutorial.apex.runs.run_folder import RunFolder


def test_curves_meet_on_common_steps():
    steps, values = on_common_steps([([0, 100], [0, 10]), ([50, 200], [1, 1])])
    assert (steps[0], steps[-1]) == (50, 200)
    assert values[0][0] == 5.0
    assert values[0][-1] == 10.0  # keeps its last value
    assert set(values[1]) == {1.0}


def test_band_holds_the_mean_and_is_as_wide_as_theory_says():
    values = np.random.default_rng(1).normal(size=(30, 4))
    low, high = band_of_the_mean(values)
    mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(30)
    assert (low < mean).all() and (mean < high).all()
    # The bootstrap's normal limit; a tenth for 2,000 resamples and 30 values
    np.testing.assert_allclose(high - low, 2 * 1.96 * error, rtol=0.1)


def run_of(tmp_path, name, mean, **settings):
    config = Config(runs=tmp_path, **({"environment": "A-v0", "agent": "dqn"} | settings))
    run = RunFolder.create(config).path.rename(tmp_path / name)
    (run / "progress.csv").write_text("step,episodic_return\n10,20.0\n20,30.0\n")
    (run / "evaluations.csv").write_text(f"step,mean\n10,{mean}\n20,{mean + 5}\n")
    return run


def labels(tmp_path, monkeypatch, runs):
    from matplotlib.figure import Figure

    seen = []

    def save(figure, path, **_):
        seen.append(figure.axes[0].get_legend_handles_labels()[1])
        path.touch()

    monkeypatch.setattr(Figure, "savefig", save)
    draw_curves(runs, tmp_path / "picture.png")
    return seen[0]


def test_seeds_of_one_environment_and_agent_are_one_curve_whatever_their_folders_are_called(
    tmp_path, monkeypatch
):
    kinds = [("a", "dqn"), ("b__c__d", "dqn"), ("c", "dpg")]
    runs = [run_of(tmp_path, name, mean, agent=agent) for mean, (name, agent) in enumerate(kinds)]
    assert labels(tmp_path, monkeypatch, runs) == [
        "A-v0, dqn, mean of 2 runs, 95% band",
        "actors A-v0, dpg",
        "evaluation A-v0, dpg",
    ]
    assert labels(tmp_path, monkeypatch, runs[:1]) == ["actors", "evaluation"]


def test_several_environments_are_refused_whatever_their_folders_are_called(tmp_path):
    runs = [run_of(tmp_path, f"A-v0__{name}", 0, environment=name) for name in ("B-v0", "A-v0")]
    with pytest.raises(
        ValueError, match=r"different environments.*: A-v0, B-v0\. Plot one figure for each\."
    ):
        draw_curves(runs, tmp_path / "picture.png")
    assert not (tmp_path / "picture.png").exists()


def test_picture_is_a_picture_and_nothing_is_refused(tmp_path):
    runs = [run_of(tmp_path, f"run {seed}", seed) for seed in range(3)]
    assert draw_curves(runs, tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="runs is empty"):
        draw_curves([], tmp_path / "picture.png")
