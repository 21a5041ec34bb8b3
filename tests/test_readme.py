"""The README: its program learns, its picture shows the record of chapter 00, and it fits on one screen."""

import json
import re
import runpy
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import why_replay
from places import ROOT

from replay_tutorial import PrioritizedReplayBuffer

README = (ROOT / "README.md").read_text(encoding="utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def mean_return(folder: Path, seed: int) -> float:
    """Run 6,000 of the program's 20,000 steps, and return the mean return of the last ten episodes."""
    program = PROGRAM
    for text, other in {"20_001": "6_001", "seed(0)": f"seed({seed})", "seed=0": f"seed={seed}"}.items():
        assert text in program
        program = program.replace(text, other)
    (folder / "program.py").write_text(program, encoding="utf-8")
    threads = torch.get_num_threads()
    try:
        returns: deque[float] = runpy.run_path(str(folder / "program.py"))["env"].return_queue
    finally:
        torch.set_num_threads(threads)
    assert len(returns) == 10
    return float(np.mean(returns))


LEARNED = 150.0  # a random policy has 22


@pytest.mark.learns
def test_the_program_learns_cartpole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lowest of 40 seeds was 193. If one seed in 14 missed the bar, three would in 1 of 2,700 runs."""
    assert any(mean_return(tmp_path, seed) >= LEARNED for seed in range(3))
    assert capsys.readouterr().out.startswith("1,000 steps, mean of ten returns: ")


@pytest.mark.learns
@pytest.mark.trains
@pytest.mark.parametrize("fault", ["observations of other rows", "no reward"])
def test_the_program_learns_nothing_from_a_buffer_with_a_fault(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 seeds each, the highest mean returns were 23 and 66."""
    sample, rng = PrioritizedReplayBuffer.sample, np.random.default_rng(0)

    def faulty(self: PrioritizedReplayBuffer, *arguments: Any, **options: Any) -> Any:
        batch = sample(self, *arguments, **options)
        if fault == "no reward":
            batch["reward"][:] = 0
        else:
            batch["obs"][:] = rng.permutation(batch["obs"])
        return batch

    monkeypatch.setattr(PrioritizedReplayBuffer, "sample", faulty)
    assert mean_return(tmp_path, 0) < LEARNED


def test_the_picture_shows_the_record_of_chapter_00(tmp_path: Path) -> None:
    """Of the same matplotlib, the same file; of another, the same curves."""
    record = json.loads((ROOT / "chapters" / "records" / "why_replay.json").read_text(encoding="utf-8"))
    drawn = why_replay.draw(record, tmp_path / "why_replay.svg").read_text(encoding="utf-8")
    shown = (ROOT / "docs" / "assets" / "why_replay.svg").read_text(encoding="utf-8")
    lines = [re.findall(r'<path d="(M [^"]*)" clip-path', svg) for svg in (drawn, shown)]
    assert len(lines[0]) > 12 and lines[0] == lines[1]


def test_the_readme_fits_on_one_screen_beside_its_program() -> None:
    assert len(README.splitlines()) - len(PROGRAM.splitlines()) <= 52
    assert len(PROGRAM.splitlines()) <= 32
