"""Several hosts on one machine: each has a network and a folder of its own, and can die.

A host is a network namespace (network_namespaces(7)) with one cable to a switch, which is a bridge in a
namespace of its own. The machine's own network gets no interface, and nothing has a name that two harnesses
could share.

    with Hosts(3) as hosts:
        hosts.start_ray({0: 0, 1: 2, 2: 2})  # the head is at 10.99.0.1:6379, and has no processor for tasks
        hosts.run(0, [sys.executable, "train.py"]).wait()
        hosts.cut(2)

A namespace lives as long as a process in it. So each has a *holder*: this file as a program, which waits for
the end of a pipe from the harness. The pipe ends when the harness closes it, fails, or is killed. Then the
holder kills every process in its namespace, removes its folder, and ends; namespace and cables go with it.
Without root, all lies in one user namespace (user_namespaces(7)), whose maker is root in it.

Left out: memory, file system and process numbers, which all hosts share; delays and losses on the cables.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

HEAD_PORT = 6379
START_SECONDS = 120.0  # for Ray on all hosts; three took 9 s on two idle cores, 50 s on very busy ones
END_SECONDS = 30.0  # for the end of all processes of a namespace
OBJECT_STORE_BYTES = 256 << 20  # a host; Ray would take a third of the machine for each of them
# Ray's health checks detect dead hosts and cut cables sooner than by default (docs/many_machines.md). With
# lower values, Ray would declare an overloaded host dead.
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
HERE = "/proc/self/ns/net"
READY = b"ready\n"


class Holder:
    """The process that holds a namespace, as its harness sees it, and its folder, which goes with it."""

    def __init__(self, prefix: Sequence[str]) -> None:
        """Make a namespace; `prefix` is the command, such as `nsenter`, that starts the holder."""
        # Ray has sockets in it, and a socket's path may have no more than 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix=f"host_{os.getpid()}_", dir="/tmp"))
        command = ["unshare", "--net", sys.executable, "-I", __file__, os.readlink(HERE), str(self.folder)]
        # In a session of its own it doesn't hear the Ctrl-C that ends the harness.
        self.process = subprocess.Popen(
            [*prefix, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        if self.process.stdout.readline() != READY:
            self.release()
            self.wait()
            self.folder.rmdir()
            raise RuntimeError(f"No network namespace could be made: {self.process.args}")

    def enter(self, network: bool = True) -> list[str]:
        """Return what to put before a command to run it in this namespace; without the network, beside it."""
        user = ["--user", "--preserve-credentials"] if enter_user_namespace() else []
        which = [*user, *(["--net"] if network else [])]
        return ["nsenter", f"--target={self.process.pid}", *which] if which else []

    def release(self) -> None:
        self.process.stdin.close()

    def wait(self) -> None:
        self.process.wait(timeout=END_SECONDS)
        self.process.stdout.close()


class Hosts:
    """Hosts 0, 1, ... at 10.99.0.1, 10.99.0.2, ..., addresses that only they know; `with` makes them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.environment = dict(RAY_SETTINGS)  # of all processes; `with` adds a token that only they have
        self._switch: Holder | None = None
        self._holders: list[Holder] = []
        self._started: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        """Make the hosts and plug them in; nothing is left of them if that fails."""
        if reason := why_not():
            raise RuntimeError(f"No hosts can be made here: {reason}")
        try:
            self._switch = Holder(enter_user_namespace())
            token = self._switch.folder / "token"
            token.write_text(secrets.token_hex(32))
            token.chmod(0o600)
            self.environment["RAY_AUTH_TOKEN_PATH"] = str(token)
            ip(self._switch, ["link add name switch type bridge", "link set switch up"])
            for host in range(self.count):
                holder = Holder(self._switch.enter(network=False))
                self._holders.append(holder)
                cable = f"link add port{host} type veth peer name eth0 netns {holder.process.pid}"
                ip(self._switch, [cable, f"link set port{host} master switch up"])
                address = f"address add {self.address(host)}/24 dev eth0"
                ip(holder, [address, "link set eth0 up", "link set lo up"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
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
        return f"10.99.0.{host + 1}"

    def folder(self, host: int) -> Path:
        """Return a host's folder, where Ray has its logs; it goes with the host."""
        return self._holders[host].folder

    def run(self, host: int, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a host; `env` is added to the environment, not put in its place."""
        environment = {**os.environ, **self.environment, **options.pop("env", {})}
        command = [*self._holders[host].enter(), *arguments]
        self._started.append(subprocess.Popen(command, env=environment, **options))
        return self._started[-1]

    def start_ray(self, cpus: Mapping[int, int]) -> None:
        """Start Ray on some hosts, side by side, and wait until it is up. Host 0 is the head.

        `cpus` says how many processors Ray is told that each host has.
        """
        started = [(host, self._launch_ray(host, count)) for host, count in cpus.items()]
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
                    f"until the hosts end. It said:\n{said}"
                )

    def _launch_ray(self, host: int, cpus: int) -> subprocess.Popen[str]:
        head = ["--head", f"--port={HEAD_PORT}", "--include-dashboard=false"]
        arguments = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start"),
            *(head if host == 0 else [f"--address={self.address(0)}:{HEAD_PORT}"]),
            *(f"--node-ip-address={self.address(host)}", f"--temp-dir={self.folder(host)}/ray"),
            *(f"--num-cpus={cpus}", f"--object-store-memory={OBJECT_STORE_BYTES}"),
        ]
        return self.run(host, arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def processes(self, host: int, named: str = "") -> list[int]:
        """Return the numbers of a host's processes whose command line contains some text; without, of all."""
        beside = processes_beside(self._holders[host].process.pid)
        return [process for process in beside if named in command_line(process)]

    def kill(self, host: int, named: str = "") -> list[int]:
        """Kill a host's processes, as a power cut would, or those whose command line contains some text.

        The host can be used again: start something on it.
        """
        killed = self.processes(host, named)
        if named:
            end(killed)
        else:
            kill_beside(self._holders[host].process.pid)
        return killed

    def cut(self, host: int) -> None:
        """Pull the plug of a host's cable: what is sent to it or by it gets lost, and nobody is told."""
        self._set_port(host, "down")

    def heal(self, host: int) -> None:
        self._set_port(host, "up")

    def _set_port(self, host: int, state: str) -> None:
        if self._switch is None:
            raise RuntimeError("These hosts are not there. Use them inside `with Hosts() as hosts:`.")
        ip(self._switch, [f"link set port{host} {state}"])


def ip(where: Holder, commands: Sequence[str]) -> None:
    """Run commands of iproute2 in a namespace, all or up to the first that fails."""
    lines = "".join(f"{command}\n" for command in commands)
    done = subprocess.run(
        [*where.enter(), "ip", "-batch", "-"], input=lines, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"ip failed at {commands}: {done.stderr.strip()}")


def why_not() -> str | None:
    """Return the reason why no hosts can be created here, or None if they can."""
    if sys.platform != "linux":
        return "it needs Linux"
    if missing := [tool for tool in ("ip", "nsenter", "unshare") if not shutil.which(tool)]:
        return f"it needs {', '.join(missing)}, from iproute2 and util-linux"
    trial = ["unshare", "--net", "ip", "link", "add", "name", "trial0", "type", "bridge"]
    command = [*enter_user_namespace(), *trial]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    refusal = f"it needs root, or the right to make namespaces ({done.stderr.strip()})"
    return refusal if done.returncode else None


def enter_user_namespace() -> list[str]:
    """Return what to put before a command that makes namespaces: nothing for root, who may."""
    return [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]


def processes_beside(holder: int) -> list[int]:
    """Return the numbers of the living processes in the holder's network namespace, but its own."""
    namespace = os.readlink(f"/proc/{holder}/ns/net")
    everybody = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [process for process in everybody if process != holder and namespace_of(process) == namespace]


def kill_beside(holder: int) -> None:
    """Kill the processes in the holder's network namespace until there are none but its own."""
    while processes := processes_beside(holder):  # again: one may have started another meanwhile
        end(processes)
        time.sleep(0.01)


def end(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def namespace_of(process: int) -> str | None:
    """Return the name of a process's network namespace; None if it has ended, or is not ours to ask."""
    try:
        return os.readlink(f"/proc/{process}/ns/net")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def command_line(process: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace").replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def hold(outside: str, folder: str) -> None:
    """Hold the namespace of this process until the pipe ends; then clear it, and remove the folder.

    The harness's own namespace, `outside`, must never be cleared.
    """
    if os.readlink(HERE) == outside:
        sys.exit(f"{outside} is the namespace of the harness itself. Start the holder by `unshare --net`.")
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.read()
    kill_beside(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    hold(*sys.argv[1:])
