"""Files of a run that were cut, changed or are another program's: the error says which, and why."""

import json
import math
import re

import numpy as np
import pytest
import torch
from run_parts import parts

from replay_tutorial.agents.evaluation import Evaluation
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.evaluator import Candidate
from replay_tutorial.apex.runs.checkpoint import (
    DamagedCheckpoint,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)
from replay_tutorial.apex.runs.files import DamagedFile, read_columns
from replay_tutorial.apex.runs.run_folder import RunFolder, RunInUse, lock_run
from replay_tutorial.buffers.runtime.atomic_file import replace_file


def flipped(raw, generator):
    """The same bytes but for one bit."""
    bit = int(generator.integers(8 * len(raw)))
    changed = bytearray(raw)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize(
    "name", ["state.json", "agent.pt", "policy.pt", "actor.npz", "replay.npz", "manifest.json"]
)
def test_no_flipped_bit_of_a_checkpoint_goes_unnoticed(tmp_path, name):
    context, agent = parts()
    RunFolder(tmp_path).save_policy(Candidate(agent.parameters(), 7, Evaluation(np.arange(3.0))))
    serial = {"arrays": {"observations": np.zeros(30)}, "actor": {"seeds": [1]}}
    for _ in range(2):
        save_checkpoint(tmp_path, context, agent, serial)
        context.replay.limiter.inserted(10)
    path = tmp_path / "checkpoints" / "0002_step_60"
    whole, generator = (path / name).read_bytes(), np.random.default_rng(0)
    for _ in range(50):
        (path / name).write_bytes(flipped(whole, generator))
        with pytest.raises(DamagedCheckpoint, match="0002_step_60"):
            load_checkpoint(path)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint.step == 50
    assert name in checkpoint.damaged[0]
    (path / name).write_bytes(whole)
    assert newest_checkpoint(tmp_path).step == 60


def test_no_flipped_bit_of_a_policy_changes_it_unnoticed(tmp_path):
    folder = RunFolder(tmp_path)
    best = Candidate(np.linspace(0, 1, 300, dtype=np.float32), 7, Evaluation(np.arange(3.0)))
    path, generator, noticed = folder.save_policy(best), np.random.default_rng(0), 0
    whole = path.read_bytes()
    for _ in range(300):
        path.write_bytes(flipped(whole, generator))
        try:
            read = folder.load_best()
        except DamagedFile as error:
            assert "policy.pt" in str(error)
            assert "weights_only" not in str(error)
            noticed += 1
            continue
        np.testing.assert_array_equal(read.parameters, best.parameters)  # a bit between the parts
        np.testing.assert_array_equal(read.confirmation.returns, best.confirmation.returns)
        assert read.step == best.step
    assert noticed > 200


@pytest.mark.parametrize("contents", [b"", b"junk", b"PK\x03\x04", "tensor", "list"])
def test_policy_that_is_none_is_told(tmp_path, contents):
    path = tmp_path / "policy.pt"
    if isinstance(contents, bytes):
        path.write_bytes(contents)
    else:
        torch.save({"tensor": torch.zeros(3), "list": {"step": 3}}[contents], path)
    remedy = r"\. Restore it from a backup, or from the newest folder in checkpoints/\."
    with pytest.raises(DamagedFile, match=rf"^{re.escape(str(path))} .*{remedy}$"):
        RunFolder(tmp_path).load_best()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 10**6, "not valid JSON"),
        ("[]", "contains a list"),
        ("{}", "has no settings"),
        ('{"config": 3}', "has no settings"),
        ('{"config": {}, "resumed": 3}', '"resumed" is 3, not a list'),
        ('{"config": {"gama": 0.9}}', "unknown settings: gama"),
        ('{"config": {"gamma": "much"}}', "gamma is 'much'"),
        ('{"config": {"gamma": 7}}', "gamma is 7"),
        ('{"config": {"actors": true}}', "actors is True"),
        ('{"config": {"actors": 1.5}}', "actors is 1.5"),
        ('{"config": {"hidden_sizes": [1, "a"]}}', "hidden_sizes is"),
        ('{"config": {"optimizer": "sgd"}}', "optimizer is 'sgd'"),
    ],
)
def test_settings_that_are_none_are_told(tmp_path, text, reason):
    (tmp_path / "config.json").write_text(text)
    line = rf"^.*config\.json .*{re.escape(reason)}.*(?<!\.)\. Correct it, or restore it from a backup\.$"
    with pytest.raises(DamagedFile, match=line):
        RunFolder.open(tmp_path).config()


@pytest.mark.parametrize("target", [7, 7.5, -1e-300, math.inf, -math.inf])
def test_every_setting_comes_back_as_it_was_from_json_that_everybody_reads(tmp_path, target):
    config = Config(runs=tmp_path, seed=3, solved_at=target, prefetch=None, agent="dqn")
    folder = RunFolder.create(config)
    assert folder.config() == config

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    json.loads((folder.path / "config.json").read_text(), parse_constant=refuse)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column 'step', 'mean'"),
        ("step,other\n1,2\n", "no column 'mean'"),
        ("step,mean\n1,x\n", "not a number"),
        ("step,mean\n1,2\nx,\n", "a cell of row 2 is not a number"),
        ("step,mean\n1,2\n2\n3,4\n", "row 2 has 1 columns instead of 2"),
        ("step,mean\n\0\0\0\0\0\0\n3,4\n", "null bytes"),
        ("step,mean\n1,2\n\0\0\0", "null bytes"),  # blocks that the disk never got
        ("step,mean\n\x80\xff\n", "UnicodeDecodeError"),
        ("half of a header", "no column 'step', 'mean'"),
    ],
)
def test_curve_that_is_none_is_told(tmp_path, text, reason):
    path = tmp_path / "evaluations.csv"
    path.write_bytes(text.encode("latin-1"))
    line = rf"^.*evaluations\.csv .*{re.escape(reason)}.* Restore it from a backup, or remove it: .*$"
    with pytest.raises(DamagedFile, match=line):
        read_columns(path, {"step": int, "mean": float})


@pytest.mark.parametrize("half", ["", "3", "3,c", "3,c,4", "3,c,4.7"])
def test_columns_are_read_where_they_have_values_without_a_last_line_that_is_half_written(tmp_path, half):
    path = tmp_path / "evaluations.csv"
    path.write_text(f"step,more,mean\n1,a,2.5\n2,b,\n3,c,4\n{half}")
    assert read_columns(path, {"step": int, "mean": float}) == [[1, 3], [2.5, 4.0]]


def test_folder_is_no_place_for_a_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; pass the path of a file"):
        replace_file(tmp_path, lambda unfinished: unfinished.write_text("x"))


def test_lock_ends_with_its_context(tmp_path):
    with lock_run(tmp_path), pytest.raises(RunInUse), lock_run(tmp_path):
        pass
    with pytest.raises(ArithmeticError), lock_run(tmp_path):
        raise ArithmeticError
    with lock_run(tmp_path):
        pass
