"""Record how the recurrent state at the start of a window affects learning, for chapter 09.

    python chapters/records/recurrent_state.py

Each agent is trained with several seeds and a buffer of 50 walks; those with stored states also with a buffer
of all walks. ΔQ is measured for the agent with stored states, a burn-in and 50 walks, on all its walks.

The script writes the record after each agent. If you interrupt it, run it again to record the others.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring.provenance import Provenance
from replay_course.cue_corridor import STARTS, UPDATES, UPDATES_PER_WALK, discrepancy_by_age, train, value_gap

SCRIPT = "chapters/records/recurrent_state.py"
AGENTS = {"50 walks": list(STARTS), "all walks": ["stored", "stored, burn-in"]}  # kept → starts
KEPT = {"50 walks": 50, "all walks": UPDATES // UPDATES_PER_WALK}
Ages = dict[str, list[list[float]]]  # start → bins × ΔQ at the first and the last step


def record_agent(kept: str, start: str, seed: int) -> tuple[float, Ages]:
    """Train an agent; return its value gap and, for one of the agents, ΔQ by age of the stored states."""
    torch.set_num_threads(1)  # more threads don't speed up a network this small
    trained = train(start, seed, kept=KEPT[kept])
    ages: Ages = {}
    if (kept, start) == ("50 walks", "stored, burn-in"):
        for each in STARTS:
            bins = discrepancy_by_age(trained, each)[:, [0, -1]]
            ages[each] = [[round(float(error), 4) for error in errors] for errors in bins]
    return round(value_gap(trained.network), 3), ages


def main(argv: Sequence[str]) -> None:
    """Train all agents, and write the record."""
    description = "Record the value gaps and ΔQ of chapter 09."
    parser = argparse.ArgumentParser(prog=f"python {SCRIPT}", description=description)
    parser.add_argument("--seeds", type=int, default=10, help="seeds per agent")
    parser.add_argument("--processes", type=int, default=2, help="number of parallel processes")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "recurrent_state.json")
    given = parser.parse_args(argv)
    record: dict[str, Any] = {
        **Provenance.of_command(["python", SCRIPT, *argv], ("torch",))._asdict(),
        "updates": UPDATES,
        "gaps": {kept: {} for kept in AGENTS},
        "discrepancies": {},
    }
    if given.output.exists():
        record |= json.loads(given.output.read_text(encoding="utf-8"))
    missing = [
        (kept, start) for kept in AGENTS for start in AGENTS[kept] if start not in record["gaps"][kept]
    ]
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        jobs = [[pool.submit(record_agent, *agent, seed) for seed in range(given.seeds)] for agent in missing]
        for (kept, start), agents in zip(missing, jobs, strict=True):
            gaps, ages = zip(*(job.result() for job in agents), strict=True)
            record["gaps"][kept][start] = gaps
            record["discrepancies"] |= {each: [seed[each] for seed in ages] for each in ages[0]}
            given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{given.output}: {start}, {kept}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
