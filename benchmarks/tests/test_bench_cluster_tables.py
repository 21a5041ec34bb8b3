"""The benchmark of a learner that samples from tables: rows arrive, with the same frames as at a gateway."""

import numpy as np
import pytest

from benchmarks import cluster_tables
from benchmarks.cluster import ATARI, CARTPOLE, prepared_rows, settings
from replay_tutorial.tables import Client, Fifo, MinSize, Prioritized, Server, Table
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE


@pytest.mark.parametrize("spaces", [CARTPOLE, ATARI], ids=["CartPole", "Atari"])
def test_a_learner_updates_while_rows_arrive(spaces, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, f"server-{'1' * 128}")

    def update(rows, weights):
        assert {"obs", "next_obs", "action", "reward", "discount"} <= rows.keys()
        assert rows["obs"].shape == (8, *spaces.observation_shape)
        assert weights.shape == (8,)
        assert weights.max() == 1.0
        return np.ones(8)

    updates, rows = cluster_tables.rates_from_tables(settings(500), spaces, update, 8, 0.5)
    assert updates > 0
    assert rows > 0


def test_atari_items_are_the_rows_of_a_gateway():
    config, limiter = settings(500), MinSize(1)
    described = Table("replay", sampler=Prioritized(0.6), remover=Fifo(), max_size=99, rate_limiter=limiter)
    server = Server([described], cluster_tables.columns_of(config, ATARI), 999)
    send = cluster_tables.sender(Client(server), config, ATARI, 3)
    for _ in range(2):  # 50 items make a message
        send()
    items, rows = server.items("replay").data, prepared_rows(config, ATARI, 3)
    count = 50 - config.n_step - 3
    for name in ("obs", "next_obs"):
        assert np.array_equal(items[name][:count], rows[name][:count])
