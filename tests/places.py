"""Where the project lies."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "replay_tutorial"
COURSE = ROOT / "replay_course"


def modules_in(folder: Path = PACKAGE) -> list[Path]:
    """Python files, without what editors leave beside them: `.#module.py`, `.ipynb_checkpoints/`."""
    return sorted(
        path
        for path in folder.rglob("*.py")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    )
