"""The `course` command: `start` creates `my_replay/`, `status` lists your parts, `report` measures them."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from replay_course.course import PARTS, find_folder, part, state_of
from replay_course.exercises import CheckFailed
from replay_course.number_tables import spread_text, three_digits
from replay_course.timing import Spread, measure

INIT = '"""The parts that the checks of the chapters have accepted: one module each."""\n'
README = """\
# my_replay

When a check of a chapter accepts what you wrote, it stores it here, one module for each part. Later chapters
import your parts; for those that are missing, they use the package's.

You may edit a module: it is then checked again before a chapter uses it. To store another answer, delete the
module first.

    python -m replay_tutorial course status     lists the parts
    python -m replay_tutorial course report     measures yours beside the package's

Run both, and the notebooks, in the folder that contains `my_replay/` or below it; or set the environment
variable `REPLAY_COURSE` to that folder.
"""
STATES = {
    "missing": "–",
    "stored": "yours",
    "edited": "yours, edited: will be checked again",
    "older check": "yours, accepted by an older check: kept, and checked again before it is used",
}
WIDTH = 40  # of the longest bar
BATCH, CAPACITY = 64, 2**16  # of the prioritized buffers


def course(arguments: Sequence[str]) -> int:
    """Run the `course` command.

    Args:
        arguments: Command-line arguments after `course`.

    Returns:
        Exit status: 0, or 2 if the folder doesn't exist or can't be created, or if a part is broken.
    """
    parser = argparse.ArgumentParser(
        prog="python -m replay_tutorial course",
        description="Let the chapters use the code that you write in them.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    create = commands.add_parser("start", help="create the folder my_replay/ for your code")
    create.add_argument("folder", type=Path, nargs="?", default=Path(), metavar="FOLDER", help="where (here)")
    commands.add_parser("status", help="list the parts of the chapters, and those that you have written")
    commands.add_parser("report", help="measure your parts beside the package's and cpprb's record")
    options = parser.parse_args(arguments)
    try:
        if options.command == "start":
            start(options.folder)
            return 0
        folder = find_folder()
        if folder is None:
            raise FileNotFoundError(
                f"neither {Path.cwd()} nor a folder above it contains my_replay/. Go to the folder that "
                "does, or create it with `python -m replay_tutorial course start`."
            )
        (status if options.command == "status" else report)(folder)
    except (CheckFailed, OSError) as error:
        print(f"course {options.command}: {error}", file=sys.stderr)
        return 2
    return 0


def start(place: Path) -> None:
    """Create `my_replay/` in a folder; change nothing if it exists."""
    folder = place.absolute() / "my_replay"
    if (folder / "__init__.py").is_file():
        print(f"{folder} exists already; `course status` lists its parts")
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(README, encoding="utf-8")
    (folder / "__init__.py").write_text(INIT, encoding="utf-8")
    print(f"created {folder}. Run the notebooks in {place.absolute()} or below it.")


def status(folder: Path) -> None:
    """Print the state of each part."""
    print(f"{folder}\n\nchapter  part         yours")
    for name, each in PARTS.items():
        print(f"{each.chapter:7}  {name:11}  {STATES[state_of(name, folder / f'{name}.py')]}")
    done = sum((folder / f"{name}.py").is_file() for name in PARTS)
    print(f"\n{done} of {len(PARTS)} parts")


def report(folder: Path) -> None:
    """Measure the stored ring, tree and prioritized buffer beside the package's, and draw the ladders."""
    yours = {name for name in PARTS if (folder / f"{name}.py").is_file()}
    if not yours & {"ring", "sum_tree", "prioritized"}:
        print(
            "nothing to measure yet: the checks of chapters 01, 04 and 05 store a ring, a tree and a buffer"
        )
        return
    from replay_course import load_record

    record = load_record("bench")
    about = f"{record['date']}, {record['machine']['processor']}"
    ratios = {row["operation"]: row["ratios"]["cpprb"]["median"] for row in record["rows"]}
    if "ring" in yours:
        from replay_course.ladder import Rung
        from replay_course.ladder_uniform import ADD, RUNGS, SAMPLE, uniform_ladder

        ladder = uniform_ladder(rungs=[*RUNGS[:3], Rung(part("ring"), "yours"), *RUNGS[3:]])
        for operation, recorded in [(ADD, "add 1, uniform"), (SAMPLE, "sample 256, uniform")]:
            draw(operation, ladder.spreads(operation), ratios[recorded], about)
    if "sum_tree" in yours:
        from replay_course.ladder import Rung
        from replay_course.ladder_sum_tree import RUNGS as TREES
        from replay_course.ladder_sum_tree import sum_tree_ladder

        rungs = [*TREES[1:3], Rung(part("sum_tree"), "yours"), *TREES[3:]]
        ladder = sum_tree_ladder(2**16, rungs=rungs)
        for operation in ("find 512", "set 512"):
            draw(operation, ladder.spreads(operation))
        print(
            "\nPython interprets each step of your `find`, for one query after the other. The package's is a "
            "single compiled kernel."
        )
    if "prioritized" in yours:
        figures = prioritized_times()
        ratio = ratios[f"sample {BATCH} + update {BATCH}, prioritized"]
        draw(f"sample({BATCH}) and update_priorities", figures, ratio, about)


def prioritized_times() -> dict[str, Spread]:
    """Measure a draw and an update of both prioritized buffers, in µs."""
    import numpy as np

    from replay_tutorial import PrioritizedReplayBuffer

    def call(kind: Any) -> Any:
        rng = np.random.default_rng(0)
        buffer = kind(CAPACITY, {"reward": {}}, seed=0)
        buffer.add(reward=np.zeros(CAPACITY), priorities=rng.random(CAPACITY))
        return lambda: buffer.update_priorities(buffer.sample(BATCH)["indexes"], rng.random(BATCH))

    kinds = [part("prioritized"), PrioritizedReplayBuffer]
    seconds = measure({kind.__name__: call(kind) for kind in kinds}, rounds=15)
    return {name: Spread.of(each * 1e6) for name, each in seconds.items()}


def draw(title: str, figures: Mapping[str, Spread], cpprb: float = 0.0, about: str = "") -> None:
    """Print a ladder as bars of a logarithmic scale; the package's rung is the last.

    Args:
        title: The operation.
        figures: Name of the rung → µs.
        cpprb: Recorded ratio of cpprb's time to the package's; 0 without a record.
        about: Date and machine of the record.
    """
    import math

    *_, package = figures.values()
    rungs = {name: spread.median for name, spread in figures.items()}
    rungs |= {"cpprb": cpprb * package.median} if cpprb else {}
    lowest, highest = min(rungs.values()), max(rungs.values())
    print(f"\n{title}, µs (quartiles), on a logarithmic scale")
    for name, value in rungs.items():
        length = 1 + (WIDTH - 1) * math.log(value / lowest) / max(math.log(highest / lowest), 1e-9)
        note = f"  {cpprb:.2f} times the package's, as recorded: {about}" if name == "cpprb" else ""
        yours = "  yours" if name.startswith("My") else ""
        spread = spread_text(figures[name]) if name in figures else three_digits(value)
        print(f"{name:24} {spread:>24}  {'█' * round(length)}{yours}{note}")
