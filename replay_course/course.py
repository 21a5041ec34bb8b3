"""Your code replaces ours: the folder `my_replay/`, in which the checks store what you write in the chapters.

    ring = part("ring")

returns the class that the check of chapter 01 has accepted and stored, or the package's, and prints which.
Without the folder, nothing is stored, and every part is the package's.
"""

import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from replay_course.course_source import NotStorable, module_source
from replay_course.exercises import CheckFailed, expect_written

VARIABLE = "REPLAY_COURSE"  # the folder that contains my_replay/; if empty, nothing is stored or imported
CHECKS = "replay_course.exercises_"
ACCEPTED = "# Accepted by {check}. Hashes of the lines above and of the check: {text} {of_check}\n"
HASHES = re.compile(r"^# Accepted by .*: ([0-9a-f]{12}) ([0-9a-f]{12})\n\Z", re.MULTILINE)
USES = re.compile(r"^from my_replay\.(\w+) import", re.MULTILINE)  # another part
loaded: dict[Path, str] = {}  # the files of my_replay/ when they were imported


class Part(NamedTuple):
    """A part that a chapter lets you write.

    Attributes:
        chapter: Number of the chapter.
        name: Name of your class or function.
        check: Its check, as `topic:function` for a function of `exercises_topic.py`.
        ours: The version that is used otherwise, as `module:name`.
    """

    chapter: str
    name: str
    check: str
    ours: str


PARTS = {  # name of the part and of its module in my_replay/
    "q_learning": Part(
        "00",
        "MyQLearning",
        "why_replay:check_update",
        "replay_course.steps.learning.online_q_learning:OnlineQLearning",
    ),
    "ring": Part("01", "MyRing", "uniform:check_ring", "replay_course.steps.uniform:RingOfArrays"),
    "n_step": Part(
        "02",
        "MyNStepStream",
        "episodes:check_n_step_stream",
        "replay_course.steps.learning.n_step_stream:NStepStream",
    ),
    "sum_tree": Part(
        "04", "MySumTree", "sum_tree:check_find", "replay_course.steps.prioritized:PlainSumTree"
    ),
    "minimum": Part(
        "04",
        "my_set_minimum",
        "sum_tree:check_minimum",
        "replay_course.steps.prioritized.tree_with_minimum:set_minimum",
    ),
    "prioritized": Part(
        "05",
        "MyPrioritizedReplay",
        "prioritized:check_prioritized",
        "replay_tutorial.buffers.prioritized:PrioritizedReplayBuffer",
    ),
    "reader": Part(
        "06", "my_read", "shared:check_reader", "replay_course.steps.shared.stamped_priorities:read_row"
    ),
    "limiter": Part(
        "07", "MyLimiter", "apex:check_limiter", "replay_tutorial.shared.limiter:SamplesPerInsert"
    ),
    "corridor": Part("08", "MyCorridor", "training:check_corridor", "replay_course.environments:Corridor"),
    "windows": Part(
        "09", "MyWindows", "sequences:check_windows", "replay_course.steps.sequences:WindowsOfEpisodes"
    ),
    "goals": Part(
        "10", "my_relabel", "goals:check_relabel", "replay_course.steps.goals.relabel_at_the_end:relabel"
    ),
}
LAST_LINES = {  # of a module
    "corridor": '\n\ngymnasium.register("My-v0", MyCorridor, max_episode_steps=50)\n'
}


def check_written(check: Callable[[Any], Any], written: Any) -> None:
    """Check a class or a function that the reader writes, and store it in `my_replay/` if it is accepted.

    Args:
        check: Called with `written` when nothing in it is empty.
        written: The reader's class or function.

    Raises:
        NotYet: If the function, or a method of the class or of its bases, is still empty.
        CheckFailed: If the check fails.
    """
    expect_written(written)
    check(written)
    store(check, written)


def part(name: str) -> Any:
    """Return your version of a part if `my_replay/` contains it, otherwise the package's, and print which.

    A version that was edited, or accepted by an older check, is checked again.

    Args:
        name: Name of the part, such as "ring".

    Raises:
        CheckFailed: If your version can't be imported, or fails its check.
    """
    found, folder = PARTS[name], find_folder()
    file = Path() if folder is None else folder / f"{name}.py"
    if not file.is_file():
        ours = import_named(found.ours)
        print(f"{name}: the package's {ours.__name__}")
        return ours
    for used in USES.findall(file.read_text(encoding="utf-8", errors="replace")):
        import_checked(used, file.with_name(f"{used}.py"))
    yours = import_checked(name, file)
    print(f"{name}: your {found.name}, from my_replay/{name}.py")
    return yours


def import_checked(name: str, file: Path) -> Any:
    """Import your version of a part; check it again if it was edited, or if the check has changed."""
    found = PARTS[name]
    try:
        yours = getattr(load(file), found.name)
        if state_of(name, file) != "stored":
            expect_written(yours)
            import_named(f"{CHECKS}{found.check}")(yours)
    except Exception as error:
        raise CheckFailed(
            f"{file}: {type(error).__name__}: {error}\nCorrect the file, or delete it and run the check of "
            f"chapter {found.chapter} again. Without the file, the package's version is used."
        ) from error
    return yours


def store(check: Callable[[Any], Any], accepted: Any) -> None:
    """Store the source of an accepted class or function in `my_replay/`, if the folder and the part exist.

    A file that was edited by hand is kept.
    """
    function, folder = getattr(check, "__name__", ""), find_folder()
    place = f"{getattr(check, '__module__', '')}:{function}"
    name = next((name for name, each in PARTS.items() if place == CHECKS + each.check), None)
    if name is None or folder is None:
        return
    file, short = folder / f"{name}.py", f"my_replay/{name}.py"
    try:
        if state_of(name, file) == "edited":
            print(f"{short} was edited by hand, so it is kept. To store this version, delete the file first.")
            return
        about = f'"""Accepted by the check of chapter {PARTS[name].chapter}."""\n\n'
        text = about + module_source(PARTS[name].name, accepted) + LAST_LINES.get(name, "")
        last = ACCEPTED.format(check=function, text=hash_of(text), of_check=hash_of_check(name))
        write(file, text + last)
    except (NotStorable, OSError) as error:
        print(f"accepted, but not stored in {short}: {error}")
    else:
        print(f"stored in {short}")


def is_yours(thing: Any) -> bool:
    """Return whether a class or a function is from `my_replay/`."""
    return thing.__module__.startswith("my_replay.")


def find_folder() -> Path | None:
    """Return the folder `my_replay` in `REPLAY_COURSE`, or in the current folder or the nearest parent.

    Raises:
        FileNotFoundError: If the variable is set, but there is no `my_replay/` in its folder.
    """
    place = os.environ.get(VARIABLE)
    if place == "":
        return None
    places = [Path.cwd(), *Path.cwd().parents] if place is None else [Path(place).absolute()]
    folder = next((each for each in places if (each / "my_replay" / "__init__.py").is_file()), None)
    if folder is None and place is not None:
        raise FileNotFoundError(
            f"{VARIABLE} is {place}, which contains no my_replay/. Create it with `python -m replay_tutorial "
            f"course start {place}`, or unset the variable."
        )
    return None if folder is None else folder / "my_replay"


def state_of(name: str, file: Path) -> str:
    """Return the state of your version of a part: missing, stored, edited, or "older check"."""
    if not file.is_file():
        return "missing"
    text = file.read_text(encoding="utf-8", errors="replace")
    hashes = HASHES.search(text)
    if hashes is None or hash_of(text[: hashes.start()]) != hashes[1]:
        return "edited"
    return "stored" if hash_of_check(name) == hashes[2] else "older check"


def hash_of(text: str) -> str:
    """Return twelve digits that identify a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def hash_of_check(name: str) -> str:
    """Return the hash of the module with a part's check."""
    topic = PARTS[name].check.partition(":")[0]
    return hash_of(Path(__file__).with_name(f"exercises_{topic}.py").read_text(encoding="utf-8"))


def import_named(place: str) -> Any:
    """Import `module:name`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def load(file: Path) -> Any:
    """Import a module of `my_replay/`, and all others again if a file has changed."""
    texts = {path: path.read_text(encoding="utf-8") for path in file.parent.glob("*.py")}
    if texts != loaded:
        for name in [name for name in sys.modules if name.partition(".")[0] == "my_replay"]:
            del sys.modules[name]
        loaded.clear()
        loaded.update(texts)
        importlib.invalidate_caches()
    folder = str(file.parents[1])
    if sys.path[0] != folder:
        sys.path.insert(0, folder)  # processes that start later inherit it
    return importlib.import_module(f"my_replay.{file.stem}")


def write(file: Path, text: str) -> None:
    """Replace a module, completely or not at all."""
    draft = file.with_suffix(".tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
    # Its compiled version counts as up to date if the two were written in the same second and are as long.
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
