"""Several hosts on one machine: each has a network and a folder of its own, and can die.

A host is a network namespace (network_namespaces(7)) with one cable to a switch, which is a bridge in a
namespace of its own. The machine's own network gets no interface, and nothing has a name that two harnesses
could share. However the harness ends, its hosts end with it: `holder.py` says why.

    with Hosts(3) as hosts:
        hosts.start_ray({0: 0, 1: 2, 2: 2})  # the head is at 10.99.0.1:6379, and has no processor for tasks
        hosts.run(0, [sys.executable, "train.py"]).wait()
        hosts.cut(2)

Left out: memory, file system and process numbers, which all hosts share; delays and losses on the cables.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from replay_tutorial.bench.cluster.holder import END_SECONDS, Holder, command_line, end, enter_user_namespace

HEAD_PORT = 6379
START_SECONDS = 120.0  # for Ray on all hosts; three took 9 s on two idle cores, 50 s on very busy ones
OBJECT_STORE_BYTES = 256 << 20  # a host; Ray would take a third of the machine for each of them
# A dead host is noticed after 2 to 3 s, a cut cable after 9 s, instead of 14 s and a minute. Not below: an
# overloaded host would be taken for dead.
RAY_SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # listen on the host's address, whatever this process has
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


class Hosts:
    """Hosts 0, 1, ... at 10.99.0.1, 10.99.0.2, ..., addresses that only they know; a context manager.

    Attributes:
        environment: What `run` and `start_ray` add to the environment: Ray's settings, and a token that only
            these hosts have.
    """

    def __init__(self, count: int = 3, *, keep_folders: bool = False) -> None:
        """Describe the hosts; `with` makes them.

        Args:
            count: How many, 1 to 200.
            keep_folders: Leave the hosts' folders behind, which hold Ray's logs.

        Raises:
            ValueError: If there can't be so many.
        """
        if not 1 <= count <= 200:
            raise ValueError(f"Hosts({count}): 1 to 200 hosts fit into 10.99.0.0/24.")
        self.count = count
        self.environment = dict(RAY_SETTINGS)
        self._keep_folders = keep_folders
        self._switch: Holder | None = None
        self._holders: list[Holder] = []
        self._started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        """Make the hosts and plug them in.

        Raises:
            RuntimeError: If it can't be done; nothing is left of it then.
        """
        if reason := why_not():
            raise RuntimeError(f"No hosts can be made here: {reason}")
        try:
            self._switch = Holder(enter_user_namespace(), self._keep_folders)
            token = self._switch.folder / "token"
            token.write_text(secrets.token_hex(32))
            token.chmod(0o600)
            self.environment["RAY_AUTH_TOKEN_PATH"] = str(token)
            ip(self._switch, ["link add name switch type bridge", "link set switch up"])
            for host in range(self.count):
                holder = Holder(self._switch.enter(network=False), self._keep_folders)
                self._holders.append(holder)
                port = f"port{host}"
                ip(self._switch, [holder.make_cable(port), f"link set {port} master switch up"])
                settings = [
                    f"address add {self.address(host)}/24 dev eth0",
                    "link set eth0 up",
                    "link set lo up",
                ]
                ip(holder, settings)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process of the hosts, and remove them."""
        self.close()

    def close(self) -> None:
        """End every process of the hosts, and remove them."""
        holders = [*self._holders, *([self._switch] if self._switch else [])]
        for holder in holders:
            holder.release()
        for holder in holders:
            holder.wait()
        for process in self._started:
            process.wait(timeout=END_SECONDS)
        self._holders, self._switch, self._started = [], None, []

    @staticmethod
    def address(host: int) -> str:
        """Return a host's address."""
        return f"10.99.0.{host + 1}"

    def folder(self, host: int) -> Path:
        """Return a host's folder, where Ray has its logs; it goes with the host."""
        return self._holders[host].folder

    def command(self, host: int, arguments: Sequence[str]) -> list[str]:
        """Return the command that becomes another one on a host: in the same process, with its number."""
        return [*self._holders[host].enter(), *arguments]

    def run(self, host: int, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a host.

        Args:
            host: Where.
            arguments: The command.
            **options: Those of `subprocess.Popen`. `env` is added to the environment, not put in its place.
        """
        environment = {**os.environ, **self.environment, **options.pop("env", {})}
        self._started.append(subprocess.Popen(self.command(host, arguments), env=environment, **options))
        return self._started[-1]

    def start_ray(self, cpus: Mapping[int, int], resources: Mapping[str, float] | None = None) -> None:
        """Start Ray on some hosts, side by side, and wait until it is up. Host 0 is the head.

        Args:
            cpus: Host → how many processors Ray is told that it has.
            resources: What else each of them has. Ray itself gives each the resource "node:ADDRESS".

        Raises:
            RuntimeError: If Ray isn't up after two minutes, or says why it can't be.
        """
        started = [(host, self._launch_ray(host, count, resources or {})) for host, count in cpus.items()]
        for host, process in started:
            try:
                said = process.communicate(timeout=START_SECONDS)[0]
                what = f"ended with exit status {process.returncode}" if process.returncode else ""
            except subprocess.TimeoutExpired:
                process.kill()
                said, what = process.communicate()[0], f"was not up after {START_SECONDS:.0f} s"
            if what:
                raise RuntimeError(
                    f"Ray on host {host} {what}. Its logs are in {self.folder(host)}/ray/session_latest/logs "
                    f"until the hosts end, and stay there with Hosts(keep_folders=True). It said:\n{said}"
                )

    def _launch_ray(self, host: int, cpus: int, resources: Mapping[str, float]) -> subprocess.Popen[str]:
        """Begin to start Ray on one host."""
        head = ["--head", f"--port={HEAD_PORT}", "--include-dashboard=false"]
        arguments = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start"),
            *(head if host == 0 else [f"--address={self.address(0)}:{HEAD_PORT}"]),
            *(f"--node-ip-address={self.address(host)}", f"--temp-dir={self.folder(host)}/ray"),
            *(f"--num-cpus={cpus}", f"--resources={json.dumps(dict(resources), allow_nan=False)}"),
            f"--object-store-memory={OBJECT_STORE_BYTES}",
        ]
        return self.run(host, arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def processes(self, host: int, named: str = "") -> list[int]:
        """Return the numbers of a host's processes whose command line contains some text; without, of all."""
        return [process for process in self._holders[host].processes() if named in command_line(process)]

    def kill(self, host: int, named: str = "") -> list[int]:
        """Kill a host's processes, as a power cut would, or those whose command line contains some text.

        Returns:
            Their numbers. The host can be used again: start something on it.
        """
        killed = self.processes(host, named)
        if named:
            end(killed)
        else:
            self._holders[host].kill_all()
        return killed

    def cut(self, host: int) -> None:
        """Pull the plug of a host's cable: what is sent to it or by it gets lost, and nobody is told."""
        self._set_port(host, "down")

    def heal(self, host: int) -> None:
        """Plug a host's cable in again."""
        self._set_port(host, "up")

    def _set_port(self, host: int, state: str) -> None:
        """Switch a port of the switch on or off."""
        if self._switch is None:
            raise RuntimeError("These hosts are not there. Use them inside `with Hosts() as hosts:`.")
        ip(self._switch, [f"link set port{host} {state}"])


def ip(where: Holder, commands: Sequence[str]) -> None:
    """Run commands of iproute2 in a namespace, all or up to the first that fails.

    Raises:
        RuntimeError: If one fails.
    """
    lines = "".join(f"{command}\n" for command in commands)
    done = subprocess.run(
        [*where.enter(), "ip", "-batch", "-"], input=lines, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip failed at {commands}: {done.stderr.strip()}")


def why_not() -> str | None:
    """Return why no hosts can be made here; None if they can."""
    if sys.platform != "linux":
        return "it needs Linux"
    if missing := [tool for tool in ("ip", "nsenter", "unshare") if not shutil.which(tool)]:
        return f"it needs {', '.join(missing)}, from iproute2 and util-linux"
    trial = [
        *enter_user_namespace(),
        *("unshare", "--net"),
        *("ip", "link", "add", "name", "trial0", "type", "bridge"),
    ]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    return (
        f"it needs root, or the right to make namespaces ({done.stderr.strip()})" if done.returncode else None
    )
