"""Two hosts of one machine: network namespaces (network_namespaces(7)) with a cable between them.

    with TwoHosts() as hosts:
        subprocess.Popen([*hosts.on("near"), sys.executable, "server.py"])  # listens at NEAR
        hosts.cut()

As a program, `python -m benchmarks.measuring.namespaces DELAY LOSS LISTEN TARGET` is a relay: it forwards
connections from one address to another, and delays each piece of data by DELAY seconds. A share LOSS of the
pieces is delayed by another 0.2 s, as after a lost packet. The kernels of containers often lack netem, which
would do the same.
"""

import asyncio
import random
import subprocess
import sys
import time
from typing import Self

NEAR, FAR = "10.9.0.1", "10.9.0.2"
RESEND_SECONDS = 0.2  # until TCP sends a lost packet again
SETUP = f"""
set -e
ip link set lo up
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
for name in near far; do ip netns add $name; ip -n $name link set lo up; done
ip link add cable netns near type veth peer name cable netns far
ip -n near addr add {NEAR}/24 dev cable
ip -n far addr add {FAR}/24 dev cable
for name in near far; do ip -n $name link set cable up; done
echo ready
exec cat
"""


class TwoHosts:
    """The hosts `near` and `far` at `NEAR` and `FAR`; `with` creates them. Linux with iproute2 only."""

    def __enter__(self) -> Self:
        """Create the namespaces, which live until the end of `with`, or as long as a process in them."""
        command = ["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", SETUP]
        self._holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            reason = self._holder.stderr.read().strip()
            self.__exit__()
            raise RuntimeError(f"network namespaces can't be created here: {reason}")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the namespaces."""
        self._holder.communicate()

    def _inside(self) -> list[str]:
        return [
            *("nsenter", f"--target={self._holder.pid}", "--user", "--preserve-credentials", "--mount"),
            "--net",
        ]

    def on(self, host: str) -> list[str]:
        """Return what precedes a command that runs on a host."""
        return [*self._inside(), "ip", "netns", "exec", host]

    def cut(self) -> None:
        """Cut the cable: messages are lost, and neither side gets an error."""
        self._set_link("down")

    def mend(self) -> None:
        """Connect the cable again."""
        self._set_link("up")

    def _set_link(self, state: str) -> None:
        command = ["ip", "-n", "near", "link", "set", "cable", state]
        subprocess.run([*self._inside(), *command], check=True)

    def has_netem(self, delay: float, loss: float) -> bool:
        """Delay packets of `near`, and drop a share of them, if the kernel can; return whether it can."""
        netem = f"tc qdisc add dev cable root netem delay {1000 * delay:g}ms loss {100 * loss:g}%"
        command = [*self.on("near"), *netem.split()]
        return not subprocess.run(command, check=False, capture_output=True).returncode


def relay_command(delay: float, loss: float, listen: str, target: str) -> list[str]:
    """Return the command of a relay between two addresses, HOST:PORT."""
    return [sys.executable, "-m", "benchmarks.measuring.namespaces", f"{delay}", f"{loss}", listen, target]


async def relay(delay: float, loss: float, listen: str, target: str) -> None:
    """Pass on bytes in both directions."""

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(due - time.monotonic())
                sink.write(data)
                if not data:
                    return sink.close()

        delivering = asyncio.create_task(deliver())
        data = b"x"
        while data:
            try:
                data = await source.read(1 << 16)
            except OSError:
                data = b""
            late = RESEND_SECONDS if random.random() < loss else 0.0
            queue.put_nowait((time.monotonic() + delay + late, data))
        await delivering

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(*target.rsplit(":", 1))
        except OSError:
            return writer.close()
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    host, _, port = listen.rpartition(":")
    async with await asyncio.start_server(serve, host, int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(float(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
