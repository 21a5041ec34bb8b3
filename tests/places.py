"""Where the project lies."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "replay_tutorial"
COURSE = ROOT / "replay_course"


def name_of(path: Path) -> str:
    """A module's name on the site: relative to the package, or to the root if it is in another folder."""
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()


def modules_in(*folders: Path) -> list[Path]:
    """Python files of both packages, or of some folders.

    What editors leave beside them is left out: `.#module.py`, `.ipynb_checkpoints/`.
    """
    return sorted(
        path
        for folder in folders or (PACKAGE, COURSE)
        for path in folder.rglob("*.py")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
