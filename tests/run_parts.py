"""A learner's side of a run with something behind it, and short runs with their records."""

import csv
import json
import zipfile
from dataclasses import replace

import numpy as np
import torch

from replay_tutorial.agents.environments import spaces_of
from replay_tutorial.apex.config import preset
from replay_tutorial.apex.context import InitialCounters
from replay_tutorial.apex.parts import make_agent, make_policy
from replay_tutorial.apex.runs.files import checksum_of
from replay_tutorial.local.shared_context import make_shared_context

SHORT = {
    "total_steps": 3_000,
    "hidden_sizes": (32,),
    "evaluation_interval": 50,
    "evaluation_episodes": 5,
    "record_interval": 20,
    "confirmation_episodes": 5,
    "final_episodes": 10,
    "progress": False,
}


def short(tmp_path, environment="CartPole-v1", **changes):
    """The settings of a run of a few seconds."""
    return replace(preset(environment), runs=tmp_path, **(SHORT | changes))


def records(path):
    """The lines of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rewrite_rows(checkpoint, change):
    """Write the parts of a checkpoint's replay once more, as `change` makes them, and their checksum."""
    rows, manifest = checkpoint / "replay.npz", checkpoint / "manifest.json"
    with zipfile.ZipFile(rows) as file:
        written = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(rows, "w") as file:
        for name, part in written.items():
            file.writestr(name, change(name, part))
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {rows.name: checksum_of(rows)}))


def parts(seed=0, rows=50):
    """Context and agent, with some rows and some updates behind them."""
    config = replace(
        preset("CartPole-v1"), hidden_sizes=(8,), capacity=max(100, rows), replay_start=10, seed=seed
    )
    context = context_of(config)
    torch.manual_seed(seed)
    agent = make_agent(config, context.spaces)
    generator = np.random.default_rng(seed)
    numbers = {"obs": generator.random((rows, 4)), "next_obs": generator.random((rows, 4))}
    numbers |= {name: generator.random(rows) for name in ("reward", "discount")}
    ends = {"action": np.arange(rows) % 2, "terminated": np.zeros(rows), "truncated": np.zeros(rows)}
    assert context.replay.insert(numbers | ends, generator.random(rows), timeout=0.0)
    context.parameters.publish(agent.parameters(), agent.updates)
    learn(context, agent)
    return context, agent


def context_of(config):
    """An empty context in shared memory."""
    spaces = spaces_of(config.environment)
    return make_shared_context(config, spaces, make_policy(config, spaces).parameter_count, InitialCounters())


def learn(context, agent, updates=3):
    """Make some updates; return what they came to."""
    results = []
    for _ in range(updates):
        rows, weights, indexes = context.replay.sample(16, beta=0.4, timeout=300.0)
        update = agent.update(rows, weights)
        context.replay.update_priorities(indexes, update.priorities)
        results += [update.priorities.tolist(), indexes.tolist(), agent.parameters().tolist()]
    return results
