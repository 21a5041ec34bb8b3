"""Flags: presets, files of settings and the command line, in this order."""

from dataclasses import replace
from pathlib import Path

import pytest

from replay_tutorial.apex.config import preset
from replay_tutorial.apex.flags import read_config


def write(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return ["--config", str(path)]


def test_without_a_file_the_flags_change_the_preset():
    assert read_config([]) == preset("CartPole-v1")
    assert read_config(["Acrobot-v1", "--seed", "3"]) == replace(preset("Acrobot-v1"), seed=3)


def test_file_changes_the_preset_and_flags_change_both(tmp_path):
    file = write(
        tmp_path,
        'environment = "Acrobot-v1"\nseed = 3\nn_step = 5\nhidden_sizes = [7, 9]\ngamma = 0.5\n'
        'convolutions = [[8, 6, 3], [16, 3, 1]]\nprogress = false\nruns = "elsewhere"\n'
        'device = "auto"\nsolved_at = -90.0\n',
    )
    others = {
        "convolutions": ((8, 6, 3), (16, 3, 1)),
        "hidden_sizes": (7, 9),
        "gamma": 0.5,
        "progress": False,
        "runs": Path("elsewhere"),
    }
    expected = replace(preset("Acrobot-v1"), seed=3, n_step=5, device="auto", solved_at=-90.0, **others)
    assert read_config(file) == expected
    assert read_config([*file, "--n-step", "1", "--progress"]) == replace(expected, n_step=1, progress=True)
    changed = replace(expected, convolutions=((4, 3, 2), (2, 1, 1)))
    assert read_config([*file, "--convolutions", *"432211"]) == changed
    assert read_config(["--config=" + file[1]]) == expected


def test_environment_of_the_command_line_wins_and_brings_its_preset(tmp_path):
    file = write(tmp_path, 'environment = "Acrobot-v1"\nseed = 3\n')
    assert read_config(["CartPole-v1", *file]) == replace(preset("CartPole-v1"), seed=3)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("sede = 3\nseed = 4\n", "sede"),
        ("[agent]\nseed = 4\n", "agent"),
        ('seed = "three"\n', "seed"),
        ("gamma = 2.0\n", "gamma"),
        ("progress = 3\n", "progress"),
        ('seed = [1, "Acrobot-v1"]\n', "seed"),
        ("hidden_sizes = 3\n", "hidden_sizes"),
        ("convolutions = [16, 3, 1]\n", "convolutions"),
        ("convolutions = [[16, 3]]\n", "convolutions"),
        ("seed = \n", "run.toml"),
        (None, "none.toml"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_by_its_name(tmp_path, capsys, text, named):
    with pytest.raises(SystemExit) as end:
        read_config(["--config", str(tmp_path / "none.toml")] if text is None else write(tmp_path, text))
    assert end.value.code == 2
    assert named in capsys.readouterr().err
