"""Gateways and rows for the tests of the cluster, without a cluster; and how to grow one and look into it."""

import os
import subprocess
import traceback
from dataclasses import replace

import numpy as np
import pytest
from run_parts import context_of

from replay_tutorial.apex.config import preset
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.connection import STARTUP_TIMED_OUT
from replay_tutorial.cluster.gateway import Gateway, Report

NODE = {"num_cpus": 2, "object_store_memory": 100 << 20}  # of the Ray that the tests start
TIMEOUT_SECONDS = 240  # that anything may take on a busy machine


def add_node(cluster, **options):
    """Add one that may take long to start. Ray's own limit is 30 s and can't be set: it has three tries."""
    from ray._private.node import Node

    for tries_left in (2, 1, 0):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("RAY_gcs_server_port_wait_time_s", str(TIMEOUT_SECONDS))
                cluster.add_node(wait=False, **options)
            return cluster.wait_for_nodes(timeout=TIMEOUT_SECONDS)
        except Exception as error:  # Ray raises nothing narrower
            if not tries_left or STARTUP_TIMED_OUT not in str(error):
                raise
            # The node that Ray has given up still runs, and could join the cluster after all.
            for frame, _ in traceback.walk_tb(error.__traceback__):
                if isinstance(node := frame.f_locals.get("self"), Node):
                    node.kill_all_processes(check_alive=False, wait=True)


def processes_named(name, known=()):
    """Of this test's own Ray, or known to have been: other Rays' processes may lose their raylet, too."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    parents = {int(number): int(parent) for number, parent, *_ in rows}
    named = {int(number) for number, _, *command in rows if command and command[0].startswith(name)}
    return {number for number in named if number in known or parents.get(parents[number]) == os.getpid()}


def open_context(environment="CartPole-v1", **changes):
    """A context whose limiter admits all."""
    return made_context(environment, **({"slack": 10**9} | changes))


def made_context(environment="CartPole-v1", **changes):
    small = {"hidden_sizes": (8,), "capacity": 1000, "replay_start": 10, "environments_per_actor": 1}
    return context_of(replace(preset(environment), **(small | changes)))


def gateway_of(context):
    """A gateway, and the list of all that it shared."""
    shared = []

    def share(parameters):
        shared.append(parameters)
        return [len(shared) - 1]

    return Gateway(context, context.replay.limiter, share), shared


def numbered_rows(first, count):
    """Rows of CartPole that tell their number in every field but the flags, and a priority each."""
    numbers = np.arange(first, first + count)
    rows = {
        "obs": (numbers[:, None] + [0, 0.25, 0.5, 0.75]).astype(np.float32),
        "action": numbers % 2,
        "reward": numbers.astype(np.float32),
        "next_obs": (numbers[:, None] + [1, 1.25, 1.5, 1.75]).astype(np.float32),
        "terminated": numbers % 3 == 0,
        "truncated": numbers % 5 == 0,
        "discount": (numbers / 7).astype(np.float32),
    }
    return rows, (numbers % 11 + 0.5).astype(np.float32)


def numbered_chunk(context, first, count):
    return ChunkFormat(context.config, context.spaces).pack(*numbered_rows(first, count))


def assert_numbered(rows):
    """Fails unless every row is one of those, whole."""
    numbers = rows["reward"].reshape(-1).astype(np.int64)
    expected = {name: np.empty_like(rows[name]) for name in numbered_rows(0, 1)[0]}
    for i, number in enumerate(numbers):
        for name, values in numbered_rows(number, 1)[0].items():
            expected[name][i] = values[0]
    for name, values in expected.items():
        np.testing.assert_array_equal(rows[name], values, name)


def report(actor=0, restart_count=0, rows_lost=0, messages=()):
    return Report(actor, restart_count, rows_lost, tuple(messages))
