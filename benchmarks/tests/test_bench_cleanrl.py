"""CleanRL's script with our buffers: the changes of the page, the returns it prints, and equal parameters."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from benchmarks import cleanrl
from benchmarks.cleanrl import PRIORITIZED, UNIFORM
from replay_tutorial.agents.cleanrl import ReplayBuffer

TASK = replace(cleanrl.COMPARISON.tasks[0], steps=20, interval=10)
# The lines that the page changes, in a script that counts its steps instead of learning.
SCRIPT = """\
import sys
import torch
args = sys.argv[1:]
for global_step, r in [(2, 4.0), (9, 8.0), (10, 1.0)]:
    print(f"global_step={global_step}, episodic_return=[{r}]")
q_network = torch.nn.Linear(4, 2, bias=False)
q_network.weight.data[:] = torch.tensor([[0.0, 0, 0, 0], [0, 0, 1, 0]])
from cleanrl_utils.buffers import ReplayBuffer
"""


def test_curve_is_the_mean_return_of_the_episodes_that_ended_in_each_interval(tmp_path, monkeypatch):
    (tmp_path / "cleanrl").mkdir()
    (tmp_path / "cleanrl" / "dqn.py").write_text(SCRIPT)
    monkeypatch.setattr(cleanrl, "folder", lambda: tmp_path)
    run = cleanrl.train_once(TASK, UNIFORM, seed=3)
    assert run.curve == [6.0, 1.0]
    env, returns = gym.make("CartPole-v1"), []
    for seed in range(100):
        obs, ended, steps = env.reset(seed=seed)[0], False, 0
        while not ended:
            obs, _, *flags, _ = env.step(int(obs[2] > 0))
            ended, steps = any(flags), steps + 1
        returns.append(steps)
    assert run.score == pytest.approx(np.mean(returns))


def test_script_gets_the_seed_and_the_steps_and_the_import_of_our_buffer():
    (change, _, *_) = cleanrl.changes()
    names, _ = cleanrl.run_script(cleanrl.apply(change, SCRIPT), TASK, seed=3)
    assert names["ReplayBuffer"] is ReplayBuffer
    assert names["args"] == [
        *("--env-id", "CartPole-v1", "--total-timesteps", "20", "--seed", "3", "--no-cuda")
    ]


def test_script_without_the_lines_of_the_page_is_refused():
    with pytest.raises(ValueError, match="contain these lines of the page once"):
        cleanrl.apply(cleanrl.changes()[cleanrl.CHANGE[PRIORITIZED]], SCRIPT)


@pytest.mark.filterwarnings("ignore")  # of CleanRL and of the old gymnasium
def test_cleanrl_computes_the_same_parameters_with_our_buffer_if_both_sample_the_same_rows(monkeypatch):
    pytest.importorskip("cleanrl_utils", reason="needs CleanRL in PYTHONPATH, as in make lab TARGET=cleanrl")
    task = replace(TASK, steps=13_000)  # learning starts after 10,000, when the buffer is full

    def sample(self, batch_size):
        """Draw slots as CleanRL does: from NumPy's global random state."""
        stored = self.rows[:]  # oldest first
        slots = np.random.randint(0, len(self.rows), size=batch_size)
        np.random.randint(0, high=1, size=batch_size)
        ages = (slots - self.added) % len(self.rows)
        return self._samples({name: values[ages] for name, values in stored.items()}, None)

    def add(self, *step):
        self.added += 1
        our_add(self, *step)

    source = (cleanrl.folder() / "cleanrl" / "dqn.py").read_text()
    before = cleanrl.run_script(source, task, seed=1)[0]["q_network"].parameters()
    our_add, begin = ReplayBuffer.add, ReplayBuffer.__init__
    monkeypatch.setattr(ReplayBuffer, "added", 0, raising=False)
    monkeypatch.setattr(ReplayBuffer, "add", add)
    monkeypatch.setattr(ReplayBuffer, "sample", sample)
    monkeypatch.setattr(ReplayBuffer, "__init__", lambda *a, **options: begin(*a, **options, seed=0))
    changed = cleanrl.apply(cleanrl.changes()[cleanrl.CHANGE[UNIFORM]], source)
    after = cleanrl.run_script(changed, task, seed=1)[0]["q_network"].parameters()
    assert all(one.equal(other) for one, other in zip(before, after, strict=True))
