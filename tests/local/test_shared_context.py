"""The context in shared memory: its replay holds all its images, its ends do what roles rely on."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from run_parts import context_of, parts

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import InitialCounters
from replay_tutorial.apex.storage import make_replay, n_step_windows
from replay_tutorial.local.shared_context import make_shared_context

STACK, SIDE, EPISODE = 3, 36, 50  # pictures in an observation, pixels, steps


@pytest.mark.parametrize("stacked", [False, True], ids=["colours", "stack"])
def test_replay_of_pictures_keeps_all_its_rows_when_it_has_gone_round(stacked):
    spaces = Spaces(Box(0, 255, (STACK, SIDE, SIDE), np.uint8), Discrete(2), stacked)
    config = replace(Config(), capacity=2_000, environments_per_actor=1)
    windows, memory = n_step_windows(config, spaces), make_replay(config, spaces, np.random.SeedSequence(0))
    generator = np.random.default_rng(0)
    fresh = 1 if stacked else STACK  # pictures that each step brings
    for _ in range(2 * config.capacity // EPISODE):
        pictures = generator.integers(256, size=(fresh * EPISODE + STACK, SIDE, SIDE), dtype=np.uint8)
        seen = np.stack([pictures[fresh * step : fresh * step + STACK] for step in range(EPISODE + 1)])
        rows = windows.add(
            0,
            obs=seen[:-1],
            action=np.zeros(EPISODE, np.int64),
            reward=np.ones(EPISODE, np.float32),
            next_obs=seen[1:],
            terminated=np.arange(EPISODE) == EPISODE - 1,
            truncated=np.zeros(EPISODE, np.bool_),
        )
        memory.add(**rows, priorities=np.ones(EPISODE))
    assert len(memory[:]["reward"]) == config.capacity
    np.testing.assert_array_equal(memory[:]["next_obs"][-1], seen[-1])


def test_replay_inserts_and_samples_only_as_the_ratio_allows():
    context, _ = parts()
    size, samples = context.config.batch_size, context.counters.samples
    assert context.replay.sample(size, 0.4, timeout=0.0) is not None
    assert context.counters.samples == samples + size
    context.replay.limiter.sampled(1_000_000)  # far ahead of the actors
    assert context.replay.sample(size, 0.4, timeout=0.01) is None
    context.replay.limiter.inserted(1_000_000)  # and now far behind them
    rows, steps = context.replay.buffer[:], context.counters.steps
    assert not context.replay.insert(rows, np.ones(50, np.float32), timeout=0.01)
    assert context.counters.steps == steps


def test_parameters_come_with_the_update_that_made_them():
    parameters = context_of(Config()).parameters
    count = parameters._record["parameters"].shape[0]
    assert parameters.pull() is None
    for version, update in enumerate((0, 25, 50), start=1):
        parameters.publish(np.full(count, update, np.float32), update)
        published = parameters.pull(version - 1)
        assert published[:2] == (version, update)
        assert set(published.parameters.tolist()) == {update}
        assert parameters.pull(version) is None


def test_counters_of_a_resumed_run_go_on():
    config, spaces = Config(), Spaces(Box(-1, 1, (4,)), Discrete(2))
    context = make_shared_context(config, spaces, 3, InitialCounters(update=7, steps=2_000, samples=500))
    assert (context.counters.updates, context.counters.steps, context.counters.samples) == (7, 2_000, 500)
    assert context.counters.is_update_due(config.batch_size)
    lost = InitialCounters(update=7, steps=2_000, lost_steps=2_000)
    assert not make_shared_context(config, spaces, 3, lost).counters.is_update_due(1)


def test_stop_is_heard_by_all_and_a_last_evaluation_is_not_taken_back():
    context = context_of(Config())
    assert (context.stop.requested, context.stop.last_evaluation) == (False, False)
    context.stop.request(last_evaluation=True)
    context.stop.request()
    assert (context.stop.requested, context.stop.last_evaluation) == (True, True)
