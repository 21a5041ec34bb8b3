"""A network namespace that ends with its harness, whatever ends that.

A namespace lives as long as a process in it. So each has a *holder*: a process that waits for the end of a
pipe from the harness. The pipe ends when the harness closes it, fails, or is killed. Then the holder kills
every process in its namespace, removes its folder, and ends; namespace and cables go with it.

Without root, all lies in one user namespace (user_namespaces(7)), whose maker is root in it.

This file is both ends: a class for the harness, and the holder's program. It imports nothing of the package.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

HERE = "/proc/self/ns/net"
READY = b"ready\n"
END_SECONDS = 30.0  # for the end of all processes of a namespace
POLL_SECONDS = 0.01


class Holder:
    """The process that holds a namespace, as its harness sees it.

    Attributes:
        folder: A folder of its own, which goes with it.
    """

    def __init__(self, prefix: Sequence[str], keep_folder: bool = False) -> None:
        """Make a namespace.

        Args:
            prefix: The command, such as `nsenter`, that starts the holder.
            keep_folder: Leave its folder behind.

        Raises:
            RuntimeError: If it can't be made.
        """
        # Ray has sockets in it, and a socket's path may have no more than 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix=f"host_{os.getpid()}_", dir="/tmp"))
        outside = os.readlink(HERE)
        keep = ["keep"] if keep_folder else []
        # In a session of its own it doesn't hear the Ctrl-C that ends the harness.
        self._process = subprocess.Popen(
            [*prefix, "unshare", "--net", sys.executable, "-I", __file__, outside, str(self.folder), *keep],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._number = self._process.pid
        if pipe(self._process.stdout).readline() != READY:
            self.release()
            self.wait()
            self.folder.rmdir()
            raise RuntimeError(f"No network namespace could be made: {self._process.args}")

    def make_cable(self, port: str) -> str:
        """Return the command of `ip` that makes a cable from a port of a switch to this namespace."""
        return f"link add {port} type veth peer name eth0 netns {self._number}"

    def enter(self, network: bool = True) -> list[str]:
        """Return what to put before a command to run it in this namespace; without the network, beside it."""
        user = ["--user", "--preserve-credentials"] if enter_user_namespace() else []
        which = [*user, *(["--net"] if network else [])]
        return ["nsenter", f"--target={self._number}", *which] if which else []

    def processes(self) -> list[int]:
        """Return the numbers of the processes in this namespace, but the holder."""
        return processes_beside(self._number)

    def kill_all(self) -> None:
        """Kill the processes in this namespace, but the holder."""
        kill_beside(self._number)

    def release(self) -> None:
        """Let the holder end what is in the namespace, and itself."""
        pipe(self._process.stdin).close()

    def wait(self) -> None:
        """Wait until all is gone."""
        self._process.wait(timeout=END_SECONDS)
        pipe(self._process.stdout).close()


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
        time.sleep(POLL_SECONDS)


def end(processes: Iterable[int]) -> None:
    """Kill processes, some of which may have ended meanwhile."""
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


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


def pipe(end: IO[bytes] | None) -> IO[bytes]:
    """Return an end of a pipe that is there."""
    assert end is not None
    return end


def hold(outside: str, folder: str, keep: bool) -> None:
    """Hold the namespace of this process until the pipe ends, and then clear it.

    Args:
        outside: The harness's own namespace, which must never be cleared.
        folder: What to remove.
        keep: Leave it there.
    """
    if os.readlink(HERE) == outside:
        sys.exit(f"{outside} is the namespace of the harness itself. Start the holder by `unshare --net`.")
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.read()
    kill_beside(os.getpid())
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    hold(sys.argv[1], sys.argv[2], keep="keep" in sys.argv[3:])
