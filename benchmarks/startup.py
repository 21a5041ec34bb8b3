"""`python -m benchmarks startup`: start-up times in new processes.

Measures the imports of `replay_tutorial.buffers` and of NumPy and Numba, the time from the import to the
first sample, and the time from starting a spawned worker to its first row in a shared buffer. The first
sample is measured with an empty cache of compiled kernels (cold) and with a full one (warm). The start-up of
the interpreter isn't included.
"""

from collections.abc import Sequence
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measuring.fresh import run_fresh
from benchmarks.measuring.output import add_count, add_outputs, new_parser, write_results
from benchmarks.measuring.provenance import Provenance
from replay_course.number_tables import spread_text, table
from replay_course.timing import Spread

IMPORT = """
import sys
from importlib import import_module
from time import perf_counter
start = perf_counter()
for name in sys.argv[1:]:
    import_module(name)
print(perf_counter() - start)
"""
FIRST_SAMPLE = """
from time import perf_counter
start = perf_counter()
from replay_tutorial import PrioritizedReplayBuffer
buffer = PrioritizedReplayBuffer(1024, {"obs": {"shape": 4}, "reward": {}}, seed=0)
for step in range(64):
    buffer.add(obs=[step, 0, 0, 0], reward=1.0)
buffer.sample(32, beta=0.4)
print(perf_counter() - start)
"""
FIRST_ROW = """
from multiprocessing import get_context
from time import perf_counter
from replay_tutorial import MPPrioritizedReplayBuffer
if __name__ == "__main__":
    buffer = MPPrioritizedReplayBuffer(1024, {"obs": {"shape": 4}, "reward": {}})
    worker = get_context("spawn").Process(target=buffer.add, kwargs={"obs": [0.0] * 4, "reward": 1.0})
    start = perf_counter()
    worker.start()
    assert buffer.wait_for(1, timeout=300.0)
    print(perf_counter() - start)
    worker.join()
"""
FIRST_UNIFORM_SAMPLE = FIRST_SAMPLE.replace("PrioritizedReplayBuffer", "ReplayBuffer").replace(
    ", beta=0.4", ""
)
WARM = "import to first prioritized sample, warm"


def seconds_of(cache: str) -> dict[str, float]:
    """Return every start-up time in seconds, measured once; `cache` is an empty folder for kernels."""
    environment = {"NUMBA_CACHE_DIR": cache}
    with TemporaryDirectory() as empty:
        uniform = run_fresh("-c", FIRST_UNIFORM_SAMPLE, environment={"NUMBA_CACHE_DIR": empty})
    return {
        "import to first uniform sample, cold": uniform,
        "import to first prioritized sample, cold": run_fresh("-c", FIRST_SAMPLE, environment=environment),
        WARM: run_fresh("-c", FIRST_SAMPLE, environment=environment),
        "import replay_tutorial.buffers.prioritized": run_fresh(
            "-c", IMPORT, "replay_tutorial.buffers.prioritized"
        ),
        "import numpy and numba": run_fresh("-c", IMPORT, "numpy", "numba"),
        "spawned worker to its first row": run_fresh("-c", FIRST_ROW, environment=environment),
    }


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; return 1 if the table could not be written, else 0."""
    parser = new_parser("startup", "Measure start-up times in new processes.")
    add_count(parser, "--rounds", 5, "new processes per figure")
    add_outputs(parser, "startup")
    arguments = parser.parse_args(argv)
    rounds: list[dict[str, float]] = []
    for _ in range(arguments.rounds):
        with TemporaryDirectory() as cache:
            rounds.append(seconds_of(cache))
    spreads = {name: Spread.of(np.array([each[name] for each in rounds])) for name in rounds[0]}
    lines = table(["measured", "s"], [[name, spread_text(spread)] for name, spread in spreads.items()])
    about = f"Medians of {arguments.rounds} interleaved rounds of new processes, quartiles in brackets."
    body = {"seconds": spreads}
    return write_results(arguments, "startup", Provenance.of("startup", argv), body, lines, about)
