"""Run the tests marked `learns` as other x86-64 processors do, and print which passed: `make processors`.

Tries six combinations of instructions and threads, in which each value occurs; with `--all`, all eighteen.
Other arguments are pytest's.

A sum of floats depends on the order of its terms. Libraries choose the order, and whether to fuse a product
and a sum, by the processor's instructions. Training multiplies such differences, so runs with the same seed
have different scores. The variables below limit libraries to older instructions; "trained" is a digest of
what the one-file DQN has learned after 1,500 steps.
"""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import torch
from numpy._core._multiarray_umath import __cpu_dispatch__ as numpy_features

os.chdir(Path(__file__).parents[1])
LEVELS = ["SSE4", "AVX2", "AVX512"]
NEWER = {"SSE4": ("",), "AVX2": ("AVX512", "X86_V4"), "AVX512": ()}  # prefixes of features of NumPy
FILES = [str(path) for path in Path("tests").rglob("test_*.py") if "mark.learns" in path.read_text("utf-8")]
TRAINED = """
import hashlib, torch
from replay_course.steps.learning.one_file_dqn import train
parameters = torch.nn.utils.parameters_to_vector(train(0, 1_500)[0].parameters())
print(hashlib.sha256(parameters.detach().numpy()).hexdigest()[:8])
"""


def variables(pytorch: str, others: str, threads: int) -> dict[str, str]:
    """Return the environment of a process that computes like a processor with these instructions."""
    isa = {"SSE4": "SSE4_2"}.get(others, others)
    limits = {
        "ATEN_CPU_CAPABILITY": {"SSE4": "default"}.get(pytorch, pytorch.lower()),
        "MKL_ENABLE_INSTRUCTIONS": isa,  # on Intel's processors only
        "ONEDNN_MAX_CPU_ISA": {"SSE4": "SSE41", "AVX512": "AVX512_CORE"}.get(others, others),
        "XLA_FLAGS": f"--xla_cpu_max_isa={isa}",
        "NPY_DISABLE_CPU_FEATURES": " ".join(
            name for name in numpy_features if name.startswith(NEWER[others])
        ),
        "OMP_NUM_THREADS": str(threads),
    }
    if others == "SSE4":
        limits["MKL_CBWR"] = "COMPATIBLE"  # on all processors
    return os.environ | limits


def run(pytorch: str, others: str, threads: int, arguments: list[str]) -> bool:
    """Run the tests, and print a row of the table and the report of a failure; return whether all passed."""
    print(f"{pytorch:<8} {others:<24} {threads:>7}  ", end="", flush=True)
    environment = variables(pytorch, others, threads)

    def python(*command: str) -> subprocess.CompletedProcess[str]:
        command = (sys.executable, *command)
        return subprocess.run(command, check=False, env=environment, stdout=subprocess.PIPE, text=True)

    print(f"{python('-c', TRAINED).stdout.strip():<8}  ", end="", flush=True)
    tests = python("-m", "pytest", "-m", "learns", "-q", "-p", "no:cacheprovider", *FILES, *arguments)
    print((tests.stdout.splitlines() or [""])[-1].strip("= "), flush=True)
    if tests.returncode:
        print(tests.stdout)
    return tests.returncode == 0


if __name__ == "__main__":
    known = torch.backends.cpu.get_cpu_capability().replace("DEFAULT", "SSE4")
    if known not in LEVELS:
        sys.exit(f"PyTorch uses {known} here; only the instructions of x86-64 can be limited.")
    levels = LEVELS[: LEVELS.index(known) + 1]
    count, every = len(levels), "--all" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    print("PyTorch  MKL, oneDNN, XLA, NumPy  threads  trained   tests")
    passed = [
        run(levels[one], levels[other], threads, arguments)
        for one, other, threads in product(range(count), range(count), (1, 2))
        if every or ((shift := (one - other) % count) < 2 and threads == 1 + (one + shift) % 2)
    ]
    sys.exit(not all(passed))
