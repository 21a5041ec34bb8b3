"""`python -m benchmarks cluster_tables`: a learner that samples from a server of tables, beside gateways.

Two processes send rows in chunks of 50, as the actors of a cluster do: to a gateway, which adds them to the
learner's shared memory, or to a server of tables at a port with CURVE, from which the learner samples.
CartPole's learner updates its network with batches of the preset; Atari's only sets priorities, of batches of
512. All processes share one machine, so batches cross no network.
"""

import multiprocessing
import os
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.cluster import (
    ATARI,
    BATCH,
    CARTPOLE,
    PRIORITIES,
    ROWS,
    SENDERS,
    arriving,
    full_context,
    learn,
    prepared_rows,
    settings,
)
from benchmarks.measuring.output import add_count, add_outputs, add_seconds, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from benchmarks.throughput import PATIENCE_SECONDS
from replay_course.number_tables import spread_text, table
from replay_course.timing import Spread
from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config, preset
from replay_tutorial.apex.context import Replay
from replay_tutorial.apex.parts import make_agent
from replay_tutorial.apex.runs.run import torch_threads
from replay_tutorial.cluster.connection import LOCAL, connect
from replay_tutorial.tables import (
    Client,
    Endpoint,
    Fifo,
    MinSize,
    Prioritized,
    RemoteServer,
    Sample,
    Server,
    Table,
    TrajectoryDataset,
)
from replay_tutorial.tables.remote.addresses import KEY_VARIABLE

RATE = 12_000.0  # rows per second that are sent, about those of the paper's 360 actors
IN_FLIGHT = 2  # batches that the learner requests in advance from the server
SPAWN = multiprocessing.get_context("spawn")
NAME = "replay"
STACK = 4
# figure → its row of the table
ROW_LABELS = {
    "cartpole_gateway": "CartPole, gateway: updates/s",
    "cartpole_tables": "CartPole, tables: updates/s",
    "cartpole_share": "tables / gateway, within each round",
    "cartpole_gateway_rows": "rows/s that arrived meanwhile, gateway",
    "cartpole_tables_rows": "rows/s that arrived meanwhile, tables",
    "atari_gateway": "Atari, gateway: batches of 512 per second",
    "atari_tables": "Atari, tables: batches of 512 per second",
    "atari_share": "tables / gateway, within each round",
    "atari_gateway_rows": "rows/s that arrived meanwhile, gateway",
    "atari_tables_rows": "rows/s that arrived meanwhile, tables",
}

Send = Callable[[], object]


def columns_of(config: Config, spaces: Spaces) -> dict[str, Any]:
    """Return the columns of a server: the fields of a row, or of an Atari step, with one frame."""
    rows = prepared_rows(config, spaces, 0)
    if spaces.stacked:
        rows["frame"] = rows.pop("obs")[:, 0]
        del rows["next_obs"]
    return {name: {"dtype": values.dtype, "shape": values.shape[1:]} for name, values in rows.items()}


def sender(client: Client, config: Config, spaces: Spaces, number: int) -> Send:
    """Return a function that inserts `ROWS` rows; each of Atari's frames is sent once."""
    rows = prepared_rows(config, spaces, number)
    if not spaces.stacked:
        return lambda: client.insert_batch(rows, {NAME: PRIORITIES})
    frames = rows.pop("obs")[:, 0]
    del rows["next_obs"]
    length = STACK + config.n_step
    writer = client.writer(num_keep_alive_refs=length, items_per_message=ROWS)

    def send() -> None:
        for i, frame in enumerate(frames):
            writer.append({"frame": frame, **{name: values[i] for name, values in rows.items()}})
            if writer.episode_steps < length:
                continue
            history = writer.history
            trajectory = {name: history[name][-1] for name in rows}
            trajectory["obs"] = history["frame"][-length : -config.n_step]
            trajectory["next_obs"] = history["frame"][-STACK:]
            writer.create_item(NAME, 1.0, trajectory)

    return send


def send_rows(address: str, config: Config, spaces: Spaces, number: int) -> None:
    """Send `RATE / SENDERS` rows per second, or as many as the server accepts, until killed."""
    send = sender(Client(RemoteServer(address, timeout=PATIENCE_SECONDS)), config, spaces, number)
    begin, sent = time.monotonic(), 0
    while True:
        if sent >= (time.monotonic() - begin) * RATE / SENDERS:
            time.sleep(0.001)
        else:
            send()
            sent += ROWS


def serve(config: Config, spaces: Spaces, ready: Connection) -> None:
    """Serve a full table until killed."""
    described = Table(
        NAME,
        sampler=Prioritized(config.alpha),
        remover=Fifo(),
        max_size=config.capacity,
        rate_limiter=MinSize(1),
    )
    server = Server([described], columns_of(config, spaces), config.capacity + 20 * ROWS)
    send = sender(Client(server), config, spaces, 0)
    for _ in range(config.capacity // ROWS + 1):
        send()
    with Endpoint(server, "127.0.0.1:0") as endpoint:
        ready.send(endpoint.address)
        time.sleep(3600.0)


@contextmanager
def server_and_senders(config: Config, spaces: Spaces) -> Generator[str]:
    """Start a server and the processes that send to it."""
    ours, theirs = SPAWN.Pipe()
    processes = [SPAWN.Process(target=serve, args=(config, spaces, theirs), daemon=True)]
    processes[0].start()
    try:
        address = ours.recv()
        for number in range(SENDERS):
            each = SPAWN.Process(target=send_rows, args=(address, config, spaces, number), daemon=True)
            processes.append(each)
            each.start()
        yield address
    finally:
        for process in processes:
            process.kill()
            process.join()


def weights_of(sample: Sample, beta: float) -> np.ndarray:
    """Return the importance weights of a sample, of which the largest is 1."""
    weights = (sample.info.table_size * sample.info.probabilities) ** -beta
    return (weights / weights.max()).astype(np.float32)


def rates_from_tables(
    config: Config, spaces: Spaces, update: Callable[[Any, Any], np.ndarray], batch: int, seconds: float
) -> tuple[float, float]:
    """Return the updates per second of a learner that samples from a server, and the rows that arrive."""
    with server_and_senders(config, spaces) as address, RemoteServer(address) as handle:
        dataset = TrajectoryDataset(handle, NAME, batch, in_flight=IN_FLIGHT, workers=IN_FLIGHT)
        batches = iter(dataset)
        before, until = handle.info()[NAME].inserts, time.monotonic() + PATIENCE_SECONDS
        while handle.info()[NAME].inserts < before + 20 * ROWS:
            if time.monotonic() >= until:
                raise RuntimeError(f"the rows didn't arrive within {PATIENCE_SECONDS:g} s")
            time.sleep(0.01)
        next(batches)
        begin, rows, calls = time.monotonic(), handle.info()[NAME].inserts, 0
        while (taken := time.monotonic() - begin) < seconds:
            sample = next(batches)
            priorities = update(sample.data, weights_of(sample, config.beta))
            handle.mutate_priorities(NAME, (sample.info.keys, priorities))
            calls += 1
        arrived = handle.info()[NAME].inserts - rows
        batches.close()
        return calls / taken, arrived / taken


def measure(rounds: int, seconds: float) -> dict[str, list[float]]:
    """Measure every figure once per round, and print each as soon as it is known."""
    figures: dict[str, list[float]] = {name: [] for name in ROW_LABELS}

    def note(name: str, gateway: tuple[float, float], tables: tuple[float, float]) -> None:
        for side, (updates, rows) in {"gateway": gateway, "tables": tables}.items():
            figures[f"{name}_{side}"].append(updates)
            figures[f"{name}_{side}_rows"].append(rows)
        figures[f"{name}_share"].append(tables[0] / gateway[0])
        print(name, *(f"{what} {values[-1]:,.2f}" for what, values in figures.items() if values), flush=True)

    cartpole = replace(preset("CartPole-v1"), slack=10**9, replay_start=1, progress=False)
    cartpole = replace(cartpole, environments_per_actor=1, send_interval=ROWS, actors=SENDERS)
    atari = settings(20_000)
    agent = make_agent(cartpole, CARTPOLE)

    def update(rows: Any, weights: Any) -> np.ndarray:
        return np.asarray(agent.update(rows, weights).priorities, np.float64)

    def update_from(replay: Replay) -> None:
        sample = replay.sample(cartpole.batch_size, cartpole.beta, timeout=0.0)
        assert sample is not None, "the limiter must not block"
        replay.update_priorities(sample.indexes, agent.update(sample.rows, sample.weights).priorities)

    def as_before(rows: Any, weights: Any) -> np.ndarray:
        return np.ones(BATCH)

    for _ in range(rounds):
        calls, rows, _ = arriving(full_context(cartpole, CARTPOLE), 1, seconds, RATE, update_from)
        note(
            "cartpole",
            (calls, rows),
            rates_from_tables(cartpole, CARTPOLE, update, cartpole.batch_size, seconds),
        )
        calls, rows, _ = arriving(full_context(atari, ATARI), 2, seconds, RATE, learn)
        note("atari", (calls, rows), rates_from_tables(atari, ATARI, as_before, BATCH, seconds))
    return figures


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table could not be written, else 0."""
    parser = new_parser("cluster_tables", "Compare a learner that samples from tables with gateways.")
    add_count(parser, "--rounds", 3, "number of rounds")
    add_seconds(parser, 5.0, "seconds per figure and round")
    add_outputs(parser, "cluster_tables")
    arguments = parser.parse_args(argv)
    os.environ[KEY_VARIABLE] = f"server-{secrets.token_hex(64)}"
    connect(LOCAL, preset("CartPole-v1").actors)
    import ray

    try:
        with torch_threads(1):
            figures = measure(arguments.rounds, arguments.seconds)
    finally:
        ray.shutdown()
    spreads = {name: Spread.of(np.array(values)) for name, values in figures.items()}
    about = (
        f"Medians of {arguments.rounds} rounds of {arguments.seconds:g} s, quartiles in brackets; {SENDERS} "
        f"processes send {RATE:,.0f} rows a second, if they can. The learner keeps {IN_FLIGHT} batches of "
        "the server in flight."
    )
    provenance = Provenance.of("cluster_tables", argv, ("torch", "pyzmq", "ray"))
    lines = table(
        ("figure", "measured"), [[ROW_LABELS[name], spread_text(spreads[name])] for name in spreads]
    )
    return write_results(arguments, "cluster_tables", provenance, {"figures": spreads}, lines, about)
