"""The script by which a reader makes three hosts by hand does what it says."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hosts import why_not
from places import ROOT

SCRIPT = ROOT / "docs" / "assets" / "three_hosts.sh"

# Names of its own for namespaces, which lie in /run, and numbers of its own for processes: whatever happens,
# all ends with the first of them.
APART = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]
NAMES = r"""
mount -t tmpfs names /run
"$@" || exit 1
for _ in $(seq 1800); do cat /proc/[0-9]*/comm | grep -qE "raylet|gcs_server" || break; sleep 0.1; done
printf "%s\n" "$(ip netns list)" "$(ls "$TMPDIR")" "$(cat /proc/[0-9]*/comm | tr '\n' ' ')"
"""


@pytest.mark.skipif(why_not() is not None, reason=f"hosts: {why_not()}")
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="ip netns needs root")
def test_three_hosts_made_by_hand_have_ray_and_leave_nothing() -> None:
    for module in ("ray", "torch", "tyro"):
        pytest.importorskip(module, reason="needs the extra `cluster`")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # Ray needs short names
        # Asked for help, train ends at once; whole runs on such hosts are those of `cluster_faults.py`.
        result = subprocess.run(
            [*APART, NAMES, "sh", "bash", str(SCRIPT), "--help"],
            env={
                **os.environ,
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
                "PATH": programs,
                "PYTHONPATH": modules,
                "TMPDIR": folder,
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    started = result.stdout + result.stderr
    assert started.count("Ray runtime started") == 3
    assert "usage: python -m replay_tutorial train" in result.stdout
    namespaces, folders, processes = result.stdout.splitlines()[-3:]
    assert (namespaces, folders) == ("", "")
    assert "cat" in processes
    assert "raylet" not in processes
    assert "gcs_server" not in processes
