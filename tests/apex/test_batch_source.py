"""Samples ahead of time: the same rows, in order, and no waiting for a thread that has failed."""

import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_parts import context_of, parts

from replay_tutorial.agents.td_error import Transitions
from replay_tutorial.apex.batch_source import Prefetcher, batch_source
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Sample
from replay_tutorial.apex.runs.setup import UnusableDevice, check_device, new_setup
from replay_tutorial.local.shared_context import make_shared_context


def numbered(limit):
    """A drawer of batches that are their own number; none is due after the limit."""
    drawn = []

    def draw_next(timeout):
        if len(drawn) == limit:
            time.sleep(0.001)
            return None
        drawn.append(len(drawn))
        number = np.full(2, drawn[-1])
        return Sample(dict.fromkeys(Transitions._fields, number), number.astype(np.float32), number)

    return draw_next, drawn


def test_batches_come_in_order_as_tensors_and_none_is_lost():
    with closing(Prefetcher(numbered(20)[0], "cpu", ahead=3)) as prefetcher:
        for n in range(20):
            sample = prefetcher.next_sample(300.0)
            assert int(sample.indexes[0]) == n
            assert isinstance(sample.rows["obs"], torch.Tensor)
            assert sample.rows["reward"].tolist() == [n, n]
        assert prefetcher.next_sample(0.01) is None
    assert not prefetcher.thread.is_alive()


def test_thread_is_no_further_ahead_than_it_may_be():
    draw_next, drawn = numbered(100)
    prefetcher = Prefetcher(draw_next, "cpu", ahead=2)
    deadline = time.monotonic() + 300
    while len(drawn) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.3)
    assert len(drawn) == 3  # two that wait, and one in its hand
    prefetcher.close()  # also with a full queue
    assert not prefetcher.thread.is_alive()


def test_error_of_the_thread_is_the_learners():
    def fail(timeout):
        raise ArithmeticError("no rows")

    prefetcher = Prefetcher(fail, "cpu", ahead=2)
    with pytest.raises(ArithmeticError, match="no rows"):
        prefetcher.next_sample(300.0)
    prefetcher.close()


@pytest.mark.parametrize("prefetch", [0, 3])
def test_agent_learns_from_either_kind_of_sample(prefetch):
    context, agent = parts()
    context = replace(context, config=replace(context.config, batch_size=16, prefetch=prefetch))
    before = agent.parameters()
    with batch_source(context) as next_sample:
        for _ in range(3):
            sample = next_sample(300.0)
            update = agent.update(sample.rows, sample.weights)
            context.replay.update_priorities(sample.indexes, update.priorities)
    assert agent.updates == 6
    assert not np.array_equal(agent.parameters(), before)
    assert np.isfinite(agent.parameters()).all()


@pytest.mark.parametrize(
    ("device", "gpus", "reason"),
    [
        ("cuda", 0, "device is cuda, but torch finds no GPU"),
        ("cuda:7", 2, "device is cuda:7, but torch finds only 2 GPU"),
        ("cuda:2", 2, "numbered from 0"),
        ("cuda:", 2, "it must be cpu"),
        ("gpu", 2, "device is gpu; it must be cpu, cuda, cuda:1"),
    ],
)
def test_device_that_is_not_there_is_refused_before_anything_is_made(
    device, gpus, reason, monkeypatch, tmp_path
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(UnusableDevice, match=reason):
        new_setup(Config(device=device, runs=tmp_path), make_shared_context)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:1"])
def test_device_that_is_there_is_taken(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device(Config(device=device))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_travel_to_the_gpu():
    prefetcher = Prefetcher(numbered(50)[0], "cuda", ahead=1)
    samples = [prefetcher.next_sample(30.0) for _ in range(50)]
    prefetcher.close()
    assert {sample.rows["obs"].device.type for sample in samples} == {"cuda"}
    assert [sample.rows["obs"].tolist() for sample in samples] == [[n, n] for n in range(50)]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_those_that_the_replay_samples(prefetch):
    sizes = {"capacity": 64, "replay_start": 8, "batch_size": 4, "prefetch": prefetch}
    config = Config("small_environments:StackedPictures-v0", device="cpu", samples_per_insert=100.0, **sizes)
    context, plain = context_of(config), context_of(config)
    generator = np.random.default_rng(0)
    numbers = {name: generator.random(40) for name in ("reward", "discount")}
    numbers |= {"action": np.arange(40) % 2, "terminated": np.zeros(40), "truncated": np.zeros(40)}
    pictures = {name: generator.integers(0, 256, (40, 4, 40, 60), np.uint8) for name in ("obs", "next_obs")}
    priorities = generator.random(40)
    for each in (context, plain):
        assert each.replay.insert(numbers | pictures, priorities, timeout=0.0)
    with batch_source(context) as next_sample:
        for _ in range(8):
            drawn, expected = next_sample(5.0), plain.replay.sample(4, config.beta, 1.0)
            assert drawn is not None and expected is not None
            assert {*drawn.rows} >= {*Transitions._fields}
            for name, rows in drawn.rows.items():
                np.testing.assert_array_equal(rows, expected.rows[name])
