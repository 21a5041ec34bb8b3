"""`python -m benchmarks transports`: a small request and its answer, through sockets, ZeroMQ and gRPC.

A server process answers each request of 64 bytes with 5,000 bytes; this process waits for the answer before
it sends the next request. All transports are measured in turn. gRPC is skipped if grpcio isn't installed.
"""

import itertools
import multiprocessing
import os
import socket
import struct
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import zmq

from benchmarks.measuring.output import add_count, add_outputs, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import spread_text, table
from replay_course.timing import Spread

REQUEST, ANSWER = bytes(64), bytes(5000)
CALLS = 200  # in a round
BASE = "ZeroMQ, tcp with CURVE"  # the ratios refer to it
SPAWN = multiprocessing.get_context("spawn")
HEADER = struct.Struct("<I")

Call = Callable[[bytes], bytes]


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Receive this number of bytes; raises EOFError at the end of the connection."""
    parts = bytearray()
    while len(parts) < size:
        if not (data := connection.recv(size - len(parts))):
            raise EOFError
        parts += data
    return bytes(parts)


def receive_frame(connection: socket.socket) -> bytes:
    """Receive a frame: its length, then its bytes."""
    return receive_exactly(connection, *HEADER.unpack(receive_exactly(connection, HEADER.size)))


def serve_socket(kind: str, folder: str, ready: Connection) -> None:
    """Answer the frames of a connection."""
    if kind == "unix":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/socket")
        listener.listen()
        ready.send(f"{folder}/socket")
    else:
        listener = socket.create_server(("127.0.0.1", 0))
        ready.send(listener.getsockname())
    connection, _ = listener.accept()
    if kind == "tcp":
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        receive_frame(connection)
        connection.sendall(HEADER.pack(len(ANSWER)) + ANSWER)


@contextmanager
def connect_socket(address: Any) -> Generator[Call]:
    """Connect to `serve_socket`."""
    is_path = isinstance(address, str)
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as connection:
        connection.connect(address)
        if not is_path:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call(request: bytes) -> bytes:
            connection.sendall(HEADER.pack(len(request)) + request)
            return receive_frame(connection)

        yield call


def serve_zmq(kind: str, folder: str, ready: Connection) -> None:
    """Answer messages; with CURVE, the server has a key pair, and each client one of its own."""
    router = zmq.Context.instance().socket(zmq.ROUTER)
    public = b""
    if kind == "curve":
        public, router.curve_secretkey = zmq.curve_keypair()
        router.curve_server = True
    router.bind(f"ipc://{folder}/zmq" if kind == "ipc" else "tcp://127.0.0.1:*")
    ready.send((router.LAST_ENDPOINT.rstrip(b"\0").decode(), public))
    while True:
        client, _ = router.recv_multipart()
        router.send_multipart([client, ANSWER])


@contextmanager
def connect_zmq(address: tuple[str, bytes]) -> Generator[Call]:
    """Connect to `serve_zmq`."""
    url, server_public = address
    with zmq.Context.instance().socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        if server_public:
            dealer.curve_serverkey = server_public
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.connect(url)

        def call(request: bytes) -> bytes:
            dealer.send(request)
            return dealer.recv()

        yield call


def serve_grpc(_: str, folder: str, ready: Connection) -> None:
    """Answer unary calls and streams of bytes."""
    import grpc

    def answer(request: bytes, context: Any) -> bytes:
        return ANSWER

    def answers(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        return (ANSWER for _ in requests)

    handlers = {
        "unary": grpc.unary_unary_rpc_method_handler(answer),
        "stream": grpc.stream_stream_rpc_method_handler(answers),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Server", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ready.send(f"127.0.0.1:{port}")
    server.wait_for_termination()


@contextmanager
def connect_grpc(kind: str, address: str) -> Generator[Call]:
    """Connect to `serve_grpc`."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        if kind == "unary":
            yield channel.unary_unary("/Server/unary")
            return
        requests = SimpleQueue[bytes | None]()
        answers = channel.stream_stream("/Server/stream")(iter(requests.get, None))

        def call(request: bytes) -> bytes:
            requests.put(request)
            return next(answers)

        yield call
        requests.put(None)


# name → server and its kind, and how a client connects
TRANSPORTS: dict[str, tuple[Any, str, Callable[[Any], AbstractContextManager[Call]]]] = {
    "Unix socket by hand": (serve_socket, "unix", connect_socket),
    "TCP socket by hand": (serve_socket, "tcp", connect_socket),
    "ZeroMQ, ipc": (serve_zmq, "ipc", connect_zmq),
    "ZeroMQ, tcp": (serve_zmq, "tcp", connect_zmq),
    BASE: (serve_zmq, "curve", connect_zmq),
    "gRPC, stream": (serve_grpc, "stream", partial(connect_grpc, "stream")),
    "gRPC, unary": (serve_grpc, "unary", partial(connect_grpc, "unary")),
}


def server_time(process: int) -> float:
    """Return the processor time of another process in seconds, from Linux's /proc, to a hundredth."""
    after_name = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, after_name[11:13])) / os.sysconf("SC_CLK_TCK")


def timed(call: Call, calls: int) -> tuple[float, float]:
    """Return the median duration of these calls and this process's time for each, in µs."""
    took = np.empty(calls)
    before = process_time()
    for i in range(calls):
        start = perf_counter()
        call(REQUEST)
        took[i] = perf_counter() - start
    return 1e6 * float(np.median(took)), 1e6 * (process_time() - before) / calls


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if it can't run here or can't write the table, else 0."""
    parser = new_parser("transports", "Compare sockets, ZeroMQ and gRPC for small requests.")
    add_count(parser, "--rounds", 40, f"rounds of {CALLS} calls of each transport")
    add_outputs(parser, "transports")
    arguments = parser.parse_args(argv)
    if sys.platform != "linux":
        print("transports reads processor times from /proc; run it on Linux", file=sys.stderr)
        return 1
    provenance = Provenance.of("transports", argv, ("pyzmq", "grpcio"))
    provenance.versions["libzmq"] = zmq.zmq_version()
    names = [name for name in TRANSPORTS if "gRPC" not in name or find_spec("grpc")]
    with ExitStack() as stack:
        calls: dict[str, Call] = {}
        servers: dict[str, int] = {}
        for name in names:
            serve, kind, connect = TRANSPORTS[name]
            folder = stack.enter_context(TemporaryDirectory())
            ours, theirs = SPAWN.Pipe()
            process = SPAWN.Process(target=serve, args=(kind, folder, theirs), daemon=True)
            process.start()
            stack.callback(process.kill)
            calls[name] = stack.enter_context(connect(ours.recv()))
            assert len(calls[name](REQUEST)) == len(ANSWER)
            servers[name] = process.pid or 0
        sleep(1.0)
        before = {name: server_time(process) for name, process in servers.items()}
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for _, name in itertools.product(range(arguments.rounds), names):
            measured[name].append(timed(calls[name], CALLS))
        serving = {
            name: 1e6 * (server_time(process) - before[name]) / (CALLS * arguments.rounds)
            for name, process in servers.items()
        }
    rows: list[list[str]] = []
    record: dict[str, object] = {}
    base = np.array(measured[BASE])[:, 0]
    for name in names:
        latency, client = np.array(measured[name]).T
        figures = {
            "latency": Spread.of(latency),
            "client_time": Spread.of(client),
            "server_time": serving[name],
            "ratio": Spread.of(latency / base),
        }
        texts = [spread_text(figures["latency"]), f"{Spread.of(client).median:.0f} + {serving[name]:.0f}"]
        rows.append([name, *texts, spread_text(figures["ratio"])])
        record[name] = figures
    heads = ["transport", "latency, µs", "processor time of client + server, µs", f"latency / {BASE}"]
    about = (
        f"A request of {len(REQUEST)} bytes and an answer of {len(ANSWER):,}, between two processes. Medians "
        f"of {arguments.rounds} rounds of {CALLS} calls, quartiles in brackets; ratios are computed within "
        "each round, of the medians of its calls."
    )
    body = {"rounds": arguments.rounds, "calls": CALLS, "transports": record}
    return write_results(arguments, "transports", provenance, body, table(heads, rows), about)
