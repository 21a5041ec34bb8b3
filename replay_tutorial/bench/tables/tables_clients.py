"""Other processes of this machine, each with a connection to one server.

All of them write at once, and then all of them draw batches; what is counted are the items of all together.

Left out: other machines.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from replay_tutorial.bench.tables.tables_rows import Goal, Row
from replay_tutorial.bench.tables.tables_sides import Side, both_sides

PROCESSES = 4
BATCH = 32
# the operation, how it is asked for, and how many items a call moves
OPERATIONS = (("write", "write", 1), (f"sample {BATCH}", "sample", BATCH))
GOAL = Goal(times=3.0)


def items_a_second(clients: Sequence[Side], do: str, size: int, seconds: float) -> float:
    """Let all clients of a server work at once; return the items that they move in a second."""
    for client in clients:
        client.order({"kind": "rate", "do": do, "size": size, "seconds": seconds})
    return size * sum(float(client.answer()["rate"]) for client in clients)


def client_rows(names: Sequence[str], slots: int, seconds: float) -> list[Row]:
    """Measure processes that call a server of each side, the sides in turns."""
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        servers = stack.enter_context(both_sides(names, "uniform", serve=str(folder / "socket")))
        clients = {
            server.name: [
                stack.enter_context(closing(Side(server.name, "uniform", address=server.address)))
                for _ in range(PROCESSES)
            ]
            for server in servers
        }
        for operation, do, size in OPERATIONS:
            rates = {name: np.empty(slots) for name in clients}
            for slot in range(slots):
                for name, callers in clients.items():
                    rates[name][slot] = items_a_second(callers, do, size, seconds)
            rows.append(
                Row.of(f"{operation} from {PROCESSES} processes, uniform", "items a second", rates, GOAL)
            )
            print(" · ".join(rows[-1].cells()), flush=True)
    return rows
